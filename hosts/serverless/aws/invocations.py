"""What Lambda hands to a handler: how long the invocation lasts yet, and the messages of a queue."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, cast

import attrs

from holdfast.ports.errors import InvalidMessageError

MARGIN_MAX: Final = 10.0
"""Seconds that are kept, at the most, for storing what bodies have given."""

Event: TypeAlias = Mapping[str, object]
Answer: TypeAlias = dict[str, list[dict[str, str]]]


class Context(Protocol):
    """What Lambda tells a handler of its invocation, as far as it is asked for here."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long it is until the invocation is ended."""
        ...


class Messages(Protocol):
    """What can be done with messages of a queue. See `SqsMessages`."""

    def show_in(self, queue: str, seconds: Mapping[str, float], /) -> None:
        """Let messages be given again after so many seconds, by their receipts. Never raises for what is outside."""
        ...

    def put_aside(self, queue: str, body: str, reason: str, /) -> None:
        """Send a message to another queue, with the reason. UnavailableError."""
        ...


@attrs.frozen(kw_only=True)
class Record:
    """One message of an event.

    Attributes:
        id: What the answer names it by.
        receipt: What SQS knows this delivery by.
        body: The text.
        source: The ARN of its queue.
        receives: How often it was given to somebody, this time included.
        group: Its group, in a FIFO queue; None in another.
        queue: The queue of its job, as the sender said.
    """

    id: str
    receipt: str
    body: str
    source: str
    receives: int = 1
    group: str | None = None
    queue: str | None = None


class Deadline:
    """When an invocation ends, by the clock of this process."""

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
        """How many seconds there are to work in. Negative if they are over."""
        return self._until - self._monotonic()


def margin_of(limit: float) -> float:
    """Return how much of an invocation's seconds is kept for what comes after bodies."""
    return min(MARGIN_MAX, limit / 10)


def records_of(event: object) -> list[Record]:
    """Return the messages of an event. InvalidMessageError if it is none of SQS: the function is wired to another."""
    records = cast("Event", event).get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, Sequence) or isinstance(records, str):
        raise InvalidMessageError(
            "the event is none of SQS: it has no `Records`; give the function to a queue"
        )
    return [record_of(one) for one in cast("Sequence[object]", records)]


def record_of(data: object) -> Record:
    """Return one record of an event. InvalidMessageError if it is none of SQS."""
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
        raise InvalidMessageError(f"a record of the event is none of SQS: {error!r}") from None
