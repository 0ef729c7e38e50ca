"""Operations on messages that Amazon SQS has delivered to a Lambda function: delaying, and dead-lettering."""

import logging
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from holdfast.adapters.aws.client import config, new_client, reported
from holdfast.ports.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_AT_ONCE: Final = 10
_VISIBILITY_MAX: Final = 12 * 3_600
_REASON_MAX: Final = 1_000
_CONFIG: Final = config(connect_timeout=1, read_timeout=3, attempts=2)

_log = logging.getLogger("holdfast.aws")


class SqsMessages:
    """Operations on messages that another process has received. Safe to use from several threads."""

    def __init__(self, client: "SQSClient | None" = None) -> None:
        """Use a boto3 client, or create one. InvalidArgumentError if that is not possible."""
        self._client: SQSClient = client or new_client("SqsMessages", "sqs", _CONFIG)
        self._urls: dict[str, str] = {}

    def show_in(self, queue: str, seconds: Mapping[str, float], /) -> None:
        """Make messages visible again after so many seconds each, 0 to 12 hours. `seconds` is keyed by receipt.

        `queue` is an ARN. On failure the messages reappear after the queue's own visibility timeout.
        """
        waits = list(seconds.items())
        for start in range(0, len(waits), _AT_ONCE):
            try:
                self._show(queue, waits[start : start + _AT_ONCE])
            except UnavailableError as error:
                _log.warning("messages are redelivered after their visibility timeout: %s", error)
                return

    def put_aside(self, queue: str, body: str, reason: str, /) -> None:
        """Send a message to a queue, such as a dead-letter queue, with the attribute `reason`. UnavailableError.

        `queue` is a URL.
        """
        with reported(f"send to {queue}"):
            self._client.send_message(
                QueueUrl=queue,
                MessageBody=body or "(nothing)",
                MessageAttributes={"reason": {"DataType": "String", "StringValue": reason[:_REASON_MAX]}},
            )

    def _show(self, queue: str, waits: Sequence[tuple[str, float]]) -> None:
        with reported(f"keep unseen messages of {queue}"):
            answer = self._client.change_message_visibility_batch(
                QueueUrl=self._url(queue),
                Entries=[
                    {
                        "Id": str(number),
                        "ReceiptHandle": receipt,
                        "VisibilityTimeout": min(max(ceil(wait), 0), _VISIBILITY_MAX),
                    }
                    for number, (receipt, wait) in enumerate(waits)
                ],
            )
        for failed in answer.get("Failed", []):
            _log.debug("a message is redelivered: %s", failed.get("Message"))

    def _url(self, queue: str) -> str:
        """Return the URL of a queue. It is looked up, once, because its form differs between regions."""
        if queue not in self._urls:
            *_, account, name = queue.split(":")
            answer = self._client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)
            self._urls[queue] = answer["QueueUrl"]
        return self._urls[queue]
