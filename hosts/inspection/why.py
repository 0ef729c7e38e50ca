"""`holdfast why`: explains what a run waits for, which worker runs it, and what blocks it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from itertools import groupby
from typing import Final

import attrs

from holdfast.hosts.inspection.limits import pause_text, rate_text, slots_text
from holdfast.hosts.inspection.open_calls import OpenCalls, OpenStep, open_calls_of
from holdfast.hosts.inspection.rate_lines import RateLine, rate_line
from holdfast.hosts.inspection.run_info import canceller_of, end_cause, ended_reason, error_of, newest_runs
from holdfast.hosts.inspection.slot_lines import SlotLine, slot_lines
from holdfast.hosts.inspection.workers import Fleet, fleet_of, unserved_text
from holdfast.hosts.text import format_duration, format_instant
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.scheduled_runs import Scheduled, scheduled_from
from holdfast.kernel.dispatch.unreadable_runs import failed_decision, unreadable_of
from holdfast.kernel.history import events
from holdfast.kernel.limits.concurrency import shared_slots
from holdfast.kernel.limits.overrides import applied, is_queue_paused, names_of
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.kernel.pipelines.plan import MapPlan, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.runs.reply_deliveries import reply_delivery_of
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import InvalidCommandError, UnknownPlanError, UnreadableRowError
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.limits import BEFORE_MAX
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState, attempts_text, remote_stage_of, step_of
from holdfast.ports.records.limits import LimitName, LimitRow, RateWindow, levels_of, queue_limit, run_limit
from holdfast.ports.records.run import TERMINAL, Run, RunStatus, outer_limits_of_waiter
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.topic import GROUP_CHANNEL, TOPIC_CHANNEL
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import LIMITS, RATES, SESSIONS
from holdfast.ports.unreadable import PARSE_ERRORS

RESUMED_BY_CODE: Final = frozenset(
    {"nondeterminism", "stuck", "unreadable_value", "unreadable_input", UnreadableRowError.code}
)
"""Codes of blocked runs that a deploy can fix, which a replay detects: no operator has to resume them."""
_ROWS_LOOKED_AT: Final = 200
"""How many history rows from the end are searched for the last errors."""

_ERRORS: Final = frozenset({events.StepRetrying.type, events.StageRetrying.type, events.StageFailed.type})
"""The types of the rows that record errors of attempts."""
_ITEMS_NAMED: Final = 3
"""How many map items, or calls of a step, are listed one by one."""
_ROWS_NAMED: Final = 5
"""How many unread messages are listed by their row numbers."""
_NAMED: Final = 3
"""How many channels, child runs, steps and code locations of a function are listed."""


@attrs.frozen(kw_only=True)
class WaitReason:
    """One reason why a run waits, or how it ended."""

    code: str
    """The kind of reason: `ended`, `delayed_start`, `gathering`, `concurrency_key`, `paused`, `blocked`, `running`,
    `step_running`, `worker_lost`, `queued`, `queue_paused`, `retry`, `external_work`, `child_run`, `waiting`,
    `cancelling`, `concurrency_limit`, `rate_limit`, `delivering`, `external_cancel`, `cleanup_failed`,
    `unread_messages`, `deadline`, `progress`, `unreadable`, `no_job` or `no_code`. Of a schedule: `next`, `late`,
    `paused`, `blocked`, `over`, `skipped` or `missed`."""
    text: str
    """The explanation, one sentence or more."""
    stage: str | None = None
    """The stage that the reason is about, if any."""
    until: datetime | None = None
    """The instant at which the wait ends without outside action, if it does. Aware, in UTC."""


@attrs.frozen(kw_only=True)
class RunReasons:
    """Why a run waits, or how it ended."""

    id: str
    """The run id."""
    status: RunStatus
    """Its status."""
    reasons: tuple[WaitReason, ...]
    """One for each cause."""
    scheduled: Scheduled | None = None
    """Which schedule started it, and for which time; None if none did."""


@attrs.frozen(kw_only=True)
class WhyFacts:
    """The facts from which the reasons for one run are derived."""

    run: Run
    now: Micros
    jobs: Sequence[Job] = ()
    """The jobs of the run."""
    holders: Mapping[str, Session] = attrs.field(factory=dict[str, Session])
    """The sessions that the jobs are leased to, by their ids."""
    children: Mapping[str, Run] = attrs.field(factory=dict[str, Run])
    """The child runs that it waits for, by their ids."""
    errors: Mapping[tuple[str, int | None], str] = attrs.field(factory=dict[tuple[str, "int | None"], str])
    """The last error of each stage and map item, and of each call of a step."""
    paused: HistoryRow | None = None
    """The last `run.paused` row."""
    blocked: HistoryRow | None = None
    """The last `run.blocked` row."""
    created: HistoryRow | None = None
    """The `run.created` row, unless many rows have followed."""
    run_attempts: int = 1
    """How many attempts the whole run may have."""
    retries: Mapping[Micros, str] = attrs.field(factory=dict[Micros, str])
    """Steps that a function retries, by the instant of the retry."""
    canceller: Actor | None = None
    """Who cancelled or terminated it; None if unknown."""
    left: Sequence[HistoryRow] = ()
    """Rows of external work that could not be cancelled."""
    totals: Mapping[str, tuple[int, int, int]] = attrs.field(factory=dict[str, tuple[int, int, int]])
    """For each open map: how many items there are, are done, and failed."""
    starts: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """For each stage that is a pipeline, the `<workflow>@<version>` that it starts."""
    zone: tzinfo | None = UTC
    """The time zone of instants in texts; None for the local one."""
    rates: Mapping[str, RateWindow] = attrs.field(factory=dict[str, RateWindow])
    """Rate limit windows, by the concurrency keys of the jobs under a rate limit."""
    has_code: bool = True
    """Whether this process has the run's code."""
    waits: OpenCalls | None = None
    """What its function waits for; None if unknown."""
    gather: GatherPlan | None = None
    """How its workflow gathers starts; None if it does not."""
    lines: Sequence[SlotLine] = ()
    """The lines for the slots of its concurrency key, the outermost first; empty if it does not wait for one."""
    fleet: Fleet | None = None
    """The live workers; None if no job waits for one."""
    rate_line: RateLine | None = None
    """The line for its rate of starts; None if it does not wait for that."""
    limits: Mapping[LimitName, LimitRow] = attrs.field(factory=dict[LimitName, LimitRow])
    """What operators have set for the limits that it waits for, and for the queues of its jobs."""


