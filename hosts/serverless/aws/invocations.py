"""The context and the SQS events that AWS Lambda passes to a handler."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, cast

import attrs

from holdfast.ports.errors import InvalidMessageError

MARGIN_MAX: Final = 10.0
"""The maximum time reserved for storing results at the end of an invocation, in seconds."""

Event: TypeAlias = Mapping[str, object]
Answer: TypeAlias = dict[str, list[dict[str, str]]]


class Context(Protocol):
    """The part of the Lambda context that is used here."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda stops the invocation."""
        ...


class Messages(Protocol):
    """Operations on messages of a queue. See `SqsMessages`."""

    def show_in(self, queue: str, seconds: Mapping[str, float], /) -> None:
        """Set after how many seconds messages are delivered again, by receipt. Never raises errors of the service."""
        ...

    def put_aside(self, queue: str, body: str, reason: str, /) -> None:
        """Send a message to another queue, with the reason. Raises UnavailableError."""
        ...


@attrs.frozen(kw_only=True)
class Record:
    """A message of an SQS event.

    Attributes:
        id: The message id.
        receipt: The receipt handle of this delivery.
        body: The text.
        source: The ARN of its queue.
        receives: How often it was received, including this time.
        group: The message group, in a FIFO queue; otherwise None.
        queue: The queue of its job, according to the sender.
    """

    id: str
    receipt: str
    body: str
    source: str
    receives: int = 1
    group: str | None = None
    queue: str | None = None


class Deadline:
    """The end of an invocation, less a margin. Arguments are in seconds."""

    def __init__(
        self,
        context: Context | None,
        *,
        limit: float,
        margin: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        left = limit if context is None else context.get_remaining_time_in_millis() / 1_000
        self._monotonic = monotonic
        self._until = monotonic() + left - margin

    @property
    def seconds_left(self) -> float:
        """The seconds left to work; negative if they are over."""
        return self._until - self._monotonic()


def margin_of(limit: float) -> float:
    """Return how many seconds of an invocation are reserved for storing results."""
    return min(MARGIN_MAX, limit / 10)


def records_of(event: object) -> list[Record]:
    """Return the messages of an event. Raises InvalidMessageError if it is not from SQS."""
    records = cast("Event", event).get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, Sequence) or isinstance(records, str):
        raise InvalidMessageError(
            "the event is not from SQS: it has no `Records`; connect the function to a queue"
        )
    return [record_of(one) for one in cast("Sequence[object]", records)]


def record_of(data: object) -> Record:
    """Return one record of an event. Raises InvalidMessageError if it is not from SQS."""
    try:
        fields = cast("Mapping[str, str]", data)
        system_attributes = cast("Mapping[str, str]", fields.get("attributes") or {})
        attributes = cast("Mapping[str, Mapping[str, str]]", fields.get("messageAttributes") or {})
        return Record(
            id=fields["messageId"],
            receipt=fields["receiptHandle"],
            body=fields["body"],
            source=fields["eventSourceARN"],
            receives=int(system_attributes.get("ApproximateReceiveCount", "1")),
            group=system_attributes.get("MessageGroupId"),
            queue=attributes["queue"].get("stringValue") if "queue" in attributes else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidMessageError(f"a record of the event is not from SQS: {error!r}") from None
