"""Every result or exception of a body becomes an outcome and never harms the worker."""

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import anyio
import attrs
import pydantic
import pytest
from anyio import lowlevel, to_thread
from typing_extensions import override

from holdfast.hosts.execution.bodies import idempotency_key
from holdfast.hosts.execution.failures import MESSAGE_MAX, TRACEBACK_MAX
from holdfast.hosts.wiring.payloads import INLINE_MAX
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import Failed
from holdfast.kernel.values import MAX_DEPTH, MAX_VALUE_BYTES
from holdfast.ports.errors import (
    GiveUp,
    InvalidArgumentError,
    InvalidValueError,
    RetryAfter,
    UnavailableError,
    UnstorableValueError,
)
from holdfast.ports.json import parse
from holdfast.testing.blobs import MemoryBlobStore
from tests.unit.hosts.attempt_harness import Bench, items, value

pytestmark = pytest.mark.anyio


def raising(make: Callable[[], BaseException], *, sync: bool) -> Pipeline[int, int]:
    """A pipeline of one stage that raises."""

    @stage(name="body")
    def in_thread(x: int) -> int:
        raise make()

    @stage(name="body")
    async def on_loop(x: int) -> int:
        raise make()

    return Pipeline("w", input=int).pipe(in_thread if sync else on_loop)


class Unprintable(Exception):  # noqa: N818
    @override
    def __str__(self) -> str:
        raise ValueError("not even that")


class OutOfTheWay(BaseException):
    """A BaseException, as some libraries have to bypass `except Exception`."""


# What bodies give -----------------------------------------------------------------------------------------------


async def test_an_async_body_gives_its_output() -> None:
    @stage
    async def double(x: int) -> int:
        await lowlevel.checkpoint()
        return 2 * x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(double))

    assert value(await bench.outcome_of(pipeline(21))) == 42


async def test_a_sync_body_runs_in_a_thread_of_its_own() -> None:
    seen: list[int] = []

    @stage
    def double(x: int) -> int:
        seen.append(threading.get_ident())
        return 2 * x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(double))

    assert value(await bench.outcome_of(pipeline(21))) == 42
    assert seen != [threading.get_ident()]


async def test_a_sync_function_that_gives_something_to_await_is_awaited() -> None:
    async def later(x: int) -> int:
        await lowlevel.checkpoint()
        return x + 1

    @stage
    def indirect(x: int) -> object:
        return later(x)

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(indirect))

    assert value(await bench.outcome_of(pipeline(1))) == 2


async def test_an_input_reaches_a_body_as_its_type() -> None:
    @attrs.frozen
    class Doc:
        path: str
        pages: int = 1

    seen: list[Doc] = []

    @stage
    def look(doc: Doc) -> None:
        seen.append(doc)

    bench = Bench(pipeline := Pipeline("w", input=Doc).pipe(look))
    await bench.outcome_of(pipeline(Doc("a", 7)))

    assert seen == [Doc("a", 7)]


async def test_several_parameters_share_the_outputs_of_a_parallel_group() -> None:
    @stage
    def one(x: int) -> int:
        return x

    @stage
    def two(x: int) -> str:
        return str(x)

    @stage
    def both(a: int, b: str) -> list[object]:
        return [a, b]

    bench = Bench(pipeline := Pipeline("w", input=int).parallel(one, two).pipe(both))
    bench.start(pipeline(3))
    for body in bench.prepare():
        bench.settle(body, await bench.run(body))

    assert value(await bench.run(bench.body())) == [3, "3"]


async def test_a_context_says_who_and_where_the_attempt_is() -> None:
    @attrs.frozen
    class Config:
        size: int = 7

    seen: list[StageContext[Config]] = []

    @stage(timeout=timedelta(seconds=30))
    async def look(ctx: StageContext[Config], x: int) -> None:
        seen.append(ctx)

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(look.configure(Config(size=9))))
    await bench.outcome_of(pipeline(1))

    (ctx,) = seen
    assert (ctx.run_id, ctx.workflow, ctx.stage, ctx.item) == ("x", "w", "look", None)
    assert (ctx.attempt, ctx.epoch, ctx.config) == (1, 1, Config(size=9))
    assert ctx.deadline == bench.clock.now() + timedelta(seconds=30)
    assert ctx.idempotency_key == f"{bench.row().key}/look"


