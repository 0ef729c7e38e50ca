"""The checks of leases and fencing at each commit: claims, settles, heartbeats and reports of attempts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

from holdfast.kernel.commands import (
    FunctionWaiting,
    JobClaim,
    JobClaimOne,
    JobHeartbeat,
    JobRecord,
    JobRelease,
    JobSettle,
    OutboxSettle,
    RunCreate,
)
from holdfast.kernel.commands.command import Command
from holdfast.kernel.history import events
from holdfast.kernel.invariants import Violation
from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.changes import Change, Delete, Insert, Update, inserted
from holdfast.ports.json import parse
from holdfast.ports.records.history import HEARTBEAT, HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState, job_key
from holdfast.ports.records.outbox import Stream
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import IdempotencyReply, MapItems, Micros
from holdfast.ports.tables import JOBS
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.store import Commit

_OF_HOLDERS: Final = (JobRecord, JobRelease, JobSettle)
_ENDS_TO_CHECK: Final = frozenset(
    {events.StageLost.type, events.StageRetrying.type, events.StageSuspended.type}
)
"""The types of the rows that `_ended` checks."""
_AT_ONCE: Final[Micros] = 1_000_000
_POLLED_TOO_LONG: Final[Micros] = 120_000_000
"""Microseconds after `give_up_at` for which polls of external work are allowed: hosts pause and wake up late."""


def lease_violations(tables: Tables, commit: Commit, now: Micros) -> Iterator[Violation]:
    """Yield what a commit was not entitled to change. `tables` holds the rows from before the commit."""
    yield from _as_holders(tables, commit)
    yield from _with_answer(commit)
    yield from _flushed(tables, commit)
    jobs = _jobs_after(commit.changes)
    yield from _waiting(tables, commit, jobs, now)
    is_heartbeat = any(isinstance(one, JobHeartbeat) for one in commit.sent)
    settled = {one.job for one in commit.sent if isinstance(one, JobSettle)}
    for change in commit.changes:
        match change:
            case Insert(Job() as job) | Update(Job() as job) if job.state is JobState.LEASED:
                yield from _claimed(tables, commit, job)
            case Insert(HistoryRow() as row):
                yield from _ended(tables, row, jobs)
            case Insert(OutputRow() as note):
                yield from _reported(tables, JobKey(note.run, note.job), note.epoch)
                if note.kind == HEARTBEAT and is_heartbeat:
                    yield from _heartbeat_received(tables, JobKey(note.run, note.job), jobs)
            case Insert(Annotation() as annotation) if annotation.job is not None:
                yield from _reported(tables, JobKey(annotation.run, annotation.job), annotation.epoch)
            case Insert(Artifact() as made):
                yield from _reported(tables, JobKey(made.run, made.job), made.epoch)
            case Insert(AiCall() as call):
                yield from _reported(tables, JobKey(call.run, call.job), call.epoch)
            case _:
                pass
        if (
            isinstance(change, Update)
            and isinstance(change.record, Job)
            and change.record.key.text in settled
        ):
            yield from _polled(tables, change.record, now)


def _jobs_after(changes: Sequence[Change]) -> dict[JobKey, Job | None]:
    """Return the jobs that the changes touch, in their new state; None for a deleted one."""
    jobs: dict[JobKey, Job | None] = {}
    for change in changes:
        if isinstance(change, Insert | Update) and isinstance(change.record, Job):
            jobs[change.record.key] = change.record
        elif isinstance(change, Delete) and change.table is JOBS:
            jobs[change.key] = None
    return jobs


def _waiting(
    tables: Tables, commit: Commit, jobs: Mapping[JobKey, Job | None], now: Micros
) -> Iterator[Violation]:
    """Yield functions that sleep although new rows arrived meanwhile, and are not driven again at once (T3)."""
    for one in commit.sent:
        if not isinstance(one, JobSettle) or not isinstance(one.outcome, FunctionWaiting):
            continue
        job = jobs.get(job_key(one.job))
        if job is None or job.state is not JobState.SLEEPING or job.epoch != one.epoch:
            continue
        rows = list(inserted(commit.changes, HistoryRow))
        # The function does not see the retries of a queued step, and they do not wake it.
        rows = [row for row in rows if row.type != events.StepRetrying.type]
        last = max((row.number for row in rows if row.run == job.run), default=tables.runs[job.run].last_row)
        if last > one.outcome.seen and (job.wake_at is None or job.wake_at > now + _AT_ONCE):
            what = f"the job sleeps until {job.wake_at}, but has seen only {one.outcome.seen} of {last} rows"
            yield Violation("T3", job.key.text, what)


def _addressed(row: HistoryRow) -> Iterator[str]:
    """Yield the run that a function signals, updates or cancels in this row: the same commit changes that run."""
    if row.type == events.SignalSent.type:
        yield events.SignalSent.from_row(row).run
    elif row.type == events.CancelSent.type:
        yield events.CancelSent.from_row(row).run
    elif row.type == events.UpdateSent.type:
        yield events.UpdateSent.from_row(row).run


def _as_holders(tables: Tables, commit: Commit) -> Iterator[Violation]:
    """Yield changes by settling or releasing attempts that do not hold the job in its epoch (S3)."""
    named = {(one.job, one.epoch) for one in commit.sent if isinstance(one, _OF_HOLDERS)}
    if not named or not all(isinstance(one, _OF_HOLDERS) for one in commit.sent):
        return
    holders = {job_key(job).run for job, epoch in named if _is_held(tables, job_key(job), epoch)}
    addressed = {
        run for row in inserted(commit.changes, HistoryRow) if row.run in holders for run in _addressed(row)
    }
    for change in commit.changes:
        if isinstance(change, Update) and isinstance(change.record, Run):
            before = tables.runs[change.record.key]
            ours = {before.key, job_key(before.parent).run if before.parent else ""}
            if not ours & holders and before.id not in addressed:
                yield Violation(
                    "S3", before.key, "the run was changed by attempts that hold none of its jobs"
                )
        match change:
            case Update(Job(key=key)) | Delete(key=JobKey() as key):
                known = tables.job(key)
            case _:
                continue
        is_ours = known is not None and (key.text, known.epoch) in named
        if known is not None and known.kind is JobKind.STEP and isinstance(change, Delete):
            is_ours = key.run in holders  # the driver of the function removes its queued step
        if known is not None and known.state is JobState.LEASED and not is_ours:
            yield Violation("S3", key.text, f"epoch {known.epoch} was ended by another attempt")


def _with_answer(commit: Commit) -> Iterator[Violation]:
    """Yield runs created with an idempotency key without the reply being stored in the same commit (I1)."""
    for one in commit.sent if len(commit.sent) == 1 else ():
        command = cast("Command[object]", one)
        key = command.idempotency_key
        creates = isinstance(one, RunCreate) and any(
            isinstance(change, Insert) and isinstance(change.record, Run) for change in commit.changes
        )
        replies = [
            change.record.key
            for change in commit.changes
            if isinstance(change, Insert) and isinstance(change.record, IdempotencyReply)
        ]
        if creates and key is not None and key not in replies:
            yield Violation(
                "I1",
                key,
                "a run was created, but the reply for this idempotency key was not stored in the same commit",
            )


def _flushed(tables: Tables, commit: Commit) -> Iterator[Violation]:
    """Yield changes of a sink's stream by a process that does not hold the stream (S3)."""
    if not commit.sent or not all(isinstance(one, OutboxSettle) for one in commit.sent):
        return
    holders = {one.holder for one in commit.sent if isinstance(one, OutboxSettle)}
    for change in commit.changes:
        if not (isinstance(change, Update) and isinstance(change.record, Stream)):
            continue
        known = tables.streams.get(change.record.key)
        if known is not None and known.holder not in holders:
            where = f"{known.run} for {known.sink}"
            yield Violation(
                "S3", where, f"the stream was changed by {holders}, but is held by {known.holder}"
            )


