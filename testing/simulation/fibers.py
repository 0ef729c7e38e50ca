"""Simulated processes and their threads of control, of which one runs at a time, in virtual time.

A process is a name and some fibers, which stand for its threads. A fiber runs until it sleeps or waits; then whoever is
due next runs. Virtual time is whole microseconds since the epoch, and passes only from one of them to the next.

A process that crashes gets `Crashed` raised in all of its fibers, where they sleep or wait. While they unwind, and ever
after, each attempt to sleep or wait raises it again: nothing that they do has an effect any more.
"""

from collections.abc import Callable, Sequence
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
"""When every simulation begins: 1 January 2026."""


class Crashed(BaseException):
    """The process of this fiber is no more."""


class SpinningError(Exception):
    """A host keeps its processor busy and gets nowhere."""


class HostError(Exception):
    """Code of a host, or of the simulator, has raised what it must not."""


class Process:
    """One life of a simulated process. `random` is its own, so that what one draws moves no other."""

    def __init__(self, hub: "Hub", name: str, random: Random) -> None:
        self.hub = hub
        self.name = name
        self.random = random
        self.fibers: list[Fiber] = []
        self.is_crashed = False
        self.paused_until = 0
        self.frozen: int = 0
        """For how many microseconds its monotonic clock has stood still."""

    def spawn(self, call: Callable[[], object]) -> "Fiber":
        """Have a new fiber make a call, soon."""
        fiber = Fiber(self, call)
        if not self.is_crashed:
            self.fibers.append(fiber)
            self.hub.wake(fiber, self.hub.now)
        return fiber

    def start(self, call: Callable[[], None]) -> None:
        """Make a call in what stands for a thread of this process."""
        self.spawn(call)

    def check(self) -> None:
        """Raise Crashed if the process is no more."""
        if self.is_crashed:
            raise Crashed


class Fiber(greenlet):
    """A thread of control of a process. It ends when its call does."""

    def __init__(self, process: Process, call: Callable[[], object]) -> None:
        super().__init__(self._make_call, process.hub.greenlet)
        self.process = process
        self.token = 0
        self.sent: Sequence[object] = ()
        """The commands that it is having carried out."""
        self.commits = 0
        """How many transactions of its have changed something."""
        self._call = call

    def _make_call(self) -> None:
        """Make the call. What it raises ends the simulation, unless that is the end of its process."""
        starts.set(self.process.start)
        runs.set(self.process.hub.runner(self.process))
        try:
            self._call()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001  # it is raised again by the hub
            if not self.process.is_crashed:
                self.process.hub.failed(self.process, error)
        finally:
            if self in self.process.fibers:
                self.process.fibers.remove(self)


class Signal:
    """Wakes the fibers that wait for it."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._waiting: list[tuple[Fiber, int]] = []
        self._is_set = False

    def set(self) -> None:
        """Wake who waits; or the next that waits, if nobody does."""
        waiting, self._waiting = self._waiting, []
        self._is_set = not waiting
        for fiber, token in waiting:
            self._hub.wake(fiber, self._hub.now, token)

    def wait(self, seconds: float | None = None) -> None:
        """Return when it is set, at the latest after so long; at once if it was set since the last time."""
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
    """Runs the fibers of all processes, one at a time, in the order of virtual time; ties are broken by chance."""

    def __init__(
        self, random: Random, runner: Callable[[Process], Callable[[Callable[[], Any]], Any]]
    ) -> None:
        """`runner` gives for a process what runs async code in it."""
        self.now = START
        self.greenlet = getcurrent()
        self.runner = runner
        self.switches = 0
        self._draw = random.random
        self._queue: list[tuple[int, float, int, Callable[[], object] | Fiber, int]] = []
        self.tasks = count()
        """The numbers of the tasks of all event loops."""
        self.stored_at: dict[int, int] = {}
        """When rows of attempts were stored, by the times that they bear: from then on somebody may have told them."""
        self._numbers = count()
        self._error: tuple[Process, BaseException] | None = None
        self._until = START
        self._is_over: Callable[[], bool] = lambda: True
        self._was_over: bool | None = None
        """What was answered when somebody last asked whether it is over; None if that was before something happened."""

    def at(self, at: int, call: Callable[[], object]) -> None:
        """Make a call at an instant; it must neither sleep nor wait."""
        heappush(self._queue, (at, self._draw(), next(self._numbers), call, 0))

    def wake(self, fiber: Fiber, at: int, token: int | None = None) -> None:
        """Have a fiber go on at an instant, unless it has gone on before."""
        expected = fiber.token if token is None else token
        heappush(self._queue, (at, self._draw(), next(self._numbers), fiber, expected))

    def sleep(self, micros: int) -> None:
        """Let virtual time pass for the fiber that calls."""
        fiber = current()
        if fiber.process.is_crashed:
            raise Crashed
        at = self.now + micros if micros > 0 else self.now
        heappush(self._queue, (at, self._draw(), next(self._numbers), fiber, fiber.token))
        self.suspend(fiber)

    def suspend(self, fiber: Fiber) -> None:
        """Let others run until the fiber is woken."""
        following = self._following()
        if following is not fiber:
            call_outside((self.greenlet if following is None else following).switch)
        if fiber.process.is_crashed:
            raise Crashed

    def crash(self, process: Process) -> None:
        """End a process here and now. If it is the one that calls, this raises Crashed."""
        process.is_crashed = True
        running = getcurrent()
        for fiber in tuple(process.fibers):
            if fiber is not running and fiber in process.fibers:
                fiber.token += 1
                if bool(fiber):  # it has begun, and not ended
                    _bury(fiber)
        process.fibers = [fiber for fiber in process.fibers if fiber is running]
        if process.fibers:
            raise Crashed

    def failed(self, process: Process, error: BaseException) -> None:
        """Note what a fiber has raised."""
        self._error = self._error or (process, error)

    def run(self, is_over: Callable[[], bool], until: int) -> bool:
        """Let fibers run until `is_over`, or until an instant; return whether it is over.

        HostError if one of them has raised what no host may.
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
        """Return the fiber that is next, ready to go on; None if the hub is.

        From fiber to fiber it is one switch, over the hub it would be two.
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
        """Return whether it is over. HostError if a fiber has raised what no host may."""
        if self._error is not None:
            process, error = self._error
            raise HostError(f"{process.name}: {type(error).__name__}: {error}") from error
        return self._is_over()

    def _pop(self) -> tuple[Callable[[], object] | Fiber, int]:
        at, _, _, due, token = heappop(self._queue)
        self.now = max(self.now, at)
        return due, token

    def _goes_on(self, fiber: Fiber, token: int) -> bool:
        """Whether a fiber that was to be woken is to go on now: not if it has gone on before, or its process pauses."""
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
    """Return the fiber that calls. RuntimeError if none does."""
    fiber = getcurrent()
    if not isinstance(fiber, Fiber):
        raise RuntimeError("only a fiber can sleep or wait")  # it is where, not what
    return fiber


def spend(seconds: float) -> None:
    """Let virtual time pass in a sync body, as `time.sleep` does real time."""
    current().process.hub.sleep(round(seconds * 1_000_000))


def _bury(fiber: Fiber) -> None:
    """Raise Crashed in a fiber that waits, with this one, whichever it is, as the one to go on then."""
    parent, fiber.parent = fiber.parent, getcurrent()
    assert parent is not None
    fiber.throw(Crashed())
    if not fiber.dead:
        raise HostError("a fiber of a process that has crashed went on waiting")
