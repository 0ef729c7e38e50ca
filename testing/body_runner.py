"""Runners of bodies for tests: in the test's thread with skipped time, or on the test's event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import TypeAlias, TypeVar, cast

from anyio import CapacityLimiter, NoEventLoopError, lowlevel

from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.logging_bridge import current_attempt
from holdfast.hosts.execution.threads import starts
from holdfast.hosts.wiring.interceptors import Entered
from holdfast.kernel.commands import JobSettle, Outcome
from holdfast.testing.clock import ManualClock
from holdfast.testing.running_loops import call_outside
from holdfast.testing.time_skipping import TimeSkippingLoop

T = TypeVar("T")

BodyGenerator: TypeAlias = Generator[tuple[AttemptRunner, Body], JobSettle, T]
"""A generator that yields bodies and what runs them, and receives the command that settles each."""


class InlineBodyRunner:
    """Runs bodies in this thread: sync ones by a call, async ones on a loop that skips time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._runner: asyncio.Runner | None = None

    def run(self, driving: BodyGenerator[T]) -> T:
        """Run all bodies of a generator. May be called inside an event loop, which is blocked meanwhile."""
        return _in_thread(lambda: self._run_all(driving)) if _is_in_loop() else self._run_all(driving)

    def close(self) -> None:
        """Close the loop, and cancel tasks that bodies have left on it."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _run_all(self, driving: BodyGenerator[T]) -> T:
        # Durable functions use threads elsewhere. In this thread their order is fixed, and no time passes.
        return contextvars.copy_context().run(self._run_each, driving)

    def _run_each(self, driving: BodyGenerator[T]) -> T:
        starts.set(call_outside)
        try:
            ready = next(driving)
            while True:
                ready = driving.send(self._run(*ready))
        except StopIteration as stop:
            return cast("T", stop.value)

    def _run(self, runner: AttemptRunner, body: Body) -> JobSettle:
        if body.is_async or body.has_no_user_code or body.is_out_of_time:
            return self._wait_for(runner.run(body, CapacityLimiter(1)))
        return body.settle(contextvars.copy_context().run(self._call, body))

    def _call(self, body: Body) -> Outcome:
        """Call a sync body here, so that what ends a test ends it in a body too: Ctrl-C, a timeout, `pytest.fail`."""
        current_attempt.set(body.runtime)
        entered = Entered()
        try:
            entered.enter(body.interceptors, body.call)
            value = body.invoked()
            if isinstance(value, Awaitable):
                value = self._wait_for(cast("Awaitable[object]", value))
            outcome = body.stored(body.encoded_result(value))
        except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001  # it is this attempt's failure
            return body.failed(entered.leave_failed(error))
        entered.leave()
        return outcome

    def _wait_for(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=lambda: TimeSkippingLoop(self._clock))
        return self._runner.run(wait())


async def run_in_loop(driving: BodyGenerator[T]) -> T:
    """Run all bodies of a generator as workers do: async ones on the caller's loop, sync ones in a thread."""
    limiter = CapacityLimiter(1)
    try:
        runner, body = next(driving)
        while True:
            runner, body = driving.send(await runner.run(body, limiter))
    except StopIteration as stop:
        return cast("T", stop.value)


def _is_in_loop() -> bool:
    try:
        lowlevel.current_token()
    except NoEventLoopError:
        return False
    return True


def _in_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def make() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # it is raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=make, name="holdfast-world")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
