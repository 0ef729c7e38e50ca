"""What a durable function asks for, and what it is told: plain values on both sides of its machine."""

from contextvars import Context
from typing import TypeAlias

import attrs

from holdfast.ports.records import Micros
from holdfast.ports.structs import frozen


@frozen
class StepRequest:
    """A step is to be done.

    `call` names this call in its run, the same in every replay. `step` is the step's name, `arguments` the JSON text of
    what it was called with, `definition` what was called, for whoever runs it. `site` is where: `<file>:<line>`.
    `undoes` is the call that it takes back, if it does that: then it must not fail for good. `queue` is where it is
    done, if that is as a job of its own. `context` has what the function had set of context variables, None if nothing.
    """

    call: str
    step: str
    arguments: str
    definition: object = attrs.field(default=None, eq=False, repr=False)
    site: str = ""
    undoes: str = ""
    queue: str | None = None
    context: Context | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def what(self) -> str:
        """What was asked for, in words."""
        return f"step {self.step!r}"


@frozen(kw_only=True)
class TimerRequest:
    """Time is to pass until `at`. `call` and `site` as in StepRequest."""

    call: str
    at: Micros
    site: str = ""

    @property
    def what(self) -> str:
        """What was asked for, in words."""
        return "a timer"


@frozen(kw_only=True)
class ChildRequest:
    """A run of another workflow is to be started, and its end waited for. `call` and `site` as in StepRequest.

    `run` is its id, if it is to have one of the author's. `input` is the JSON text of what it gets, `parent_end` what
    becomes of it if this run ends first.
    """

    call: str
    workflow: str
    version: str
    input: str
    run: str | None = None
    parent_end: str = "cancel"
    site: str = ""

    @property
    def what(self) -> str:
        """What was asked for, in words."""
        return f"a run of {self.workflow!r}"


@frozen(kw_only=True)
class NotifyRequest:
    """A run that was started is to be told something. `call` and `site` as in StepRequest.

    It is sent the JSON text `text` through a channel; without a channel it is cancelled, with this text as reason.
    `checked` as in SignalReceived.
    """

    call: str
    run: str
    channel: str | None = None
    text: str = ""
    site: str = ""
    checked: bool = False

    @property
    def what(self) -> str:
        """What was asked for, in words."""
        return _notification_text(self.run, is_cancel=self.channel is None)


@frozen(kw_only=True)
class CloseRequest:
    """A channel is to be closed, if the function has been told all its messages. `call`, `site` as in StepRequest."""

    call: str
    channel: str
    site: str = ""

    @property
    def what(self) -> str:
        """What was asked for, in words."""
        return f"the close of channel {self.channel!r}"


Request: TypeAlias = StepRequest | TimerRequest | ChildRequest | NotifyRequest | CloseRequest


@frozen(kw_only=True)
class StepQueued:
    """A step was put into a queue. `given` is what it is called with, if what takes it back is to have that."""

    call: str
    step: str
    given: str | None = None

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return f"step {self.step!r}"


@frozen(kw_only=True)
class StepCompleted:
    """A step gave this: the JSON text of its result. `given` as in StepQueued."""

    call: str
    step: str
    output: str
    given: str | None = None

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return f"step {self.step!r}"


@frozen(kw_only=True)
class StepFailed:
    """A step failed for good. `error` is what it raised, as far as it could be kept. `given` as in StepQueued."""

    call: str
    step: str
    error: "Raised"
    given: str | None = None

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return f"step {self.step!r}"


@frozen(kw_only=True)
class TimerFired:
    """The time that was asked for has passed."""

    call: str

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return "a timer"


@frozen(kw_only=True)
class ChildStarted:
    """A run that was asked for is there, by this id; if `error` says why not, it is not."""

    call: str
    workflow: str
    run: str
    error: str | None = None

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return f"a run of {self.workflow!r}"


@frozen(kw_only=True)
class ChildNotified:
    """A run was told what it was to be told; if `error` says why not, it was not."""

    call: str
    run: str
    is_cancel: bool = False
    error: str | None = None
    closed: str | None = None
    """The channel that the run has closed, if that is why."""

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return _notification_text(self.run, is_cancel=self.is_cancel)


