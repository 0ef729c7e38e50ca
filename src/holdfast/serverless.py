"""Serverless hosts: the message of a queue, the outcome of a job, and handlers for AWS Lambda."""

from holdfast.hosts.serverless.aws import check_limit, cron_handler, dead_letter_handler, queue_handler
from holdfast.hosts.serverless.host import JobOutcome, ServerlessHost
from holdfast.hosts.serverless.job_messages import JobMessage

__all__ = [
    "JobMessage",
    "JobOutcome",
    "ServerlessHost",
    "check_limit",
    "cron_handler",
    "dead_letter_handler",
    "queue_handler",
]
