"""The cron and dead-letter handlers, and the checks before a deploy."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Engine, NotReady, Pipeline, Retry, ServerlessHost, Suspended, stage, suspend
from holdfast.hosts.serverless.aws.cron_handler import CronHandler
from holdfast.hosts.serverless.aws.dead_letter_handler import DEAD_LETTER, DeadLetterHandler
from holdfast.hosts.serverless.aws.timeouts import check_limit
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.errors import DefinitionError, UnavailableError
from tests.lambdas import QUEUE_ARN, FakeContext, FakeMessages, event, failures, record, told_of


@stage(retry=Retry(attempts=3, wait=timedelta(milliseconds=1), jitter=0.0))
def picky(x: int) -> int:
    raise ValueError(x)


@stage(timeout=50)
def bounded(x: int) -> int:
    return x


@stage
def unbounded(x: int) -> int:
    return x


@stage.external
def hand_on(ctx: StageContext, x: int) -> Suspended[int, int]:
    return suspend(x, check_after=60)


@hand_on.check(timeout=700)
def handed_on(ctx: StageContext, x: int) -> int | NotReady:
    return x


PICKY = Pipeline("picky", input=int).pipe(picky)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine.open("memory://", workflows=[PICKY])
    with engine.sync:
        yield engine


# Timers ---------------------------------------------------------------------------------------------------------


def test_a_timer_wakes_what_is_due(engine: Engine) -> None:
    host = ServerlessHost(engine, time_limit=60)
    for number in range(3):
        engine.sync.start(PICKY(number), id=str(number))
    host.process_available_jobs(max_jobs=3)
    handler = CronHandler(host, limit=60)
    engine.core.stores.clock.sleep(0.01)

    done = handler({"source": "aws.events"}, FakeContext())
    assert (done["woken"], done["repaired"]) == (3, ())
    assert handler(None, None)["woken"] == 0


def test_a_timer_stops_with_its_invocation(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    host = ServerlessHost(engine, time_limit=60)
    asked: list[bool] = []
    tick = host.run_maintenance_tick

    def noting(*, keep_on: object) -> object:
        assert callable(keep_on)
        asked.append(bool(keep_on()))
        return tick()

    monkeypatch.setattr(host, "run_maintenance_tick", noting)
    CronHandler(host, limit=60)({}, FakeContext(seconds=7))
    CronHandler(host, limit=60)({}, FakeContext(seconds=5))
    assert asked == [True, False]


# Dead letters ---------------------------------------------------------------------------------------------------


def test_a_run_is_told_once_of_its_dead_message(engine: Engine) -> None:
    run = engine.sync.start(PICKY(1), id="x")
    dead = record(*told_of(engine, "x"))
    handler = DeadLetterHandler(engine, FakeMessages(), rejected_queue=None)

    for _ in range(2):
        assert failures(handler(event(dead), FakeContext())) == []
    (said,) = run.annotations()
    assert (said.name, said.actor.id) == (DEAD_LETTER, "holdfast.dead_letters")
    (told,) = told_of(engine, "x")
    assert said.value == {"job": told["job_id"], "epoch": told["epoch"], "message": dead["messageId"]}
    assert "announced again" in said.reason


def test_dead_messages_of_no_run_of_ours_are_done_with(engine: Engine) -> None:
    run = engine.sync.start(PICKY(1), id="x")
    ours = record(*told_of(engine, "x"))
    run.terminate()
    messages = FakeMessages()
    handler = DeadLetterHandler(engine, messages, rejected_queue="aside")
    theirs = record({"job_id": "NOTHING.1", "epoch": 0})

    assert failures(handler(event(ours, theirs, record("bad")), FakeContext())) == []
    assert list(run.annotations()) == []
    assert [body for _, body, _ in messages.aside] == ["bad"]


def test_dead_messages_wait_for_the_store(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.sync.start(PICKY(1), id="x")
    dead = record(*told_of(engine, "x"))
    messages = FakeMessages()

    def away(*_: object) -> None:
        raise UnavailableError("the store is away")

    monkeypatch.setattr(engine.core.stores.persistence, "read", away)
    handler = DeadLetterHandler(engine, messages, rejected_queue=None)
    assert failures(handler(event(dead), FakeContext())) == [dead["messageId"]]
    assert messages.shown == [(QUEUE_ARN, {dead["receiptHandle"]: 60.0})]


# Limits ---------------------------------------------------------------------------------------------------------


def test_stages_that_may_take_longer_than_a_function_lasts_are_named() -> None:
    long = Pipeline("long", input=int).pipe(bounded).pipe(unbounded).pipe(handed_on)
    engine = Engine.open("memory://", workflows=[long])

    with pytest.raises(DefinitionError) as caught:
        check_limit(engine, limit=60)
    said = str(caught.value)
    assert "leave 0:00:54 for a body" in said
    assert "the check of 'hand_on' of long@1 may take 0:11:40" in said
    assert "'bounded'" not in said
    assert "'unbounded'" not in said
    check_limit(engine, limit=timedelta(minutes=15))


def test_stages_of_queues_that_workers_serve_may_take_their_time() -> None:
    mixed = Pipeline("mixed", input=int).pipe(bounded.options(timeout=3_600, queue="gpu"))
    engine = Engine.open("memory://", workflows=[mixed])

    with pytest.raises(DefinitionError, match="'bounded' of mixed@1 may take 1:00:00"):
        check_limit(engine, limit=900)
    check_limit(engine, limit=900, queues=["default"])
