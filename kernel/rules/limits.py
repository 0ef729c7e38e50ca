"""Rules for limits that operators change while the system runs, and for pauses of queues."""

from collections.abc import Iterator

from holdfast.kernel.commands import FollowUp, LimitClear, LimitSet, LimitStored
from holdfast.kernel.composed_searches import LinesOfLimit
from holdfast.kernel.limits.limit_names import LimitKind, ParsedLimit, parsed_limit
from holdfast.kernel.limits.overrides import is_queue_paused
from holdfast.kernel.limits.rates import Rates
from holdfast.kernel.rules.leases import job_hints
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import Job, JobKey, JobState
from holdfast.ports.records.limits import LimitName, LimitRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint

_RATED = frozenset({LimitKind.STAGE, LimitKind.STEP, LimitKind.RATE, LimitKind.RUN_RATE})
_ONLY_RATED = frozenset({LimitKind.RATE, LimitKind.RUN_RATE})


def reads_of_limit(command: LimitSet | LimitClear) -> Reads:
    """Lock the limit, and search for what the change may release. Raises InvalidCommandError."""
    parsed = parsed_limit(command.name)
    if isinstance(command, LimitSet):
        check_values(parsed, command)
    name = LimitName(command.namespace, parsed.name)
    is_pause = isinstance(command, LimitSet) and bool(command.paused)
    return Reads(limits=(name,), search=None if is_pause else _lines(command, parsed))


def _lines(command: LimitSet | LimitClear, parsed: ParsedLimit) -> LinesOfLimit:
    return LinesOfLimit(
        namespace=command.namespace, name=parsed.name, after=command.after, limit=command.limit
    )


def check_values(parsed: ParsedLimit, command: LimitSet) -> None:
    """Raise InvalidCommandError for values that a limit of this kind does not have, with what to write instead."""
    kind, has_rate = parsed.kind, command.rate_limit is not None or command.rate_period is not None
    if (command.rate_limit is None) is not (command.rate_period is None):
        raise InvalidCommandError("a rate is a number of starts and a period: give both, such as 300 in 1m")
    if kind is LimitKind.QUEUE:
        if command.slots is not None or has_rate:
            raise InvalidCommandError(
                f"{parsed.name} is a queue, which can only be paused: give paused=True or False; limits belong to "
                "stages, steps, rates and runs"
            )
        if command.paused is None:
            raise InvalidCommandError(f"nothing is set for {parsed.name}: give paused=True or paused=False")
        return
    if command.paused is not None:
        raise InvalidCommandError(
            f"{parsed.name} is not a queue, and only queues can be paused: give slots=0, which admits nothing more, "
            "or pause the queue that its jobs are in, such as queue:default"
        )
    if has_rate and kind not in _RATED:
        raise InvalidCommandError(
            f"{parsed.name} has slots and no rate: give slots=..., or set the rate of rate:<name>, "
            "run-rate:<name>, stage:<workflow>/<stage> or step:<step>"
        )
    if command.slots is not None and kind in _ONLY_RATED:
        raise InvalidCommandError(
            f"{parsed.name} has a rate and no slots: give rate=..., or set the slots of stage:<workflow>/<stage>, "
            "step:<step> or run:<concurrency key>"
        )
    if command.slots is None and not has_rate:
        only_slots = {LimitKind.RUN: "slots=...", LimitKind.SLOTS: "slots=..."}
        only_rates = dict.fromkeys(_ONLY_RATED, "rate=...")
        what = {**only_slots, **only_rates}.get(kind, "slots=... or rate=...")
        raise InvalidCommandError(f"nothing is set for {parsed.name}: give {what}")


def decide_set(state: State, command: LimitSet, now: Micros, _: Ids) -> Decision[LimitStored]:
    """Store the limit, and release what waited for it. Raises InvalidCommandError."""
    parsed = parsed_limit(command.name)
    name = LimitName(command.namespace, parsed.name)
    known = state.tables.limits.get(name)
    before = known or LimitRow(namespace=name.namespace, name=name.name, updated_at=now)
    after = evolve(
        before,
        slots=before.slots if command.slots is None else command.slots,
        rate_limit=before.rate_limit if command.rate_limit is None else command.rate_limit,
        rate_period=before.rate_period if command.rate_period is None else command.rate_period,
        is_paused=before.is_paused if command.paused is None else int(command.paused),
    )
    is_changed = after != before or (after.is_in_force and command.reason not in ("", before.reason))
    return _stored(state, command, parsed, known, after if is_changed else None, now)


def decide_clear(state: State, command: LimitClear, now: Micros, _: Ids) -> Decision[LimitStored]:
    """Clear what is set, and release what waited for it. The row stays, with the actor who cleared it."""
    parsed = parsed_limit(command.name)
    known = state.tables.limits.get(LimitName(command.namespace, parsed.name))
    after = None
    if known is not None and known.is_in_force:
        after = evolve(known, slots=None, rate_limit=None, rate_period=None, is_paused=0)
    return _stored(state, command, parsed, known, after, now)


def _stored(
    state: State,
    command: LimitSet | LimitClear,
    parsed: ParsedLimit,
    known: LimitRow | None,
    after: LimitRow | None,
    now: Micros,
) -> Decision[LimitStored]:
    """Return the decision that stores a row, unless it is None, and releases what the search has found."""
    changes: list[Change] = []
    hints: list[Hint] = []
    if after is not None:
        actor = command.actor or Actor()
        row = evolve(
            after,
            reason=command.reason,
            actor_kind=actor.kind,
            actor_id=actor.id,
            actor_version=actor.version,
            updated_at=now if known is None else max(now, known.updated_at),
        )
        changes.append(Insert(row) if known is None else Update(row))
    found = state.found.get(_lines(command, parsed))
    if found is None:
        return Decision(LimitStored(name=parsed.name, changed=bool(changes)), tuple(changes))
    if parsed.kind is LimitKind.QUEUE:
        was_paused = is_queue_paused(state.tables.limits, command.namespace, parsed.names[0])
        is_released = bool(command.after) or (was_paused and after is not None)
        hints += (hint for job in found.queued if is_released for hint in job_hints(job))
        reply = LimitStored(name=parsed.name, changed=bool(changes), next=found.next if is_released else None)
        return Decision(reply, tuple(changes), tuple(hints))
    rates = Rates(state.tables, now)
    woken = [*_woken(state, found.jobs, rates, now)]
    match parsed.kind:
        case LimitKind.RUN:
            follow_up = FollowUp(runs=found.lines)
        case LimitKind.RUN_RATE:
            follow_up = FollowUp(rates=found.lines)
        case _:
            follow_up = FollowUp(jobs=found.lines)
    reply = LimitStored(
        name=parsed.name, changed=bool(changes), next=found.next if woken else None, follow_up=follow_up
    )
    return Decision(reply, (*map(Update, woken), *changes, *rates.changes()))


def _woken(state: State, keys: tuple[JobKey, ...], rates: Rates, now: Micros) -> Iterator[Job]:
    """Yield the jobs that sleep until a rate allows the next start: they wait in line again, by the new rate."""
    for key in keys:
        job = state.tables.job(key)
        window = None if job is None or job.rate is None else rates.window(job.rate)
        if job is None or job.rate is None or window is None:
            continue
        if job.state is JobState.SLEEPING and job.wake_at == window.wakes_at and window.wakes_at is not None:
            rates.wake(job.rate, now)
            yield evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.LIMITED), wake_at=None)
