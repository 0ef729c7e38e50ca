"""Error responses of AWS services over HTTP, and how the adapters treat them."""

import json
import logging
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

import boto3
import pytest
from attrs import evolve
from botocore.config import Config
from typing_extensions import override

from holdfast.adapters.aws.eventbridge import EventBridgeSink
from holdfast.adapters.aws.s3 import PREFIX_MAX, S3BlobStore
from holdfast.adapters.aws.scheduler import EventBridgeScheduler
from holdfast.adapters.aws.sns import SnsSink
from holdfast.adapters.aws.sqs import SIDE_BY_SIDE, SqsJobTransport
from holdfast.hosts.wiring.stores import built_in_sink, open_blobs
from holdfast.ports.errors import (
    BlobMissingError,
    EventRefusedError,
    InvalidArgumentError,
    InvalidUrlError,
    SinkUnavailableError,
    UnavailableError,
)
from holdfast.ports.events import EventSink
from holdfast.ports.transport import HistoryGrew, JobHint, RunEnded
from holdfast.testing.conformance.events import an_event

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

Answer: TypeAlias = tuple[int, bytes, int]
"""Status, body, and the announced length of the body."""

SESSION: Any = boto3.Session()
"""One session for all tests: each loads the description of all of AWS."""
DATA = b"some bytes"
KEY = f"default/run/{sha256(DATA).hexdigest()}"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HINT = JobHint(job="01TESTKEY00000000000000001.1", epoch=0, queue="main")


def says(status: int, code: str = "", message: str = "") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode() if code else b""
    return status, body, len(body)


@contextmanager
def serving(*answers: Answer) -> Generator[tuple[str, list[str]]]:
    """A server that gives these responses in turn, and then closes connections."""
    waiting, asked = list(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # or else it leaves those waiting who ask first whether to send

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.command)
            if not waiting:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, body, length = waiting.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  # the library wants these names

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def client(service: Any, url: str) -> Any:
    return SESSION.client(
        service,
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=1),
    )


@pytest.fixture
def bucket() -> Callable[[str], S3BlobStore]:
    def make(url: str) -> S3BlobStore:
        s3: S3Client = client("s3", url)
        return S3BlobStore("bucket", client=s3)

    return make


@pytest.fixture
def queue() -> Callable[..., SqsJobTransport]:
    def make(url: str, **options: Any) -> SqsJobTransport:
        sqs: SQSClient = client("sqs", url)
        return SqsJobTransport(f"{url}/1/queue", client=sqs, **options)

    return make


# S3 -----------------------------------------------------------------------------------------------------------------


def uses(store: S3BlobStore) -> Sequence[Callable[[], object]]:
    return (
        lambda: store.put(KEY, DATA),
        lambda: store.get(KEY),
        lambda: store.exists(KEY),
        lambda: store.delete(KEY),
        lambda: list(store.list("")),
    )


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize(
    "answer",
    [
        says(500, "InternalError", "oh"),
        says(503, "SlowDown"),
        says(403, "AccessDenied"),
        (502, b"bad gateway", 11),
    ],
)
def test_a_bucket_that_refuses_is_unavailable(
    answer: Answer, which: int, bucket: Callable[[str], S3BlobStore]
) -> None:
    with serving(answer) as (url, asked), pytest.raises(UnavailableError, match="bucket 'bucket'"):
        uses(bucket(url))[which]()
    assert len(asked) == 1


@pytest.mark.parametrize("which", range(5))
def test_a_bucket_that_nobody_answers_for_is_unavailable(
    which: int, bucket: Callable[[str], S3BlobStore]
) -> None:
    with serving() as (url, _), pytest.raises(UnavailableError):
        uses(bucket(url))[which]()
    with pytest.raises(UnavailableError):
        uses(bucket(url))[which]()


def test_a_bucket_that_is_not_there_is_unavailable_and_no_blob_is_taken_for_missing(
    bucket: Callable[[str], S3BlobStore],
) -> None:
    with (
        serving(says(404, "NoSuchBucket", "it is not there")) as (url, _),
        pytest.raises(UnavailableError, match="NoSuchBucket: it is not there"),
    ):
        bucket(url).get(KEY)
    with serving(says(404, "NoSuchKey")) as (url, _), pytest.raises(BlobMissingError):
        bucket(url).get(KEY)