def reasons_of(core: Core, run: Run, zone: tzinfo | None = UTC) -> RunReasons:
    """Return why a run does not proceed, or its end, with the schedule that started it. See `why_of`."""
    scheduled = None
    with suppress(InvalidCommandError):
        scheduled = scheduled_from(run.scheduled)
    return RunReasons(id=run.id, status=run.status, reasons=why_of(core, run, zone), scheduled=scheduled)


def why_of(core: Core, run: Run, zone: tzinfo | None = UTC) -> tuple[WaitReason, ...]:
    """Return the reasons why a run does not proceed, or its end. Only reads, and takes no locks.

    Instants in the texts are in this time zone, the local one if None.
    """
    try:
        return reasons(_circumstances(core, run, zone))
    except (UnreadableRowError, UnknownPlanError, *PARSE_ERRORS) as error:
        return _unreadable(core, run, error, zone)


def _unreadable(core: Core, run: Run, error: Exception, zone: tzinfo | None) -> tuple[WaitReason, ...]:
    """Return the reasons for a run with unreadable rows."""
    found = unreadable_of(core.stores.persistence, (run.key,)) or (failed_decision(run.key, error),)
    texts = [str(one.error) for one in found[:_NAMED]]
    blocked = None
    with suppress(UnreadableRowError):
        blocked = blocked_text(core, run)
    facts = WhyFacts(run=run, now=micros(core.clock.now()), zone=zone)
    first: tuple[WaitReason, ...] = ()
    with suppress(*PARSE_ERRORS):
        first = tuple(_ended(facts)) if run.status in TERMINAL else ()
    causes = (blocked,) if blocked is not None and blocked not in texts else ()
    return (
        *first,
        *(WaitReason(code="blocked", text=f"It was blocked: {text}.") for text in causes),
        *(WaitReason(code="unreadable", text=f"{text}.") for text in texts),
    )


def _circumstances(core: Core, run: Run, zone: tzinfo | None) -> WhyFacts:
    persistence = core.stores.persistence
    jobs = persistence.read(JobsOfRun(run.key))
    rated = sorted({job.rate for job in jobs if job.rate is not None})
    windows = persistence.transact(lambda tx: tx.get(RATES, rated)) if rated else ()
    rows = persistence.read(HistoryOf(run.key, max(0, run.last_row - _ROWS_LOOKED_AT), _ROWS_LOOKED_AT))
    now = micros(core.clock.now())
    waits = open_calls_of(core, run, now) if any(job.kind is JobKind.WORKFLOW for job in jobs) else None
    awaited = [job.waiting_for or "" for job in jobs[:_ROWS_LOOKED_AT] if job.waits_for_child]
    plan = core.inputs.plan(run.plan)
    progress = progress_from(run.progress) if run.progress != "{}" else None
    return WhyFacts(
        run=run,
        now=now,
        jobs=jobs,
        holders=sessions_of(core, jobs),
        children=newest_runs(core, (*awaited, *(waits.children[:_NAMED] if waits else ()))),
        errors=_last_errors(rows),
        paused=_last(rows, events.RunPaused.type),
        blocked=_last(rows, events.RunBlocked.type),
        created=_last(rows, events.RunCreated.type),
        run_attempts=plan.run_attempts,
        retries=_retries(rows),
        canceller=canceller_of(rows),
        left=[row for row in rows if row.type == events.StageCancelFailed.type],
        totals={
            name: (node.map.total, node.map.done, node.map.failed)
            for name, node in (progress.nodes if progress else {}).items()
            if node.map is not None and isinstance(plan.nodes.get(name), MapPlan)
        },
        starts={
            name: f"{started.workflow}@{started.version}"
            for name, node in plan.nodes.items()
            if (started := stage_of(node).child) is not None
        },
        zone=zone,
        rates={window.name: window for window in windows},
        has_code=core.registry.find_workflow(run.workflow, run.version) is not None,
        waits=waits,
        gather=plan.gather,
        lines=slot_lines(core, run),
        fleet=fleet_of(core) if any(job.state is JobState.QUEUED for job in jobs) else None,
        limits=limits_of(core, run, jobs),
        rate_line=rate_line(core, run),
    )