async def test_the_idempotency_key_is_the_same_for_every_attempt_and_another_for_every_item() -> None:
    @stage
    def pages(x: int) -> list[int]:
        return list(range(x))

    @stage(retry=Retry(attempts=2, wait=timedelta(0)))
    def fail(page: int) -> int:
        raise ValueError

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(pages).map(fail))
    bench.start(pipeline(2))
    for _ in range(2):
        body = bench.body()
        bench.settle(body, await bench.run(body))
    keys: list[str] = []
    for _ in range(2):
        bodies = bench.prepare()
        keys += [idempotency_key(body.attempt) for body in bodies]
        outcomes = [await bench.run(body) for body in bodies]
        for body, outcome in zip(bodies, outcomes, strict=True):
            if body.attempt.attempt == 1:
                bench.settle(body, outcome)

    assert keys[:2] == keys[2:]
    assert len(set(keys)) == 2


async def test_a_map_goes_over_the_items_of_its_list() -> None:
    @stage
    def size(page: str) -> int:
        return len(page)

    bench = Bench(pipeline := Pipeline("w", input=list[str]).map(size))

    assert items(await bench.outcome_of(pipeline(["a", "é", ""]))) == ["a", "é", ""]


async def test_a_long_list_that_a_map_goes_over_is_read_in_a_thread() -> None:
    @stage
    def size(page: str) -> int:
        return len(page)

    bench = Bench(pipeline := Pipeline("w", input=list[str]).map(size))
    pages = ["x" * 100] * (2 * INLINE_MAX // 100)

    assert items(await bench.outcome_of(pipeline(pages))) == pages


# What bodies raise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize(
    ("make", "type_name"),
    [
        (lambda: ValueError("so"), "ValueError"),
        (lambda: StopIteration("so"), "RuntimeError"),
        (lambda: StopAsyncIteration("so"), None),
        (lambda: SystemExit("so"), "SystemExit"),
        (lambda: KeyboardInterrupt("so"), "KeyboardInterrupt"),
        (lambda: GeneratorExit("so"), "GeneratorExit"),
        (lambda: OutOfTheWay("so"), "tests.unit.hosts.execution.test_bodies.OutOfTheWay"),
        (lambda: ExceptionGroup("so", [ValueError("inner")]), "ExceptionGroup"),
        (lambda: BaseExceptionGroup("so", [KeyboardInterrupt()]), "BaseExceptionGroup"),
        (lambda: RecursionError("so"), "RecursionError"),
        (lambda: MemoryError("so"), "MemoryError"),
        (lambda: asyncio.CancelledError("so"), "asyncio.exceptions.CancelledError"),
        (lambda: UnavailableError("so"), "holdfast.ports.errors.UnavailableError"),
    ],
)
async def test_whatever_a_body_raises_is_a_failure_that_may_be_tried_again(
    make: Callable[[], BaseException], type_name: str | None, sync: bool
) -> None:
    bench = Bench(pipeline := raising(make, sync=sync))

    failure = await bench.failure_of(pipeline(1))

    assert failure.retryable
    if type_name is not None:
        assert failure.type == type_name
    assert "raise make()" in failure.traceback


async def test_a_body_that_awaits_a_cancelled_task_fails_and_is_not_taken_for_cancelled(
    anyio_backend_name: str,
) -> None:
    """Otherwise it would end the worker that runs it."""
    if anyio_backend_name != "asyncio":
        pytest.skip("only asyncio has tasks that can be cancelled from anywhere")

    @stage
    async def body(x: int) -> int:
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert (await bench.failure_of(pipeline(1))).type == "asyncio.exceptions.CancelledError"


@pytest.mark.parametrize("sync", [True, False])
async def test_an_exception_that_can_not_be_printed_is_a_failure_all_the_same(sync: bool) -> None:
    bench = Bench(pipeline := raising(Unprintable, sync=sync))

    failure = await bench.failure_of(pipeline(1))

    assert failure.type.endswith("Unprintable")
    assert "can't be printed" in failure.message


async def test_a_huge_message_is_cut() -> None:
    bench = Bench(pipeline := raising(lambda: ValueError("x" * 1_000_000), sync=False))

    failure = await bench.failure_of(pipeline(1))

    assert len(failure.message) == MESSAGE_MAX
    assert len(failure.traceback) == TRACEBACK_MAX