@frozen(kw_only=True)
class ChannelClosed:
    """A channel was closed: no message comes through it any more."""

    call: str
    channel: str

    @property
    def what(self) -> str:
        """What was recorded, in words."""
        return f"the close of channel {self.channel!r}"


@frozen(kw_only=True)
class ChildEnded:
    """A run that was started has ended: the JSON text of what it gave, or why it gave nothing.

    `error` is what it has raised, as far as it could be kept.
    """

    run: str
    output: str | None = None
    is_cancelled: bool = False
    message: str = ""
    error: "Raised | None" = None


@frozen(kw_only=True)
class SignalReceived:
    """A message has come for a channel: its JSON text, and whether its sender knew what the channel takes."""

    channel: str
    text: str
    checked: bool = False


@frozen(kw_only=True)
class UpdateReceived:
    """Somebody has asked for an update, by its name: the JSON text of its arguments. `call` names it in its run.

    `checked` says that it was known what it takes when it was stored.
    """

    call: str
    update: str
    arguments: str
    checked: bool = False


@frozen(kw_only=True)
class Cancelling:
    """Somebody has cancelled the run: CancelledError is raised where the function waits."""

    reason: str = ""


Answer: TypeAlias = StepCompleted | StepFailed | TimerFired | ChildStarted | ChildNotified | ChannelClosed
"""What comes of a call."""

HistoryEvent: TypeAlias = Answer | StepQueued | ChildEnded | SignalReceived | UpdateReceived | Cancelling


@frozen(kw_only=True)
class Row:
    """One row of a run's history that its function is told. `site` is where the call was made when it was recorded.

    `shown` is what the function's clock shows when it is told this, if not `at`.
    """

    number: int
    at: Micros
    event: HistoryEvent
    site: str = ""
    shown: Micros | None = None


@frozen(kw_only=True)
class Raised:
    """An exception as it is stored: its class by module and qualified name, and the JSON text of its arguments.

    `arguments` is None if they can't be stored; then there is only the `message`.
    """

    type: str
    message: str
    arguments: str | None = None
    code: str = "body_error"


@frozen(kw_only=True)
class Answered:
    """What an update has come to: the JSON text of its reply, what it raised, or what it was rejected with."""

    call: str
    output: str | None = None
    error: Raised | None = None
    rejected: Raised | None = None


@frozen(kw_only=True)
class Published:
    """A value that the function shows: its JSON text, and how many it has shown under this name, with this one."""

    name: str
    number: int
    text: str


@frozen(kw_only=True)
class Refused:
    """A message that the function was not given, by the number of its row, for it is not what its channel takes."""

    number: int
    channel: str
    why: str


@frozen
class Returned:
    """The function has returned: the JSON text of what.

    `unawaited` is what it would have asked for by calls that it made, and never awaited.
    """

    output: str
    unawaited: tuple[Request, ...] = attrs.field(default=(), kw_only=True, eq=False, repr=False)


@frozen
class Failed:
    """The function has raised this."""

    error: BaseException


@frozen(kw_only=True)
class GoesOn:
    """The function has asked to go on as a new generation of its run: as this workflow, with this JSON text as input.

    `unread` are the numbers of the rows with updates that it has not begun with.
    """

    workflow: str
    version: str
    input: str
    unread: tuple[int, ...] = ()


Ended: TypeAlias = Returned | Failed | GoesOn


@frozen(kw_only=True)
class Turn:
    """What a function has come to after it was told something: it waits, or has ended.

    `asked` is new since the turn before, in the order in which it was asked for; `dropped` are the calls in which
    nobody is interested any more. `patches` are names that it has asked for the first time, and was told yes: that is
    to be recorded before anything else is done, as are the messages that are `refused`. `answers` are what updates have
    come to, `published` what is shown.
    `read_clock` is whether the function has looked at what its clock shows.
    """

    requests: tuple[Request, ...] = ()
    dropped: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    answers: tuple[Answered, ...] = ()
    published: tuple[Published, ...] = ()
    refused: tuple[Refused, ...] = ()
    read_clock: bool = False
    ended: Ended | None = None


def _notification_text(run: str, *, is_cancel: bool) -> str:
    return f"that run {run!r} is cancelled" if is_cancel else f"a message to run {run!r}"