def limits_of(core: Core, run: Run, jobs: Sequence[Job]) -> dict[LimitName, LimitRow]:
    """Return what operators have set that a run may wait for."""
    waiting = [job for job in jobs if job.state in (JobState.LIMITED, JobState.QUEUED, JobState.SLEEPING)]
    names = {*names_of(run), *(name for job in waiting for name in names_of(job))}
    names |= {queue_limit(job.namespace, job.queue) for job in waiting}
    found = core.stores.persistence.transact(lambda tx: tx.get(LIMITS, sorted(names))) if names else ()
    return {row.limit_name: row for row in found if row.is_in_force}


def sessions_of(core: Core, jobs: Iterable[Job]) -> dict[str, Session]:
    """Return the sessions that hold jobs, by id."""
    ids = sorted({job.session for job in jobs if job.session is not None})
    found = core.stores.persistence.transact(lambda tx: tx.get(SESSIONS, ids)) if ids else ()
    return {session.id: session for session in found}


def blocked_text(core: Core, run: Run) -> str | None:
    """Return why a run is blocked; None if it is not."""
    if run.status is not RunStatus.BLOCKED:
        return None
    after = max(0, run.last_row - _ROWS_LOOKED_AT)
    rows = core.stores.persistence.read(HistoryOf(run.key, after, _ROWS_LOOKED_AT))
    row = _last(rows, events.RunBlocked.type)
    return None if row is None else events.RunBlocked.from_row(row).message


def reasons(facts: WhyFacts) -> tuple[WaitReason, ...]:
    """Return the reasons: for an ended run its end first, otherwise those of the whole run and then per stage."""
    run = facts.run
    if run.status in TERMINAL:
        cleanup = [*_undelivered(facts), *_cancels(facts)]
        code = _code(facts) if cleanup else ()
        return (*_ended(facts), *cleanup, *code, *_left(facts), *_unread(facts))
    found = [*_of_run(facts)]
    by_stage = sorted((job for job in facts.jobs if not job.outlives_run), key=_kind_of_wait)
    if not by_stage and run.status is RunStatus.RUNNING:
        text = (
            "The run has no job, so it cannot continue. Maintenance repairs it while a worker is running; "
            "`holdfast doctor` reports what is missing."
        )
        found.append(WaitReason(code="no_job", text=text))
    for _, jobs in groupby(by_stage, _kind_of_wait):
        found += _of_jobs(facts, list(jobs))
    found += _open_steps(facts)
    return (*found, *_undelivered(facts), *_cancels(facts), *_code(facts), *_left(facts))


def _code(facts: WhyFacts) -> Iterator[WaitReason]:
    if not facts.has_code:
        code = f"{facts.run.workflow}@{facts.run.version}"
        text = f"This process does not have the code of {code}; only workers that have it can run it."
        yield WaitReason(code="no_code", text=text)


def _ended(facts: WhyFacts) -> Iterator[WaitReason]:
    run = facts.run
    at = "" if run.ended_at is None else f" {_ago(run.ended_at, facts)}"
    what = end_cause(error_of(run))
    match run.status:
        case RunStatus.COMPLETED if run.is_continued:
            yield WaitReason(code="ended", text=f"It continued{at} as generation {run.generation + 1}.")
        case RunStatus.COMPLETED:
            yield WaitReason(code="ended", text=f"It completed{at}.")
        case RunStatus.FAILED:
            next_one = f" Generation {run.generation + 1} is the next attempt." if run.is_retried else ""
            yield WaitReason(code="ended", text=f"It failed{at}: {what}.{next_one}")
        case _:
            yield WaitReason(
                code="ended", text=f"It was cancelled{_by(facts.canceller)}{at}{f': {what}' if what else ''}."
            )


def _unread(facts: WhyFacts) -> Iterator[WaitReason]:
    """Report the messages that an ended run never received, unless its next generation has got them."""
    unread = mailbox_from(facts.run.mailbox).unread
    if unread and not facts.run.has_successor:
        rows = ", ".join(map(str, unread[:_ROWS_NAMED])) + (", ..." if len(unread) > _ROWS_NAMED else "")
        are = "1 message was" if len(unread) == 1 else f"{len(unread):,} messages were"
        text = (
            f"{are} never received (row{'s' if len(unread) > 1 else ''} {rows} of its history): `holdfast run messages`"
            ' lists the messages of the run. The next generation receives them: start it with if_ended="rerun".'
        )
        yield WaitReason(code="unread_messages", text=text)