def test_a_body_that_breaks_off_is_unavailable_and_not_corrupt(bucket: Callable[[str], S3BlobStore]) -> None:
    with serving((200, DATA[:4], len(DATA))) as (url, _), pytest.raises(UnavailableError):
        bucket(url).get(KEY)


def test_a_put_of_what_is_there_is_done(bucket: Callable[[str], S3BlobStore]) -> None:
    with serving(says(412, "PreconditionFailed")) as (url, asked):
        bucket(url).put(KEY, DATA)
    assert asked == ["PUT"]


def test_a_put_that_met_another_is_made_again_and_not_for_ever(bucket: Callable[[str], S3BlobStore]) -> None:
    met = says(409, "ConditionalRequestConflict")
    with serving(met, met, says(200)) as (url, asked):
        bucket(url).put(KEY, DATA)
    assert len(asked) == 3
    with (
        serving(*[met] * 9) as (url, asked),
        pytest.raises(UnavailableError, match="ConditionalRequestConflict"),
    ):
        bucket(url).put(KEY, DATA)
    assert len(asked) == 5


@pytest.mark.slow
def test_a_url_names_a_bucket_and_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")

    assert repr(open_blobs("s3://bucket/a/b/")) == "S3BlobStore('bucket', 'a/b')"
    assert repr(open_blobs("s3://bucket")) == "S3BlobStore('bucket', '')"
    with pytest.raises(InvalidUrlError, match="s3://bucket/prefix"):
        open_blobs("s3://")
    for prefix in ("a//b", "..", "/a", "é", "x" * (PREFIX_MAX + 1)):
        with pytest.raises(InvalidUrlError, match="not a blob prefix"):
            S3BlobStore("bucket", prefix)


def test_without_a_region_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    with pytest.raises(InvalidArgumentError, match="AWS_DEFAULT_REGION"):
        SqsJobTransport("https://sqs.example/1/queue")


# SQS ----------------------------------------------------------------------------------------------------------------


def test_a_hint_that_can_not_be_sent_is_lost_and_so_are_those_of_the_next_seconds(
    queue: Callable[..., SqsJobTransport], caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    with serving() as (url, asked), caplog.at_level(logging.WARNING):
        transport = queue(url, monotonic=lambda: now[0])
        transport.announce([HINT] * 250)
        failed = len(asked)
        assert 1 <= failed <= 2 * SIDE_BY_SIDE, "after the first that fails none is begun"
        transport.announce([HINT])
        assert len(asked) == failed
        now[0] = 5.0
        transport.announce([HINT])
    assert len(asked) == failed + 1
    assert caplog.text.count("lost for 5.0 seconds") == 2


def test_hints_at_many_jobs_are_sent_side_by_side_and_each_once() -> None:
    together, sent = Barrier(SIDE_BY_SIDE, timeout=10), list[str]()

    class Sqs:
        def send_message_batch(self, *, Entries: list[dict[str, str]], **_: Any) -> dict[str, Any]:  # noqa: N803
            together.wait()
            sent.extend(entry["MessageBody"] for entry in Entries)
            return {}

    sqs: Any = Sqs()
    hints = [evolve(HINT, epoch=number) for number in range(10 * SIDE_BY_SIDE)]
    SqsJobTransport("https://sqs/1/queue", client=sqs).announce(hints)

    assert sorted(json.loads(one)["epoch"] for one in sent) == list(range(10 * SIDE_BY_SIDE))


def test_a_hint_that_is_refused_alone_is_told_of(
    queue: Callable[..., SqsJobTransport], caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"Successful":[],"Failed":[{"Id":"0","Code":"x","Message":"too large","SenderFault":true}]}'
    with serving((200, body, len(body))) as (url, _), caplog.at_level(logging.WARNING):
        queue(url).announce([HINT])
    assert "too large" in caplog.text


def test_hints_about_runs_are_not_sent(queue: Callable[..., SqsJobTransport]) -> None:
    with serving() as (url, asked):
        queue(url).announce([kind(run="01TESTKEY00000000000000001") for kind in (RunEnded, HistoryGrew)])
    assert asked == []


def test_a_queue_that_can_not_be_asked_is_unavailable(queue: Callable[..., SqsJobTransport]) -> None:
    with serving() as (url, _), pytest.raises(UnavailableError, match="could not receive"):
        queue(url).receive(1, 0)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no json",
        "[1]",
        "7",
        '{"job_id":7,"epoch":0}',
        '{"job_id":"x","epoch":0}',
        '{"job_id":"x"}',
        "[" * 9_000,
    ],
)
def test_a_message_from_elsewhere_says_only_that_something_changed(
    body: str, queue: Callable[..., SqsJobTransport]
) -> None:
    escaped = body.replace("\\", "\\\\").replace('"', '\\"')
    answer = f'{{"Messages":[{{"MessageId":"1","ReceiptHandle":"r","Body":"{escaped}"}}]}}'.encode()
    with serving((200, answer, len(answer))) as (url, _):
        (delivery,) = queue(url).receive(1, 0)
    assert (delivery.hint, delivery.receipt) == (None, "r")


