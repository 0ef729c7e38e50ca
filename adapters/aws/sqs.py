"""A transport of hints over a queue of Amazon SQS: one message per job, for a Lambda function or a worker."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil, floor
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from holdfast.adapters.aws.client import config, new_client, reported
from holdfast.ports.errors import UnavailableError
from holdfast.ports.json import canonical, parse
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.records.job import job_key
from holdfast.ports.transport import Delivery, Hint, JobHint
from holdfast.ports.validation import TEXT, check, integer

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef, SendMessageBatchRequestEntryTypeDef

SIDE_BY_SIDE: Final = 8
"""Concurrent requests for hints at many jobs. A boto3 client keeps ten connections."""
_AT_ONCE: Final = 10
"""The most messages that SQS sends or returns in one request."""
_POLL_MAX: Final = 20
"""The longest wait of a request for messages, in seconds."""
_VISIBILITY_MAX: Final = 12 * 3_600
_SEND_BACKOFF: Final = 5.0
"""Seconds without sending after a failure: every commit would wait for it."""
_QUEUE: Final = "queue"
_SENDING: Final = config(connect_timeout=1, read_timeout=2, attempts=2)
_RECEIVING: Final = config(connect_timeout=5, read_timeout=_POLL_MAX + 5, attempts=2)

_log = logging.getLogger("holdfast.aws")


class SqsJobTransport:
    """A JobTransport over one queue, standard or FIFO. Safe to use from several threads.

    A message is `{"epoch":0,"job_id":"..."}` and nothing else, with the job's queue as its attribute `queue`. Hints at
    the ends of runs are not sent, because a message reaches only one receiver; callers that wait for a run poll the
    store.

    Messages are sent within the call, ten per request and eight requests at a time, because a Lambda function is frozen
    once it has answered. If that fails they are lost, and so are hints of the next five seconds; the maintenance tick
    announces lost ones again.
    """

    delivers_run_hints: Final = False

    def __init__(
        self,
        url: str,
        *,
        client: "SQSClient | None" = None,
        poll_seconds: int = 5,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the transport, without calling AWS. The queue must exist.

        Args:
            url: The queue's URL. That of a FIFO queue ends in `.fifo`; each job is a message group, so that no job
                waits for another. Set the queue's visibility timeout longer than the longest function execution.
            client: A boto3 client, if boto3's defaults for region, credentials and endpoint do not fit.
            poll_seconds: The longest wait of a request for messages, up to 20 seconds. `close` waits for it.
            monotonic: The clock for timeouts.

        Raises:
            InvalidArgumentError: An argument is invalid.
        """
        check("SqsJobTransport", TEXT, url=url)
        check("SqsJobTransport", integer(1, _POLL_MAX), poll_seconds=poll_seconds)
        self._url = url
        self._sender: SQSClient = client or new_client("SqsJobTransport", "sqs", _SENDING)
        self._client: SQSClient = client or new_client("SqsJobTransport", "sqs", _RECEIVING)
        self._is_fifo = url.endswith(".fifo")
        self._poll = poll_seconds
        self._monotonic = monotonic
        self._backoff_until = float("-inf")
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to open."""
        self._closed = threading.Event()

    def reopen(self) -> None:
        """See `Reopenable`."""
        if self._closed.is_set():
            self.renew()

    @override
    def __repr__(self) -> str:
        return f"SqsJobTransport({self._url!r})"

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Send a message for each job. Hints are lost after `close`, and for a while after a failure."""
        jobs = [hint for hint in hints if isinstance(hint, JobHint)]
        batches = [jobs[start : start + _AT_ONCE] for start in range(0, len(jobs), _AT_ONCE)]
        if len(batches) <= 1:
            for batch in batches:
                self._send(batch)
            return
        with ThreadPoolExecutor(min(len(batches), SIDE_BY_SIDE), "holdfast-sqs") as threads:
            for _ in threads.map(self._send, batches):
                pass

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return up to `limit` hints, at most ten, waiting up to `wait` seconds for the first. Empty if none arrived.

        UnavailableError if SQS can't be reached.
        """
        until = self._monotonic() + wait
        while not self._closed.is_set() and limit > 0:
            left = max(0.0, until - self._monotonic())
            with reported(f"receive from {self._url}"):
                answer = self._client.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=min(limit, _AT_ONCE),
                    WaitTimeSeconds=min(floor(left), self._poll),
                    MessageAttributeNames=[_QUEUE],
                )
            if messages := answer.get("Messages", []):
                return [_delivery(message) for message in messages]
            if left < 1 and self._closed.wait(until - self._monotonic()):
                break
            if self._monotonic() >= until:
                break
        return ()

    def ack(self, receipt: str, /) -> None:
        """Delete the message, unless it was deleted or delivered to another receiver since."""
        self._request(
            "delete", lambda: self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipt)
        )

    def retry(self, receipt: str, delay: float, /) -> None:
        """Make the message visible again after `delay` seconds, at most twelve hours."""
        self._show_in(receipt, delay)

    def extend(self, receipt: str, by: float, /) -> None:
        """Keep the message invisible for `by` seconds from now."""
        self._show_in(receipt, by)

    def close(self) -> None:
        """Stop. A waiting `receive` returns once its request has ended. Can be called repeatedly."""
        self._closed.set()

    def _send(self, hints: Sequence[JobHint]) -> None:
        if self._closed.is_set() or self._monotonic() < self._backoff_until:
            return
        entries = [self._entry(number, hint) for number, hint in enumerate(hints)]
        try:
            with reported(f"send to {self._url}"):
                answer = self._sender.send_message_batch(QueueUrl=self._url, Entries=entries)
        except UnavailableError as error:
            previous, self._backoff_until = self._backoff_until, self._monotonic() + _SEND_BACKOFF
            if self._monotonic() < previous:  # a concurrent request has logged it
                return
            _log.warning(
                "hints are lost for %s seconds, the jobs are announced again later: %s", _SEND_BACKOFF, error
            )
            return
        for failed in answer.get("Failed", []):
            _log.warning("a hint is lost, the job is announced again later: %s", failed.get("Message"))

    def _entry(self, number: int, hint: JobHint) -> "SendMessageBatchRequestEntryTypeDef":
        entry: SendMessageBatchRequestEntryTypeDef = {
            "Id": str(number),
            "MessageBody": canonical({"epoch": hint.epoch, "job_id": hint.job}),
            "MessageAttributes": {_QUEUE: {"DataType": "String", "StringValue": hint.queue}},
        }
        if self._is_fifo:
            entry["MessageGroupId"] = hint.job
            entry["MessageDeduplicationId"] = f"{hint.job}-{hint.epoch}"
        return entry

    def _show_in(self, receipt: str, seconds: float) -> None:
        visibility = min(max(ceil(seconds), 0), _VISIBILITY_MAX)
        self._request(
            "keep unseen",
            lambda: self._client.change_message_visibility(
                QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=visibility
            ),
        )

    def _request(self, what: str, call: Callable[[], object]) -> None:
        if self._closed.is_set():
            return
        try:
            with reported(f"{what} a message of {self._url}"):
                call()
        except UnavailableError as error:
            _log.debug("a message is redelivered: %s", error)  # harmless; mostly its receipt has expired


def _delivery(message: "MessageTypeDef") -> Delivery:
    receipt = message.get("ReceiptHandle", "")
    attributes = message.get("MessageAttributes", {})
    queue = attributes[_QUEUE].get("StringValue", "") if _QUEUE in attributes else ""
    return Delivery(hint=_hint(message.get("Body", ""), queue), receipt=receipt)


def _hint(body: str, queue: str) -> JobHint | None:
    """Return the hint in a message; None for a message from elsewhere, which only signals that something changed."""
    try:
        data: object = parse(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    fields = cast("dict[str, object]", data)
    job, epoch = fields.get("job_id"), fields.get("epoch")
    if not isinstance(job, str) or type(epoch) is not int:
        return None
    try:
        job_key(job)
    except ValueError:
        return None
    return JobHint(job=job, epoch=epoch, queue=queue)
