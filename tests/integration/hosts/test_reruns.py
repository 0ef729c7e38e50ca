"""Reruns by workers with corrected code, on every store."""

import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import RunRerunFrom
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    RerunRefusedError,
    RunCancelledError,
    RunFailedError,
    RunNotFoundError,
    UnknownWorkflowError,
)
from holdfast.ports.records.run import Run, RunStatus
from holdfast.testing.conformance.threads import in_threads
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

SOON = timedelta(minutes=2)
LARGE = "x" * 100_000


class Code:
    """A deploy of a pipeline, with a count of its executed bodies. Its third stage has a bug or not."""

    def __init__(self, *, fixed: bool) -> None:
        ran: Counter[str] = Counter()
        self.ran = ran
        self.keys: list[str] = []
        keys = self.keys

        @stage
        def read(ctx: StageContext[None], text: str) -> list[str]:
            ran["read"] += 1
            keys.append(ctx.idempotency_key)
            return [LARGE, text, "c"]

        @stage
        def measure(word: str) -> int:
            ran["measure"] += 1
            return len(word)

        @stage(retry=Retry(attempts=1))
        def total(ctx: StageContext[None], sizes: list[int]) -> int:
            ran["total"] += 1
            keys.append(ctx.idempotency_key)
            if not fixed:
                raise ValueError("a bug")
            assert ctx.outputs_of(measure) == sizes
            assert len(ctx.output_of(read)) == len(sizes)
            return sum(sizes)

        @stage
        async def tell(ctx: StageContext[None], total: int) -> str:
            ran["tell"] += 1
            words = await ctx.aio.output_of(read)
            return f"{total} letters in {len(words)} words"

        self.stages = (read, measure, total, tell)
        self.pipeline = Pipeline("words", input=str).pipe(read).pipe(each(measure)).pipe(total).pipe(tell)


def failed(open_engine: OpenEngine) -> tuple[Code, Engine]:
    """A run that failed in its third stage."""
    code = Code(fixed=False)
    engine = open_engine(code.pipeline)
    run = engine.sync.start(code.pipeline("bb"), id="x")
    with Worker(engine), pytest.raises(RunFailedError):
        run.result(timeout=SOON)
    assert code.ran == {"read": 1, "measure": 3, "total": 1}
    return code, engine


def again(url: str, engine: Engine, code: Code, open_engine: OpenEngine) -> Engine:
    """An engine with other code on the same rows."""
    return (
        Engine.on(engine.core.stores, workflows=[code.pipeline], namespace=engine.core.namespace)
        if url == "memory://"
        else open_engine(code.pipeline)
    )


@pytest.mark.slow
def test_fixed_code_goes_on_where_it_failed_and_runs_nothing_twice(url: str, open_engine: OpenEngine) -> None:
    old, engine = failed(open_engine)
    code = Code(fixed=True)
    engine = again(url, engine, code, open_engine)
    run = engine.sync.handle(code.pipeline, "x")

    preview = run.preview_rerun()
    assert (preview.generation, preview.stage, preview.runs) == (2, "total", ("total", "tell"))
    assert (preview.again, preview.keeps, preview.terminates) == ((), {"read": 1, "measure": 1}, False)
    answer = run.rerun_from(reason="fixed")
    assert (answer.generation, answer.runs, answer.keeps) == (2, preview.runs, tuple(preview.keeps))
    with Worker(engine):
        assert run.result(timeout=SOON) == "100003 letters in 3 words"

    assert code.ran == {"total": 1, "tell": 1}
    assert old.ran == {"read": 1, "measure": 3, "total": 1}
    # What runs again has the key of its generation, so that its effects are made again.
    assert len({*old.keys, *code.keys}) == 3


@pytest.mark.slow
def test_old_generations_stay_readable(url: str, open_engine: OpenEngine) -> None:
    old, engine = failed(open_engine)
    run = engine.sync.handle(old.pipeline, "x")
    before, history = run.info(), run.history()
    code = Code(fixed=True)
    engine = again(url, engine, code, open_engine)
    run = engine.sync.handle(code.pipeline, "x")
    run.rerun_from(code.stages[1], reason="look again")
    with Worker(engine):
        run.result(timeout=SOON)

    assert (run.info(generation=1), run.history(generation=1)) == (before, history)
    info = run.info()
    assert info == run.info(generation=2)
    assert (info.generation, info.rerun_of, info.rerun_from) == (2, 1, "measure")
    assert (before.generation, before.rerun_of, before.rerun_from) == (1, None, None)
    first = run.history()[0]
    assert (first.type, first.data["reason"], first.data["from"]) == ("run.created", "look again", "measure")
    assert code.ran == {"measure": 3, "total": 1, "tell": 1}
    for generation in (0, 3):
        with pytest.raises(RunNotFoundError, match=f"generation {generation} of run 'x'"):
            run.info(generation=generation)


