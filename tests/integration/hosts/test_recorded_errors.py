"""Handlers get recorded errors with their fields, from steps, queued steps, child runs, updates and stages."""

import asyncio
from datetime import date, timedelta

import attrs
import pytest

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import sleep_until, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.steps import step
from holdfast.ports.errors import (
    CancelRun,
    RunCancelledError,
    RunFailedError,
    StepFailedError,
    UpdateFailedError,
)
from tests.integration.hosts.conftest import OpenEngine
from tests.sample_values import Level

SOON = 120
ONCE = Retry(attempts=1)

pytestmark = pytest.mark.usefixtures("quick")


@attrs.frozen
class DeclinedError(Exception):
    """An error that needs arguments and whose attributes cannot be set."""

    level: Level
    after: timedelta


DECLINED = DeclinedError(Level.HIGH, timedelta(seconds=3))


def words_of(error: BaseException | None) -> str:
    assert isinstance(error, DeclinedError), repr(error)
    return f"{error.level!r} {error.after}"


WORDS = words_of(DECLINED)


@step(retry=ONCE)
def decline() -> None:
    raise DECLINED from ValueError("why")


@step(retry=ONCE, queue="default")
async def decline_in_a_queue() -> None:
    raise DECLINED


@step(retry=ONCE)
async def decline_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail(DECLINED))
        group.create_task(_fail(ValueError("card declined")))


async def _fail(error: Exception) -> None:
    raise error


@step(retry=ONCE)
def leave() -> None:
    raise SystemExit(3)


@workflow
async def child() -> None:
    await decline()


@workflow
async def handles() -> list[str]:
    found: list[str] = []
    try:
        await decline()
    except DeclinedError as error:
        found += [words_of(error), repr(error.__cause__)]
    try:
        await decline_in_a_queue()
    except DeclinedError as error:
        found.append(words_of(error))
    try:
        await decline_in_a_group()
    except* DeclinedError as group:
        found.append(words_of(group.exceptions[0]))
    except* ValueError as group:
        found.append(str(group.exceptions[0]))
    try:
        await child()
    except RunFailedError as error:
        found.append(words_of(error.__cause__))
    try:
        await leave()
    except StepFailedError as error:
        found.append(repr(error.__cause__))
    return found


@pytest.mark.slow
def test_handlers_read_the_same_whoever_has_raised_it(open_engine: OpenEngine) -> None:
    with open_engine(handles, child, steps=[decline_in_a_queue]).sync as engine, Worker(engine):
        found = engine.start(handles()).result(timeout=SOON)

    assert found == [WORDS, "ValueError('why')", WORDS, WORDS, "card declined", WORDS, "SystemExit(3)"]


@workflow
async def fails() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail(ValueError("card declined")))
        group.create_task(_fail(KeyError("k")))


@stage(retry=ONCE)
def staged(number: int) -> int:
    raise DECLINED


STAGED = Pipeline("staged", input=int).pipe(staged)


@pytest.mark.slow
def test_who_waits_for_a_run_has_its_error_as_the_cause(open_engine: OpenEngine) -> None:
    with open_engine(fails, child, STAGED).sync as engine, Worker(engine):
        for call in (child(), STAGED(3)):
            with pytest.raises(RunFailedError) as caught:
                engine.start(call).result(timeout=SOON)
            assert words_of(caught.value.__cause__) == WORDS

        run = engine.start(fails(), id="grouped")
        named = (
            r"ExceptionGroup: ValueError: card declined \(1 of 2 in a TaskGroup\); KeyError: 'k' \(2 of 2\)"
        )
        with pytest.raises(RunFailedError, match=named) as caught:
            run.result(timeout=SOON)
        assert repr(caught.value.__cause__) == (
            "ExceptionGroup('unhandled errors in a TaskGroup', [ValueError('card declined'), KeyError('k')])"
        )
        assert any("ValueError: card declined (1 of 2 in a TaskGroup)" in str(one) for one in run.why())


class Board:
    @update
    def move(self) -> None:
        raise DECLINED


@workflow
async def play() -> None:
    expose(Board())
    await asyncio.sleep(3_600)


def test_who_asks_for_an_update_has_its_error_as_the_cause(open_engine: OpenEngine) -> None:
    with open_engine(play).sync as engine, Worker(engine):
        run = engine.start(play())
        with pytest.raises(UpdateFailedError) as caught:
            run.update(Board.move(), timeout=SOON)
        run.cancel()

    assert words_of(caught.value.__cause__) == WORDS


@workflow
async def give_out(with_null: bool) -> None:
    if with_null:
        raise SystemExit("bad\0text\ud800" + "x" * 10_000)
    raise BaseExceptionGroup("all", [SystemExit(3), ValueError("no")])


@pytest.mark.parametrize(
    ("with_null", "words"),
    [
        (True, "SystemExit: bad\ufffdtext\ufffdxxx"),
        (False, "BaseExceptionGroup: SystemExit: 3 (1 of 2 in group 'all'); ValueError: no (2 of 2)"),
    ],
)
def test_a_function_that_exits_fails_with_a_message_that_can_be_stored(
    open_engine: OpenEngine, with_null: bool, words: str
) -> None:
    with open_engine(give_out).sync as engine, Worker(engine):
        with pytest.raises(RunFailedError) as caught:
            engine.start(give_out(with_null)).result(timeout=60)
        assert str(caught.value.error).startswith(words)
        assert len(str(caught.value.error)) < 2_100


@workflow
async def cancel_itself() -> None:
    raise CancelRun("bad\0text\ud800" + "x" * 10_000)


def test_a_function_that_cancels_its_run_does_so_for_a_reason_that_can_be_stored(
    open_engine: OpenEngine,
) -> None:
    with open_engine(cancel_itself).sync as engine, Worker(engine):
        run = engine.start(cancel_itself())
        with pytest.raises(RunCancelledError, match="bad\ufffdtext\ufffdxxx"):
            run.result(timeout=60)


@workflow
async def sleep_until_a_day() -> None:
    await sleep_until(date(2026, 1, 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_an_instant_without_a_time_is_refused_with_what_to_write(open_engine: OpenEngine) -> None:
    with (
        open_engine(sleep_until_a_day).sync as engine,
        Worker(engine),
        pytest.raises(RunFailedError, match="an aware datetime, such as"),
    ):
        engine.start(sleep_until_a_day()).result(timeout=60)
