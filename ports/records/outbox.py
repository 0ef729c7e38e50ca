"""Sinks, and the streams of events on their way to them."""

from enum import StrEnum
from typing import NamedTuple

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class StreamState(StrEnum):
    """The state of a stream. A dead-lettered one is not delivered until an operator replays it."""

    READY = "ready"
    DEAD_LETTERED = "dead_lettered"


class SinkName(NamedTuple):
    """The public name of a sink."""

    namespace: str
    name: str


class StreamKey(NamedTuple):
    """The key of a stream: the events of one run for one sink. Sorts in the order in which streams are locked."""

    sink: str
    """The key of the sink."""
    run: str
    """The key of the run."""


@frozen(kw_only=True)
class Sink:
    """A registered receiver of events. The object that receives them is passed to hosts, under the same name."""

    key: str
    """The key of this registration: a sink that is removed and registered again starts from scratch."""
    namespace: str
    name: str
    since: Micros
    """Rows stored at this instant or later are delivered."""
    created_at: Micros
    options: str | None = None
    """JSON text."""
    failures: int = 0
    """How many deliveries failed in a row."""
    retry_at: Micros | None = None
    """Nothing is sent before this."""
    succeeded_at: Micros | None = None
    """When the last delivery succeeded."""
    swept_at: Micros | None = None
    """When the last complete sweep over all runs began: no stream was overlooked before that."""
    error: str | None = None
    """The last failure."""
    batch: str | None = None
    """JSON text of the batch that was read last (`StoredBatch` of the kernel). None: hosts deliver its events."""

    @property
    def sink_name(self) -> SinkName:
        """The name that users see."""
        return SinkName(self.namespace, self.name)


@frozen(kw_only=True)
class StreamHead:
    """A note that a run has rows for a sink."""

    sink: str
    run: str
    head_row: int
    """The number of the run's last row."""
    at: Micros
    """When that was."""


@frozen(kw_only=True)
class Stream:
    """The delivery of one run's events to one sink."""

    sink: str
    run: str
    head_row: int
    """The number of the last known row."""
    delivered: int = 0
    """The number of the last row that the sink has accepted."""
    state: StreamState = StreamState.READY
    due_at: Micros | None = None
    """When a host should look at it; None if there is nothing to deliver."""
    holder: str | None = None
    """Identifies the host that is delivering. It moves `due_at` ahead, so that another host takes over if it stops."""
    attempts: int = 0
    """How many deliveries of `refused_row` failed while the sink accepted other events."""
    refused_row: int | None = None
    """The number of the event that the sink refuses."""
    failed_at: Micros | None = None
    """When the last of these failed."""
    dead_lettered_at: Micros | None = None
    error: str | None = None
    skipped_rows: str | None = None
    """JSON text of an object: by row number, the `reason` for which an operator skipped an event, and the `actor`."""

    @property
    def key(self) -> StreamKey:
        """The key in the store."""
        return StreamKey(self.sink, self.run)
