"""Commands on event sinks, the outbox and dead letters, with their replies."""

from typing import ClassVar, Final, Literal

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

FLUSH_LIMIT: Final = 100
"""Default limit of streams that one flush leases."""


@frozen(kw_only=True)
class SinkRegistered:
    """Reply to `SinkRegister`."""

    sink: str
    since: Micros
    """Instant from which the sink receives events."""
    created: bool
    """Whether the command registered it; False: it was registered before."""


@frozen(kw_only=True)
class SinkRegister(OperatorCommand[SinkRegistered]):
    """Command to register a sink for events. A registered sink stays unchanged.

    Errors: SinkExistsError if it is registered with other types; InvalidCommandError for an unknown type.
    """

    type: ClassVar[Literal["sink.register"]] = "sink.register"
    sink: str
    """Name of the sink."""
    since: Micros | None = None
    """Instant from which it receives events; None: now."""
    types: tuple[str, ...] = ()
    """Event types to deliver, such as `run.failed` or `user.*`. Empty: all."""


@frozen(kw_only=True)
class SinkRemoved:
    """Reply to `SinkRemove`."""

    removed: bool
    """Whether the sink was registered."""


@frozen(kw_only=True)
class SinkRemove(OperatorCommand[SinkRemoved]):
    """Command to remove a sink with its undelivered events and dead letters."""

    type: ClassVar[Literal["sink.remove"]] = "sink.remove"
    is_kept: ClassVar[bool] = False
    sink: str


@frozen(kw_only=True)
class StreamLease:
    """A leased stream: the events of one run that one sink has not received."""

    run: str
    """Key of the run's generation."""
    after: int
    """Number of the last row that was delivered."""
    head_row: int
    """Number of the last row that is known."""
    suspect: bool = False
    """Whether the sink failed at the stream's next event before."""
    skipped_rows: str | None = None
    """JSON text of an object: by row number, the `reason` for which an operator skipped the event, and the `actor`."""


@frozen(kw_only=True)
class OutboxFlushed:
    """Reply to `OutboxFlush`."""

    registration: str = ""
    """Key of the sink's registration; empty if no stream is due."""
    holder: str = ""
    """Id of this lease, which `OutboxSettle` must show."""
    until: Micros = 0
    """Instant at which the lease expires."""
    since: Micros = 0
    """Instant before which the sink receives no events."""
    types: tuple[str, ...] = ()
    """Event types that the sink receives. Empty: all."""
    failing: bool = False
    """Whether the sink accepted nothing the last time."""
    streams: tuple[StreamLease, ...] = ()


@frozen(kw_only=True)
class OutboxFlush(Command[OutboxFlushed]):
    """Command to lease streams with undelivered events.

    The caller reads the rows after `StreamLease.after`, sends them outside of any transaction, and dispatches
    `OutboxSettle`.
    """

    type: ClassVar[Literal["outbox.flush"]] = "outbox.flush"
    sink: str
    lease: Micros
    """Microseconds until the lease expires."""
    limit: int = FLUSH_LIMIT
    """Most streams that are leased."""


@frozen(kw_only=True)
class StreamProgress:
    """Progress of a stream: the sink accepted the events of a run up to a row."""

    run: str
    """Key of the run's generation."""
    number: int
    """Number of the last accepted row."""


@frozen(kw_only=True)
class StreamFailure:
    """Failure of a stream: the sink accepted the events of a run up to a row, and failed at a later one."""

    run: str
    """Key of the run's generation."""
    delivered: int
    """Number of the last accepted row."""
    number: int
    """Number of the row at which the sink failed."""
    error: str
    final: bool = False
    """Whether the sink rejects this event as such, as opposed to failing for another reason."""


@frozen(kw_only=True)
class OutboxSettled:
    """Reply to `OutboxSettle`."""

    fenced: tuple[str, ...] = ()
    """Keys of runs whose streams another holder has by now. They were not changed."""
    dead_lettered: tuple[str, ...] = ()
    """Keys of runs whose streams were dead-lettered."""
    retry_at: Micros | None = None
    """Instant before which nothing is sent to the sink; None: it is not failing."""