async def test_what_no_database_can_keep_is_taken_out_of_a_message() -> None:
    bench = Bench(pipeline := raising(lambda: ValueError("a\0b\ud800c"), sync=False))

    failure = await bench.failure_of(pipeline(1))

    assert failure.message == "a\ufffdb\ufffdc"
    assert "\0" not in failure.traceback
    assert "\ud800" not in failure.traceback


async def test_a_traceback_tells_of_the_causes() -> None:
    def make() -> BaseException:
        error = ValueError("the effect")
        error.__cause__ = OSError("the cause")
        return error

    bench = Bench(pipeline := raising(make, sync=True))

    assert "the cause" in (await bench.failure_of(pipeline(1))).traceback


class Temporary(Exception):  # noqa: N818
    pass


class Final(Exception):  # noqa: N818
    pass


class VeryFinal(Final):
    pass


@pytest.mark.parametrize(("error", "retryable"), [(Temporary, True), (Final, False), (VeryFinal, False)])
async def test_an_error_that_a_stage_gives_up_on_is_not_tried_again(
    error: type[Exception], retryable: bool
) -> None:
    @stage(retry=Retry(give_up_on=(Final,)))
    async def body(x: int) -> int:
        raise error

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert (await bench.failure_of(pipeline(1))).retryable is retryable


class Busy(Temporary):
    pass


PICKY = Retry(
    attempts=2,
    give_up_on=(Final, LookupError),
    by_error={
        Temporary: Retry(attempts=3),
        KeyError: Retry(attempts=4),
        TimeoutError: Retry(attempts=5),
        UnstorableValueError: Retry(attempts=6),
        Exception: Retry(attempts=7),
    },
)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "rule", "retryable", "code"),
    [
        (Temporary(), 0, True, "body_error"),
        (Busy(), 0, True, "body_error"),
        (KeyError(), 1, True, "body_error"),
        (IndexError(), None, False, "body_error"),
        (VeryFinal(), None, False, "body_error"),
        (TimeoutError(), 2, True, "body_error"),
        (ValueError(), 4, True, "body_error"),
        (SystemExit(), None, True, "body_error"),
        (UnstorableValueError("$", "no"), 3, True, "unstorable_value"),
        (InvalidValueError("it", ()), None, False, "invalid_value"),
        (GiveUp("no use"), None, False, "give_up"),
        (RetryAfter(timedelta(seconds=5)), 4, True, "retry_after"),
        (caused(RetryAfter(timedelta(seconds=5)), Busy()), 0, True, "retry_after"),
        (caused(RetryAfter(timedelta(seconds=5)), Final()), 4, True, "retry_after"),
    ],
)
async def test_the_class_nearest_to_an_error_says_how_it_is_treated(
    error: BaseException, rule: int | None, retryable: bool, code: str
) -> None:
    @stage(retry=PICKY)
    async def body(x: int) -> int:
        raise error

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))
    failure = await bench.failure_of(pipeline(1))

    assert (failure.rule, failure.retryable, failure.code) == (rule, retryable, code)


async def test_a_validation_error_within_a_body_is_an_error_like_any_other() -> None:
    """A model's response did not parse: the next one may."""

    class Answer(pydantic.BaseModel):
        score: int

    @stage
    async def judge(x: int) -> int:
        return Answer.model_validate_json('{"score": "high"}').score

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(judge))

    assert (await bench.failure_of(pipeline(1))).retryable


@pytest.mark.parametrize(
    ("wait", "asked"),
    [
        (timedelta(seconds=5), 5_000_000),
        (timedelta(seconds=-5), 0),
        (timedelta(days=30), 7 * 24 * 3600 * 1_000_000),
    ],
)
async def test_a_body_says_when_it_is_to_be_tried_again(wait: timedelta, asked: int) -> None:
    @stage
    def body(x: int) -> int:
        raise RetryAfter(wait, "slow down")

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))
    failure = await bench.failure_of(pipeline(1))

    assert (failure.retry_after, failure.message, failure.retryable) == (asked, "slow down", True)


