"""Events of child runs that a durable function starts."""

from typing import ClassVar

from typing_extensions import override

from holdfast.kernel.history.events.event import (
    CallKind,
    Facts,
    HistoryEvent,
    Identity,
    LocatedCallEvent,
    RecordedError,
)
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class ChildStarted(LocatedCallEvent):
    """A durable function started a child run."""

    type: ClassVar[str] = "child.started"
    call_kind: ClassVar[CallKind | None] = "run"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    run: str
    """The id of the child run."""
    workflow: str
    """The workflow of the child run."""


@frozen(kw_only=True)
class ChildCompleted(HistoryEvent):
    """The child run has a result."""

    type: ClassVar[str] = "child.completed"
    payload: ClassVar[str | None] = "the result"
    reaches_function: ClassVar[bool] = True
    run: str
    """The id of the child run."""
    again: int | None = None
    """The number of the row that this one repeats, in a rerun."""


@frozen(kw_only=True)
class ChildFailed(HistoryEvent):
    """The child run has no result: it failed, was cancelled, or could not be started."""

    type: ClassVar[str] = "child.failed"
    call_kind: ClassVar[CallKind | None] = "run"
    reaches_function: ClassVar[bool] = True
    run: str
    """The id of the child run."""
    code: str
    """`child_failed`, `child_cancelled`, or the code of the error with which it could not be started."""
    message: str | None
    """Why it has no result."""
    call: str | None = None
    """The call that could not start it; None: it was started, and ended without a result."""
    workflow: str | None = None
    """The workflow that could not be started."""
    site: str = ""
    """File and line of the call."""
    error: RecordedError | None = None
    """The error of the child run, if it can be raised again in the parent."""
    again: int | None = None
    """The number of the row that this one repeats, in a rerun."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call or "", 1

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return "call" in facts  # otherwise it was started, and ended without a result
