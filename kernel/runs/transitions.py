"""What runs, jobs, sessions and streams may become: a table of allowed transitions for each.

Theory of operation
===================

Each table has the states of one kind of row and the arrows between them, and each arrow has a line that says when it
is taken. Every rule that changes a state calls `check` with the state before and the one after, and writes what that
returns. The status of a run changes in methods of `RunDraft` only (`admit`, `pause`, `block`, `resume`, `cancel`,
`end`), and the state of a job mostly in `leased` and `rescheduled`, all in `kernel/runs/builder.py`. The diagrams in
docs/explanation/architecture.md are made from the tables (`python -m tools.states`).

What the states of runs mean to the rules:

- `running` lasts from admission to the end, whether or not a worker is busy with the run. Claims don't touch the run's
  row, or all workers of a wide map would queue for its lock (docs/decisions/0006). Which running runs wait is a
  question to their jobs: `RunFilter.waiting`.
- A run that was paused or blocked before its admission goes back to `pending`. Results of attempts in progress are
  accepted in both states, and nothing new starts. So a paused run can complete, and so can a blocked one: the map whose
  item blocked it may end without that item.
- How a `cancelling` run ends is decided by its function: it may still complete. If a compensation fails for good, the
  run is `blocked`, and goes back to `cancelling` when it is resumed.
- A rerun does not reopen a run, it starts the next generation, which has a row and a status of its own.

Guaranteed: a terminal status never changes, and a dead session stays dead. A transaction that changes a state has
locked the row, or stores only if the row is still as it was read (docs/decisions/0048), so two transitions of one row
never race.

Not pretty, and why it stays:

- A forbidden transition is an AssertionError and not a CommandError. Every rule checks before whether its command
  applies, and replies that nothing has changed if not; a violation is a bug in Holdfast, not in the caller.
- Changes to sets of rows (`CancelExternalWork`, `DeleteJobs`, `BlockRun`) are statements of the store, which ask no
  table. The simulator holds every change that a store makes against the tables, those included.
- `BlockRun` (docs/decisions/0062) pauses jobs and blocks any active run without reading a state that may be nonsense.
  So the table lets every active status become `blocked`. A repair asks no table about the damaged jobs that it frees.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

import attrs

from holdfast.ports.records.job import JobState
from holdfast.ports.records.outbox import StreamState
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.ports.records.session import SessionState

State = TypeVar("State", RunStatus, JobState, SessionState, StreamState)

DEADLINE_EXCEEDED: Final = "deadline_exceeded"
"""Code of the failure of a run that did not end before its deadline."""


@attrs.frozen(kw_only=True, eq=False)
class Transitions(Generic[State]):
    """The states of one kind of row, and the arrows between them, each with its reason."""

    noun: str
    """What has these states, with its article."""
    states: Mapping[State, str]
    """Each state, with its meaning."""
    first: Mapping[State, str]
    """The states in which a row is created."""
    following: Mapping[State, Mapping[State, str]]
    """The states that may follow each state."""
    last: Mapping[State, str]
    """The states in which a row may be deleted."""

    def check(self, before: State, after: State) -> State:
        """Return `after`. AssertionError if it may not follow `before`; keeping the state is always allowed."""
        is_allowed = after == before or after in self.following[before]
        assert is_allowed, f"{self.noun} went from {before} to {after}"
        return after

    def arrows(self) -> Iterator[tuple[str | None, str | None, str]]:
        """Yield the state before, the state after and the reason of each arrow; None stands for no row."""
        yield from ((None, state.value, why) for state, why in self.first.items())
        for before, following in self.following.items():
            yield from ((before.value, after.value, why) for after, why in following.items())
        yield from ((state.value, None, why) for state, why in self.last.items())


_R = RunStatus
_PAUSE = "paused (run.pause)"
_BLOCK = "its code or data does not fit, or can't be read"
_RESUME = "resumed (run.resume)"
_TO_CLEAN_UP = "cancelled (run.cancel), or past its deadline; its function cleans up"
_FAIL = "failed for good, or past its deadline"
_CANCEL = "cancelled or terminated (run.cancel, run.terminate)"
_COMPLETE = "its last result arrived (job.settle)"
_UNADMITTED = "resumed (run.resume) before its admission"
_REMOVE = "removed (run.remove)"
_CONTINUED = "it continues a run that was {}"

RUN_TRANSITIONS: Final[Transitions[RunStatus]] = Transitions(
    noun="a run",
    states={
        _R.PENDING: "waits for its start time or for its concurrency limit; has no jobs",
        _R.RUNNING: "was admitted, whether or not a worker is busy with it",
        _R.PAUSED: "an operator has paused it; it accepts results and starts nothing",
        _R.BLOCKED: "can't continue until an operator or a deploy helps",
        _R.CANCELLING: "its function cleans up",
        _R.COMPLETED: "final: it has a result",
        _R.FAILED: "final: it has an error",
        _R.CANCELLED: "final: it was cancelled or terminated",
    },
    first={
        _R.PENDING: "it has a start time or a concurrency limit",
        _R.RUNNING: "it may start at once",
        _R.PAUSED: _CONTINUED.format("paused"),
        _R.CANCELLING: _CONTINUED.format("told to clean up"),
    },
    following={
        _R.PENDING: {
            _R.RUNNING: "admitted (run.claim_pending)",
            _R.PAUSED: _PAUSE,
            _R.BLOCKED: _BLOCK,
            _R.FAILED: _FAIL,
            _R.CANCELLED: _CANCEL,
        },
        _R.RUNNING: {
            _R.PAUSED: _PAUSE,
            _R.BLOCKED: _BLOCK,
            _R.CANCELLING: _TO_CLEAN_UP,
            _R.COMPLETED: _COMPLETE,
            _R.FAILED: _FAIL,
            _R.CANCELLED: _CANCEL,
        },
        _R.PAUSED: {
            _R.PENDING: _UNADMITTED,
            _R.RUNNING: _RESUME,
            _R.BLOCKED: _BLOCK,
            _R.CANCELLING: _TO_CLEAN_UP,
            _R.COMPLETED: _COMPLETE,
            _R.FAILED: _FAIL,
            _R.CANCELLED: _CANCEL,
        },
        _R.BLOCKED: {
            _R.PENDING: _UNADMITTED,
            _R.RUNNING: _RESUME,
            _R.CANCELLING: f"{_TO_CLEAN_UP}; or {_RESUME} while it cleaned up",
            _R.COMPLETED: _COMPLETE,
            _R.FAILED: _FAIL,
            _R.CANCELLED: _CANCEL,
        },
        _R.CANCELLING: {
            _R.BLOCKED: f"{_BLOCK}, or a compensation failed for good",
            _R.COMPLETED: "its function returned a result all the same (job.settle)",
            _R.FAILED: "its function has cleaned up, after an error or its deadline",
            _R.CANCELLED: "its function has cleaned up; or terminated (run.terminate)",
        },
        _R.COMPLETED: {},
        _R.FAILED: {},
        _R.CANCELLED: {},
    },
    last={_R.COMPLETED: _REMOVE, _R.FAILED: _REMOVE, _R.CANCELLED: _REMOVE},
)
"""Statuses of runs."""

_J = JobState
_HELD = "its run is paused or blocked"
_AWAKE = "due (job.wake_due), or woken"
_CLOSED = "its run or its map has ended"
_CHILD_ENDED = f"the child run that it waited for has ended, or {_CLOSED}"

JOB_TRANSITIONS: Final[Transitions[JobState]] = Transitions(
    noun="a job",
    states={
        _J.QUEUED: "can be claimed",
        _J.LEASED: "a session holds it",
        _J.SLEEPING: "waits for a time, a child run or a message",
        _J.LIMITED: "waits for a slot of a concurrency limit or for room under a rate limit",
        _J.PAUSED: _HELD,
        _J.PENDING_DELIVERY: "delivers the end of its run, or a reply, to other runs; never claimed by a worker",
    },
    first={
        _J.QUEUED: "the stage before it is done",
        _J.LEASED: "claimed by the settle before it (job.settle)",
        _J.SLEEPING: "external work was submitted, or will be polled",
        _J.LIMITED: "it has a limit",
        _J.PAUSED: _HELD,
        _J.PENDING_DELIVERY: "a run with a parent or children has ended, or an update of another run has its answer",
    },
    following={
        _J.QUEUED: {
            _J.LEASED: "claimed (job.claim)",
            _J.LIMITED: "the rate limit has no room (job.claim)",
            _J.PAUSED: _HELD,
        },
        _J.LEASED: {
            _J.QUEUED: "released, lost with its worker, or tried again at once",
            _J.SLEEPING: "tried again later, or its body waits",
            _J.LIMITED: "tried again under its limit",
            _J.PAUSED: f"given back while {_HELD}",
        },
        _J.SLEEPING: {
            _J.QUEUED: _AWAKE,
            _J.LIMITED: "due or woken, and it has a limit",
            _J.PAUSED: _HELD,
        },
        _J.LIMITED: {
            _J.QUEUED: "its limit has room (job.admit)",
            _J.SLEEPING: "its rate limit has room later (job.admit)",
            _J.PAUSED: _HELD,
        },
        _J.PAUSED: {
            _J.QUEUED: "its run is resumed, or its external work is cancelled",
            _J.SLEEPING: "its run is resumed",
            _J.LIMITED: "its run is resumed",
        },
        _J.PENDING_DELIVERY: {},
    },
    last={
        _J.QUEUED: _CHILD_ENDED,
        _J.LEASED: f"completed, failed for good, or {_CLOSED}",
        _J.SLEEPING: _CHILD_ENDED,
        _J.LIMITED: _CLOSED,
        _J.PAUSED: _CHILD_ENDED,
        _J.PENDING_DELIVERY: "delivered (run.deliver, update.deliver)",
    },
)
"""States of jobs."""

SESSION_TRANSITIONS: Final[Transitions[SessionState]] = Transitions(
    noun="a session",
    states={
        SessionState.OPEN: "may claim jobs and hold them",
        SessionState.DEAD: "final: its jobs go to other sessions",
    },
    first={SessionState.OPEN: "a worker starts (session.open)"},
    following={
        SessionState.OPEN: {
            SessionState.DEAD: "closed (session.close), or not renewed in time (session.reap)"
        },
        SessionState.DEAD: {},
    },
    last={SessionState.DEAD: "it holds no job, and has been dead for long"},
)
"""States of sessions."""

_NO_SINK = "its sink was removed"

STREAM_TRANSITIONS: Final[Transitions[StreamState]] = Transitions(
    noun="a stream",
    states={
        StreamState.READY: "its events are delivered as they arrive",
        StreamState.DEAD_LETTERED: "an event was refused too often; waits for an operator",
    },
    first={StreamState.READY: "the first event of a run for a sink"},
    following={
        StreamState.READY: {StreamState.DEAD_LETTERED: "its sink refused an event too often (outbox.settle)"},
        StreamState.DEAD_LETTERED: {StreamState.READY: "an operator replays it (dead_letter.replay)"},
    },
    last={StreamState.READY: f"its run was removed, or {_NO_SINK}", StreamState.DEAD_LETTERED: _NO_SINK},
)
"""States of streams: the events of one run on their way to one sink."""

assert all(not RUN_TRANSITIONS.following[status] for status in TERMINAL)
