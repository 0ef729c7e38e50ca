"""Sync bodies run in reused threads that no shutdown waits for."""

import contextvars
import threading

import anyio
import pytest
from anyio import CapacityLimiter

from holdfast.hosts.execution.threads import run_in_thread

pytestmark = pytest.mark.anyio

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")


async def test_a_call_is_made_in_another_thread_which_keeps_no_process_alive() -> None:
    made_in: list[threading.Thread] = []
    await run_in_thread(lambda: made_in.append(threading.current_thread()), CapacityLimiter(1))

    (thread,) = made_in
    assert thread is not threading.current_thread()
    assert thread.daemon


async def test_threads_are_used_again() -> None:
    made_in: list[int] = []
    for _ in range(20):
        await run_in_thread(lambda: made_in.append(threading.get_ident()), CapacityLimiter(1))

    assert len(set(made_in)) <= 10


async def test_no_more_calls_are_made_at_once_than_were_allowed() -> None:
    running: list[None] = []
    seen: list[int] = []

    def call() -> None:
        running.append(None)
        seen.append(len(running))
        threading.Event().wait(0.001)
        running.pop()

    limiter = CapacityLimiter(3)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(run_in_thread, call, limiter)

    assert len(seen) == 20
    assert max(seen) <= 3


async def test_what_a_call_sets_in_its_context_is_seen_by_no_other_call() -> None:
    seen: list[str] = []

    def call() -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("something")

    VARIABLE.set("ambient")
    for _ in range(3):
        await run_in_thread(call, CapacityLimiter(1))

    assert seen == ["ambient"] * 3


async def test_whoever_is_cancelled_leaves_the_call_behind_and_its_place_is_free() -> None:
    go_on = threading.Event()

    def wait() -> None:
        go_on.wait(20)

    limiter = CapacityLimiter(1)
    with anyio.move_on_after(0.02) as scope:
        await run_in_thread(wait, limiter)
    assert scope.cancelled_caught

    with anyio.fail_after(60):
        await run_in_thread(lambda: None, limiter)
    go_on.set()
