"""The queue handler's response for each record."""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import anyio
import pytest

from holdfast import Engine, Pipeline, Retry, ServerlessHost, stage, step, workflow
from holdfast.hosts.serverless.aws.invocations import margin_of
from holdfast.hosts.serverless.aws.queue_handler import AGAIN_MAX, MALFORMED_MAX, QueueHandler
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.commands import SessionOpen
from holdfast.ports.errors import InvalidMessageError, RunFailedError, UnavailableError
from tests.lambdas import QUEUE_ARN, FakeContext, FakeMessages, event, failures, record, told_of

Make = Callable[..., QueueHandler]

calls: list[int] = []


@stage
def double(x: int) -> int:
    calls.append(x)
    return 2 * x


@stage(retry=Retry(attempts=2, wait=timedelta(hours=1), jitter=0.0))
def picky(x: int) -> int:
    raise ValueError(x)


@stage(retry=Retry(attempts=1))
async def endless(ctx: StageContext, x: int) -> int:
    assert ctx.deadline is not None
    await anyio.sleep(60)
    return x


SIMPLE = Pipeline("simple", input=int).pipe(double)
PICKY = Pipeline("picky", input=int).pipe(picky)
ENDLESS = Pipeline("endless", input=int).pipe(endless)
BOUNDED = Pipeline("bounded", input=int).pipe(double.options(name="bounded", timeout=50))

ELSEWHERE = Pipeline("elsewhere", input=int).pipe(double.options(name="elsewhere", queue="long"))


@pytest.fixture
def engine() -> Iterator[Engine]:
    calls.clear()
    engine = Engine.open("memory://", workflows=[SIMPLE, PICKY, ENDLESS, BOUNDED, ELSEWHERE])
    with engine.sync:
        yield engine


@pytest.fixture
def messages() -> FakeMessages:
    return FakeMessages()


@pytest.fixture
def make(engine: Engine, messages: FakeMessages) -> Make:
    def made(limit: float = 60.0, **options: Any) -> QueueHandler:
        chosen: dict[str, Any] = {"concurrency": 10, "rejected_queue": None, "queues": None, **options}
        return QueueHandler(ServerlessHost(engine, time_limit=limit), messages, limit=limit, **chosen)

    return made


def start(engine: Engine, number: int, pipeline: Pipeline[Any, Any] = SIMPLE) -> dict[str, Any]:
    """Start a run; return the record of its first job."""
    engine.sync.start(pipeline(number), id=f"{pipeline.name}-{number}")
    (told,) = told_of(engine, f"{pipeline.name}-{number}")
    return record(told)


def test_a_batch_is_carried_out(engine: Engine, make: Make, messages: FakeMessages) -> None:
    records = [start(engine, number) for number in range(10)]

    assert failures(make()(event(*records), FakeContext())) == []
    assert sorted(calls) == list(range(10))
    assert [engine.sync.handle(SIMPLE, f"simple-{number}").result() for number in range(10)] == [
        2 * number for number in range(10)
    ]
    assert messages.shown == []


def test_a_body_that_failed_and_is_tried_again_is_a_success(engine: Engine, make: Make) -> None:
    assert failures(make()(event(start(engine, 1, PICKY)), FakeContext())) == []
    (told,) = told_of(engine, "picky-1")
    assert told["epoch"] == 1


def test_what_is_delivered_twice_in_a_batch_is_carried_out_once(engine: Engine, make: Make) -> None:
    first = start(engine, 1)
    again = record(first["body"])

    assert failures(make()(event(first, again, first), FakeContext())) == []
    assert calls == [1]


def test_forged_late_and_foreign_messages_do_no_harm(engine: Engine, make: Make) -> None:
    first = start(engine, 1)
    handler = make()
    handler(event(first), FakeContext())
    forged = [
        {"job_id": "NOTHING.1", "epoch": 0},
        {"job_id": "NOTHING.1", "epoch": 10**18},
        {"job_id": "' OR 1=1; --.1", "epoch": 0},
    ]

    assert failures(handler(event(first, *map(record, forged)), FakeContext())) == []
    assert calls == [1]