@pytest.mark.parametrize("poll", [0, 21, 1.5, True])
def test_a_wait_that_sqs_does_not_allow_is_refused(poll: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="poll_seconds"):
        SqsJobTransport("https://sqs.example/1/queue", poll_seconds=poll)


# EventBridge and SNS ------------------------------------------------------------------------------------------------

SINKS = ["events", "sns"]
TOPIC = "arn:aws:sns:eu-central-1:123456789012:runs"


def a_sink(service: str, url: str) -> EventSink:
    if service == "events":
        return EventBridgeSink("bus", client=client("events", url), sleep=lambda _: None)
    return SnsSink(TOPIC, client=client("sns", url), sleep=lambda _: None)


def put(code: str = "") -> Answer:
    """Return the result of sending one event to a bus."""
    said = f'"ErrorCode":"{code}","ErrorMessage":"so it is"' if code else '"EventId":"1"'
    body = f'{{"FailedEntryCount":{int(bool(code))},"Entries":[{{{said}}}]}}'.encode()
    return 200, body, len(body)


def published(code: str = "", *, answered: bool = True) -> Answer:
    """Return the result of publishing one event to a topic."""
    failed = f"<member><Id>0</Id><Code>{code}</Code><Message>so it is</Message><SenderFault>true</SenderFault></member>"
    taken = "<member><Id>0</Id><MessageId>1</MessageId></member>"
    body = (
        "<PublishBatchResponse><PublishBatchResult>"
        f"<Successful>{taken if answered and not code else ''}</Successful>"
        f"<Failed>{failed if code else ''}</Failed></PublishBatchResult></PublishBatchResponse>"
    ).encode()
    return 200, body, len(body)


def about_one(service: str, code: str = "") -> Answer:
    return put(code) if service == "events" else published(code)


@pytest.mark.parametrize("service", SINKS)
@pytest.mark.parametrize(
    "answer",
    [
        says(500, "InternalFailure", "oh"),
        says(503),
        says(400, "ThrottlingException"),
        says(403, "AccessDeniedException"),
        says(404, "NotFound"),
        (502, b"bad gateway", 11),
    ],
)
def test_a_request_that_fails_is_about_the_sink_and_not_an_event(service: str, answer: Answer) -> None:
    with serving(answer) as (url, asked), pytest.raises(UnavailableError, match=r"bus|runs"):
        a_sink(service, url).emit([an_event()])
    assert len(asked) == 1


@pytest.mark.parametrize("service", SINKS)
def test_a_sink_that_nobody_answers_for_is_unavailable(service: str) -> None:
    with serving() as (url, _), pytest.raises(UnavailableError):
        a_sink(service, url).emit([an_event()])
    with pytest.raises(UnavailableError):
        a_sink(service, url).emit([an_event()])


