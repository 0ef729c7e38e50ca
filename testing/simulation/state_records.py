"""Records of the states that runs, jobs, sessions and streams went through in a simulation."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from holdfast.kernel.invariants import Violation
from holdfast.kernel.runs.transitions import (
    JOB_TRANSITIONS,
    RUN_TRANSITIONS,
    SESSION_TRANSITIONS,
    STREAM_TRANSITIONS,
)
from holdfast.ports.changes import (
    AdvanceStreams,
    BlockRun,
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    DeleteRun,
    Insert,
    Update,
)
from holdfast.ports.records.job import Job, JobKey, JobState
from holdfast.ports.records.outbox import Stream, StreamKey, StreamState
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.working_set import Tables

_State: TypeAlias = RunStatus | JobState | SessionState | StreamState

Arrow: TypeAlias = tuple[str, str | None, str | None]
"""What has changed its state, the state before and the one after; None stands for no row."""


ARROWS: Final[frozenset[Arrow]] = frozenset(
    {
        *((RUN_TRANSITIONS.noun, before, after) for before, after, _ in RUN_TRANSITIONS.arrows()),
        *((JOB_TRANSITIONS.noun, before, after) for before, after, _ in JOB_TRANSITIONS.arrows()),
        *((SESSION_TRANSITIONS.noun, before, after) for before, after, _ in SESSION_TRANSITIONS.arrows()),
        *((STREAM_TRANSITIONS.noun, before, after) for before, after, _ in STREAM_TRANSITIONS.arrows()),
    }
)
"""The arrows of all tables."""

_NOUNS: Final[Mapping[type[_State], str]] = {
    RunStatus: RUN_TRANSITIONS.noun,
    JobState: JOB_TRANSITIONS.noun,
    SessionState: SESSION_TRANSITIONS.noun,
    StreamState: STREAM_TRANSITIONS.noun,
}


class StateRecords:
    """Counts the transitions of a simulation."""

    def __init__(self) -> None:
        self.taken: Counter[Arrow] = Counter()
        """How often each arrow was taken, also those of no table."""

    def apply(self, tables: Tables, change: Change) -> Iterator[Violation]:
        """Make a change, and yield the transitions that no table has (S5).

        Each change is compared by itself, also of those that one transaction makes to the same row.
        """
        before = _states(tables, change)
        tables.apply(change)
        after = _states(tables, change)
        for key in dict.fromkeys((*before, *after)):
            then, now = before.get(key), after.get(key)
            if then != now:
                yield from self._take(key, then, now)

    def _take(self, key: object, then: _State | None, now: _State | None) -> Iterator[Violation]:
        known = then or now
        assert known is not None
        arrow = _NOUNS[type(known)], then and then.value, now and now.value
        self.taken[arrow] += 1
        if arrow not in ARROWS:
            yield Violation(
                "S5", str(key), f"{arrow[0]} went from {then} to {now}, which is not a legal transition"
            )


def _states(tables: Tables, change: Change) -> dict[object, _State]:
    """Return the states of the rows that a change may touch, by their keys."""
    match change:
        case Insert(Job() as job) | Update(Job() as job):
            known = tables.job(job.key)
            return {} if known is None else {job.key: known.state}
        case Delete(key=JobKey() as key):
            known = tables.job(key)
            return {} if known is None else {key: known.state}
        case Insert(Run() as run) | Update(Run() as run):
            return {run.key: tables.runs[run.key].status} if run.key in tables.runs else {}
        case (
            DeleteJobs(run=key)
            | DeleteJobsOfNode(run=key)
            | CancelExternalWork(run=key)
            | BlockRun(run=key)
            | DeleteRun(run=key)
        ):
            return {
                **{job.key: job.state for job in tables.jobs.get(key, {}).values()},
                **{stream.key: stream.state for stream in tables.streams.values() if stream.run == key},
                **({key: tables.runs[key].status} if key in tables.runs else {}),
            }
        case Insert(Session() as session):
            known_session = tables.sessions.get(session.id)
            return {} if known_session is None else {session.id: known_session.state}
        case Update(Stream() as stream):
            return _stream(tables, stream.key)
        case AdvanceStreams(head):
            return _stream(tables, StreamKey(head.sink, head.run))
        case _:
            return {}


def _stream(tables: Tables, key: StreamKey) -> dict[object, _State]:
    stream = tables.streams.get(key)
    return {} if stream is None else {key: stream.state}
