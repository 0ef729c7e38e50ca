"""Which status may follow which. Everything that changes a run's status goes through `checked`."""

from collections.abc import Mapping
from typing import Final

from holdfast.ports.records import TERMINAL, RunStatus

_S = RunStatus
_ENDS: Final = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED})

DEADLINE_EXCEEDED: Final = "deadline_exceeded"
"""The code of the failure of a run that did not end in time."""

RUN_TRANSITIONS: Final[Mapping[RunStatus, frozenset[RunStatus]]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.PAUSED, _S.CANCELLING, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.WAITING, _S.PAUSED, _S.BLOCKED, _S.CANCELLING}) | _ENDS,
    _S.WAITING: frozenset({_S.RUNNING, _S.PAUSED, _S.BLOCKED, _S.CANCELLING}) | _ENDS,
    _S.PAUSED: frozenset({_S.PENDING, _S.RUNNING, _S.WAITING, _S.BLOCKED, _S.CANCELLING}) | _ENDS,
    _S.BLOCKED: frozenset({_S.RUNNING, _S.WAITING, _S.PAUSED, _S.CANCELLING, _S.FAILED, _S.CANCELLED}),
    _S.CANCELLING: frozenset({_S.BLOCKED}) | _ENDS,
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""From each status, those that may follow. A terminal status is kept for ever."""


def checked(before: RunStatus, after: RunStatus) -> RunStatus:
    """Return `after`. AssertionError, a bug of Holdfast's, if it may not follow `before`."""
    assert after == before or after in RUN_TRANSITIONS[before], f"a run went from {before} to {after}"
    return after


assert all(not RUN_TRANSITIONS[status] for status in TERMINAL)
