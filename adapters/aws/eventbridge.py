"""A sink that puts events on a bus of Amazon EventBridge, as CloudEvents."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from holdfast.adapters.aws.batch_sender import Entry, Failure, send_in_order
from holdfast.adapters.aws.client import config, new_client, region_of, reported
from holdfast.ports.cloudevents import TYPES, cloud_event
from holdfast.ports.events import Event
from holdfast.ports.validation import Wanted, check

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef, PutEventsResultEntryTypeDef

_BUS: Final = Wanted(
    "the name or the ARN of an event bus", lambda value: isinstance(value, str) and 0 < len(value) <= 1_600
)
_SOURCE: Final = Wanted(
    "1 to 256 characters that do not begin with `aws.`",
    lambda value: isinstance(value, str) and 0 < len(value) <= 256 and not value.startswith("aws."),
)
_ABOUT_THE_EVENT: Final = frozenset({"InvalidArgument", "MalformedDetail"})
"""Error codes that blame the entry itself. Others are about permissions, the bus, or the moment."""
_TIME_BYTES: Final = 14
_CONFIG: Final = config(connect_timeout=2, read_timeout=5, attempts=2)


class EventBridgeSink:
    """An EventSink that puts up to ten events per request, each of another run. Safe to use from several threads.

    An event's `detail` is the CloudEvent, its `detail-type` the CloudEvent's type (`holdfast.run.completed`), its
    `source` configured here. Events of a run are put in order, but EventBridge's rules deliver in any order: use
    `detail.holdfastnumber`.

    An event that is too large, or malformed according to EventBridge, is refused for good. An entry that fails for any
    other reason is put again a few times, before those that follow it in its run; then the call fails, and the events
    are delivered again later.

    The role needs `events:PutEvents` on the bus.
    """

    def __init__(
        self,
        bus: str = "default",
        /,
        *,
        source: str = "holdfast",
        client: "EventBridgeClient | None" = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Configure the sink, without calling AWS. The bus must exist.

        Args:
            bus: Its name or ARN; an ARN selects the region.
            source: The `source` of the events on the bus, for rules to match.
            client: A boto3 client, if boto3's defaults for region, credentials and endpoint do not fit.
            monotonic: The clock for timeouts.
            sleep: Waits before a failed entry is put again.

        Raises:
            InvalidArgumentError: An argument is invalid.
        """
        check("EventBridgeSink", _BUS, bus=bus)
        check("EventBridgeSink", _SOURCE, source=source)
        self._bus = bus
        self._source = source
        self._client: EventBridgeClient = client or new_client(
            "EventBridgeSink", "events", _CONFIG, region_of(bus)
        )
        self._monotonic = monotonic
        self._sleep = sleep

    @override
    def __repr__(self) -> str:
        return f"EventBridgeSink({self._bus!r})"

    def emit(self, events: Sequence[Event], /) -> None:
        """Put events on the bus, in few requests. EventRefusedError, UnavailableError."""
        entries = [self._entry(event) for event in events]
        send_in_order(repr(self), entries, self._put, monotonic=self._monotonic, sleep=self._sleep)

    def _entry(self, event: Event) -> "Entry[PutEventsRequestEntryTypeDef]":
        kind, detail = f"{TYPES}{event.type}", cloud_event(event)
        content: PutEventsRequestEntryTypeDef = {
            "Time": event.at,
            "Source": self._source,
            "DetailType": kind,
            "Detail": detail,
            "EventBusName": self._bus,
        }
        size = _TIME_BYTES + sum(len(text.encode()) for text in (self._source, kind, detail))
        return Entry(run=event.run, name=event.id, content=content, size=size)

    def _put(self, entries: "Sequence[PutEventsRequestEntryTypeDef]") -> list[Failure | None]:
        with reported(f"put events on the bus {self._bus!r}"):
            answers = self._client.put_events(Entries=entries)["Entries"]
        # An entry without an answer counts as not accepted.
        return [_failure(answers[place] if place < len(answers) else {}) for place in range(len(entries))]


def _failure(answer: "PutEventsResultEntryTypeDef") -> Failure | None:
    if answer.get("EventId"):
        return None
    code = answer.get("ErrorCode", "no answer")
    reason = f"{code}: {answer.get('ErrorMessage', '')}".rstrip(": ")
    return Failure(reason=reason, final=code in _ABOUT_THE_EVENT)