@frozen(kw_only=True)
class OutboxSettle(Command[OutboxSettled]):
    """Command to store how far streams were delivered, and release them. Streams that it does not name stay leased.

    A flush may be settled in several parts, so that less is delivered twice if its process dies. An event is
    dead-lettered with the rest of its stream after five `final` refusals, or after twenty failures while the sink
    accepts other events.
    """

    type: ClassVar[Literal["outbox.settle"]] = "outbox.settle"
    sink: str
    registration: str
    """`registration` of the reply to `OutboxFlush`."""
    holder: str
    """`holder` of the same reply."""
    delivered: tuple[StreamProgress, ...] = ()
    refused: tuple[StreamFailure, ...] = ()
    untouched: tuple[str, ...] = ()
    """Keys of runs whose streams are released without an attempt to send."""
    took: bool = False
    """Whether the sink has accepted any event in this flush."""
    error: str | None = None
    """Why the sink as a whole failed. It is then left alone, longer with each failure."""
    retry_after: Micros = 0
    """Shortest such pause, in microseconds."""


@frozen(kw_only=True)
class StreamRange:
    """A part of a stream: the events of one run in a batch."""

    run: str
    """Key of the run's generation."""
    after: int
    """Number of the row before the first one."""
    last: int
    """Number of the last row."""
    skipped_rows: str | None = None
    """As in `StreamLease`."""


@frozen(kw_only=True)
class OutboxBatch:
    """Reply to `OutboxRead`."""

    registration: str = ""
    """Key of the sink's registration; empty if there is no such sink."""
    number: int = 0
    """Number of the batch, from 1; 0 before the first one."""
    since: Micros = 0
    """Instant before which the sink receives no events."""
    types: tuple[str, ...] = ()
    """Event types that the sink receives. Empty: all."""
    streams: tuple[StreamRange, ...] = ()
    """What the batch has, in order. Empty: nothing is due."""
    passed_over: int = 0
    """How many batches were passed over before this one, so that no client got their numbers."""


@frozen(kw_only=True)
class OutboxRead(Command[OutboxBatch]):
    """Command to acknowledge a batch of a sink that a client reads, and to return the next one.

    A batch stays as it is until it is acknowledged, so that it can be read again. From its first `outbox.read` on, a
    sink is only read: `outbox.flush` finds nothing for it. Errors: SinkCursorError.
    """

    type: ClassVar[Literal["outbox.read"]] = "outbox.read"
    sink: str
    registration: str | None = None
    """`registration` of the batch to acknowledge; None: nothing is acknowledged."""
    acknowledged: int | None = None
    """Number of the batch to acknowledge, or of the one before to read the last one again; None: nothing is."""
    reads_on: bool = True
    """Whether the next batch is returned; False: the command only acknowledges."""
    passes_over: int | None = None
    """`passed_over` of the batch `acknowledged`, if it has no event for the client: the next one gets its number.

    So the client can still read on from the batch before, if it does not get the answer.
    """
    limit: int = FLUSH_LIMIT
    """Most streams in a new batch."""
    rows_max: int = 500
    """Most history rows in a new batch."""


@frozen(kw_only=True)
class OutboxSwept:
    """Reply to `OutboxSweep`."""

    healed: int
    """How many streams had undelivered rows that were not known."""
    checked: int
    """How many runs were checked."""
    next: str | None
    """The `after` of the next command; None: all runs are checked."""
    hurry: bool
    """Whether a full sweep is due, as rows may be missing from before every process knew of one of the sinks."""
    unknown: tuple[str, ...] = ()
    """Names of sinks that are not registered."""


@frozen(kw_only=True)
class OutboxSweep(Command[OutboxSwept]):
    """Command to find rows that are in no stream, because their process did not know of the sink yet."""

    type: ClassVar[Literal["outbox.sweep"]] = "outbox.sweep"
    sinks: tuple[str, ...]
    """Names of the sinks."""
    began: Micros | None = None
    """Instant at which this sweep over all runs began, stored with the sinks at its end; None: do not store it."""
    after: str = ""
    """Run key to continue from: `next` of the previous reply."""
    limit: int = 500
    """Most runs that are checked."""


@frozen(kw_only=True)
class DeadLettersReplayed:
    """Reply to `DeadLetterReplay`."""

    replayed: int
    """How many streams were released."""
    more: bool
    """Whether the same command may release more."""


@frozen(kw_only=True)
class DeadLetterReplay(OperatorCommand[DeadLettersReplayed]):
    """Command to release dead-lettered streams: delivery continues with the event that was refused."""

    type: ClassVar[Literal["dead_letter.replay"]] = "dead_letter.replay"
    is_kept: ClassVar[bool] = False
    sink: str = ""
    """Name of the sink. Empty: all."""
    run_id: str = ""
    """Id of the run. Empty: all."""
    skip: bool = False
    """Whether the sink gets an `event.skipped` instead of the event, or nothing if it has refused that too."""
    reason: str = ""
    """Why the event is skipped."""
    limit: int = 500
    """Most streams that are released."""
