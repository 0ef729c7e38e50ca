"""Processes and virtual time: scheduling, crashes, and async code in fibers."""

import asyncio
from functools import partial
from random import Random

import anyio
import pytest

from holdfast.testing.simulation.fibers import (
    START,
    Crashed,
    HostError,
    Hub,
    Process,
    SpinningError,
    WakeSignal,
    spend_time,
)
from holdfast.testing.simulation.loops import run_virtually, virtual_loop


@pytest.fixture
def hub() -> Hub:
    return Hub(Random(1), run_virtually)


def process(hub: Hub, name: str = "p") -> Process:
    return Process(hub, name, Random(2))


def run(hub: Hub, seconds: float = 1_000.0) -> None:
    hub.run(lambda: False, START + round(seconds * 1_000_000))


def test_who_is_due_first_runs_first_and_time_passes_only_in_between(hub: Hub) -> None:
    seen: list[tuple[str, int]] = []

    def walk(name: str, seconds: float) -> None:
        for _ in range(2):
            spend_time(seconds)
            seen.append((name, (hub.now - START) // 1_000_000))

    process(hub).spawn(lambda: walk("slow", 5))
    process(hub).spawn(lambda: walk("quick", 2))
    run(hub)

    assert seen == [("quick", 2), ("quick", 4), ("slow", 5), ("slow", 10)]


def test_a_crash_unwinds_all_fibers_of_the_process_and_nothing_of_it_goes_on(hub: Hub) -> None:
    seen: list[str] = []
    doomed, other = process(hub, "doomed"), process(hub, "other")

    def wait(name: str) -> None:
        try:
            spend_time(100)
        finally:
            seen.append(f"{name} unwinds")
            spend_time(1)  # raises again: it has no effect any more
            seen.append("never")

    def live() -> None:
        spend_time(200)
        seen.append("other lives")

    doomed.spawn(lambda: wait("one"))
    doomed.spawn(lambda: wait("two"))
    other.spawn(live)
    hub.at(START + 10_000_000, lambda: hub.crash(doomed))
    run(hub)

    assert seen == ["one unwinds", "two unwinds", "other lives"]


def test_a_process_that_crashes_itself_stops_there(hub: Hub) -> None:
    seen: list[str] = []
    doomed = process(hub)

    def crash() -> None:
        try:
            hub.crash(doomed)
        except Crashed:
            seen.append("unwinds")
            raise
        seen.append("never")

    doomed.spawn(crash)
    run(hub)

    assert seen == ["unwinds"]


def test_a_paused_process_goes_on_when_its_time_has_come(hub: Hub) -> None:
    seen: list[int] = []
    paused = process(hub)

    def walk() -> None:
        spend_time(1)
        seen.append(hub.now - START)

    paused.spawn(walk)
    paused.paused_until = START + 30_000_000
    run(hub)

    assert seen == [31_000_000]


def test_a_signal_is_kept_until_somebody_waits_for_it(hub: Hub) -> None:
    signal, seen = WakeSignal(hub), list[int]()

    def wait() -> None:
        signal.wait(50)
        seen.append(hub.now - START)
        signal.wait(50)
        seen.append(hub.now - START)

    signal.set()
    process(hub).spawn(wait)
    run(hub)

    assert seen == [0, 50_000_000]


def test_what_a_fiber_raises_ends_the_simulation(hub: Hub) -> None:
    def fail() -> None:
        raise ValueError("oh")

    process(hub, "p").spawn(fail)

    with pytest.raises(HostError, match="p: ValueError: oh"):
        run(hub)


def test_a_loop_that_never_rests_ends_the_simulation(hub: Hub) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  # it is what must be seen
            await asyncio.sleep(0)

    owner = process(hub, "p")
    owner.spawn(lambda: run_virtually(owner)(spin))

    with pytest.raises(HostError, match="no time has passed") as raised:
        run(hub)
    assert isinstance(raised.value.__cause__, SpinningError)


def test_asyncio_and_anyio_sleep_in_virtual_time_side_by_side(hub: Hub) -> None:
    seen: list[tuple[str, int]] = []
    one = process(hub)

    async def sleepers() -> None:
        async def sleep(name: str, seconds: float) -> None:
            await (asyncio.sleep(seconds) if name == "asyncio" else anyio.sleep(seconds))
            seen.append((name, (hub.now - START) // 1_000_000))

        async with asyncio.TaskGroup() as group:
            group.create_task(sleep("asyncio", 3_600))
            group.create_task(sleep("anyio", 60))
        with anyio.move_on_after(5) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        seen.append(("after", (hub.now - START) // 1_000_000))

    one.spawn(lambda: virtual_loop(one).run_until_complete(sleepers()))
    run(hub, 10_000)

    assert seen == [("anyio", 60), ("asyncio", 3_600), ("after", 3_605)]


def test_loops_of_two_fibers_take_turns(hub: Hub) -> None:
    seen: list[str] = []

    async def walk(name: str) -> None:
        for _ in range(2):
            spend_time(1)  # a body that holds up its own loop, and no other
            seen.append(name)
            assert asyncio.current_task() is not None
            await asyncio.sleep(1)

    def live(one: Process) -> None:
        virtual_loop(one).run_until_complete(walk(one.name))

    for name in ("a", "b"):
        one = process(hub, name)
        one.spawn(partial(live, one))
    run(hub)

    assert sorted(seen[:2]) == sorted(seen[2:]) == ["a", "b"]