def _holders(line: SlotLine | None, facts: WhyFacts) -> str:
    if line is None:
        return "and other runs hold the slots or are ahead of it"
    if not line.used:
        return "and it is admitted at any moment"
    if not line.holders:
        ending = (
            "a run that is ending holds" if line.used == 1 else f"{line.used:,} runs that are ending hold"
        )
        return f"and {ending} a slot"
    named = ", ".join(f"{run!r} since {_ago(at, facts)}" for run, at in line.holders)
    others = line.used - len(line.holders)
    more = f" and {others:,} more" if others > 0 else ""
    return f"and a slot is held by {named}{more}"


def _place_in_line(line: SlotLine | RateLine | None) -> str:
    if line is None:
        return ""
    match line.before:
        case None:
            return f" More than {BEFORE_MAX:,} runs are before it."
        case 0:
            return " It is the next."
        case 1:
            return " 1 run is before it."
        case before:
            return f" {before:,} runs are before it."


def _slots_wanted(facts: WhyFacts) -> Iterator[WaitReason]:
    """Report each level of the key that is full; without one, the innermost."""
    run = facts.run
    lines = {line.key: line for line in facts.lines}
    planned = (*outer_limits_of_waiter(run.concurrency_outer), run.concurrency_limit or 0)
    levels = list(zip(levels_of(run.concurrency_key or ""), planned, strict=False))
    full = [
        (level, most)
        for level, most in levels
        if level in lines and lines[level].used >= _slots_of(facts, level, most)
    ]
    for level, most in full or levels[-1:]:
        line = lines.get(level)
        yield WaitReason(
            code="concurrency_key",
            text=f"It waits for a slot: at most {_slots_of(facts, level, most)} of the runs with the concurrency key"
            f" {level!r} run at a time, {_holders(line, facts)}.{_place_in_line(line)}"
            f"{_slots_set(facts, [run_limit(run.namespace, level)], most)}",
        )


def _slots_of(facts: WhyFacts, level: str, planned: int) -> int:
    row = facts.limits.get(run_limit(facts.run.namespace, level))
    return planned if row is None or row.slots is None else row.slots


def _of_run(facts: WhyFacts) -> Iterator[WaitReason]:
    run = facts.run
    if run.is_gathering:
        yield from _gathering(facts)
    if run.status is RunStatus.PENDING and run.start_at is not None and not run.is_gathering:
        yield _delayed_start(facts, run.start_at)
    elif facts.rate_line is not None:
        yield _run_rate(facts, facts.rate_line)
    elif run.status is RunStatus.PENDING and run.concurrency_key is not None:
        yield from _slots_wanted(facts)
    elif run.status is RunStatus.PAUSED:
        row = facts.paused
        since = "" if row is None else f" {_ago(row.at, facts)}"
        paused = events.RunPaused() if row is None else events.RunPaused.from_row(row)
        why = f" (reason: {paused.reason!r})" if paused.reason else ""
        text = f"It was paused{_by(paused.actor)}{since}{why}; `holdfast run resume` resumes it."
        yield WaitReason(code="paused", text=text)
    elif run.status is RunStatus.BLOCKED:
        row = facts.blocked
        blocked = None if row is None else events.RunBlocked.from_row(row)
        message = "" if blocked is None else blocked.message
        since = "" if row is None else f" {_ago(row.at, facts)}"
        text = f"It was blocked{since}: {message or 'an operator must investigate'}."
        if blocked is not None and blocked.code in RESUMED_BY_CODE:
            text += " It resumes when fitting code is deployed."
        elif "run resume" not in message:
            text += " Fix the cause, then resume it with `holdfast run resume`."
        yield WaitReason(code="blocked", text=text)
    elif run.status is RunStatus.CANCELLING:
        reason = ended_reason(run)
        why = f" (reason: {reason!r})" if reason else ""
        text = (
            f"It was cancelled{_by(facts.canceller)}{why} and runs its cleanup; `holdfast run terminate` ends it"
            " without waiting."
        )
        yield WaitReason(code="cancelling", text=text)
    if run.deadline is not None and not run.is_ending:
        text = f"It reaches its deadline {_in(run.deadline, facts)}, and fails if it has not ended by then."
        yield WaitReason(code="deadline", text=text, until=instant(run.deadline))
    for name, (total, done, failed) in facts.totals.items():
        lost = f", and {failed:,} failed" if failed else ""
        yield WaitReason(
            code="progress",
            text=f"In stage {name!r}, {done:,} of {total:,} items are done{lost}.",
            stage=name,
        )


def _run_rate(facts: WhyFacts, line: RateLine) -> WaitReason:
    run, fit = facts.run, line.fit
    costs = "" if (run.rate_units or 1) == 1 else f" It costs {run.rate_units:,}."
    # Those before it are counted in no window yet.
    when = "It may start" if line.before == 0 else "The next start of that size fits"
    at = "now" if fit.is_now else _in(fit.at, facts)
    text = (
        f"It waits for the rate of starts {run.rate_key}: {fit.used:,} of {fit.limit:,} in"
        f" {format_duration(fit.period)} are used.{costs} {when} {at}.{_place_in_line(line)}{_rate_set(facts, run)}"
    )
    return WaitReason(
        code="rate_limit", text=text, until=instant(max(fit.at, facts.now)) if line.before == 0 else None
    )