def test_a_store_that_is_away_gives_every_message_back_later(
    engine: Engine, make: Make, messages: FakeMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = start(engine, 1), start(engine, 2)
    handler = make()

    def away(*_: object) -> None:
        raise UnavailableError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(engine.core.stores.persistence, "transact", away)
        second["attributes"]["ApproximateReceiveCount"] = "3"
        assert failures(handler(event(first, second), FakeContext())) == [
            first["messageId"],
            second["messageId"],
        ]
    waits = {first["receiptHandle"]: 10.0, second["receiptHandle"]: 40.0}
    assert messages.shown == [(QUEUE_ARN, waits)]
    assert failures(handler(event(first, second), FakeContext())) == []
    assert sorted(calls) == [1, 2]


def test_what_can_not_be_settled_comes_free_with_its_session(
    engine: Engine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = start(engine, 1), start(engine, 2)
    handler = make()
    handler(event(start(engine, 3)), FakeContext())
    opened: list[object] = []
    dispatch_many = engine.core.kernel.__class__.dispatch_many

    def refusing(self: Any, commands: Any) -> Any:
        opened.extend(one for one in commands if isinstance(one, SessionOpen))
        if any(one.type == "job.settle" for one in commands):
            raise UnavailableError("the store is away")
        return dispatch_many(self, commands)

    with monkeypatch.context() as patched:
        patched.setattr(engine.core.kernel.__class__, "dispatch_many", refusing)
        given_back = failures(handler(event(first, second), FakeContext()))
        assert given_back == [first["messageId"], second["messageId"]]
        assert opened == []
        handler(event(record({"job_id": "NOTHING.1", "epoch": 0})), FakeContext())
    assert len(opened) == 1  # the session that holds them is not renewed


# Waiting --------------------------------------------------------------------------------------------------------


def test_a_message_that_is_early_comes_again_twice_and_then_is_left_to_the_store(
    engine: Engine, make: Make, messages: FakeMessages
) -> None:
    handler = make()
    handler(event(start(engine, 1, PICKY)), FakeContext())
    (told,) = told_of(engine, "picky-1")
    early = record(told)

    assert failures(handler(event(early), FakeContext())) == [early["messageId"]]
    ((_, waits),) = messages.shown
    assert waits[early["receiptHandle"]] == pytest.approx(300, abs=60)
    assert failures(handler(event(record(told, receives=AGAIN_MAX)), FakeContext())) == []


# Malformed messages ---------------------------------------------------------------------------------------------


def test_a_malformed_message_is_put_aside_with_the_reason(
    engine: Engine, make: Make, messages: FakeMessages
) -> None:
    good = start(engine, 1)
    handler = make(rejected_queue="https://sqs/rejected")

    assert failures(handler(event(record("not json"), good, record('{"job_id": 7}')), FakeContext())) == []
    assert calls == [1]
    assert messages.aside == [
        ("https://sqs/rejected", "not json", "the message is not JSON"),
        (
            "https://sqs/rejected",
            '{"job_id": 7}',
            "a message is a JSON object with `job_id` and `epoch`, and nothing else",
        ),
    ]


def test_a_malformed_message_that_can_not_be_put_aside_comes_again(
    make: Make, messages: FakeMessages
) -> None:
    bad = record("not json")
    messages.is_away = True

    assert failures(make(rejected_queue="q")(event(bad), FakeContext())) == [bad["messageId"]]
    assert messages.shown == [(QUEUE_ARN, {bad["receiptHandle"]: 10.0})]


def test_without_a_place_for_it_a_malformed_message_is_left_to_the_queues_policy_and_then_dropped(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    last = record("not json", receives=MALFORMED_MAX)
    first = record("not json", receives=MALFORMED_MAX - 1)

    assert failures(make()(event(first, last), FakeContext())) == [first["messageId"]]
    assert [one.levelno for one in caplog.records if "dropped" in one.message] == [logging.ERROR]


WRONG: list[Any] = [
    None,
    [],
    {},
    {"Records": None},
    {"Records": "x"},
    {"Records": [1]},
    {"Records": [{"s3": {}}]},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_events_of_others_are_refused(make: Make, wrong: Any) -> None:
    with pytest.raises(InvalidMessageError, match="not from SQS"):
        make()(wrong, FakeContext())


def test_a_job_of_a_queue_that_is_not_served_is_not_run_whatever_its_message_says(
    engine: Engine, make: Make
) -> None:
    """A wake-up does not contain its job's queue, and a forged message may contain anything."""
    (told,) = (start(engine, 1, ELSEWHERE),)
    for queue in ({}, {"messageAttributes": {"queue": {"stringValue": "default", "dataType": "String"}}}):
        assert failures(make(queues=frozenset({"default"}))(event({**told, **queue}), FakeContext())) == []
    assert calls == []

    (again,) = told_of(engine, "elsewhere-1")
    handler = make(queues=frozenset({"default", "long"}))
    assert failures(handler(event(record(again)), FakeContext())) == []
    assert engine.sync.handle(ELSEWHERE, "elsewhere-1").result() == 2


# Order ----------------------------------------------------------------------------------------------------------


def test_groups_of_a_fifo_queue_stop_at_their_first_failure(
    engine: Engine, make: Make, messages: FakeMessages
) -> None:
    """A batch mixes groups: other groups continue."""
    good = [start(engine, number) for number in range(4)]
    bodies = [one["body"] for one in good]
    records = [
        record(bodies[0], group="a"),
        record("bad", group="b"),
        record(bodies[1], group="b"),
        record(bodies[2], group="a"),
        record(bodies[3], group="c"),
        record("bad", group="a"),
        record(bodies[1], group="a"),
    ]
    given_back = failures(make()(event(*records), FakeContext()))

    assert given_back == [records[at]["messageId"] for at in (1, 2, 5, 6)]
    assert sorted(calls) == [0, 2, 3]
    ((_, waits),) = messages.shown
    assert set(waits.values()) == {0.0}


def test_messages_of_one_group_are_handled_one_after_the_other(engine: Engine, make: Make) -> None:
    records = [record(start(engine, number)["body"], group="one") for number in range(5)]
    make()(event(*records), FakeContext())

    assert calls == list(range(5))


# Time -----------------------------------------------------------------------------------------------------------


def test_an_invocation_that_is_about_to_end_gives_all_back_at_once(
    engine: Engine, make: Make, messages: FakeMessages
) -> None:
    first, second = start(engine, 1), start(engine, 2)

    given_back = failures(make()(event(first, second), FakeContext(seconds=2 * margin_of(60.0))))
    assert given_back == [first["messageId"], second["messageId"]]
    assert messages.shown == [(QUEUE_ARN, {first["receiptHandle"]: 0.0, second["receiptHandle"]: 0.0})]
    assert calls == []


def test_after_half_of_the_time_no_more_records_are_taken(
    engine: Engine, make: Make, messages: FakeMessages
) -> None:
    records = [start(engine, number) for number in range(5)]

    given_back = failures(make(concurrency=2)(event(*records), FakeContext(seconds=30)))
    assert given_back == [one["messageId"] for one in records[2:]]
    assert sorted(calls) == [0, 1]
    assert set(messages.shown[0][1].values()) == {0.0}
    assert failures(make(concurrency=2)(event(*records), FakeContext(seconds=60))) == []


def test_a_stage_that_may_need_more_than_is_left_waits_for_a_fresh_invocation(
    engine: Engine, make: Make
) -> None:
    """Its attempt does not count."""
    records = [start(engine, 1), start(engine, 2, BOUNDED)]

    assert failures(make(concurrency=1)(event(*records), FakeContext(seconds=50))) == []
    assert calls == [1]
    (told,) = told_of(engine, "bounded-2")
    assert told["epoch"] == 1
    assert failures(make()(event(record(told)), FakeContext(seconds=50))) == []
    assert engine.sync.handle(BOUNDED, "bounded-2").result() == 4


def test_a_body_is_told_when_its_invocation_ends_and_stopped_then(engine: Engine, make: Make) -> None:
    told = start(engine, 1, ENDLESS)
    handler = make(limit=0.4)

    assert failures(handler(event(told), FakeContext(seconds=0.4))) == []
    with pytest.raises(RunFailedError, match="the invocation that ran it was about to end"):
        engine.sync.handle(ENDLESS, "endless-1").result()


def test_messages_are_kept_unseen_while_bodies_run(
    engine: Engine, make: Make, messages: FakeMessages
) -> None:
    extended = threading.Event()
    show_in = messages.show_in

    def noted(queue: str, seconds: Any, /) -> None:
        show_in(queue, seconds)
        extended.set()

    @stage
    def slow(x: int) -> int:
        if x:
            assert extended.wait(10)
        return x

    pipeline = Pipeline("slow", input=int).pipe(slow)
    slow_engine = Engine.open("memory://", workflows=[pipeline])
    messages.show_in = noted  # type: ignore[method-assign]
    handler = QueueHandler(
        ServerlessHost(slow_engine),
        messages,
        limit=60,
        concurrency=1,
        rejected_queue=None,
        queues=None,
        visibility=0.3,
    )
    with slow_engine.sync:
        quick, waits = start(slow_engine, 0, pipeline), start(slow_engine, 1, pipeline)
        assert failures(handler(event(quick, waits), FakeContext())) == []

    assert messages.shown[0] == (QUEUE_ARN, {waits["receiptHandle"]: 0.3})


@pytest.mark.slow
def test_a_function_rests_when_its_invocation_nears_its_end_and_goes_on_in_the_next(
    messages: FakeMessages,
) -> None:
    tries: list[tuple[int, bool]] = []

    @step
    async def wait(number: int) -> int:
        tries.append((number, step_context().deadline is not None))
        await anyio.sleep(0.1)
        return number

    @workflow
    async def counts(steps: int) -> int:
        return sum([await wait(number) for number in range(steps)])

    engine = Engine.open("memory://", workflows=[counts])
    handler = QueueHandler(
        ServerlessHost(engine), messages, limit=0.5, concurrency=1, rejected_queue=None, queues=None
    )
    invocations = 0
    with engine.sync:
        run = engine.sync.start(counts(8), id="counts")
        while run.info().ended_at is None:
            assert failures(handler(event(*map(record, told_of(engine, "counts"))), FakeContext(0.5))) == []
            invocations += 1
        assert run.result() == sum(range(8))

    assert [number for number, _ in tries] == list(range(8))
    assert all(is_told for _, is_told in tries)
    assert invocations >= 3


def test_a_step_is_stopped_with_its_invocation_and_tried_again_in_the_next(messages: FakeMessages) -> None:
    tries: list[int] = []

    @step(retry=Retry(attempts=2, wait=timedelta(milliseconds=1), jitter=0.0))
    async def hangs_once() -> int:
        tries.append(step_context().attempt)
        if step_context().attempt == 1:
            await anyio.sleep(60)
        return 7

    @workflow
    async def once() -> int:
        return await hangs_once()

    engine = Engine.open("memory://", workflows=[once])
    handler = QueueHandler(
        ServerlessHost(engine), messages, limit=0.3, concurrency=1, rejected_queue=None, queues=None
    )
    with engine.sync:
        run = engine.sync.start(once(), id="once")
        while run.info().ended_at is None:
            handler(event(*map(record, told_of(engine, "once"))), FakeContext(0.3))
        assert run.result() == 7
        retried = next(row for row in run.history() if row.type == "step.retrying")

    assert tries == [1, 2]
    assert "the invocation that ran it was about to end" in str(retried)


# Queues ---------------------------------------------------------------------------------------------------------


def test_messages_about_other_queues_are_left_to_their_workers(engine: Engine, make: Make) -> None:
    first, second = start(engine, 1), start(engine, 2)
    theirs = record(first["body"], queue="gpu")
    ours = record(second["body"], queue="default")

    assert failures(make(queues=frozenset({"default"}))(event(theirs, ours), FakeContext())) == []
    assert calls == [2]


# Processes ------------------------------------------------------------------------------------------------------


def test_the_event_loop_stays_between_invocations(messages: FakeMessages) -> None:
    """Clients that are bound to it, as of databases and HTTP, stay usable."""
    loops: list[object] = []

    @stage
    async def here(x: int) -> int:
        import asyncio

        loops.append(asyncio.get_running_loop())
        return x

    pipeline = Pipeline("here", input=int).pipe(here)
    engine = Engine.open("memory://", workflows=[pipeline])
    handler = QueueHandler(
        ServerlessHost(engine), messages, limit=60, concurrency=1, rejected_queue=None, queues=None
    )
    with engine.sync:
        for number in range(3):
            handler(event(start(engine, number, pipeline)), FakeContext())

    assert len(loops) == 3
    assert len(set(map(id, loops))) == 1
