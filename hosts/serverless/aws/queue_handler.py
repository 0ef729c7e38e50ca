"""The AWS Lambda handler for an SQS queue of jobs: runs them, and returns the messages to deliver again."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.aws.invocations import (
    Answer,
    Context,
    Deadline,
    Messages,
    Record,
    margin_of,
    record_of,
    records_of,
)
from holdfast.hosts.serverless.aws.timeouts import check_limit
from holdfast.hosts.serverless.aws.visibility import VISIBILITY, VisibilityExtender
from holdfast.hosts.serverless.host import JobOutcome, ServerlessHost
from holdfast.hosts.serverless.job_messages import JobMessage, message_from
from holdfast.hosts.wiring.stores import sqs_messages
from holdfast.ports.durations import Duration
from holdfast.ports.errors import HoldfastError, InvalidMessageError, UnavailableError
from holdfast.ports.validation import TEXT, check, duration, integer, several

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

AGAIN_MAX: Final = 3
"""How often a message is received whose job can't run yet. After that the store announces the job when it is due."""
MALFORMED_MAX: Final = 20
"""How often a malformed message is received, without a queue for rejected ones, before it is dropped."""
_WAIT_FIRST: Final = 5.0
_WAIT_MAX: Final = 900.0

_log = logging.getLogger("holdfast.aws")


@attrs.define(eq=False, repr=False, slots=False)
class QueueHandler:
    """The handler that `queue_handler` returns. Call it with an SQS event and the Lambda context."""

    _host: ServerlessHost
    _messages: Messages
    _limit: float = attrs.field(kw_only=True, alias="limit")
    _concurrency: int = attrs.field(kw_only=True, alias="concurrency")
    _rejected_queue: str | None = attrs.field(kw_only=True, alias="rejected_queue")
    _queues: frozenset[str] | None = attrs.field(kw_only=True, alias="queues")
    _visibility: float = attrs.field(default=VISIBILITY, kw_only=True, alias="visibility")

    @property
    def _margin(self) -> float:
        return margin_of(self._limit)

    def __call__(self, event: Mapping[str, Any], context: Context | None = None, /) -> Answer:
        """Handle a batch of messages. Return those to deliver again, as `batchItemFailures`.

        Raises:
            InvalidMessageError: The event is not from SQS.
        """
        records = records_of(event)
        deadline = Deadline(context, limit=self._limit, margin=self._margin)
        again: dict[str, float] = {}
        with VisibilityExtender(self._messages, records, self._visibility) as unseen:

            def done(record: Record, wait: float | None) -> None:
                unseen.release(record)
                if wait is not None:
                    again[record.id] = wait

            self._handle_in_order(records, deadline, done)
        self._show(records, again)
        return {"batchItemFailures": [{"itemIdentifier": one.id} for one in records if one.id in again]}

    def record_handler(self, record: object, lambda_context: Context | None = None) -> None:
        """Handle one record, for the BatchProcessor of Powertools for AWS Lambda.

        Args:
            record: The record of the SQS event, or the Powertools object for it.
            lambda_context: Passed by Powertools.

        Raises:
            UnavailableError: The message is delivered again; the delay is set in SQS.
            InvalidMessageError: The message is malformed, and there is no queue for rejected messages.
        """
        one = record_of(getattr(record, "raw_event", record))
        deadline = Deadline(lambda_context, limit=self._limit, margin=self._margin)
        if deadline.seconds_left < self._margin:
            self._show((one,), {one.id: 0.0})
            raise UnavailableError("the invocation is about to end: the message is returned to the queue")
        with VisibilityExtender(self._messages, (one,), self._visibility):
            (wait,) = self._handle((one,), deadline, is_fresh=False)
        if wait is None:
            return
        self._show((one,), {one.id: wait})
        message_from(one.body)
        raise UnavailableError(f"job {one.body} can't run yet; its message is redelivered in {wait} s")

    def _handle_in_order(
        self, records: Sequence[Record], deadline: Deadline, done: Callable[[Record, float | None], None]
    ) -> None:
        """Handle records, those of a message group in sequence, and none of a group after one that failed."""
        groups: dict[str, deque[Record]] = {}
        for record in records:
            groups.setdefault(record.group or f"{record.id}/", deque()).append(record)
        least = self._margin  # with less time left, a body could not do anything
        while groups and deadline.seconds_left > least:
            wave = [groups[name] for name in list(groups)[: self._concurrency]]
            firsts = [group.popleft() for group in wave]
            waits = self._handle(firsts, deadline, is_fresh=least == self._margin)
            for group, record, wait in zip(wave, firsts, waits, strict=True):
                done(record, wait)
                if wait is not None:
                    for later in group:
                        done(later, wait)
                    group.clear()
            groups = {name: group for name, group in groups.items() if group}
            least = self._limit / 2  # the remaining records are returned, to be handled with more time left
        for group in groups.values():
            for record in group:
                done(record, 0.0)

    def _handle(self, records: Sequence[Record], deadline: Deadline, *, is_fresh: bool) -> list[float | None]:
        """Run the jobs of records. Return the seconds after which each is to be delivered again, None for never."""
        waits: list[float | None] = [None] * len(records)
        wanted: list[tuple[int, JobMessage]] = []
        for at, record in enumerate(records):
            if self._queues is not None and record.queue is not None and record.queue not in self._queues:
                continue  # a worker of that queue claims it from the store
            try:
                wanted.append((at, message_from(record.body)))
            except InvalidMessageError as error:
                waits[at] = self._reject(record, str(error))
        outcomes = self._outcomes([message for _, message in wanted], deadline, is_fresh=is_fresh)
        for (at, _), outcome in zip(wanted, outcomes, strict=True):
            waits[at] = _wait(records[at], outcome)
        return waits

    def _outcomes(
        self, messages: Sequence[JobMessage], deadline: Deadline, *, is_fresh: bool
    ) -> Sequence[JobOutcome | Exception]:
        try:
            return self._host.handle_jobs(
                messages, seconds_left=deadline.seconds_left, is_fresh=is_fresh, queues=self._queues
            )
        except HoldfastError as error:
            return [error] * len(messages)
        except Exception as error:  # noqa: BLE001  # SQS needs an answer for each message
            _log.exception("%s messages can't be handled because of an internal error", len(messages))
            return [error] * len(messages)

    def _reject(self, record: Record, reason: str) -> float | None:
        """Send a malformed message to the queue for rejected ones. Return when to retry if that fails, in seconds."""
        _log.error("message %s of %s is malformed: %s", record.id, record.source, reason)
        if self._rejected_queue is None:
            if record.receives >= MALFORMED_MAX:
                _log.error(
                    "message %s is dropped, received %s times: %.200r",
                    record.id,
                    record.receives,
                    record.body,
                )
                return None
            return 0.0  # until the redrive policy of the queue moves it
        try:
            self._messages.put_aside(self._rejected_queue, record.body, reason)
        except UnavailableError as error:
            _log.warning(
                "message %s could not be moved to the queue of rejected messages: %s", record.id, error
            )
            return _backoff(record.receives)
        return None

    def _show(self, records: Sequence[Record], again: Mapping[str, float]) -> None:
        by_queue: dict[str, dict[str, float]] = {}
        for record in records:
            if record.id in again:
                by_queue.setdefault(record.source, {})[record.receipt] = again[record.id]
        for queue, waits in by_queue.items():
            self._messages.show_in(queue, waits)


def queue_handler(
    engine: Engine,
    /,
    *,
    limit: Duration,
    concurrency: int = 10,
    rejected_queue: str | None = None,
    queues: Iterable[str] | None = None,
    function_cache: int = 0,
    client: "SQSClient | None" = None,
) -> QueueHandler:
    """Return a handler for a function that an SQS queue invokes, with `ReportBatchItemFailures`.

    A failed body counts as handled, as its next attempt gets a new message. A message is delivered again only if its
    result could not be stored, with growing delays; and at most twice if its job can't run yet.

    Args:
        engine: The engine with the workflows to run.
        limit: The `Timeout` of the function, a timedelta or a number of seconds. Its last tenth, at most ten seconds,
            is reserved for storing results: bodies still running then are stopped as by a timeout.
        concurrency: How many messages of a batch are handled at a time, 1 to 100. The others follow while half of the
            time is left; the rest are returned to the queue.
        rejected_queue: The URL of a queue for malformed messages, which get the attribute `reason`. Without it they are
            delivered again until the redrive policy of their queue moves them; the twentieth time they are dropped.
        queues: The queues of jobs to serve; None for all. Messages for others are dropped, as workers serve these.
        function_cache: As for `ServerlessHost`.
        client: A boto3 SQS client, if region and credentials differ from the defaults of boto3.

    Raises:
        DefinitionError: A stage may take longer than the function; see `check_limit`.
        InvalidArgumentError: An argument has the wrong type or is out of bounds.
    """
    check("queue_handler", integer(1, 100), concurrency=concurrency)
    check("queue_handler", TEXT.or_none, rejected_queue=rejected_queue)
    seconds = duration("queue_handler", "limit", limit).total_seconds()
    served = (
        None if queues is None else frozenset(several("queue_handler", "queues", queues, "a list of queues"))
    )
    host = ServerlessHost(engine, time_limit=seconds, function_cache=function_cache)
    check_limit(engine, limit=seconds, queues=served)
    return QueueHandler(
        host,
        sqs_messages(client),
        limit=seconds,
        concurrency=concurrency,
        rejected_queue=rejected_queue,
        queues=served,
    )


def _wait(record: Record, outcome: JobOutcome | Exception) -> float | None:
    """Return the seconds after which a message is to be delivered again; None if it is handled."""
    if isinstance(outcome, Exception):
        wait = _backoff(record.receives)
        _log.warning("message %s is redelivered in %s s: %s", record.id, wait, outcome)
        return wait
    # A job that becomes due is announced by a new message: delivering this one again only helps if that is soon.
    if outcome.acknowledge or record.receives >= AGAIN_MAX:
        return None
    return outcome.retry_after or 0.0


def _backoff(receives: int) -> float:
    return min(_WAIT_MAX, _WAIT_FIRST * 2.0 ** min(receives, 10))