def test_what_to_wait_is_a_timedelta_or_seconds() -> None:
    assert RetryAfter(5).wait == RetryAfter(timedelta(seconds=5)).wait == timedelta(seconds=5)
    with pytest.raises(
        InvalidArgumentError, match="wait is '5'; it must be a timedelta or a number of seconds"
    ):
        RetryAfter("5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_rule_is_found_by_name_in_a_plan_that_is_older_than_the_code() -> None:
    """A run keeps its plan; later code may have other retry rules."""

    def pipeline_with(*errors: type[Exception]) -> Pipeline[int, int]:
        @stage(name="body", retry=Retry(by_error={error: Retry() for error in errors}))
        async def body(x: int) -> int:
            raise KeyError if x else IndexError

        return Pipeline("w", input=int).pipe(body)

    old, new = pipeline_with(ValueError, KeyError), pipeline_with(KeyError, IndexError)
    bench = Bench(old)
    bench.start(old(1), "known")
    bench.start(old(0), "unknown")
    newer = Bench(new, persistence=bench.store)
    known, unknown = newer.prepare()
    rules = [
        outcome.failure.rule
        for outcome in (await newer.run(known), await newer.run(unknown))
        if isinstance(outcome, Failed)
    ]

    assert rules == [1, None]


# Time and cancellation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "rule", "retryable"),
    [
        (Retry(by_error={TimeoutError: Retry(attempts=9)}), 0, True),
        (Retry(by_error={ValueError: Retry(), OSError: Retry(attempts=9)}), 1, True),
        (Retry(give_up_on=(TimeoutError,)), None, False),
        (Retry(), None, True),
    ],
)
async def test_a_timeout_counts_as_a_timeout_error(retry: Retry, rule: int | None, retryable: bool) -> None:
    @stage(timeout=timedelta(milliseconds=20), retry=retry)
    async def body(x: int) -> int:
        await anyio.sleep_forever()
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))
    failure = await bench.failure_of(pipeline(1))

    assert (failure.code, failure.rule, failure.retryable) == ("timeout", rule, retryable)


async def test_an_attempt_is_cut_to_what_is_left_of_the_time_for_all() -> None:
    seen: list[datetime | None] = []

    @stage(timeout=timedelta(minutes=5), timeout_total=timedelta(seconds=10), retry=Retry(wait=timedelta(0)))
    async def body(ctx: StageContext, x: int) -> int:
        seen.append(ctx.deadline)
        if ctx.attempt == 2:
            await anyio.sleep_forever()
        raise KeyError

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))
    began = bench.clock.now()
    bench.start(pipeline(1))
    first = bench.body()
    bench.settle(first, await bench.run(first))
    bench.clock.advance(timedelta(seconds=9.98))
    second = bench.body()
    settled = bench.settle(second, await bench.run(second))

    assert seen == [began + timedelta(seconds=10)] * 2
    assert (settled.run_status, settled.retry_at) == ("failed", None)
    error = parse(bench.row().error or "")
    assert (error["code"], error["message"]) == (
        "timeout_total",
        "2 attempts were made within the 0:00:10 for all of them; the last one was stopped then",
    )


async def test_no_attempt_begins_after_the_time_for_all() -> None:
    seen: list[int] = []

    @stage(timeout_total=timedelta(seconds=10), retry=Retry(wait=timedelta(0)))
    async def body(ctx: StageContext, x: int) -> int:
        seen.append(ctx.attempt)
        raise KeyError

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))
    bench.start(pipeline(1))
    first = bench.body()
    bench.settle(first, await bench.run(first))
    bench.clock.advance(timedelta(seconds=10))  # nobody claimed it in time: a backlog, or no worker
    second = bench.body()
    bench.settle(second, await bench.run(second))

    error = parse(bench.row().error or "")
    assert seen == [1]
    assert (error["code"], error["message"]) == (
        "timeout_total",
        "1 attempt was made within the 0:00:10 for all of them; the next one was claimed too late to start",
    )


async def test_an_async_body_that_takes_too_long_is_cancelled() -> None:
    seen: list[str] = []

    @stage(timeout=timedelta(milliseconds=20))
    async def body(ctx: StageContext, x: int) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    failure = await bench.failure_of(pipeline(1))

    assert (failure.code, failure.type, failure.retryable) == ("timeout", "TimeoutError", True)
    assert "0:00:00.02" in failure.message
    assert seen == ["cancelled"]


async def test_a_sync_body_that_takes_too_long_is_told_and_left_behind() -> None:
    released, told = threading.Event(), threading.Event()

    @stage(timeout=timedelta(milliseconds=20))
    def body(ctx: StageContext, x: int) -> int:
        released.wait(20)
        if ctx.cancelled:
            told.set()
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert (await bench.failure_of(pipeline(1))).code == "timeout"
    released.set()
    assert await to_thread.run_sync(told.wait, 20)