def _gathering(facts: WhyFacts) -> Iterator[WaitReason]:
    run = facts.run
    gathered, gather = run.gathered_starts, facts.gather
    if gathered is None:
        return
    most = f" of at most {gather.starts_max:,}" if gather is not None else ""
    until = instant(run.start_at if run.start_at is not None else gathered.until)
    if run.start_at is None:
        when = "until its rate allows its start" if run.in_rate_line else "until it gets its slot"
    else:
        when = f"until {_time(run.start_at, facts)}"
        if run.start_at != gathered.until:
            when += f", at the latest {_time(gathered.until, facts)}"
    started = "1 start" if gathered.starts == 1 else f"{gathered.starts:,} starts"
    yield WaitReason(code="gathering", text=f"It gathers {when}: {started}{most} so far.", until=until)


def _time(at: Micros, facts: WhyFacts) -> str:
    return f"{instant(at).astimezone(facts.zone):%H:%M:%S} ({_in(at, facts)})"


def _delayed_start(facts: WhyFacts, at: Micros) -> WaitReason:
    created = None if facts.created is None else events.RunCreated.from_row(facts.created)
    if created is None or created.attempt is None:
        return WaitReason(code="delayed_start", text=f"It starts {_in(at, facts)}.", until=instant(at))
    which = attempts_text(created.attempt, facts.run_attempts)
    text = f"The whole run is retried {_in(at, facts)}: {which}; {created.reason}."
    return WaitReason(code="retry", text=text, until=instant(at))


def _kind_of_wait(job: Job) -> tuple[bool, str, str, str]:
    step = step_of(job.definition)  # sorts after its function, which waits for it
    return step is not None, step or job.node, job.kind.value, job.state.value


def _stage_of(job: Job) -> str | None:
    return None if job.kind is JobKind.STEP else job.node


def _of_jobs(facts: WhyFacts, jobs: Sequence[Job]) -> Iterator[WaitReason]:
    for job in jobs[:_ITEMS_NAMED]:
        yield _of_job(facts, job)
    if len(jobs) > _ITEMS_NAMED:
        more = len(jobs) - _ITEMS_NAMED
        step = step_of(jobs[0].definition)
        what, of = ("item", f"stage {jobs[0].node!r}") if step is None else ("call", f"step {step!r}")
        text = f"The same applies to {more:,} more {what if more == 1 else f'{what}s'} of {of}."
        yield WaitReason(code=_of_job(facts, jobs[-1]).code, text=text, stage=_stage_of(jobs[0]))


def _of_job(facts: WhyFacts, job: Job) -> WaitReason:
    place = _place(job) + ("" if job.item is None else ",")
    is_cancel = job.kind is JobKind.CANCEL
    name = (
        f"The cancellation of external work {job.waiting_for!r} of stage {place}"
        if is_cancel
        else f"Stage {place}"
    )
    if is_function := job.kind is JobKind.WORKFLOW:
        name = f"Function {job.node!r}"
    step = step_of(job.definition)
    code = f"has the code of {job.definition}"
    if step is not None:
        name, code = f"Step {step!r}, call {job.node},", f"has the step {step!r}"
    if (remote := remote_stage_of(job.definition)) is not None:
        code = f"runs the remote stage {remote!r}"
    most, lost = job.max_attempts + job.lost_attempts, _lost(job)
    tried = lost if is_function else f": {attempts_text(job.attempts, most)}{lost}"
    error = facts.errors.get((job.node, job.item))
    why = f"; the last attempt failed: {error}" if error else ""
    match job.state:
        case JobState.LEASED:
            return _held(facts, job, name, tried)
        case JobState.QUEUED if is_queue_paused(facts.limits, job.namespace, job.queue):
            row = facts.limits[queue_limit(job.namespace, job.queue)]
            paused = f"{name} waits: {pause_text(row, facts.now, facts.zone)}{why}."
            return WaitReason(code="queue_paused", text=paused, stage=_stage_of(job))
        case JobState.QUEUED:
            text = (
                f"{name} waits for a worker that {code} and serves the queue {job.queue!r}"
                f"{f', to run {attempts_text(job.attempts + 1, most)}' if job.attempts and not is_function else ''}"
                f"{lost}{why}."
            )
            unserved = "" if facts.fleet is None else unserved_text(facts.fleet, job.definition, job.queue)
            text += unserved
            if job.waits_for_turn and not unserved:
                text += " The keys of this workflow take turns (fair): runs of other keys may come first."
            return WaitReason(code="queued", text=text, stage=_stage_of(job))
        case JobState.LIMITED:
            return _limited(facts, job, name)
        case JobState.PAUSED:
            return WaitReason(
                code="paused", text=f"{name} is paused until the run is resumed.", stage=_stage_of(job)
            )
        case _ if is_function:
            return _function_waits(facts, job, name)
        case _:
            return _asleep(facts, job, name, why)


