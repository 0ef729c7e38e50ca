"""The scheduler of the simulator: processes with fibers in place of threads, one at a time, in virtual time.

A fiber runs until it sleeps or waits; then the next one that is due runs. Virtual time is in whole microseconds since
the Unix epoch and advances only between fibers.

When a process crashes, `Crashed` is raised in each of its fibers at the point where it sleeps or waits. Every later
attempt to sleep or wait raises it again, so a crashed process has no further effects.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import ceil
from random import Random
from typing import Any, Final

from greenlet import getcurrent, greenlet

from holdfast.hosts.execution.event_loops import runs
from holdfast.hosts.execution.threads import starts
from holdfast.testing.running_loops import call_outside

START: Final = 1_767_225_600_000_000
"""The virtual time at which every simulation starts: 1 January 2026, in microseconds."""


class Crashed(BaseException):
    """The process of this fiber has crashed."""


class SpinningError(Exception):
    """A host is in a busy loop: it runs without virtual time passing."""


class HostError(Exception):
    """Code of a host or of the simulator raised an unexpected exception."""


class Process:
    """One life of a simulated process. Each has its own `random`, so draws of one do not affect the others."""

    def __init__(self, hub: "Hub", name: str, random: Random) -> None:
        self.hub = hub
        self.name = name
        self.random = random
        self.fibers: list[Fiber] = []
        self.is_crashed = False
        self.paused_until = 0
        self.frozen: int = 0
        """Microseconds for which the monotonic clock has stood still so far."""
        hub.processes.append(self)

    def spawn(self, call: Callable[[], object]) -> "Fiber":
        """Schedule a call in a new fiber."""
        fiber = Fiber(self, call)
        if not self.is_crashed:
            self.fibers.append(fiber)
            self.hub.wake(fiber, self.hub.now)
        return fiber

    def start(self, call: Callable[[], None]) -> None:
        """Start a fiber in place of a thread of this process."""
        self.spawn(call)

    def check(self) -> None:
        """Raise Crashed if the process has crashed."""
        if self.is_crashed:
            raise Crashed


class Fiber(greenlet):
    """A simulated thread of a process. It ends when its call returns."""

    def __init__(self, process: Process, call: Callable[[], object]) -> None:
        super().__init__(self._make_call, process.hub.greenlet)
        self.process = process
        self.token = 0
        self.commands: Sequence[object] = ()
        """The commands that the fiber is dispatching."""
        self.commits = 0
        """The number of its transactions that changed rows."""
        self._call = call

    def _make_call(self) -> None:
        """Make the call. An exception ends the simulation, unless the process has crashed."""
        starts.set(self.process.start)
        runs.set(self.process.hub.runner(self.process))
        try:
            self._call()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001  # the hub raises it again
            if not self.process.is_crashed:
                self.process.hub.failed(self.process, error)
        finally:
            if self in self.process.fibers:
                self.process.fibers.remove(self)


class WakeSignal:
    """An event that wakes the fibers that wait for it."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._waiting: list[tuple[Fiber, int]] = []
        self._is_set = False

    def set(self) -> None:
        """Wake all waiting fibers. Without any, let the next `wait` return at once."""
        waiting, self._waiting = self._waiting, []
        self._is_set = not waiting
        for fiber, token in waiting:
            self._hub.wake(fiber, self._hub.now, token)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the signal is set or the timeout is over. Return at once if it was set since the last wait."""
        fiber = current()
        fiber.process.check()
        if self._is_set:
            self._is_set = False
            return
        self._waiting.append((fiber, fiber.token))
        if seconds is not None:
            self._hub.wake(fiber, self._hub.now + max(0, ceil(seconds * 1_000_000)))
        self._hub.suspend(fiber)
        self._waiting = [one for one in self._waiting if one[0] is not fiber]


class Hub:
    """Runs the fibers of all processes one at a time, in the order of virtual time. Ties are broken at random."""

    def __init__(
        self, random: Random, runner: Callable[[Process], Callable[[Callable[[], Any]], Any]]
    ) -> None:
        """Create a hub. `runner` returns for a process the function that runs async code in it."""
        self.now = START
        self.greenlet = getcurrent()
        self.runner = runner
        self.switches = 0
        self._draw = random.random
        self._queue: list[tuple[int, float, int, Callable[[], object] | Fiber, int]] = []
        self.tasks = count()
        """The counter that numbers the asyncio tasks of all event loops."""
        self.stored_at: dict[int, int] = {}
        """The virtual time at which the rows of attempts were committed, by the timestamp in the row."""
        self.processes: list[Process] = []
        self._numbers = count()
        self._error: tuple[Process, BaseException] | None = None
        self._until = START
        self._is_over: Callable[[], bool] = lambda: True
        self._was_over: bool | None = None
        """The last result of `_check_over`; None if a fiber has run since."""

    def at(self, at: int, call: Callable[[], object]) -> None:
        """Schedule a call at an instant. The call must neither sleep nor wait."""
        heappush(self._queue, (at, self._draw(), next(self._numbers), call, 0))

    def wake(self, fiber: Fiber, at: int, token: int | None = None) -> None:
        """Schedule a fiber to resume at an instant, unless it has resumed before."""
        expected = fiber.token if token is None else token
        heappush(self._queue, (at, self._draw(), next(self._numbers), fiber, expected))

    def sleep(self, micros: int) -> None:
        """Suspend the calling fiber for some virtual microseconds."""
        fiber = current()
        if fiber.process.is_crashed:
            raise Crashed
        at = self.now + micros if micros > 0 else self.now
        heappush(self._queue, (at, self._draw(), next(self._numbers), fiber, fiber.token))
        self.suspend(fiber)

    def suspend(self, fiber: Fiber) -> None:
        """Run other fibers until this one is woken."""
        following = self._following()
        if following is not fiber:
            call_outside((self.greenlet if following is None else following).switch)
        if fiber.process.is_crashed:
            raise Crashed

    def crash(self, process: Process) -> None:
        """Crash a process. Raises Crashed if the calling fiber belongs to it."""
        process.is_crashed = True
        running = getcurrent()
        for fiber in tuple(process.fibers):
            if fiber is not running and fiber in process.fibers:
                fiber.token += 1
                if bool(fiber):  # a greenlet is true once it has started and until it ends
                    _kill(fiber)
        process.fibers = [fiber for fiber in process.fibers if fiber is running]
        if process.fibers:
            raise Crashed

    def close(self) -> None:
        """Crash all processes: a fiber that waits refers to everything from its stack, which no collector sees."""
        for process in self.processes:
            if not process.is_crashed:
                with suppress(HostError):  # code that catches everything stays, with what it refers to
                    self.crash(process)
        self.processes.clear()

    def failed(self, process: Process, error: BaseException) -> None:
        """Record the first exception that a fiber raised."""
        self._error = self._error or (process, error)

    def run(self, is_over: Callable[[], bool], until: int) -> bool:
        """Run fibers until `is_over` returns true, or until an instant; return whether it is over.

        Raises HostError if a fiber raised an unexpected exception.
        """
        self._until, self._is_over = until, is_over
        while self._queue:
            if self._queue[0][0] > until:
                self.now = until
                return is_over()
            due, token = self._pop()
            if not isinstance(due, Fiber):
                due()
            elif self._goes_on(due, token):
                due.switch()
            if self._was_over is None:
                self._was_over = self._check_over()
            was_over, self._was_over = self._was_over, None
            if was_over:
                return True
        return is_over()

    def _following(self) -> Fiber | None:
        """Return the next fiber, ready to resume; None if the hub has to take over.

        Switching from fiber to fiber takes one switch, through the hub two.
        """
        queue = self._queue
        while True:
            self._was_over = self._check_over()
            if self._was_over or not queue:
                return None
            at, _, _, due, token = queue[0]
            if at > self._until or not isinstance(due, Fiber):
                return None
            heappop(queue)
            self.now = max(self.now, at)
            if self._goes_on(due, token):
                self._was_over = None
                return due

    def _check_over(self) -> bool:
        """Return whether the simulation is over. Raises HostError if a fiber raised an unexpected exception."""
        if self._error is not None:
            process, error = self._error
            raise HostError(f"{process.name}: {type(error).__name__}: {error}") from error
        return self._is_over()

    def _pop(self) -> tuple[Callable[[], object] | Fiber, int]:
        at, _, _, due, token = heappop(self._queue)
        self.now = max(self.now, at)
        return due, token

    def _goes_on(self, fiber: Fiber, token: int) -> bool:
        """Return whether a fiber is to resume now: not if it has resumed before or its process is paused."""
        process = fiber.process
        if fiber.token != token or process.is_crashed or fiber.dead:
            return False
        if process.paused_until > self.now:
            self.wake(fiber, process.paused_until, token)
            return False
        fiber.token += 1
        self.switches += 1
        return True


def current() -> Fiber:
    """Return the calling fiber. Raises RuntimeError outside a fiber."""
    fiber = getcurrent()
    if not isinstance(fiber, Fiber):
        raise RuntimeError("only a fiber can sleep or wait")
    return fiber


def spend_time(seconds: float) -> None:
    """Let virtual time pass in a sync body, in place of `time.sleep`."""
    current().process.hub.sleep(round(seconds * 1_000_000))


def _kill(fiber: Fiber) -> None:
    """Raise Crashed in a waiting fiber, then resume the calling one."""
    parent, fiber.parent = fiber.parent, getcurrent()
    assert parent is not None
    fiber.throw(Crashed())
    if not fiber.dead:
        raise HostError("a fiber of a crashed process is still waiting")
