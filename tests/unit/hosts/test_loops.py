"""Calls into an event loop from other threads, whichever kind it is."""

import threading

import anyio
import pytest
from anyio import to_thread

from holdfast.hosts.loops import caller_into_loop


@pytest.mark.anyio
async def test_a_call_from_another_thread_is_made_in_the_loop() -> None:
    made_in: list[int] = []
    done = anyio.Event()
    in_loop = caller_into_loop()

    def make() -> None:
        made_in.append(threading.get_ident())
        done.set()

    await to_thread.run_sync(in_loop, make)
    with anyio.fail_after(10):
        await done.wait()

    assert made_in == [threading.get_ident()]


@pytest.mark.anyio
async def test_calls_are_made_in_the_order_in_which_they_were_asked_for() -> None:
    made: list[int] = []
    done = anyio.Event()
    in_loop = caller_into_loop()

    def ask() -> None:
        for number in range(100):
            in_loop(lambda number=number: made.append(number))  # type: ignore[misc]
        in_loop(done.set)

    await to_thread.run_sync(ask)
    with anyio.fail_after(10):
        await done.wait()

    assert made == list(range(100))


@pytest.mark.parametrize("backend", anyio.get_available_backends())
def test_a_call_into_a_loop_that_is_gone_is_no_error(backend: str) -> None:
    made: list[None] = []

    async def leave() -> None:
        callers.append(caller_into_loop())

    callers: list[object] = []
    anyio.run(leave, backend=backend)
    (in_loop,) = callers
    assert callable(in_loop)
    in_loop(lambda: made.append(None))

    assert made == []
