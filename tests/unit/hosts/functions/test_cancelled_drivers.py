"""Drivers that are cancelled while the result of a step waits to be stored."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import Completed, JobRecord
from tests.integration.hosts.polling import until
from tests.unit.hosts.attempt_harness import Bench

pytestmark = pytest.mark.anyio
SOON = 60.0
DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@step
async def note(name: str) -> str:
    DONE.append(name)
    return name


@workflow
async def noted(name: str) -> str:
    await note(name)
    return await note(f"{name} again")


class SlowRecords:
    """Holds up the first batch of records until it may be stored."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[int] = []
        self.may = threading.Event()
        self._store: Callable[[Sequence[Any]], list[Any]] = bench.engine.kernel.dispatch_many
        monkeypatch.setattr(bench.engine.kernel, "dispatch_many", self._dispatch)

    def _dispatch(self, commands: Sequence[Any], /) -> list[Any]:
        if isinstance(commands[0], JobRecord):
            self.sent.append(len(commands))
            assert self.may.wait(SOON)
        return self._store(commands)


async def test_a_result_that_waits_behind_others_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(noted)
    bench.start(noted("first"), "first")
    records = SlowRecords(bench, monkeypatch)
    first = bench.body()
    outcomes: list[object] = []

    async def run_first() -> None:
        outcomes.append(await bench.run(first))

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as group:
            group.start_soon(run_first)
            await until(lambda: records.sent == [1])
            bench.start(noted("second"), "second")
            second = bench.body()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as others:
                    others.start_soon(bench.run, second)
                    await until(lambda: DONE == ["first", "second"])
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            assert records.sent == [1], "the second one has not waited for the first"
            records.may.set()

    assert [type(one) for one in outcomes] == [Completed]
    assert DONE == ["first", "second", "first again"]
