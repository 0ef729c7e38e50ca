"""Commands on sinks of events, on what is on its way to them, and on what they refuse."""

from typing import ClassVar, Final, Literal

from holdfast.kernel.commands.command import Command
from holdfast.ports.records import Micros
from holdfast.ports.structs import frozen

FLUSH_LIMIT: Final = 100
"""How many streams are flushed at once, if nothing else is said."""


@frozen(kw_only=True)
class SinkRegistered:
    """From when on rows count for the sink. `created` is whether it was not there before."""

    sink: str
    since: Micros
    created: bool


@frozen(kw_only=True)
class SinkRegister(Command[SinkRegistered]):
    """Let events go to the sink of this name from now on, or from `since` on. One that is there stays as it is.

    SinkExistsError if it is there with other types. With `types`, only events of these types go there: `run.failed`, or
    `user.*` for all that begin so.
    """

    type: ClassVar[Literal["sink.register"]] = "sink.register"
    sink: str
    since: Micros | None = None
    types: tuple[str, ...] = ()


@frozen(kw_only=True)
class SinkRemoved:
    """Whether there was such a sink."""

    removed: bool


@frozen(kw_only=True)
class SinkRemove(Command[SinkRemoved]):
    """Let no more events go to a sink. What it had to get is forgotten, its dead letters too."""

    type: ClassVar[Literal["sink.remove"]] = "sink.remove"
    sink: str


@frozen(kw_only=True)
class StreamLease:
    """A stream that is to be flushed: the rows after `after`.

    `suspect` says that the sink has failed at the next one before. `skipped_rows` is the JSON text of why events are
    left out, by their numbers.
    """

    run: str
    after: int
    head_row: int
    suspect: bool = False
    skipped_rows: str | None = None


@frozen(kw_only=True)
class OutboxFlushed:
    """The streams that this holder is to flush until then. `failing` says that the sink took nothing the last time."""

    registration: str = ""
    holder: str = ""
    until: Micros = 0
    since: Micros = 0
    types: tuple[str, ...] = ()
    failing: bool = False
    streams: tuple[StreamLease, ...] = ()


@frozen(kw_only=True)
class OutboxFlush(Command[OutboxFlushed]):
    """Lease streams that have news for a sink. Read their rows, hand them over, then say how far that went."""

    type: ClassVar[Literal["outbox.flush"]] = "outbox.flush"
    sink: str
    lease: Micros
    limit: int = FLUSH_LIMIT


@frozen(kw_only=True)
class Delivered:
    """The sink took a run's events up to this row."""

    run: str
    number: int


@frozen(kw_only=True)
class Refused:
    """The sink took a run's events up to row `delivered`, and failed at row `number`.

    `final` says that it is this event that it refuses, by its own word.
    """

    run: str
    delivered: int
    number: int
    error: str
    final: bool = False


@frozen(kw_only=True)
class OutboxSettled:
    """What became of the streams: those not held any more, and those that are parked now. `retry_at` is the sink's."""

    fenced: tuple[str, ...] = ()
    dead_lettered: tuple[str, ...] = ()
    retry_at: Micros | None = None


@frozen(kw_only=True)
class OutboxSettle(Command[OutboxSettled]):
    """Say how far streams were flushed, and give them back, `untouched` ones too. What is not named stays leased.

    A flush may say so in several portions: the sooner it does, the less comes again if it dies. `took` is whether the
    sink took anything at all so far. `error` is why the sink as a whole failed; it is then left alone for a while, for
    `retry_after` at least.
    """

    type: ClassVar[Literal["outbox.settle"]] = "outbox.settle"
    sink: str
    registration: str
    holder: str
    delivered: tuple[Delivered, ...] = ()
    refused: tuple[Refused, ...] = ()
    untouched: tuple[str, ...] = ()
    took: bool = False
    error: str | None = None
    retry_after: Micros = 0


@frozen(kw_only=True)
class OutboxSwept:
    """How many streams had news that nobody had said, of how many runs. `next` is where to go on; None at the end.

    `hurry` says that rows from before the sink was known everywhere may be among what is left; `unknown` are those of
    the sinks that are not registered.
    """

    healed: int
    checked: int
    next: str | None
    hurry: bool
    unknown: tuple[str, ...] = ()


@frozen(kw_only=True)
class OutboxSweep(Command[OutboxSwept]):
    """Look, from the run key `after` on, for runs with rows that these sinks have not heard of.

    `began` is when this walk over all runs began, to be noted at its end; None once there is no more hurry.
    """

    type: ClassVar[Literal["outbox.sweep"]] = "outbox.sweep"
    sinks: tuple[str, ...]
    began: Micros | None = None
    after: str = ""
    limit: int = 500


@frozen(kw_only=True)
class DeadLettersReplayed:
    """How many parked streams go on. `more` says whether there may be others."""

    replayed: int
    more: bool


@frozen(kw_only=True)
class DeadLetterReplay(Command[DeadLettersReplayed]):
    """Let parked streams go on from the event that was refused: of one sink, of one run, or all.

    With `skip`, the sink gets an `event.skipped` in place of that event, with the `reason`. If it has refused that as
    well, it gets nothing in its place.
    """

    type: ClassVar[Literal["dead_letter.replay"]] = "dead_letter.replay"
    sink: str = ""
    run_id: str = ""
    skip: bool = False
    reason: str = ""
    limit: int = 500