def test_a_wait_for_a_generation_ends_with_it(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code(fixed=True)
    engine = open_engine(code.pipeline)
    run = engine.sync.start(code.pipeline("b"), id="x")
    told: list[Exception] = []
    has_read, row = threading.Event(), SyncRunHandle[Any].row

    def noted_row(handle: SyncRunHandle[Any]) -> Run:
        found = row(handle)
        has_read.set()  # from now on it waits for the generation that it has read
        return found

    monkeypatch.setattr(SyncRunHandle, "row", noted_row)

    def wait() -> None:
        try:
            run.result(timeout=SOON)
        except RunCancelledError as error:
            told.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert has_read.wait(20)
    assert run.rerun_from("read", reason="a typo").terminated
    waiter.join()
    with Worker(engine):
        assert run.result(timeout=SOON) == "100002 letters in 3 words"

    assert "run again as generation 2: a typo" in str(told[0])
    old = run.info(generation=1)
    assert (old.status, old.end_cause) == (
        RunStatus.CANCELLED,
        "terminated: it is run again as generation 2: a typo",
    )


def test_the_same_without_blocking_an_event_loop(open_engine: OpenEngine) -> None:
    code = Code(fixed=True)
    engine = open_engine(code.pipeline)

    async def main() -> None:
        async with Worker(engine):
            run = await engine.start(code.pipeline("b"), id="x")
            await run.result(timeout=SOON)
            preview = await run.preview_rerun(code.stages[3])
            assert (preview.runs, preview.again) == (("tell",), ("tell",))
            await run.rerun_from(code.stages[3])
            assert await run.result(timeout=SOON) == "100002 letters in 3 words"
            assert (await run.info()).generation == 2
            assert [event.type for event in await run.history(generation=2)] == [
                "run.created",
                "stage.completed",
                "run.completed",
            ]
            assert (await run.info(generation=1)).generation == 1

    anyio.run(main)
    assert code.ran["tell"] == 2


def test_what_can_not_be_is_refused(open_engine: OpenEngine) -> None:
    code = Code(fixed=True)
    engine = open_engine(code.pipeline)
    run = engine.sync.start(code.pipeline("b"), id="x")

    for call in (run.preview_rerun, run.rerun_from):
        with pytest.raises(RerunRefusedError, match="'read' comes before 'tell' and was not completed"):
            call("tell")
        with pytest.raises(UnknownWorkflowError, match="words@7"):
            call(version="7")
        with pytest.raises(RunNotFoundError):
            getattr(engine.sync.handle(code.pipeline, "nobody"), call.__name__)()
    assert run.info().generation == 1


# At the same time --------------------------------------------------------------------------------------------------


def test_reruns_at_the_same_time_leave_one_generation_active(open_engine: OpenEngine) -> None:
    code = Code(fixed=True)
    engine = open_engine(code.pipeline)
    run = engine.sync.start(code.pipeline("b"), id="x")

    answers = in_threads(5, lambda _: run.rerun_from("read"))

    assert sorted(answer.generation for answer in answers) == [2, 3, 4, 5, 6]
    assert all(answer.terminated for answer in answers)
    statuses = [run.info(generation=number).status for number in range(1, 7)]
    assert statuses == [RunStatus.CANCELLED] * 5 + [RunStatus.RUNNING]
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


def test_of_reruns_of_one_generation_at_the_same_time_one_is_carried_out(open_engine: OpenEngine) -> None:
    code = Code(fixed=True)
    engine = open_engine(code.pipeline)
    run = engine.sync.start(code.pipeline("b"), id="x")
    command = RunRerunFrom(namespace=engine.core.namespace, run_id="x", generation=1)

    answers = in_threads(5, lambda _: engine.kernel.dispatch(command))

    assert sorted(answer.started for answer in answers) == [False] * 4 + [True]
    assert {answer.generation for answer in answers} == {run.info().generation} == {2}


def test_a_body_of_the_old_generation_is_stopped_and_what_it_gives_is_not_taken(
    open_engine: OpenEngine,
) -> None:
    begun, told = threading.Event(), threading.Event()

    @stage
    def work(ctx: StageContext[None], text: str) -> str:
        if not begun.is_set():
            begun.set()
            while not ctx.cancelled:
                time.sleep(0.01)
            told.set()
            return "old"
        return "new"

    pipeline = Pipeline("work", input=str).pipe(work)
    engine = open_engine(pipeline)
    with Worker(engine):
        run = engine.sync.start(pipeline("x"), id="x")
        assert begun.wait(20)
        assert run.rerun_from().terminated
        assert told.wait(20)
        assert run.result(timeout=SOON) == "new"

    assert [event.type for event in run.history(generation=1)] == ["run.created", "run.terminated"]
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []
