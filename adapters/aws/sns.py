"""A sink that publishes events to a topic of Amazon SNS, as CloudEvents."""

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
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import (
        BatchResultErrorEntryTypeDef,
        MessageAttributeValueTypeDef,
        PublishBatchRequestEntryTypeDef,
    )

_TOPIC: Final = Wanted(
    "the ARN of a topic, as arn:aws:sns:eu-central-1:123456789012:runs",
    lambda value: isinstance(value, str) and value.startswith("arn:") and value.count(":") == 5,
)
_ABOUT_THE_EVENT: Final = frozenset({"InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid"})
"""Error codes that blame the entry itself. Others are about permissions, the topic, or the moment."""
_CONFIG: Final = config(connect_timeout=2, read_timeout=5, attempts=2)


class SnsSink:
    """An EventSink that publishes up to ten events per request, each of another run. Safe to use from several threads.

    A message is a CloudEvent as JSON text. Its attributes `type` (`holdfast.run.completed`), `namespace` and `workflow`
    are for the filters of subscriptions. On a FIFO topic the message group is the run, and the deduplication id is the
    id of the event: a repetition within five minutes is dropped, and a run's messages stay in order. On a standard
    topic they may arrive in any order: use `holdfastnumber`.

    An event that is too large, or invalid according to SNS, is refused for good. An entry that fails for any other
    reason is published again a few times, before those that follow it in its run; then the call fails, and the events
    are delivered again later.

    The role needs `sns:Publish` on the topic.
    """

    def __init__(
        self,
        topic: str,
        /,
        *,
        client: "SNSClient | None" = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Configure the sink, without calling AWS. The topic must exist.

        Args:
            topic: Its ARN, which selects the region. That of a FIFO topic ends in `.fifo`.
            client: A boto3 client, if boto3's defaults for credentials and endpoint do not fit.
            monotonic: The clock for timeouts.
            sleep: Waits before a failed entry is published again.

        Raises:
            InvalidArgumentError: An argument is invalid.
        """
        check("SnsSink", _TOPIC, topic=topic)
        self._topic = topic
        self._is_fifo = topic.endswith(".fifo")
        self._client: SNSClient = client or new_client("SnsSink", "sns", _CONFIG, region_of(topic))
        self._monotonic = monotonic
        self._sleep = sleep

    @override
    def __repr__(self) -> str:
        return f"SnsSink({self._topic!r})"

    def emit(self, events: Sequence[Event], /) -> None:
        """Publish events, in few requests. EventRefusedError, UnavailableError."""
        entries = [self._entry(place, event) for place, event in enumerate(events)]
        send_in_order(repr(self), entries, self._publish, monotonic=self._monotonic, sleep=self._sleep)

    def _entry(self, place: int, event: Event) -> "Entry[PublishBatchRequestEntryTypeDef]":
        text = cloud_event(event)
        fields = {"type": f"{TYPES}{event.type}", "namespace": event.namespace, "workflow": event.workflow}
        attributes: dict[str, MessageAttributeValueTypeDef] = {
            name: {"DataType": "String", "StringValue": value} for name, value in fields.items() if value
        }
        content: PublishBatchRequestEntryTypeDef = {
            "Id": str(place),
            "Message": text,
            "MessageAttributes": attributes,
        }
        if self._is_fifo:
            content["MessageGroupId"] = event.run
            content["MessageDeduplicationId"] = event.id
        size = sum(
            len(part.encode()) for name, value in fields.items() if value for part in (name, "String", value)
        )
        return Entry(run=event.run, name=event.id, content=content, size=size + len(text.encode()))

    def _publish(self, entries: "Sequence[PublishBatchRequestEntryTypeDef]") -> list[Failure | None]:
        with reported(f"publish to {self._topic}"):
            answer = self._client.publish_batch(TopicArn=self._topic, PublishBatchRequestEntries=entries)
        taken = {one.get("Id") for one in answer.get("Successful", [])}
        failed = {one["Id"]: one for one in answer.get("Failed", [])}
        # An entry without an answer counts as not accepted.
        return [None if one["Id"] in taken else _failure(failed.get(one["Id"])) for one in entries]


def _failure(answer: "BatchResultErrorEntryTypeDef | None") -> Failure:
    if answer is None:
        return Failure(reason="no answer", final=False)
    reason = f"{answer['Code']}: {answer.get('Message', '')}".rstrip(": ")
    return Failure(reason=reason, final=answer["Code"] in _ABOUT_THE_EVENT)
