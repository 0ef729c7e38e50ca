"""Wake-ups by Amazon EventBridge Scheduler, sent to a queue. Those due soon are sent at once, with a message delay."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError
from typing_extensions import override

from holdfast.adapters.aws.client import code_of, config, new_client, reported
from holdfast.ports.clock import micros
from holdfast.ports.validation import TEXT, Wanted, check

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_scheduler.type_defs import TargetTypeDef
    from mypy_boto3_sqs import SQSClient

DELAY_MAX: Final = timedelta(minutes=15)
"""The longest message delay of a queue."""
_QUEUE: Final = Wanted(
    "the URL of a standard queue: a FIFO queue can't delay single messages",
    lambda value: isinstance(value, str) and "/" in value and not value.endswith(".fifo"),
)
_ROLE: Final = Wanted(
    "the ARN of a role",
    lambda value: isinstance(value, str) and value.startswith("arn:") and ":role/" in value,
)
_TRIES_MAX: Final = 5
_RETRIED_FOR: Final = 3_600
"""Seconds for which EventBridge retries sending. After that, a maintenance tick has done the work."""
_CONFIG: Final = config(connect_timeout=2, read_timeout=5, attempts=2)


class EventBridgeScheduler:
    """A Scheduler that creates one schedule per wake-up, deleted once it was sent. Safe to use from several threads.

    The name of a schedule is derived from its key, so that a repeated request replaces it. A wake-up that is due within
    fifteen minutes, or overdue, is sent to the queue at once with a message delay: it arrives to the second, where
    schedules are accurate to the minute, but can't be cancelled.

    The role needs `scheduler:CreateSchedule`, `scheduler:UpdateSchedule` and `scheduler:DeleteSchedule` on the group's
    schedules, `iam:PassRole` on the sending role, and `sqs:SendMessage` on the queue.
    """

    def __init__(
        self,
        queue: str,
        *,
        role: str,
        group: str = "default",
        client: "EventBridgeSchedulerClient | None" = None,
        queue_client: "SQSClient | None" = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Configure the scheduler, without calling AWS.

        Args:
            queue: The URL of a standard queue, the same as for `SqsJobTransport`.
            role: The ARN of the role with which EventBridge sends to the queue. It is in the queue's region.
            group: The group of the schedules, which must exist.
            client: A boto3 client for `scheduler`, if boto3's defaults for region, credentials and endpoint do not fit.
            queue_client: The same for `sqs`.
            now: Returns the current time, aware.

        Raises:
            InvalidArgumentError: An argument is invalid.
        """
        check("EventBridgeScheduler", _QUEUE, queue=queue)
        check("EventBridgeScheduler", _ROLE, role=role)
        check("EventBridgeScheduler", TEXT, group=group)
        self._queue = queue
        self._role = role
        self._group = group
        self._client: EventBridgeSchedulerClient = client or new_client(
            "EventBridgeScheduler", "scheduler", _CONFIG
        )
        self._sqs: SQSClient = queue_client or new_client("EventBridgeScheduler", "sqs", _CONFIG)
        self._now = now
        self._arn = ""

    @override
    def __repr__(self) -> str:
        return f"EventBridgeScheduler({self._queue!r}, group={self._group!r})"

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        """Send the command at `at`, and no earlier. ValueError if `at` is naive; UnavailableError."""
        micros(at)
        ahead = at - self._now()
        if ahead > DELAY_MAX:
            self._put(_name(key), command, at)
            return
        # Send before deleting: a failure in between leaves one wake-up too many, not one too few.
        with reported(f"send a wake-up to {self._queue}"):
            delay = max(0, ceil(ahead.total_seconds()))
            self._sqs.send_message(QueueUrl=self._queue, MessageBody=command, DelaySeconds=delay)
        self.cancel(key)

    def cancel(self, key: str, /) -> None:
        """Delete the schedule, if it exists. A wake-up that is in the queue already is still sent. UnavailableError."""
        with reported(f"delete a schedule in the group {self._group!r}"):
            try:
                self._client.delete_schedule(Name=_name(key), GroupName=self._group)
            except ClientError as error:
                if code_of(error) != "ResourceNotFoundException":
                    raise

    def _put(self, name: str, command: str, at: datetime) -> None:
        """Create a schedule or update the existing one, which may fire meanwhile."""
        target: TargetTypeDef = {
            "Arn": self._target(),
            "RoleArn": self._role,
            "Input": command,
            "RetryPolicy": {"MaximumEventAgeInSeconds": _RETRIED_FOR},
        }
        ways = (
            (self._client.create_schedule, "ConflictException"),
            (self._client.update_schedule, "ResourceNotFoundException"),
        )
        with reported(f"put a schedule in the group {self._group!r}"):
            for tried in range(1, _TRIES_MAX + 1):
                put, otherwise = ways[(tried + 1) % 2]
                try:
                    put(
                        Name=name,
                        GroupName=self._group,
                        ScheduleExpression=_expression(at),
                        ScheduleExpressionTimezone="UTC",
                        FlexibleTimeWindow={"Mode": "OFF"},
                        ActionAfterCompletion="DELETE",
                        Target=target,
                    )
                except ClientError as error:
                    if code_of(error) != otherwise or tried == _TRIES_MAX:
                        raise
                else:
                    return

    def _target(self) -> str:
        """Return the queue's ARN, looked up once."""
        if not self._arn:
            with reported(f"look up {self._queue}"):
                answer = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
            self._arn = answer["Attributes"]["QueueArn"]
        return self._arn


def _name(key: str) -> str:
    """Return a schedule name that is unique to this key, in allowed characters."""
    return f"holdfast-{sha256(key.encode()).hexdigest()[:48]}"


def _expression(at: datetime) -> str:
    """Return the expression for the first whole second that is not before an instant."""
    utc = at.astimezone(UTC)
    if utc.microsecond:
        utc = utc.replace(microsecond=0) + timedelta(seconds=1)
    return f"at({utc:%Y-%m-%dT%H:%M:%S})"
