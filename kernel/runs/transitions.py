"""The status of a run: the table of allowed transitions.

Theory of operation
===================

A run is created `pending` or `running` and changes its status only as `RUN_TRANSITIONS` allows. Rules don't set a
status themselves. They call a method of `RunDraft` (`admit`, `pause`, `block`, `resume`, `cancel`, `end`), and each of
these calls `checked`. The main transitions:

    pending ----> running ----> completed, failed, cancelled
       ^             ^  |
       |             |  +-----> cancelling --> completed, failed, cancelled
       v             v
       +--------- paused, blocked

- `pending`: not admitted. The run waits for its `start_at` or for its concurrency key, and has no jobs.
- `running`: from admission to the end, whether or not a worker is busy with it. Claims don't touch the run's row, or
  all workers of a wide map would queue for its lock (docs/decisions/0006). Which running runs wait is a question to
  their jobs: `RunFilter.waiting`.
- `paused`: an operator stopped it. Results of attempts in progress are accepted, and nothing new starts. So a paused
  run can complete, and a run paused before its admission goes back to `pending`.
- `blocked`: a durable function cannot continue, because its code or data does not fit its history, or data of the run
  can't be read. It may still be cancelled, or ended by its deadline. A run blocked before its admission goes back to
  `pending`, as a paused one does.
- `cancelling`: a durable function cleans up. How it ends is decided by the function: it may still complete.
  If a compensation fails for good, the run is `blocked`, and goes back to `cancelling` when it is resumed.
- `completed`, `failed`, `cancelled`: final. A rerun does not reopen a run, it starts the next generation, which has a
  row and a status of its own.

Guaranteed: a terminal status never changes. A transaction that changes a status has locked the run's row, or stores
only if the row is still as it was read (docs/decisions/0048), so two transitions of one run never race. The checker of
`kernel/invariants` compares snapshots by the same table, and a test compares it with docs/explanation/architecture.md.

Not pretty, and why it stays:

- A forbidden transition is an AssertionError and not a CommandError. Every rule checks before whether its command
  applies, and replies that nothing has changed if not; a violation is a bug in Holdfast, not in the caller.
- `BlockRun` (docs/decisions/0062) doesn't ask this table: it blocks any active run without reading more of the row than
  a status that may be nonsense. So the table lets every active status become `blocked`.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.ports.records.run import TERMINAL, RunStatus

_S = RunStatus
_ENDS: Final = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED})

DEADLINE_EXCEEDED: Final = "deadline_exceeded"
"""Code of the failure of a run that did not end before its deadline."""

RUN_TRANSITIONS: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.PAUSED, _S.BLOCKED, _S.CANCELLING, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.PAUSED, _S.BLOCKED, _S.CANCELLING}) | _ENDS,
    _S.PAUSED: frozenset({_S.PENDING, _S.RUNNING, _S.BLOCKED, _S.CANCELLING}) | _ENDS,
    _S.BLOCKED: frozenset({_S.PENDING, _S.RUNNING, _S.PAUSED, _S.CANCELLING, _S.FAILED, _S.CANCELLED}),
    _S.CANCELLING: frozenset({_S.BLOCKED}) | _ENDS,
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""The statuses that may follow each status."""


def check_transition(before: RunStatus, after: RunStatus) -> RunStatus:
    """Return `after`. AssertionError if it may not follow `before`; keeping the status is always allowed."""
    assert after == before or after in RUN_TRANSITIONS[before], f"a run went from {before} to {after}"
    return after


assert all(not RUN_TRANSITIONS[status] for status in TERMINAL)
