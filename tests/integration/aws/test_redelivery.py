"""Redelivery by a real queue: messages come again when they should, or go to the dead-letter queue."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Engine, Pipeline, ServerlessHost, stage
from holdfast.adapters.aws.sqs_messages import SqsMessages
from holdfast.hosts.serverless.aws.dead_letter_handler import DEAD_LETTER, DeadLetterHandler
from holdfast.hosts.serverless.aws.queue_handler import QueueHandler
from holdfast.ports.errors import UnavailableError
from holdfast.ports.json import canonical
from tests.aws import FakeAws
from tests.event_source_mapping import EventSource
from tests.lambdas import FakeContext, told_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@stage
def double(x: int) -> int:
    return 2 * x


SIMPLE = Pipeline("simple", input=int).pipe(double)


def handler_of(engine: Engine, client: "SQSClient", rejected: str | None = None) -> QueueHandler:
    return QueueHandler(
        ServerlessHost(engine, time_limit=60),
        SqsMessages(client),
        limit=60,
        concurrency=10,
        rejected_queue=rejected,
        queues=None,
    )


def all_of(client: "SQSClient", url: str) -> list[Any]:
    return list(
        client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get(
            "Messages", []
        )
    )


@pytest.mark.slow
def test_what_can_not_be_stored_comes_again_later_each_time(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url = aws.new_queue()
    engine = Engine.open("memory://", workflows=[SIMPLE])
    with engine.sync as runs:
        run = runs.start(SIMPLE(4), id="x")
        client.send_message(QueueUrl=url, MessageBody=canonical(told_of(engine, "x")[0]))
        handler = handler_of(engine, client)
        source = EventSource(client, url, lambda event: handler(event, FakeContext()))

        def away(*_: object) -> None:
            raise UnavailableError("the store is away")

        with monkeypatch.context() as patched:
            patched.setattr(engine.core.stores.persistence, "transact", away)
            for wait in (10, 20, 40):
                assert (source.poll(), source.poll()) == (1, 0)
                aws.pass_time(wait - 2)
                assert source.poll() == 0
                aws.pass_time(3)
        assert (source.poll(), source.given_back) == (1, 3)
        assert run.result() == 8


def test_a_malformed_message_is_put_aside_once(aws: FakeAws) -> None:
    client, url = aws.new_queue()
    _, rejected = aws.new_queue()
    client.send_message(QueueUrl=url, MessageBody='{"job_id": "x"}')
    engine = Engine.open("memory://", workflows=[SIMPLE])
    with closing(engine.core):
        handler = handler_of(engine, client, rejected)
        source = EventSource(client, url, lambda event: handler(event, FakeContext()))
        assert source.poll() == 1

    aws.pass_time(60)
    assert source.poll() == 0
    (aside,) = all_of(client, rejected)
    assert aside["Body"] == '{"job_id": "x"}'
    assert "nothing else" in aside["MessageAttributes"]["reason"]["StringValue"]


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, 1_000])
def test_without_a_place_for_it_a_malformed_message_ends_in_the_dead_letter_queue_or_is_dropped(
    aws: FakeAws, most: int
) -> None:
    client, url = aws.new_queue()
    _, dead = aws.new_queue()
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = canonical({"deadLetterTargetArn": arn, "maxReceiveCount": most})
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    client.send_message(QueueUrl=url, MessageBody="nonsense")
    engine = Engine.open("memory://", workflows=[SIMPLE])
    with closing(engine.core):
        handler = handler_of(engine, client)
        source = EventSource(client, url, lambda event: handler(event, FakeContext()))
        while source.poll():
            aws.pass_time(1)

    assert source.invocations == (3 if most == 3 else 20)
    assert [message["Body"] for message in all_of(client, dead)] == (["nonsense"] if most == 3 else [])


@pytest.mark.slow
def test_a_message_whose_functions_fail_each_time_dies_and_its_run_is_told(aws: FakeAws) -> None:
    """The job itself stays in the store, and continues when a worker can run it."""
    client, url = aws.new_queue()
    _, dead = aws.new_queue()
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = canonical({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    engine = Engine.open("memory://", workflows=[SIMPLE])
    with engine.sync as runs:
        run = runs.start(SIMPLE(4), id="x")
        client.send_message(QueueUrl=url, MessageBody=canonical(told_of(engine, "x")[0]))
        crashing = EventSource(client, url, lambda event: None)
        while crashing.poll():
            aws.pass_time(31)
        handler = DeadLetterHandler(engine, SqsMessages(client), rejected_queue=None)
        letters = EventSource(client, dead, lambda event: handler(event, FakeContext()))
        assert (crashing.invocations, letters.poll()) == (2, 1)

        assert [said.name for said in run.annotations()] == [DEAD_LETTER]
        assert ServerlessHost(engine).process_available_jobs(max_jobs=1).completed == 1
        assert run.result() == 8
