"""AWS services for the tests: moto's server in a thread of this process, called over real HTTP."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any, Final
from urllib.request import Request, urlopen

import boto3
import pytest
from moto.core.exceptions import JsonRESTError
from moto.events import models as events_models
from moto.server import ThreadedMotoServer
from moto.sns import models as sns_models
from moto.sqs import models as sqs_models

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

REGION: Final = "eu-central-1"
_DEDUPLICATED_MILLIS: Final = 300_000


class AwayError(JsonRESTError):
    """The response of a service that is temporarily unavailable: a 500."""

    code = 500

    def __init__(self) -> None:
        super().__init__("InternalFailure", "away for a moment")


class Fate(Enum):
    """The fate of a request with several entries."""

    TAKEN = auto()
    HALF_TAKEN = auto()
    """The first entry and every second one after it fail."""
    REFUSED = auto()
    """The response is a 500, and nothing was taken."""
    LOST_ANSWER = auto()
    """The response is a 500, and everything was taken."""


class FakeAws:
    """An empty AWS region. Queues use a clock that `pass_time` advances.

    `batches` are the requests with events that buses and topics took. `fates` holds the fates of the next such
    requests, and `fired` counts the fates that occurred.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._passed = 0
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._numbers = count(1)
        self.batches: list[list[dict[str, Any]]] = []
        self.fates: Iterator[Fate] = iter(())
        self.fired: Counter[Fate] = Counter()

    def client(self, service: Any) -> Any:
        """Return a boto3 client, the same at each call: a new one loads the description of all of AWS."""
        if service not in self._clients:
            make: Any = boto3.Session()
            self._clients[service] = make.client(
                service,
                endpoint_url=self.url,
                region_name=REGION,
                aws_access_key_id="key",
                aws_secret_access_key="secret",
            )
        return self._clients[service]

    def new_bucket(self) -> "tuple[S3Client, str]":
        """Create a bucket; return a client and its name."""
        client: S3Client = self.client("s3")
        name = f"bucket-{next(self._numbers)}"
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return client, name

    def new_queue(self, *, fifo: bool = False) -> "tuple[SQSClient, str]":
        """Create a queue with a visibility timeout of 30 seconds; return a client and its URL."""
        client: SQSClient = self.client("sqs")
        name = f"queue-{next(self._numbers)}" + (".fifo" if fifo else "")
        attributes: Any = {"VisibilityTimeout": "30", **({"FifoQueue": "true"} if fifo else {})}
        return client, client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def new_bus(self) -> "tuple[EventBridgeClient, str]":
        """Create an event bus; return a client and its name."""
        client: EventBridgeClient = self.client("events")
        name = f"bus-{next(self._numbers)}"
        client.create_event_bus(Name=name)
        return client, name

    def new_topic(self, *, fifo: bool = False) -> "tuple[SNSClient, str]":
        """Create a topic; return a client and its ARN."""
        client: SNSClient = self.client("sns")
        name = f"topic-{next(self._numbers)}" + (".fifo" if fifo else "")
        return client, client.create_topic(Name=name, Attributes={"FifoTopic": "true"} if fifo else {})[
            "TopicArn"
        ]

    def new_schedules(self) -> "tuple[EventBridgeSchedulerClient, str]":
        """Create a schedule group; return a client and its name."""
        client: EventBridgeSchedulerClient = self.client("scheduler")
        name = f"group-{next(self._numbers)}"
        client.create_schedule_group(Name=name)
        return client, name

    def send_due(self, group: str, now: datetime) -> None:
        """Send the due schedules of a group and delete them, as AWS does and moto does not."""
        client: EventBridgeSchedulerClient = self.client("scheduler")
        sqs: SQSClient = self.client("sqs")
        for listed in client.list_schedules(GroupName=group)["Schedules"]:
            found = client.get_schedule(GroupName=group, Name=listed.get("Name", ""))
            at = datetime.strptime(found["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
            assert (found["ScheduleExpressionTimezone"], found["ActionAfterCompletion"]) == ("UTC", "DELETE")
            if at <= now:
                url = sqs.get_queue_url(QueueName=found["Target"]["Arn"].rpartition(":")[2])["QueueUrl"]
                sqs.send_message(QueueUrl=url, MessageBody=found["Target"].get("Input", ""))
                client.delete_schedule(GroupName=group, Name=found["Name"])

    def taken(self, entries: "list[dict[str, Any]]") -> "tuple[Fate, list[dict[str, Any]]]":
        """Return the fate of a request and the entries that were taken; record these."""
        fate = next(self.fates, Fate.TAKEN)
        self.fired[fate] += 1
        kept = [] if fate is Fate.REFUSED else entries[1::2] if fate is Fate.HALF_TAKEN else entries
        self.batches.append([dict(entry) for entry in kept])
        return fate, kept

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of the queues."""
        with self._lock:
            self._passed += round(seconds * 1_000)

    def millis(self) -> int:
        """Return by how many milliseconds the clock of the queues is ahead."""
        return self._passed


def _putting(aws: FakeAws) -> Callable[..., list[dict[str, Any]]]:
    real: Callable[..., list[dict[str, Any]]] = events_models.EventsBackend.put_events

    def put_events(backend: Any, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        fate, kept = aws.taken(events)
        answers = iter(real(backend, kept))
        if fate in {Fate.REFUSED, Fate.LOST_ANSWER}:
            raise AwayError
        failed = {"ErrorCode": "ThrottlingException", "ErrorMessage": "too fast"}
        return [next(answers) if entry in kept else failed for entry in events]

    return put_events


def _mend_queues(patched: pytest.MonkeyPatch) -> None:
    """Make FIFO queues drop duplicates, and make queues faster.

    moto counts a queue's messages three times for each message that comes or goes, so its cost grows with their number.
    Here they are counted only when attributes are read.
    """
    model: Any = sqs_models.Queue
    every: Callable[[Any], dict[str, Any]] = model.attributes.fget
    asked = threading.local()
    real: Callable[..., dict[str, Any]] = sqs_models.SQSBackend.get_queue_attributes

    def attributes(queue: Any) -> dict[str, Any]:
        if getattr(asked, "now", False):
            return every(queue)
        return {"ContentBasedDeduplication": str(queue.content_based_deduplication).lower()}

    def get_queue_attributes(backend: Any, queue_name: str, attribute_names: list[str]) -> dict[str, Any]:
        asked.now = True
        try:
            return real(backend, queue_name, attribute_names)
        finally:
            asked.now = False

    taken: dict[tuple[str, str], float] = {}
    add: Callable[[Any, Any], None] = model.add_message

    def add_message(queue: Any, message: Any) -> None:
        """Drop a message whose id a FIFO queue got within five minutes. moto forgets the ids of deleted messages."""
        if queue.fifo_queue:
            key = queue.queue_arn, message.deduplication_id
            if message.sent_timestamp - taken.get(key, float("-inf")) < _DEDUPLICATED_MILLIS:
                return
            taken[key] = message.sent_timestamp
        add(queue, message)

    patched.setattr(model, "add_message", add_message)
    patched.setattr(model, "attributes", property(attributes))
    patched.setattr(sqs_models.SQSBackend, "get_queue_attributes", get_queue_attributes)


def _publishing(aws: FakeAws) -> Callable[..., Any]:
    real: Callable[..., Any] = sns_models.SNSBackend.publish_batch

    def publish_batch(
        backend: Any, topic_arn: str, publish_batch_request_entries: list[dict[str, Any]]
    ) -> Any:
        fate, kept = aws.taken(publish_batch_request_entries)
        successful, failed = real(backend, topic_arn, kept)
        if fate in {Fate.REFUSED, Fate.LOST_ANSWER}:
            raise AwayError
        failed += [
            {"Id": entry["Id"], "Code": "Throttled", "Message": "too fast", "SenderFault": False}
            for entry in publish_batch_request_entries
            if entry not in kept
        ]
        return successful, failed

    return publish_batch


def _is_retained(backend: Any, queue: str, message: Any) -> bool:
    """Return whether a message is within retention. moto counts the whole queue to tell, for each message received."""
    kept_seconds: int = backend.get_queue(queue).message_retention_period
    return bool(kept_seconds + message.sent_timestamp / 1_000 > time())


@contextmanager
def fake_aws() -> Generator[FakeAws]:
    """Start the server, and stop it at the end."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    aws = FakeAws(f"http://{host}:{port}")
    # What others have left in this process: all servers in it are of one region.
    urlopen(Request(f"{aws.url}/moto-api/reset", method="POST"), timeout=60).close()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of every request
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqs_models, "unix_time_millis", lambda: time() * 1_000 + aws.millis())
        patched.setattr(sqs_models.SQSBackend, "is_message_valid_based_on_retention_period", _is_retained)
        _mend_queues(patched)
        patched.setattr(events_models.EventsBackend, "put_events", _putting(aws))
        patched.setattr(sns_models.SNSBackend, "publish_batch", _publishing(aws))
        try:
            yield aws
        finally:
            server.stop()
