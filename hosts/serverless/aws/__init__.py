"""Handlers for AWS Lambda, made from an engine: for an SQS queue, a timer, and a dead-letter queue.

    engine = Engine.open(os.environ["DATABASE_URL"], workflows=[...], transport=SqsJobTransport(queue_url))
    on_jobs, on_timer = queue_handler(engine, limit=60), cron_handler(engine, limit=60)

Create them at module level: a process serves many invocations, one after the other, and may be frozen between them.
They connect at the first invocation.
"""

from holdfast.hosts.serverless.aws.cron_handler import CronHandler, cron_handler
from holdfast.hosts.serverless.aws.dead_letter_handler import DeadLetterHandler, dead_letter_handler
from holdfast.hosts.serverless.aws.queue_handler import QueueHandler, queue_handler
from holdfast.hosts.serverless.aws.timeouts import check_limit

__all__ = [
    "CronHandler",
    "DeadLetterHandler",
    "QueueHandler",
    "check_limit",
    "cron_handler",
    "dead_letter_handler",
    "queue_handler",
]