def _lost(job: Job) -> str:
    """Return how many attempts were lost with their worker, as text; empty if none were."""
    if not job.lost_attempts:
        return ""
    one = job.lost_attempts == 1
    lost = (
        "1 attempt was lost with its worker"
        if one
        else f"{job.lost_attempts} attempts were lost with their worker"
    )
    return f"; {lost}{', so the job is quarantined' if job.is_suspect else ''}"


def _function_waits(facts: WhyFacts, job: Job, name: str) -> WaitReason:
    others = _awaited(facts)
    name += _sites(facts)
    if job.wake_at is None:
        what = others or "an outside event: a message, an update, or the end of a child run"
        return WaitReason(code="waiting", text=f"{name} waits for {what}.", stage=_stage_of(job))
    until, when = instant(job.wake_at), _in(job.wake_at, facts)
    retry = facts.retries.get(job.wake_at)
    if retry is None:
        if others:
            text = f"{name} waits for {others}; otherwise it continues {when}."
        elif facts.waits is None:
            text = f"{name} sleeps or waits for a message with a timeout: it continues {when}."
        else:
            text = f"{name} sleeps: it continues {when}."
        return WaitReason(code="waiting", text=text, stage=_stage_of(job), until=until)
    return WaitReason(code="retry", text=f"{name} retries {retry} {when}.", stage=_stage_of(job), until=until)


def _awaited(facts: WhyFacts) -> str:
    """Return the steps, messages, child runs and replies that a function waits for, as text; "" if none are known."""
    steps = [step_of(job.definition) or job.node for job in facts.jobs if job.kind is JobKind.STEP]
    parts = [_listed("the queued step {}", "the queued steps {}", steps)] if steps else []
    waits = facts.waits or OpenCalls()
    channels = [one for one in waits.channels if not one.startswith((TOPIC_CHANNEL, GROUP_CHANNEL))]
    if channels:
        parts.append(_listed("a message in channel {}", "a message in one of the channels {}", channels))
    # The channels of subscriptions that select messages have a digest at their end.
    topics = [
        one.removeprefix(TOPIC_CHANNEL).partition("#")[0]
        for one in waits.channels
        if one.startswith(TOPIC_CHANNEL)
    ]
    if topics:
        topics = list(dict.fromkeys(topics))
        parts.append(_listed("a message of topic {}", "a message of one of the topics {}", topics))
    # The channels of members of groups have the call at their end.
    groups = [
        one.removeprefix(GROUP_CHANNEL).rpartition("@")[0]
        for one in waits.channels
        if one.startswith(GROUP_CHANNEL)
    ]
    if groups:
        parts.append(_listed("the next message of group {}", "the next messages of the groups {}", groups))
    if waits.children:
        parts.append(
            _listed("the end of run {}", "the end of the runs {}", waits.children, after=_child_status(facts))
        )
    if waits.replies:
        replies = [f"{update!r} of run {run!r}" for update, run in waits.replies]
        more = f" and {len(replies) - _NAMED:,} more" if len(replies) > _NAMED else ""
        what = "the reply to update" if len(replies) == 1 else "the replies to updates"
        parts.append(f"{what} {', '.join(replies[:_NAMED])}{more}")
    return ", and for ".join(parts)


def _child_status(facts: WhyFacts) -> Mapping[str, str]:
    return {id_: f", {_state_of(child, facts)}" for id_, child in facts.children.items()}


def _state_of(child: Run, facts: WhyFacts) -> str:
    """Return the state of a child run as a clause: with its start, if that is still to come."""
    starts = child.status is RunStatus.PENDING and child.start_at is not None
    when = f" and starts {_in(child.start_at or 0, facts)}" if starts else ""
    return f"which is {child.status.value}{when}"


def _listed(one: str, more: str, names: Sequence[str], after: Mapping[str, str] | None = None) -> str:
    """Return names as text, formatted with `one` or `more`. `after` has the suffix of a single name."""
    if len(names) == 1:
        return one.format(repr(names[0])) + (after or {}).get(names[0], "")
    suffix = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return more.format(", ".join(map(repr, names[:_NAMED])) + suffix)


def _sites(facts: WhyFacts) -> str:
    sites = () if facts.waits is None else facts.waits.sites
    return f" (at {'; '.join(sites)})" if 0 < len(sites) <= _NAMED else ""


def _open_steps(facts: WhyFacts) -> Iterator[WaitReason]:
    """Yield the steps that the worker driving the function is running."""
    held = next(
        (job for job in facts.jobs if job.kind is JobKind.WORKFLOW and job.state is JobState.LEASED), None
    )
    if held is None or facts.waits is None:
        return
    steps = [one for one in facts.waits.steps if one.retry_at is None]
    for one in steps[:_NAMED]:
        yield WaitReason(code="step_running", text=_open_step(facts, held, one))
    if len(steps) > _NAMED:
        yield WaitReason(code="step_running", text=_more_steps(len(steps) - _NAMED))