async def test_a_body_that_ends_in_time_is_not_disturbed_by_its_timeout() -> None:
    @stage(timeout=timedelta(seconds=30))
    async def body(x: int) -> int:
        await lowlevel.checkpoint()
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert value(await bench.outcome_of(pipeline(1))) == 1


async def test_a_body_that_turns_its_timeout_into_an_error_fails_with_that_error() -> None:
    @stage(timeout=timedelta(milliseconds=20))
    async def body(x: int) -> int:
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001  # as some bodies do
            raise ValueError("mine") from None
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert (await bench.failure_of(pipeline(1))).message == "mine"


@pytest.mark.parametrize("stubborn", [False, True])
async def test_when_its_runner_is_cancelled_a_body_gives_no_outcome(stubborn: bool) -> None:
    """Even one that converts its cancellation into something else."""
    begun = anyio.Event()

    @stage
    async def body(x: int) -> int:
        begun.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            if stubborn:
                raise ValueError from None
            raise
        return x

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))
    bench.start(pipeline(1))
    outcomes: list[object] = []

    async def run() -> None:
        with scope:
            outcomes.append(await bench.run(bench.body()))

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await begun.wait()
        scope.cancel()

    assert scope.cancelled_caught
    assert outcomes == []


# What can't be stored -------------------------------------------------------------------------------------------


def nested(depth: int) -> object:
    made: object = 0
    for _ in range(depth):
        made = [made]
    return made


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize(
    ("output", "path"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]"),
        ({"a": float("inf")}, "$.a"),
        (["ok", "half \ud83d"], "$[1]"),
        ({"k": {"n": "nul \0"}}, "$.k.n"),
        ({"k": {1: 2}}, "$.k"),
        ({"k": [object()]}, "$.k[0]"),
        ([b"bytes"], "$[0]"),
        (CYCLE, "$"),
        ("x" * (MAX_VALUE_BYTES + 1), "$"),
    ],
    ids=["nan", "infinity", "surrogate", "nul", "key", "object", "bytes", "cycle", "too-big"],
)
async def test_an_output_that_can_not_be_stored_fails_the_attempt_at_once_and_says_where(
    output: object, path: str, sync: bool
) -> None:
    @stage(name="body")
    def in_thread(x: int) -> object:
        return output

    @stage(name="body")
    async def on_loop(x: int) -> object:
        return output

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(in_thread if sync else on_loop))

    failure = await bench.failure_of(pipeline(1))

    assert (failure.code, failure.retryable) == ("unstorable_value", False)
    assert f"{path}: " in failure.message


async def test_an_output_that_nests_too_deeply_fails_the_attempt_at_once() -> None:
    @stage
    async def body(x: int) -> object:
        return nested(x)

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert value(await bench.outcome_of(pipeline(MAX_DEPTH))) == nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):
        bench = Bench(pipeline)
        failure = await bench.failure_of(pipeline(depth))
        assert (failure.code, failure.retryable) == ("unstorable_value", False)


async def test_an_output_of_another_type_than_was_declared_fails_the_attempt_at_once() -> None:
    @stage
    async def body(x: int) -> list[int]:
        return [1, "2"]  # type: ignore[list-item]  # pyright: ignore[reportReturnType]

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    failure = await bench.failure_of(pipeline(1))

    assert (failure.code, failure.retryable) == ("invalid_value", False)
    assert "$[1]" in failure.message


async def test_an_output_that_breaks_while_it_is_written_is_a_failure() -> None:
    class Treacherous(dict[str, object]):
        @override
        def items(self) -> object:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            raise OSError("no")

    @stage
    async def body(x: int) -> dict[str, object]:
        return Treacherous(a=1)

    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body))

    assert isinstance(await bench.outcome_of(pipeline(1)), Failed)


async def test_a_large_output_goes_to_the_blob_store() -> None:
    @stage
    async def body(x: int) -> str:
        return "x" * x

    blobs = MemoryBlobStore()
    bench = Bench(pipeline := Pipeline("w", input=int).pipe(body), blobs=blobs)
    bench.start(pipeline(INLINE_MAX))
    prepared = bench.body()
    bench.settle(prepared, await bench.run(prepared))

    (key,) = blobs.list("")
    assert key.startswith(f"default/{bench.row().key}/body/1/")
    assert parse(blobs.get(key).decode()) == "x" * INLINE_MAX
    assert bench.engine.sync.handle(pipeline, "x").result() == "x" * INLINE_MAX
