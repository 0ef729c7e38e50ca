"""The AWS Lambda handler for the dead-letter queue of jobs: annotates the runs of the messages in it."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.aws.invocations import Answer, Context, Messages, Record, records_of
from holdfast.hosts.serverless.job_messages import message_from
from holdfast.hosts.wiring.stores import sqs_messages
from holdfast.kernel.commands import NewAnnotation, RunAnnotate
from holdfast.ports.actors import Actor
from holdfast.ports.errors import HoldfastError, InvalidMessageError, RunNotFoundError
from holdfast.ports.json import canonical
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.job import job_key
from holdfast.ports.records.run import TERMINAL
from holdfast.ports.validation import TEXT, check

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

DEAD_LETTER: Final = "dead_letter"
"""The name of the annotation that a run gets."""
_WAIT: Final = 60.0
_REASON: Final = (
    "its message was received as often as the queue allows and never handled: functions failed or were killed, or "
    "the store was away; their logs say which. The job itself is in the store, and is announced again"
)

_log = logging.getLogger("holdfast.aws")


class DeadLetterHandler:
    """The handler that `dead_letter_handler` returns. Call it with an SQS event and the Lambda context."""

    def __init__(self, engine: Engine, messages: Messages, *, rejected_queue: str | None) -> None:
        self._core = engine.core
        self._client = engine.client
        self._messages = messages
        self._rejected_queue = rejected_queue

    def __call__(self, event: Mapping[str, Any], context: Context | None = None, /) -> Answer:
        """Annotate the runs of a batch of messages. Return the messages to deliver again, as `batchItemFailures`.

        Raises:
            InvalidMessageError: The event is not from SQS.
        """
        failed: list[Record] = []
        for record in records_of(event):
            try:
                self._annotate(record)
            except HoldfastError as error:
                _log.warning("dead letter %s is redelivered: %s", record.id, error)
                failed.append(record)
        for source in dict.fromkeys(record.source for record in failed):
            self._messages.show_in(source, {one.receipt: _WAIT for one in failed if one.source == source})
        return {"batchItemFailures": [{"itemIdentifier": record.id} for record in failed]}

    def _annotate(self, record: Record) -> None:
        try:
            message = message_from(record.body)
        except InvalidMessageError as error:
            _log.error("dead letter %s is malformed: %s: %.200r", record.id, error, record.body)
            if self._rejected_queue is not None:
                self._messages.put_aside(self._rejected_queue, record.body, str(error))
            return
        self._core.connect()
        key = job_key(message.job_id).run
        found = self._core.stores.persistence.read(RunsByKey((key,)))
        if not found or found[0].namespace != self._core.namespace or found[0].status in TERMINAL:
            _log.info("dead letter %s names job %s, which does not wait any more", record.id, message.job_id)
            return
        value = {"job": message.job_id, "epoch": message.epoch, "message": record.id}
        command = RunAnnotate(
            namespace=self._core.namespace,
            run_id=found[0].id,
            annotations=(NewAnnotation(name=DEAD_LETTER, value=canonical(value)),),
            actor=Actor(kind="service", id="holdfast.dead_letters"),
            reason=_REASON,
            key=f"{DEAD_LETTER}/{record.id}",
        )
        _log.error("run %s: the message of job %s is dead: %s", found[0].id, message.job_id, _REASON)
        try:
            self._client.dispatch(command)
        except RunNotFoundError:  # removed in the meantime
            return


def dead_letter_handler(
    engine: Engine, /, *, rejected_queue: str | None = None, client: "SQSClient | None" = None
) -> DeadLetterHandler:
    """Return a handler for a function that consumes the dead-letter queue of the queue of jobs.

    Each run with a message there gets an annotation `dead_letter`, one per message, that explains the cause. Nothing is
    lost: the job is in the store, and the cron handler announces it again.

    Args:
        engine: The engine with the runs.
        rejected_queue: The URL of a queue for malformed messages. Without it they are logged and dropped.
        client: A boto3 SQS client, if region and credentials differ from the defaults of boto3.

    Raises:
        InvalidArgumentError: An argument has the wrong type.
    """
    check("dead_letter_handler", TEXT.or_none, rejected_queue=rejected_queue)
    return DeadLetterHandler(engine, sqs_messages(client), rejected_queue=rejected_queue)
