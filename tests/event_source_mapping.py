"""Lambda's event source mapping over moto's SQS, with faults."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

Invoke = Callable[[Mapping[str, Any]], Mapping[str, Sequence[Mapping[str, str]]] | None]
"""Invokes a function with an event; None if it did not answer."""


class Killed(BaseException):
    """A function was killed."""


@attrs.frozen(kw_only=True)
class PumpFaults:
    """Percentages of faults of messages and batches.

    Attributes:
        lost: A message is lost.
        delayed: A message is delayed.
        kept: A message was handled and is redelivered all the same.
        doubled: A batch has each of its messages twice.
        twice: A batch is passed to two functions, concurrently if several run at once.
    """

    lost: int = 0
    delayed: int = 0
    kept: int = 0
    doubled: int = 0
    twice: int = 0


class EventSource:
    """Receives batches from a queue, invokes the function, and deletes handled messages. `poll` from any thread.

    Attributes:
        invocations: The number of invocations.
        requests: The number of requests to the queue, without those of the function itself.
        faults: The number of times each fault occurred.
        given_back: The number of messages that functions returned as failures.
    """

    def __init__(
        self,
        client: "SQSClient",
        url: str,
        invoke: Invoke,
        *,
        batch: int = 10,
        faults: PumpFaults | None = None,
        random: Random | None = None,
    ) -> None:
        self._client = client
        self._url = url
        self._invoke = invoke
        self._batch = batch
        self._wanted = faults or PumpFaults()
        self._random = random or Random(0)
        self._arn = str(
            client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        )
        self.invocations = 0
        self.given_back = 0
        self.requests = 0
        self.faults: Counter[str] = Counter()
        self._copies: deque[list[dict[str, Any]]] = deque()
        self._lock = threading.Lock()

    def poll(self) -> int:
        """Receive a batch, if there is one, and have it handled. Return the number of messages."""
        try:
            copy = self._copies.popleft()
        except IndexError:
            pass
        else:
            self._handle(copy)
            return len(copy)
        self._count("requests")
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=self._batch,
            WaitTimeSeconds=0,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        received = answer.get("Messages", [])
        records = [self._record(message) for message in received]
        records = [record for record in records if self._arrives(record)]
        if records:
            if self._draws("twice"):
                self._copies.append(list(records))
            self._handle(records)
        return len(received)

    def _handle(self, records: list[dict[str, Any]]) -> None:
        given = list(records)
        if self._draws("doubled"):
            given += records
            with self._lock:
                self._random.shuffle(given)
        self._count("invocations")
        answer = self._invoke({"Records": given})
        if answer is None:
            return
        back = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        assert back <= {record["messageId"] for record in records}, "Lambda would give the whole batch back"
        self._count("given_back", len(back))
        done = [record["receiptHandle"] for record in records if record["messageId"] not in back]
        self._delete([receipt for receipt in done if not self._draws("kept")])

    def _arrives(self, record: Mapping[str, Any]) -> bool:
        if self._draws("lost"):
            self._delete([record["receiptHandle"]])
            return False
        if self._draws("delayed"):
            # Where two were handed the same message and the other has deleted it, there is nothing to delay.
            with suppress(self._client.exceptions.ReceiptHandleIsInvalid):
                self._client.change_message_visibility(
                    QueueUrl=self._url, ReceiptHandle=record["receiptHandle"], VisibilityTimeout=45
                )
            return False
        return True

    def _draws(self, fault: str) -> bool:
        with self._lock:
            if self._random.randrange(100) >= getattr(self._wanted, fault):
                return False
            self.faults[fault] += 1
            return True

    def _count(self, what: str, by: int = 1) -> None:
        with self._lock:
            setattr(self, what, getattr(self, what) + by)

    def _delete(self, receipts: Sequence[str]) -> None:
        if not receipts:
            return
        self._count("requests")
        self._client.delete_message_batch(
            QueueUrl=self._url,
            Entries=[{"Id": str(at), "ReceiptHandle": receipt} for at, receipt in enumerate(receipts)],
        )

    def _record(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message in the form in which Lambda passes it to functions."""
        told = message.get("MessageAttributes", {})
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": dict(message.get("Attributes", {})),
            "messageAttributes": {
                name: {"stringValue": one["StringValue"], "dataType": one["DataType"]}
                for name, one in told.items()
            },
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": self._arn,
            "awsRegion": "eu-central-1",
        }
