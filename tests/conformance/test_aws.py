"""Conformance of the AWS adapters, over HTTP."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from typing_extensions import override

from holdfast.adapters.aws.eventbridge import EventBridgeSink
from holdfast.adapters.aws.s3 import S3BlobStore
from holdfast.adapters.aws.scheduler import EventBridgeScheduler
from holdfast.adapters.aws.sns import SnsSink
from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.ports.blobs import AddressingBlobStore, BlobStore
from holdfast.ports.events import Event, EventSink
from holdfast.ports.scheduler import Scheduler
from holdfast.ports.transport import JobTransport
from holdfast.testing.conformance.blobs import AddressingBlobStoreContract, BlobStoreContract, key_of
from holdfast.testing.conformance.events import EventSinkContract, an_event
from holdfast.testing.conformance.scheduler import SchedulerContract
from holdfast.testing.conformance.transport import RedeliveryContract
from tests.aws import FakeAws, Fate, fake_aws
from tests.sinks import events_in


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as region:
        yield region


@pytest.mark.slow
class TestS3BlobStore(BlobStoreContract):
    """In a bucket, under a prefix. Without one keys are what they are: `test_a_bucket_needs_no_prefix`."""

    below = "holdfast/blobs"

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws) -> None:
        self.aws = aws

    @override
    def make_blob_store(self) -> BlobStore:
        self.client, self.bucket = self.aws.new_bucket()
        return S3BlobStore(self.bucket, self.below, client=self.client)

    @override
    def damage(self, store: BlobStore, key: str, data: bytes) -> None:
        place = f"{self.below}/{key}"
        assert self.client.head_object(Bucket=self.bucket, Key=place)
        self.client.put_object(Bucket=self.bucket, Key=place, Body=data)


class TestAddressesOfS3(AddressingBlobStoreContract):
    """Presigned URLs."""

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws) -> None:
        self.aws = aws

    @override
    def make_addressing_store(self) -> AddressingBlobStore:
        client, bucket = self.aws.new_bucket()
        return S3BlobStore(bucket, "below", client=client)

    @override
    def test_other_bytes_are_refused(self) -> None:
        """The fake of S3 checks no signature, so this is about what is signed: the length and the hash."""
        address = self.make_addressing_store().upload_address(key_of(b"abc"), 3, timedelta(minutes=1))
        assert address is not None
        (signed,) = parse_qs(urlsplit(address.url).query)["X-Amz-SignedHeaders"]
        assert {name for name, _ in address.headers} <= set(signed.split(";"))
        assert ("x-amz-checksum-sha256", b64encode(sha256(b"abc").digest()).decode()) in address.headers


def test_a_client_that_signs_in_the_old_way_has_no_addresses() -> None:
    """It would sign neither the length nor the hash."""
    session: Any = boto3.Session()
    client = session.client(
        "s3", region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )
    store = S3BlobStore("bucket", client=client)
    assert store.download_url(key_of(b"abc"), timedelta(minutes=1)) is None
    assert store.upload_address(key_of(b"abc"), 3, timedelta(minutes=1)) is None


def test_a_bucket_needs_no_prefix(aws: FakeAws) -> None:
    client, bucket = aws.new_bucket()
    store = S3BlobStore(bucket, client=client)
    store.put(key_of(b"1"), b"1")

    assert client.get_object(Bucket=bucket, Key=key_of(b"1"))["Body"].read() == b"1"
    assert (store.get(key_of(b"1")), list(store.list(""))) == (b"1", [key_of(b"1")])


@pytest.mark.slow
@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
class TestSqsJobTransport(RedeliveryContract):
    """Over a queue."""

    delivers_run_hints = False
    is_exact = False

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws, *, fifo: bool) -> None:
        self.aws = aws
        self.fifo = fifo

    @override
    def make_transport(self) -> JobTransport:
        client, url = self.aws.new_queue(fifo=self.fifo)
        return SqsJobTransport(url, client=client, poll_seconds=1)

    @override
    def pass_time(self, seconds: float) -> None:
        self.aws.pass_time(seconds)


class SchedulerCase(SchedulerContract):
    """Schedules of a region whose time passes as the test says: what is due is sent to the queue, as AWS does."""

    ahead: timedelta

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws) -> None:
        self.aws = aws

    @override
    def make_scheduler(self) -> Scheduler:
        self.now = datetime(2026, 1, 1, tzinfo=UTC) - self.ahead
        self.sqs, self.url = self.aws.new_queue()
        self.schedules, self.group = self.aws.new_schedules()
        return EventBridgeScheduler(
            self.url,
            role="arn:aws:iam::123456789012:role/scheduler",
            group=self.group,
            client=self.schedules,
            queue_client=self.sqs,
            now=lambda: self.now,
        )

    @override
    def sent(self, scheduler: Scheduler, now: datetime) -> Sequence[str]:
        self.aws.pass_time((now - self.now).total_seconds())
        self.now = now
        self.aws.send_due(self.group, now)
        came: list[str] = []
        while messages := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            came += [message.get("Body", "") for message in messages]
            for message in messages:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message.get("ReceiptHandle", ""))
        return came


class TestEventBridgeScheduler(SchedulerCase):
    """Wake-ups that are an hour away and more."""

    ahead = timedelta(hours=2)


class TestEventBridgeSchedulerSoon(SchedulerCase):
    """Wake-ups of the next minutes, which wait in the queue, and can't be taken back."""

    ahead = timedelta(minutes=10)
    takes_back = False