def _more_steps(more: int) -> str:
    return "1 more step is running." if more == 1 else f"{more:,} more steps are running."


def _open_step(facts: WhyFacts, held: Job, one: OpenStep) -> str:
    length = format_duration(max(0, facts.now - max(one.since, held.leased_at or 0)))
    how = "was running on that worker" if _is_lost(facts, held) else f"started at least {length} ago"
    site = one.site and f", {one.site}"
    return f"Step {one.step!r} (call {one.call}{site}) {how}: {attempts_text(one.attempt, one.attempts)}."


def _limited(facts: WhyFacts, job: Job, name: str) -> WaitReason:
    whose = _sharing(job)
    limit = applied(facts.limits, job).concurrency_limit
    fewer = f"until fewer than {limit} {whose} are running" if limit else f"as no {whose} may start"
    slots_set = _slots_set(facts, names_of(job), job.concurrency_limit)
    if job.rate_limit is None:
        text = f"{name} waits {fewer}.{slots_set}"
        return WaitReason(code="concurrency_limit", text=text, stage=_stage_of(job))
    window = facts.rates.get(job.concurrency_key or "")
    wakes_at = None if window is None else window.wakes_at
    at = "soon" if wakes_at is None or wakes_at <= facts.now else _in(wakes_at, facts)
    both = f"; it also waits {fewer}" if job.concurrency_limit is not None else ""
    text = (
        f"{name} waits for {_rate(facts, job)}: the next attempt may start {at}, and other jobs may be ahead of it"
        f"{both}.{_rate_set(facts, job)}{slots_set}"
    )
    return WaitReason(code="rate_limit", text=text, stage=_stage_of(job))


def _sharing(job: Job) -> str:
    """Return which bodies the concurrency limit of a job counts."""
    shared = shared_slots(job.concurrency_key or "")
    if shared is None:
        return "calls of this step" if job.kind is JobKind.STEP else "bodies of this stage"
    name, text = shared
    return f"bodies with slots of {name!r}" + ("" if text is None else f" for {text!r}")


def _rate(facts: WhyFacts, job: Job) -> str:
    limited = applied(facts.limits, job)
    return f"the rate limit of {limited.rate_limit:,} per {format_duration(limited.rate_period or 0)}"


def _slots_set(facts: WhyFacts, names: Iterable[LimitName], planned: int | None) -> str:
    """Return a sentence about slots that an operator has set in place of the plan's; "" if none has."""
    if planned is None:
        return ""
    rows = map(facts.limits.get, names)
    row = next((row for row in rows if row is not None and row.slots is not None), None)
    return "" if row is None else slots_text(row, planned, facts.now, facts.zone)


def _rate_set(facts: WhyFacts, one: Run | Job) -> str:
    """Return a sentence about a rate that an operator has set in place of the plan's; "" if none has."""
    rows = map(facts.limits.get, names_of(one))
    row = next((row for row in rows if row is not None and row.rate_limit is not None), None)
    return "" if row is None else rate_text(row, (one.rate_limit, one.rate_period), facts.now, facts.zone)


def _held(facts: WhyFacts, job: Job, name: str, tried: str) -> WaitReason:
    holder = facts.holders.get(job.session or "")
    ago = "" if job.leased_at is None else _ago(job.leased_at, facts)
    where = "an unknown worker" if holder is None else holder.host
    if _is_lost(facts, job):
        claimed = f"was claimed by {where}{f', {ago}' if ago else ''}"
        text = f"{name} {claimed}, but {_session_end(facts, holder)}. Another worker will run it."
        return WaitReason(code="worker_lost", text=text, stage=_stage_of(job))
    doing = "is checking its external work" if job.kind is JobKind.POLL else "is running"
    text = f"{name} {doing} on {where}{f', started {ago}' if ago else ''}{tried}."
    return WaitReason(code="running", text=text, stage=_stage_of(job))


def _is_lost(facts: WhyFacts, job: Job) -> bool:
    """Whether the worker that runs a job is dead, or its lease has expired."""
    holder = facts.holders.get(job.session or "")
    return holder is None or holder.state is SessionState.DEAD or holder.expires_at < facts.now


def _session_end(facts: WhyFacts, holder: Session | None) -> str:
    if holder is None or holder.expires_at >= facts.now:
        return "its session has ended"
    return f"its lease expired {_ago(holder.expires_at, facts)}"


