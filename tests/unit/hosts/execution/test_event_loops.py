"""Calls into an event loop from other threads, on each kind of loop."""

import threading
from contextvars import ContextVar, copy_context
from typing import Final

import anyio
import pytest
from anyio import CancelScope, to_thread

from holdfast.hosts.execution.event_loops import CurrentLoop, caller_into_loop

_NAME: Final[ContextVar[str]] = ContextVar("name", default="nobody")


@pytest.mark.anyio
async def test_a_call_from_another_thread_is_made_in_the_loop() -> None:
    made_in: list[int] = []
    done = anyio.Event()
    in_loop = caller_into_loop()

    def make() -> None:
        made_in.append(threading.get_ident())
        done.set()

    await to_thread.run_sync(in_loop, make)
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
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


@pytest.mark.anyio
async def test_a_task_that_is_started_has_a_context_of_its_own_and_is_stopped_by_a_scope() -> None:
    loop, scope, heard = CurrentLoop(), CancelScope(), list[str]()
    began, over = loop.event(), loop.event()

    async def act() -> None:
        with scope:
            heard.append(_NAME.get())
            _NAME.set("the task")
            began.set()
            await anyio.sleep_forever()
        over.set()

    _NAME.set("who starts it")
    task = loop.start(act, copy_context())
    assert task is not None

    assert heard == []
    with anyio.fail_after(60):
        await began.wait()
        scope.cancel()
        await over.wait()
    assert (heard, _NAME.get()) == (["who starts it"], "who starts it")


@pytest.mark.anyio
async def test_a_call_that_is_to_be_made_later_can_be_prevented() -> None:
    loop, made = CurrentLoop(), list[str]()
    done = loop.event()
    loop.call_later(0.0, lambda: made.append("prevented"))()
    loop.call_later(3600.0, lambda: made.append("far off"))()
    before = loop.time()
    loop.call_later(0.01, done.set)

    with anyio.fail_after(60):
        await done.wait()

    assert (made, done.is_set()) == ([], True)
    assert loop.time() >= before + 0.01