def _claimed(tables: Tables, commit: Commit, job: Job) -> Iterator[Violation]:
    """Yield claims by a process that does not have the job's code (S6)."""
    known = tables.job(job.key)
    if known is not None and known.epoch == job.epoch:
        return
    definitions = {
        definition
        for one in commit.sent
        if isinstance(one, JobClaim | JobClaimOne)
        for definition in _definitions(one)
    }
    if definitions and job.definition not in definitions:
        yield Violation(
            "S6", job.key.text, f"the job was claimed by a process without the code of {job.definition}"
        )


def _definitions(claim: JobClaim | JobClaimOne) -> Sequence[str]:
    if isinstance(claim, JobClaimOne):
        return claim.definitions
    return [definition for queue_claim in claim.queue_claims for definition in queue_claim.definitions]


def _ended(tables: Tables, row: HistoryRow, jobs: dict[JobKey, Job | None]) -> Iterator[Violation]:
    """Yield attempts lost from a live session (S3), retries at the wrong time (T1), and lost wakes (T3)."""
    if row.type not in _ENDS_TO_CHECK:
        return
    of_run = tables.jobs.get(row.run, {}).values()
    job = next(
        (one for one in of_run if (one.node, one.item, one.epoch) == (row.node, row.item, row.epoch)), None
    )
    if job is None:
        return
    after = jobs.get(job.key)
    if row.type == events.StageLost.type:
        session = tables.sessions.get(job.session or "")
        if session is not None and session.state is SessionState.OPEN:
            yield Violation(
                "S3", job.key.text, f"epoch {job.epoch} was counted as lost, but its session is open"
            )
    elif row.type == events.StageRetrying.type:
        retry_at = events.StageRetrying.from_row(row).retry_at
        if retry_at > row.at and after is not None and after.wake_at != retry_at:
            yield Violation(
                "T1",
                job.key.text,
                f"the retry must be at {retry_at}, but the job sleeps until {after.wake_at}",
            )
    elif job.wake_at is not None:
        place = (row.run, row.node, row.item)
        checks = [one for one in jobs.values() if one is not None and (one.run, one.node, one.item) == place]
        if any(one.kind is JobKind.POLL and one.state is JobState.SLEEPING for one in checks):
            yield Violation("T3", job.key.text, "the job was woken while its body ran, but is sleeping")