@pytest.mark.parametrize(
    ("service", "code"),
    [("events", "MalformedDetail"), ("events", "InvalidArgument"), ("sns", "InvalidParameter")],
)
def test_an_entry_that_is_refused_for_what_it_is_is_refused_at_once(service: str, code: str) -> None:
    with (
        serving(about_one(service, code)) as (url, asked),
        pytest.raises(EventRefusedError, match=rf"event .*/1: {code}: so it is"),
    ):
        a_sink(service, url).emit([an_event()])
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("events", "ThrottlingException"),
        ("events", "InternalFailure"),
        ("events", "NotAuthorizedForSourceException"),
        ("sns", "Throttled"),
        ("sns", "AuthorizationError"),
    ],
)
def test_an_entry_that_fails_for_another_reason_is_sent_again(service: str, code: str) -> None:
    failed, taken = about_one(service, code), about_one(service)
    with serving(failed, failed, taken) as (url, asked):
        a_sink(service, url).emit([an_event()])
    assert len(asked) == 3
    with serving(*[failed] * 9) as (url, asked), pytest.raises(SinkUnavailableError, match=code):
        a_sink(service, url).emit([an_event()])
    assert len(asked) == 4


def test_an_entry_that_nothing_is_said_of_was_not_taken() -> None:
    silent: dict[str, Answer] = {
        "events": (200, b'{"FailedEntryCount":0,"Entries":[]}', 35),
        "sns": published(answered=False),
    }
    for service, answer in silent.items():
        with serving(*[answer] * 4) as (url, _), pytest.raises(SinkUnavailableError, match="no answer"):
            a_sink(service, url).emit([an_event()])


@pytest.mark.parametrize("service", SINKS)
def test_what_is_too_large_for_a_sink_is_refused_and_not_sent(service: str) -> None:
    with serving() as (url, asked), pytest.raises(EventRefusedError, match="bytes, and may have 262,143"):
        a_sink(service, url).emit([an_event(data=f'"{"é" * 131_000}"')])
    assert asked == []


@pytest.mark.slow
def test_a_sink_is_named_by_a_text_and_calls_the_region_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_CONFIG_FILE": "/nowhere",
        "AWS_ACCESS_KEY_ID": "key",  # or else it is looked for in the network
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)

    assert repr(built_in_sink(f"sns://{TOPIC}")) == f"SnsSink('{TOPIC}')"
    bus = "arn:aws:events:eu-central-1:123456789012:event-bus/runs"
    assert repr(built_in_sink(f"eventbridge://{bus}")) == f"EventBridgeSink('{bus}')"
    with pytest.raises(InvalidArgumentError, match="AWS_DEFAULT_REGION"):
        built_in_sink("eventbridge://runs")
    for text in ("eventbridge://", "sns://runs", "sns://"):
        with pytest.raises(InvalidArgumentError, match="it must be"):
            built_in_sink(text)
    with pytest.raises(InvalidUrlError, match=r"ftp://\*\*\*@x.* is not a sink"):
        built_in_sink("ftp://me:s3cret@x")
    with pytest.raises(InvalidArgumentError, match=r"do not begin with `aws\.`"):
        EventBridgeSink("bus", source="aws.events")


# EventBridge Scheduler ----------------------------------------------------------------------------------------------

ROLE = "arn:aws:iam::123456789012:role/scheduler"
LATER = NOON + timedelta(hours=1)
NAMED: Answer = (200, b'{"Attributes":{"QueueArn":"arn:aws:sqs:x:1:queue"}}', 51)
DONE: Answer = (200, b'{"ScheduleArn":"arn:x","MessageId":"1"}', 39)


def refuses(code: str, status: int = 400) -> Answer:
    body = f'{{"__type":"{code}","message":"so it is"}}'.encode()
    return status, body, len(body)


def a_scheduler(url: str) -> EventBridgeScheduler:
    return EventBridgeScheduler(
        f"{url}/1/queue",
        role=ROLE,
        client=client("scheduler", url),
        queue_client=client("sqs", url),
        now=lambda: NOON,
    )


