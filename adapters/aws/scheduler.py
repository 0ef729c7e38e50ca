"""Wake-ups by Amazon EventBridge Scheduler, which sends them to a queue; those that are soon due wait in the queue."""

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
"""For how long a queue keeps a message back."""
_QUEUE: Final = Wanted(
    "the URL of a standard queue: one of a FIFO queue keeps no single message back",
    lambda value: isinstance(value, str) and "/" in value and not value.endswith(".fifo"),
)
_ROLE: Final = Wanted(
    "the ARN of a role",
    lambda value: isinstance(value, str) and value.startswith("arn:") and ":role/" in value,
)
_TRIES_MAX: Final = 5
_RETRIED_FOR: Final = 3_600
"""Seconds for which EventBridge goes on trying to send. After that a tick of maintenance was there long since."""
_CONFIG: Final = config(connect_timeout=2, read_timeout=5, attempts=2)


class EventBridgeScheduler:
    """See `Scheduler`. Each wake-up is a schedule of its own, which is gone once it was sent. Safe for several threads.

    A schedule's name is made of its key, so that a wake-up that is asked for again is the same. One that is due within
    fifteen minutes, or was before, is sent to the queue at once, which keeps it back until then: it comes to the
    second, where schedules come to the minute, and nobody can take it back.

    What may be done is up to whoever runs this: `scheduler:CreateSchedule`, `scheduler:UpdateSchedule` and
    `scheduler:DeleteSchedule` on the group's schedules, `iam:PassRole` on the role, `sqs:SendMessage` on the queue.
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
        """Take a queue; nothing is called yet.

        Args:
            queue: The URL of a standard queue, as that of `SqsJobTransport`.
            role: The ARN of the role as which EventBridge sends to the queue. Its region is that of the queue.
            group: The group that the schedules are in, which has to be there.
            client: A client of boto3's for `scheduler`, where region, credentials and endpoint are not to be found as
                boto3 does by itself.
            queue_client: The same for `sqs`.
            now: What time it is, aware.

        Raises:
            InvalidArgumentError: One of these can't be.
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
        """Send the command at `at`, and no earlier. ValueError if that is naive; UnavailableError."""
        micros(at)
        ahead = at - self._now()
        if ahead > DELAY_MAX:
            self._put(_name(key), command, at)
            return
        # First what is new: if this fails there is one wake-up too many, and not one too few.
        with reported(f"send a wake-up to {self._queue}"):
            delay = max(0, ceil(ahead.total_seconds()))
            self._sqs.send_message(QueueUrl=self._queue, MessageBody=command, DelaySeconds=delay)
        self.cancel(key)

    def cancel(self, key: str, /) -> None:
        """Delete the schedule, if there is one. A wake-up that is in the queue by now is sent. UnavailableError."""
        with reported(f"delete a schedule in the group {self._group!r}"):
            try:
                self._client.delete_schedule(Name=_name(key), GroupName=self._group)
            except ClientError as error:
                if code_of(error) != "ResourceNotFoundException":
                    raise

    def _put(self, name: str, command: str, at: datetime) -> None:
        """Make a schedule, or change the one that is there, which may go off meanwhile."""
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
        """Return the queue's ARN, which is asked for once."""
        if not self._arn:
            with reported(f"look up {self._queue}"):
                answer = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
            self._arn = answer["Attributes"]["QueueArn"]
        return self._arn


def _name(key: str) -> str:
    """Return a name that only this key has, of characters that names may have."""
    return f"holdfast-{sha256(key.encode()).hexdigest()[:48]}"


def _expression(at: datetime) -> str:
    """Return the first whole second that is not before an instant."""
    utc = at.astimezone(UTC)
    if utc.microsecond:
        utc = utc.replace(microsecond=0) + timedelta(seconds=1)
    return f"at({utc:%Y-%m-%dT%H:%M:%S})"