def _reported(tables: Tables, key: JobKey, epoch: int | None) -> Iterator[Violation]:
    """Yield output of an attempt that does not hold its job (S3)."""
    if not _is_held(tables, key, epoch):
        job = tables.job(key)
        now = "gone" if job is None else f"{job.state} in epoch {job.epoch}"
        yield Violation("S3", key.text, f"output of epoch {epoch} was stored, but the job is {now}")


def _heartbeat_received(tables: Tables, key: JobKey, jobs: dict[JobKey, Job | None]) -> Iterator[Violation]:
    """Yield heartbeats that did not extend the heartbeat deadline (T1)."""
    job, after = tables.job(key), jobs.get(key, tables.job(key))
    if job is None or job.heartbeat_timeout is None or after is None or after.state is not JobState.LEASED:
        return
    if after.heartbeat_by == job.heartbeat_by:
        yield Violation(
            "T1",
            key.text,
            f"a heartbeat was received, but the deadline for the next one is still {job.heartbeat_by}",
        )


def _polled(tables: Tables, job: Job, now: Micros) -> Iterator[Violation]:
    """Yield external work that is polled long after its `give_up_at` (T3)."""
    known = tables.job(job.key)
    is_polled_again = (
        known is not None and known.state is JobState.LEASED and job.state is not JobState.LEASED
    )
    until = job.give_up_at
    if is_polled_again and job.lost_attempts == 0 and until is not None and until + _POLLED_TOO_LONG < now:
        yield Violation(
            "T3",
            job.key.text,
            f"the job is still polled {(now - until) / 1_000_000:.0f} s after its give_up_at",
        )


def _is_held(tables: Tables, key: JobKey, epoch: int | None) -> bool:
    job = tables.job(key)
    return job is not None and job.state is JobState.LEASED and job.epoch == epoch


def missing_blobs(commit: Commit, has_blob: Callable[[str], bool]) -> Iterator[Violation]:
    """Yield references to blobs that do not exist (B1)."""
    for change in commit.changes:
        for key in _blobs(change):
            if not has_blob(key):
                yield Violation(
                    "B1", key, f"{type(change).__name__} refers to the blob, but it does not exist"
                )


def _blobs(change: Change) -> Iterator[str]:
    """Yield the keys of the blobs that a change refers to."""
    match change:
        case Insert(HistoryRow() as row) if row.payload is not None and row.payload.blob is not None:
            yield row.payload.blob
        case Insert(MapItems() as page):
            yield from (blob for _, blob in cast("list[list[str | None]]", parse(page.items)) if blob)
        case Insert(Artifact() as artifact):
            yield artifact.blob
        case Insert(AiCall() as call):
            yield from (one.blob for one in (call.prompt, call.response) if one is not None and one.blob)
        case _:
            pass