CONFLICT, GONE = refuses("ConflictException", 409), refuses("ResourceNotFoundException", 404)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([DONE], ["POST"]),
        ([CONFLICT, DONE], ["POST", "PUT"]),
        ([CONFLICT, GONE, DONE], ["POST", "PUT", "POST"]),
    ],
    ids=["new", "there", "gone-meanwhile"],
)
def test_a_wake_up_that_is_there_is_changed_and_one_that_went_off_meanwhile_is_made_again(
    answers: list[Answer], asked: list[str]
) -> None:
    with serving(NAMED, *answers) as (url, methods):
        a_scheduler(url).schedule("key", "{}", LATER)
    assert methods == ["POST", *asked]


def test_a_schedule_that_comes_and_goes_is_given_up() -> None:
    with (
        serving(NAMED, *[CONFLICT, GONE] * 9) as (url, methods),
        pytest.raises(UnavailableError, match=r"could not put a schedule.*ConflictException"),
    ):
        a_scheduler(url).schedule("key", "{}", LATER)
    assert methods == ["POST", "POST", "PUT", "POST", "PUT", "POST"]


@pytest.mark.parametrize(
    "answer", [refuses("InternalServerException", 500), refuses("ThrottlingException", 429), says(502)]
)
def test_a_scheduler_that_can_not_be_asked_is_unavailable(answer: Answer) -> None:
    with serving(NAMED, answer) as (url, _), pytest.raises(UnavailableError, match="put a schedule"):
        a_scheduler(url).schedule("key", "{}", LATER)
    with serving(answer) as (url, _), pytest.raises(UnavailableError, match="look up"):
        a_scheduler(url).schedule("key", "{}", LATER)
    with serving(answer) as (url, _), pytest.raises(UnavailableError, match="send a wake-up"):
        a_scheduler(url).schedule("key", "{}", NOON)
    with serving(answer) as (url, _), pytest.raises(UnavailableError, match="delete a schedule"):
        a_scheduler(url).cancel("key")


def test_what_is_soon_due_is_sent_before_the_old_wake_up_is_deleted() -> None:
    with serving(DONE, GONE) as (url, methods):
        a_scheduler(url).schedule("key", "{}", NOON + timedelta(minutes=15))
    assert methods == ["POST", "DELETE"]
    with serving(refuses("InternalError", 500)) as (url, methods), pytest.raises(UnavailableError):
        a_scheduler(url).schedule("key", "{}", NOON)
    assert methods == ["POST"]


def test_a_schedule_goes_off_at_no_earlier_second_than_was_asked_for() -> None:
    at = datetime(2026, 12, 31, 23, 59, 59, 1, tzinfo=timezone(timedelta(hours=-1)))
    with serving(NAMED, DONE) as (url, _):
        schedules = client("scheduler", url)
        sent: list[dict[str, Any]] = []

        def keep(params: dict[str, Any], **_: object) -> None:
            sent.append(params)

        schedules.meta.events.register("provide-client-params.scheduler.CreateSchedule", keep)
        EventBridgeScheduler(
            f"{url}/1/queue",
            role=ROLE,
            client=schedules,
            queue_client=client("sqs", url),
            now=lambda: NOON,
        ).schedule("key", '{"epoch":0}', at)
    (body,) = sent
    assert (body["ScheduleExpression"], body["FlexibleTimeWindow"]) == (
        "at(2027-01-01T01:00:00)",
        {"Mode": "OFF"},
    )
    assert (body["Target"]["Input"], body["Target"]["RoleArn"]) == ('{"epoch":0}', ROLE)


@pytest.mark.slow
def test_a_scheduler_needs_a_standard_queue_and_a_role() -> None:
    with pytest.raises(InvalidArgumentError, match="standard queue"):
        EventBridgeScheduler("https://sqs.example/1/queue.fifo", role=ROLE)
    with pytest.raises(InvalidArgumentError, match="ARN of a role"):
        EventBridgeScheduler("https://sqs.example/1/queue", role="scheduler")
