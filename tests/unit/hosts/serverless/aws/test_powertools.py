"""The record handler under the BatchProcessor of Powertools for AWS Lambda."""

from collections.abc import Iterator
from typing import Any

import pytest
from aws_lambda_powertools.utilities import batch
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

from holdfast import Engine, Pipeline, Retry, ServerlessHost, stage
from holdfast.hosts.serverless.aws.queue_handler import QueueHandler
from holdfast.ports.errors import InvalidMessageError
from tests.lambdas import QUEUE_ARN, FakeContext, FakeMessages, event, failures, record, told_of


@stage
def double(x: int) -> int:
    return 2 * x


@stage(retry=Retry(attempts=3))
def picky(x: int) -> int:
    raise ValueError(x)


SIMPLE = Pipeline("simple", input=int).pipe(double)
PICKY = Pipeline("picky", input=int).pipe(picky)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine.open("memory://", workflows=[SIMPLE, PICKY])
    with engine.sync:
        yield engine


def processed(engine: Engine, messages: FakeMessages, *records: dict[str, Any], **options: Any) -> Any:
    """Return the response of Powertools, which calls the handler for each record."""
    chosen: dict[str, Any] = {"rejected_queue": None, "seconds": 60.0, **options}
    handler = QueueHandler(
        ServerlessHost(engine, time_limit=60),
        messages,
        limit=60,
        concurrency=1,
        rejected_queue=chosen["rejected_queue"],
        queues=None,
    )
    process: Any = batch.__dict__["process_partial_response"]  # its types are half said
    return process(
        event=event(*records),
        record_handler=handler.record_handler,
        processor=BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False),
        context=FakeContext(chosen["seconds"]),
    )


def test_records_are_carried_out_and_bodies_that_failed_are_dealt_with(engine: Engine) -> None:
    run = engine.sync.start(SIMPLE(4), id="a")
    engine.sync.start(PICKY(4), id="b")
    records = [record(told) for name in ("a", "b") for told in told_of(engine, name)]

    assert failures(processed(engine, FakeMessages(), *records)) == []
    assert run.result() == 8


def test_a_record_that_can_not_be_had_yet_is_given_back_with_its_wait(engine: Engine) -> None:
    engine.sync.start(PICKY(4), id="b")
    messages = FakeMessages()
    processed(engine, messages, *map(record, told_of(engine, "b")))
    early = record(*told_of(engine, "b"))

    assert failures(processed(engine, messages, early)) == [early["messageId"]]
    ((queue, waits),) = messages.shown
    assert (queue, list(waits)) == (QUEUE_ARN, [early["receiptHandle"]])


def test_near_the_end_of_the_invocation_records_are_given_back_at_once(engine: Engine) -> None:
    run = engine.sync.start(SIMPLE(4), id="a")
    messages = FakeMessages()
    one = record(*told_of(engine, "a"))

    assert failures(processed(engine, messages, one, seconds=11.0)) == [one["messageId"]]
    assert messages.shown == [(QUEUE_ARN, {one["receiptHandle"]: 0.0})]
    assert run.info().ended_at is None


def test_a_malformed_record_is_put_aside_or_fails(engine: Engine) -> None:
    messages = FakeMessages()
    bad = record("not json")

    assert failures(processed(engine, messages, bad, rejected_queue="aside")) == []
    assert messages.aside == [("aside", "not json", "the message is not JSON")]
    assert failures(processed(engine, messages, bad)) == [bad["messageId"]]


def test_what_is_malformed_is_told_by_its_error(engine: Engine) -> None:
    handler = QueueHandler(
        ServerlessHost(engine), FakeMessages(), limit=60, concurrency=1, rejected_queue=None, queues=None
    )
    processor: Any = BatchProcessor(event_type=EventType.SQS)
    with pytest.raises(BatchProcessingError) as caught, processor([record("[]")], handler.record_handler):
        processor.process()
    assert isinstance(caught.value.child_exceptions[0][1], InvalidMessageError)
