"""The call queue: calls that run functions are batched in one thread, unless one takes long."""

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio import CancelScope, create_task_group, lowlevel

from holdfast.hosts.functions import stall_watchdog
from holdfast.hosts.functions.call_queue import BatchedCall, CallBatcher, PerEventLoop
from holdfast.ports.errors import WorkflowStalledError
from tests.integration.hosts.polling import until

pytestmark = pytest.mark.anyio

SOON = 120.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_watchdog, "CHECK_INTERVAL", 0.01)


class Batches:
    """The function called before each batch: counts batches, and blocks on command."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.may = threading.Event()
        self.may.set()
        self.refused: dict[str, Exception] = {}
        self.slow: set[str] = set()

    def before(self, batch: Sequence[BatchedCall[str]]) -> None:
        self.sizes.append(len(batch))
        self.may.wait(SOON)
        for call in batch:
            call.error = self.refused.get(call.what)
            call.takes_time = call.what in self.slow


class Calls:
    """Makes calls by name, and records their threads and which have returned."""

    def __init__(self, batches: Batches) -> None:
        self.threads: dict[str, int] = {}
        self.over: list[str] = []
        self._gathering = CallBatcher(batches.before)

    async def make(
        self,
        name: str,
        act: Callable[[], object] = lambda: None,
        *,
        turn: int = 0,
        may_be_left: bool = False,
    ) -> None:
        def make() -> None:
            self.threads[name] = threading.get_ident()
            act()

        await self._gathering.made(BatchedCall(name, make, lambda: turn, may_be_abandoned=may_be_left))
        self.over.append(name)


async def test_those_that_have_come_meanwhile_are_made_together_in_one_thread() -> None:
    batches = Batches()
    calls = Calls(batches)
    batches.may.clear()
    async with create_task_group() as group:
        group.start_soon(calls.make, "first")
        await until(lambda: batches.sizes == [1])
        for name in "abc":
            group.start_soon(calls.make, name)
        await anyio.wait_all_tasks_blocked()
        assert batches.sizes == [1]
        batches.may.set()
    assert batches.sizes == [1, 3]
    assert len({calls.threads[name] for name in "abc"}) == 1


async def together(calls: Calls, batches: Batches, *makes: Callable[[], Any]) -> None:
    """Make concurrent calls."""
    batches.may.clear()
    async with create_task_group() as group:
        group.start_soon(calls.make, "first")
        await until(lambda: batches.sizes == [1])
        for make in makes:
            group.start_soon(make)
        await anyio.wait_all_tasks_blocked()
        batches.may.set()


async def test_one_that_takes_its_time_holds_up_no_other() -> None:
    batches = Batches()
    calls = Calls(batches)
    may = threading.Event()
    async with create_task_group() as group:
        group.start_soon(
            together,
            calls,
            batches,
            lambda: calls.make("slow", lambda: may.wait(SOON)),
            lambda: calls.make("a"),
            lambda: calls.make("slow too", lambda: may.wait(SOON)),
            lambda: calls.make("b"),
        )
        await until(lambda: {"a", "b"} <= set(calls.over))
        assert not {"slow", "slow too"} & set(calls.over)
        may.set()
    assert {"slow", "slow too"} <= set(calls.over)


async def test_what_is_known_to_take_its_time_has_a_thread_of_its_own_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stall_watchdog, "CHECK_INTERVAL", SOON)
    batches = Batches()
    batches.slow = {"slow"}
    calls = Calls(batches)
    may = threading.Event()
    async with create_task_group() as group:
        group.start_soon(
            together,
            calls,
            batches,
            lambda: calls.make("slow", lambda: may.wait(SOON)),
            lambda: calls.make("a"),
        )
        await until(lambda: "a" in calls.over)
        assert "slow" not in calls.over
        may.set()
    assert "slow" in calls.over


async def test_one_that_does_not_get_quiet_is_given_up() -> None:
    calls = Calls(Batches())
    may = threading.Event()
    with pytest.raises(WorkflowStalledError):
        await calls.make("restless", lambda: may.wait(SOON), turn=3)
    may.set()


async def test_what_is_refused_before_is_not_made() -> None:
    batches = Batches()
    batches.refused = {"a": LookupError("no")}
    calls = Calls(batches)
    with pytest.raises(LookupError):
        await calls.make("a")
    await calls.make("b")
    assert set(calls.threads) == {"b"}


async def test_what_one_raises_is_raised_to_whoever_has_made_it() -> None:
    def fails() -> None:
        raise LookupError("no")

    calls = Calls(Batches())
    with pytest.raises(LookupError):
        await calls.make("a", fails)


async def test_who_is_cancelled_before_anything_is_done_takes_the_call_back() -> None:
    batches = Batches()
    calls = Calls(batches)
    batches.may.clear()
    scope = CancelScope()

    async def cancelled() -> None:
        with scope:
            await calls.make("cancelled")

    async with create_task_group() as group:
        group.start_soon(calls.make, "first")
        await until(lambda: batches.sizes == [1])
        group.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        batches.may.set()
    assert set(calls.threads) == {"first"}


@pytest.mark.parametrize("may_be_left", [False, True], ids=["waits", "leaves"])
async def test_who_is_cancelled_later_waits_for_it_unless_it_may_be_left(may_be_left: bool) -> None:
    calls = Calls(Batches())
    may = threading.Event()
    left: list[bool] = []
    scope = CancelScope()

    async def cancelled() -> None:
        try:
            with scope:
                await calls.make("slow", lambda: may.wait(SOON), may_be_left=may_be_left)
        finally:
            left.append(may.is_set())

    async with create_task_group() as group:
        group.start_soon(cancelled)
        await until(lambda: "slow" in calls.threads)
        scope.cancel()
        if may_be_left:
            await until(lambda: left == [False])
        else:
            await anyio.sleep(0.1)
            assert not left
        may.set()
    assert left == [not may_be_left]


async def test_each_is_made_in_the_context_of_whoever_makes_it() -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody's")
    batches = Batches()
    calls = Calls(batches)
    seen: dict[str, str] = {}

    def of(own: str) -> Callable[[], Any]:
        async def make() -> None:
            name.set(own)
            await calls.make(own, lambda: seen.update({own: name.get()}))

        return make

    await together(calls, batches, of("a"), of("b"))
    assert seen == {"a": "a", "b": "b"}


async def test_each_kernel_has_its_own_for_as_long_as_it_is_there() -> None:
    class Kernel:
        pass

    one: Any = Kernel()
    other: Any = Kernel()
    here: PerEventLoop[list[int]] = PerEventLoop(list[int])
    assert here.of(one) is here.of(one)
    assert here.of(one) is not here.of(other)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


class OfLoop:
    """An object that refers to its loop, as those of drivers do."""

    def __init__(self) -> None:
        self.loop = lowlevel.current_token().native_token


async def test_the_objects_of_a_loop_that_has_ended_are_forgotten_with_the_next_one(
    anyio_backend_name: str,
) -> None:
    class Kernel:
        pass

    kernel: Any = Kernel()
    each: PerEventLoop[OfLoop] = PerEventLoop(OfLoop)
    known = list[weakref.ref[OfLoop]]()

    async def use() -> None:
        known.append(weakref.ref(each.of(kernel)))

    def run() -> None:
        for _ in range(3):
            anyio.run(use, backend=anyio_backend_name)

    await anyio.to_thread.run_sync(run)
    each.of(kernel)
    gc.collect()
    assert [one() for one in known] == [None] * 3