FATES = (Fate.TAKEN, Fate.HALF_TAKEN, Fate.TAKEN, Fate.LOST_ANSWER, Fate.REFUSED, Fate.HALF_TAKEN) * 3


@pytest.mark.slow
class AwsSinkCase(EventSinkContract):
    """What buses and topics took, in the order in which they took it."""

    @pytest.fixture(autouse=True)
    def region(self, aws: FakeAws) -> None:
        self.aws = aws
        aws.batches.clear()

    @override
    def taken(self, sink: EventSink) -> Sequence[Event]:
        assert all(len(batch) <= 10 for batch in self.aws.batches)
        entries = [entry for batch in self.aws.batches for entry in batch]
        return [event for entry in entries for event in events_in(entry.get("Detail") or entry["Message"])]


class TestEventBridgeSink(AwsSinkCase):
    """On a bus."""

    @override
    def make_sink(self) -> EventSink:
        client, bus = self.aws.new_bus()
        return EventBridgeSink(bus, client=client, sleep=lambda _: None)


class TestSnsSink(AwsSinkCase):
    """To a topic."""

    @override
    def make_sink(self) -> EventSink:
        client, topic = self.aws.new_topic()
        return SnsSink(topic, client=client, sleep=lambda _: None)


class AwsSinkWithFaults(AwsSinkCase):
    """Entries fail by themselves, requests fail with all they had, and answers are lost."""

    @pytest.fixture(autouse=True)
    def faults(self, aws: FakeAws, region: None) -> Iterator[None]:
        aws.fates, aws.fired = iter(FATES), Counter()
        yield
        aws.fates = iter(())

    @override
    def test_a_large_batch_is_taken(self) -> None:
        super().test_a_large_batch_is_taken()
        assert min(self.aws.fired[fate] for fate in Fate) > 0


class TestEventBridgeSinkWithFaults(AwsSinkWithFaults, TestEventBridgeSink):
    """On a bus."""


class TestSnsSinkWithFaults(AwsSinkWithFaults, TestSnsSink):
    """To a topic."""


@pytest.mark.slow
def test_a_rule_of_a_bus_sees_a_cloud_event(aws: FakeAws) -> None:
    client, bus = aws.new_bus()
    sqs, url = aws.new_queue()
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {
        "source": ["shop"],
        "detail-type": ["holdfast.stage.completed"],
        "detail": {"subject": ["run-2"]},
    }
    client.put_rule(Name="ends", EventBusName=bus, EventPattern=json.dumps(pattern))
    client.put_targets(Rule="ends", EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])

    EventBridgeSink(bus, source="shop", client=client).emit([an_event(1), an_event(2)])

    (message,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    detail = json.loads(message.get("Body", ""))["detail"]
    assert (detail["id"], detail["data"], detail["specversion"]) == (an_event(2).id, {"attempt": 1}, "1.0")


@pytest.mark.slow
def test_what_comes_again_to_a_fifo_topic_is_dropped_and_a_run_stays_in_order(aws: FakeAws) -> None:
    client, topic = aws.new_topic(fifo=True)
    sqs, url = aws.new_queue(fifo=True)
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    client.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    sink = SnsSink(topic, client=client)
    events = [an_event(1, number) for number in range(1, 6)]
    sink.emit(events[:3])
    sink.emit(events[1:])

    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])[
        "Messages"
    ]
    came = [event for message in messages for event in events_in(message.get("Body", ""))]
    assert came == events
    attributes = messages[0].get("MessageAttributes", {})
    said = {name: value.get("StringValue") for name, value in attributes.items()}
    assert said == {
        "type": "holdfast.stage.completed",
        "namespace": events[0].namespace,
        "workflow": "orders",
    }
