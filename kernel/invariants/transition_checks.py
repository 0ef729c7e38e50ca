"""Checks of the transition between two states of a store."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.invariants.gathering_checks import changed_starts
from holdfast.kernel.invariants.limit_checks import changed_limits
from holdfast.kernel.invariants.run_rate_checks import overtaken_runs
from holdfast.kernel.invariants.snapshots import Snapshot, as_snapshot
from holdfast.kernel.invariants.start_bound_checks import runs_ended_by_starts
from holdfast.kernel.invariants.violations import Violation
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS, RUN_TRANSITIONS, State, Transitions
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState, cancelling
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.records.session import SessionState
from holdfast.ports.working_set import Tables

_FIXED: Final = (
    *("kind", "node", "item", "definition", "queue", "max_attempts", "input", "queue_position"),
    *("concurrency_key", "concurrency_limit", "rate_limit", "rate_period"),
)
"""Fields of a job that never change."""

_FIXED_RUN: Final = (
    *("namespace", "id", "generation", "workflow", "version", "plan", "queue", "priority"),
    *("created_at", "queue_position", "rerun_of", "rerun_from", "inherited", "deadline"),
    *("concurrency_key", "concurrency_limit", "concurrency_waiting", "concurrency_full"),
    "concurrency_outer",
    *("rate_key", "rate_limit", "rate_period", "rate_units"),
)
"""Fields of a run that never change."""

_FIXED_OF_JOB: Final = attrgetter(*_FIXED)
_FIXED_OF_RUN: Final = attrgetter(*_FIXED_RUN)


def _gone(run: Run, new: Snapshot, *, removals: bool, alone: bool) -> Iterator[Violation]:
    if not removals:
        yield Violation("S5", run.key, "the run was deleted, but no command here may delete it")
    elif alone and run.status not in TERMINAL:
        yield Violation(
            "S5", run.key, f"the run was deleted while it was {run.status}; only ended runs may be deleted"
        )
    if new.jobs.get(run.key) or new.history.get(run.key):
        yield Violation("S7", run.key, "the run was deleted, but jobs or history rows of it remain")


def check_step(
    before: Snapshot | Tables, after: Snapshot | Tables, *, commands: int | None = 1, removals: bool = False
) -> list[Violation]:
    """Return the violations in a transition that at most this many commands made.

    `commands=None` allows any number, and checks only what holds for any number. `removals` allows removed runs.
    """
    old, new = as_snapshot(before), as_snapshot(after)
    found: list[Violation] = []
    for key, run in old.runs.items():
        if key not in new.runs:
            found += _gone(run, new, removals=removals, alone=commands == 1)
            continue
        then, now = _history(old, key), _history(new, key)
        if now[: len(then)] != then:
            found.append(
                Violation(
                    "O1", key, "history rows of the run were changed or removed; the history is append-only"
                )
            )
        found += (Violation("S5", key, what) for what in _run_steps(run, new.runs[key], commands))
        found += (Violation("S5", key, what) for what in _job_states(run, old, new, commands))
        found += (Violation("S4", key, what) for what in _output_steps(run, new.runs[key]))
        found += (Violation("S1", key, what) for what in _job_steps(run, old, new, commands))
        found += (Violation("M1", key, what) for what in _message_steps(run, new.runs[key], now, commands))
    found += _going_on(old, new)
    found += runs_ended_by_starts(old, new)
    found += overtaken_runs(old, new)
    found += changed_limits(old, new)
    for fingerprint, plan in old.plans.items():
        if new.plans.get(fingerprint, plan) != plan:
            found.append(Violation("S4", fingerprint, "the stored plan was changed; plans never change"))
    for session in old.sessions.values():
        later = new.sessions.get(session.id, session)
        if session.state is SessionState.DEAD and later != session:
            found.append(Violation("S5", session.id, "the session was changed after it was declared dead"))
        elif later.state is SessionState.OPEN and later.expires_at < session.expires_at:
            found.append(
                Violation("S5", session.id, "the expiry of the open session was moved to an earlier time")
            )
    return found


def _going_on(old: Snapshot, new: Snapshot) -> Iterator[Violation]:
    """S7: a generation that continues as new, or is retried, has its next generation in the same transition."""
    for key, run in new.runs.items():
        is_new = run.has_successor and not (key in old.runs and old.runs[key].has_successor)
        if is_new and not any(
            one.name == run.name and one.generation == run.generation + 1 for one in new.runs.values()
        ):
            yield Violation(
                "S7", key, "the run continues as new or is retried, but its next generation does not exist"
            )


def _run_steps(before: Run, after: Run, commands: int | None) -> Iterator[str]:
    """S5: statuses follow their table, and an ended run never changes."""
    if before.status in TERMINAL and _without_deliveries(before, after) != before:
        yield f"the run was changed after its end: from {before} to {after}"
    if not _may_become(RUN_TRANSITIONS, before.status, after.status, commands):
        yield (
            f"the status of the run changed from {before.status} to {after.status}, which is not a legal"
            " transition"
        )
    if _FIXED_OF_RUN(before) != _FIXED_OF_RUN(after):
        for field in _FIXED_RUN:
            if getattr(before, field) != getattr(after, field) and not _is_ranked(field, before, after):
                yield (
                    f"{field} of the run must not change, but changed from {getattr(before, field)} to"
                    f" {getattr(after, field)}"
                )
    yield from changed_starts(before, after)
    if after.last_row < before.last_row or after.last_job < before.last_job:
        yield "the last row or job number of the run went down; numbers must not be used twice"


def _is_ranked(field: str, before: Run, after: Run) -> bool:
    """Return whether a run was ranked by its turn as it was admitted, or earlier as it gathers nothing more."""
    is_closed = before.is_gathering and not after.is_gathering
    is_admitted = after.is_admitted and not before.is_admitted
    return field == "queue_position" and (is_closed or is_admitted)


def _without_deliveries(before: Run, after: Run) -> Run:
    """Return `after` without the changes that are allowed after the end of a run.

    These are rows with outcomes of cancellations. A repair may also add jobs, and change the parent's waiting job.
    """
    parent = after.parent if before.parent is None else before.parent
    updated_at = before.updated_at if after.last_row > before.last_row else after.updated_at
    return attrs.evolve(
        after, parent=parent, last_job=before.last_job, last_row=before.last_row, updated_at=updated_at
    )


def _output_steps(before: Run, after: Run) -> Iterator[str]:
    """S4: completed stages stay completed, with the same output."""
    if before.progress == after.progress:
        return
    then, now = progress_from(before.progress), progress_from(after.progress)
    if now.group < then.group:
        yield f"the run went back from group {then.group} to group {now.group}"
    if any(now.kept.get(name) != output for name, output in then.kept.items()):
        yield f"a kept output was changed: from {then.kept} to {now.kept}"
    if now.group != then.group:
        return
    for name, node in then.nodes.items():
        later = now.nodes.get(name)
        if node.output is not None and (later is None or later.output != node.output):
            yield f"the output of {name!r} was changed or removed after {name!r} completed"
        if node.map is not None and later is not None and later.map is not None:
            is_same = (node.map.total, node.map.first_row) == (later.map.total, later.map.first_row)
            if not is_same or later.map.ended < node.map.ended or later.map.next < node.map.next:
                yield (
                    f"the counters of map {name!r} must not decrease, but changed from {node.map} to"
                    f" {later.map}"
                )


def _message_steps(
    before: Run, after: Run, history: Sequence[HistoryRow], commands: int | None
) -> Iterator[str]:
    """M1: a new message is unread until it is received, and never unread again."""
    if (before.mailbox, before.last_row) == (after.mailbox, after.last_row):
        return
    new = {
        row.number
        for row in history[before.last_row - before.first_row + 1 :]
        if row.type == events.SignalReceived.type
    }
    then, now = mailbox_from(before.mailbox), mailbox_from(after.mailbox)
    if again := set(now.unread) - set(then.unread) - new:
        yield f"messages {sorted(again)} were received before, but are unread again"
    if commands == 1 and (lost := new - set(now.unread)):
        yield f"messages {sorted(lost)} are new, but not unread: no command has received them"
    if not set(then.closed) <= set(now.closed):
        yield f"closed channels must stay closed, but changed from {then.closed} to {now.closed}"


def _job_steps(run: Run, old: Snapshot, new: Snapshot, commands: int | None) -> Iterator[str]:
    """S1: each claim raises the epoch by one and the attempts by at most one; only a new epoch changes the holder."""
    then, now = old.jobs.get(run.key, {}), new.jobs.get(run.key, {})
    for number, job in now.items():
        known = then.get(number)
        if known is None:
            if number <= run.last_job:
                yield f"job {number} was created again; job numbers must not be used twice"
            continue
        if known is job:  # records are never changed in place
            continue
        claims = job.epoch - known.epoch
        if claims < 0 or (commands is not None and claims > commands):
            yield (
                f"the epoch of job {number} changed from {known.epoch} to {job.epoch}; a claim raises it by 1"
            )
        if job.attempts > known.attempts + max(claims, 0):
            yield (
                f"the attempts of job {number} rose from {known.attempts} to {job.attempts} in {claims}"
                " claims; a claim adds at most 1"
            )
        if claims == 0 and job.state is JobState.LEASED and _lease(job) != _lease(known):
            yield (
                f"the lease of job {number} changed within epoch {job.epoch}, from {_lease(known)} to"
                f" {_lease(job)}"
            )
        is_left = (known.kind, job.kind) == (JobKind.POLL, JobKind.CANCEL)
        fixed = cancelling(known, job.max_attempts) if is_left else known
        if _FIXED_OF_JOB(job) != _FIXED_OF_JOB(fixed):
            yield f"fixed fields of job {number} were changed: from {known} to {job}"


def _job_states(run: Run, old: Snapshot, new: Snapshot, commands: int | None) -> Iterator[str]:
    """S5: states of jobs follow their table."""
    then, now = old.jobs.get(run.key, {}), new.jobs.get(run.key, {})
    for number, known in then.items():
        job = now.get(number, known)
        if job is known:
            continue
        # A claim by a hint wakes a job that is due and leases it: two transitions in one command.
        steps = None if commands is None else commands + max(job.epoch - known.epoch, 0)
        if not _may_become(JOB_TRANSITIONS, known.state, job.state, steps):
            yield f"job {number} went from {known.state} to {job.state}, which is not a legal transition"


def _may_become(table: Transitions[State], before: State, after: State, steps: int | None) -> bool:
    """Return whether so many transitions may lead from one state to another; None for any number.

    The rules ask the same tables, and that is no circle: a rule asks about the state that it has read. This compares
    what the store has held, so it also sees what asks no table: statements over many rows, lost and doubled writes, and
    a rule that forgets to ask. Whether a table itself is right is a question to its readers and to tests.
    """
    reached = {before}
    for _ in range(len(table.states) if steps is None else min(steps, len(table.states))):
        if after in reached:
            break
        reached |= {state for one in reached for state in table.following[one]}
    return after in reached


def _history(snapshot: Snapshot, run: str) -> Sequence[HistoryRow]:
    rows = snapshot.history.get(run, ())
    return rows if isinstance(rows, list) else list(rows)


def _lease(job: Job) -> tuple[object, ...]:
    return job.state, job.session, job.leased_at