def _asleep(facts: WhyFacts, job: Job, name: str, why: str) -> WaitReason:
    until = None if job.wake_at is None else instant(job.wake_at)
    if job.waits_for_child:
        child = facts.children.get(job.waiting_for or "")
        how = "which does not exist" if child is None else _state_of(child, facts)
        return WaitReason(
            code="child_run",
            text=f"{name} waits for the end of run {job.waiting_for!r}, {how}.",
            stage=_stage_of(job),
        )
    when = "soon" if job.wake_at is None else _in(job.wake_at, facts)
    window = facts.rates.get(job.concurrency_key or "")
    if job.rate_limit is not None and window is not None and window.wakes_at == job.wake_at:
        text = f"{name} waits for {_rate(facts, job)}: it may start {when}{why}.{_rate_set(facts, job)}"
        return WaitReason(code="rate_limit", text=text, stage=_stage_of(job), until=until)
    released = job.epoch - job.attempts  # a released attempt raises the epoch and does not count
    if job.kind is JobKind.CHILD and released > 0 and not why:
        times = "once" if released == 1 else f"{released} times"
        text = (
            f"{name} was claimed {times} and released: it starts a run of {facts.starts.get(job.node)}, and the worker "
            f"that claimed it lacks that code or logged another error. It may be claimed again {when}."
        )
        return WaitReason(code="no_code", text=text, stage=_stage_of(job), until=until)
    if job.kind is JobKind.POLL:
        end = "" if job.give_up_at is None else f", and the stage gives up {_in(job.give_up_at, facts)}"
        text = f"{name} waits for external work {job.waiting_for!r}: the next check is {when}{end}."
        return WaitReason(code="external_work", text=text, stage=_stage_of(job), until=until)
    most = job.max_attempts + job.lost_attempts
    text = f"{name} is retried {when}: {attempts_text(job.attempts + 1, most)}{_lost(job)}{why}."
    return WaitReason(code="retry", text=text, stage=_stage_of(job), until=until)


def _undelivered(facts: WhyFacts) -> Iterator[WaitReason]:
    pending = [job for job in facts.jobs if job.state is JobState.PENDING_DELIVERY]
    replies = [job for job in pending if reply_delivery_of(job) is not None]
    if replies:
        yield WaitReason(
            code="delivering",
            text=f"{len(replies):,} {'reply' if len(replies) == 1 else 'replies'} to updates of other runs"
            f" {'has' if len(replies) == 1 else 'have'} not been delivered yet; maintenance delivers them.",
        )
    if len(pending) > len(replies):
        yield WaitReason(
            code="delivering",
            text="The run's end has not been delivered to its parent or child runs yet; maintenance delivers it.",
        )


def _cancels(facts: WhyFacts) -> Iterator[WaitReason]:
    """Yield the reasons for pending cancellations of external work."""
    cancels = sorted((job for job in facts.jobs if job.kind is JobKind.CANCEL), key=_kind_of_wait)
    for _, jobs in groupby(cancels, _kind_of_wait):
        yield from (attrs.evolve(reason, code="external_cancel") for reason in _of_jobs(facts, list(jobs)))


def _left(facts: WhyFacts) -> Iterator[WaitReason]:
    for row in facts.left[:_ITEMS_NAMED]:
        failed = events.StageCancelFailed.from_row(row)
        place = repr(row.node) if row.item is None else f"{row.node!r}, item {row.item}"
        text = (
            f"The external work {failed.key or ''!r} of stage {place} could not be cancelled and may still be running:"
            f" {failed.message}."
        )
        yield WaitReason(code="cleanup_failed", text=text, stage=row.node)
    if len(facts.left) > _ITEMS_NAMED:
        more = len(facts.left) - _ITEMS_NAMED
        yield WaitReason(
            code="cleanup_failed", text=f"{more:,} more could not be cancelled: see `holdfast run history`."
        )


def _place(job: Job) -> str:
    return repr(job.node) if job.item is None else f"{job.node!r}, item {job.item}"


def _last_errors(rows: Sequence[HistoryRow]) -> dict[tuple[str, int | None], str]:
    errors: dict[tuple[str, int | None], str] = {}
    for row in rows:
        if row.type not in _ERRORS:
            continue
        match events.event_of(row):
            case events.StepRetrying(call=call, error=error):
                errors[call, None] = f"{error.type}: {error.message}"
            case (
                events.StageRetrying(error_type=kind, message=message)
                | events.StageFailed(error_type=kind, message=message)
            ) if row.node is not None:
                errors[row.node, row.item] = f"{kind}: {message}" if kind else message
            case _:
                pass
    return errors


def _last(rows: Sequence[HistoryRow], type: str) -> HistoryRow | None:
    return next((row for row in reversed(rows) if row.type == type), None)


def _retries(rows: Sequence[HistoryRow]) -> dict[Micros, str]:
    found: dict[Micros, str] = {}
    for row in rows:
        if row.type != events.StepRetrying.type:
            continue
        retrying = events.StepRetrying.from_row(row)
        if retrying.retry_at is not None:
            error = f"{retrying.error.type}: {retrying.error.message}"
            found[retrying.retry_at] = f"step {retrying.step!r} (attempt {retrying.attempt} failed: {error})"
    return found


def _in(at: Micros, facts: WhyFacts) -> str:
    if at <= facts.now:
        return "now"
    return f"in {format_duration(at - facts.now)} (at {format_instant(at, facts.zone)})"


def _by(actor: Actor | None) -> str:
    return "" if actor is None else f" by {actor.text}"


def _ago(at: Micros, facts: WhyFacts) -> str:
    return f"{format_duration(max(0, facts.now - at))} ago (at {format_instant(at, facts.zone)})"
