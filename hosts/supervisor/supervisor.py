"""The supervisor of worker processes.

Python runs one thread of a process at a time, so a worker uses one processor. The supervisor runs several worker
processes and looks like one: it stops them when it is stopped, restarts one that has ended, and reports their state.
It opens no engine and no connection, and it decides nothing about jobs. If it is killed, its workers drain. If a worker
is killed, the process that replaces it closes its session, which frees its jobs at once: the supervisor knows that it
has ended, so no other worker has to wait until its lease has expired.

The first process starts alone. What prevents it from starting (wrong code, a store that is down, missing tables) would
prevent the others as well: then the supervisor ends with the exit code of that process. Later, a process that ends is
restarted after a second, then two, up to half a minute. If it ends five times in a row before it was ready, the
supervisor drains the others and ends, so that whatever started it notices. A process that the system refuses to start,
for lack of memory for example, counts as one that has ended.

A process that has answered and then does not, for so long that its lease has expired, is killed and replaced: its
threads hang, so it can neither finish its jobs nor keep them.
"""

import logging
import signal
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from holdfast.hosts.supervisor.reports import REPORT_SECONDS, WorkerReport
from holdfast.hosts.supervisor.restarts import Restarts

KILL_SECONDS: Final = 5.0
"""How long after its drain grace a worker process is killed, in seconds."""
_LOOK_SECONDS: Final = 0.05
_LOOK_SECONDS_READY: Final = 1.0
_LOOK_GAP_MAX: Final = 2.0
"""The longest interval between two looks that counts: a supervisor that was suspended sent no requests meanwhile."""

_log = logging.getLogger("holdfast.supervisor")


class WorkerProcess(Protocol):
    """A worker process."""

    @property
    def pid(self) -> int:
        """Its id in the system."""
        ...

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, unless it has ended."""
        ...

    def read_report(self, *, metrics: bool, timeout: float) -> WorkerReport | None:
        """Return its state; None if it does not answer within so many seconds."""
        ...

    @property
    def answers(self) -> int:
        """How many requests for reports it has answered, even if too late."""
        ...

    def close(self) -> None:
        """Free what it leaves behind. It has ended."""
        ...


@attrs.define(eq=False)
class _Place:
    """The place of one of the processes: it is empty between an end and the restart."""

    number: int
    restarts: Restarts = attrs.field(factory=Restarts)
    process: WorkerProcess | None = None
    start_at: float | None = None
    """When the next process starts; None if none is to start."""
    is_ready: bool = False
    session: str | None = None
    """The last known session of its process, or of the one before."""
    answers: int = 0
    unanswered_seconds: float = 0.0
    """How long its process has not answered."""
    looked_at: float = 0.0

    def note_answers(self, answers: int, now: float) -> None:
        """Note how many answers there are by now."""
        if answers == self.answers:
            self.unanswered_seconds += min(now - self.looked_at, _LOOK_GAP_MAX)
        else:
            self.unanswered_seconds = 0.0
        self.answers, self.looked_at = answers, now


@attrs.frozen(kw_only=True)
class ProcessState:
    """The state of one of the worker processes."""

    process: int
    """Its number, from 0."""
    pid: int | None
    """None while it waits for a restart."""
    phase: str
    """`starting`, `running`, `draining`, `stopped` or `restarting`; `silent` if it does not answer; `blocked` if its
    event loop has been blocked for longer than its lease.
    """
    session: str | None = None
    running: int = 0
    restarts: int = 0
    metrics: str | None = None


class Supervisor:
    """Runs a number of worker processes until it is stopped.

    Args:
        count: How many.
        spawn: Starts the process with a number; OSError if the system refuses. Its second argument is the session of
            the process that it replaces.
        drain_grace: How long the workers may take to drain, in seconds.
        hung_after: After how many seconds without an answer a process that has answered before is killed.
        monotonic: Returns the time in seconds.
        wait: Waits for so many seconds, or less if something has happened.
    """

    def __init__(
        self,
        count: int,
        spawn: Callable[[int, str | None], WorkerProcess],
        *,
        drain_grace: float,
        hung_after: float,
        monotonic: Callable[[], float],
        wait: Callable[[float], object],
    ) -> None:
        self._places = [_Place(number) for number in range(count)]
        self._spawn = spawn
        self._drain_grace = drain_grace
        self._hung_after = hung_after
        self._monotonic = monotonic
        self._wait = wait
        self._has_started = False
        self._stops = 0
        self._kill_at: float | None = None
        self.exit_code = 0
        """The exit code, once all processes have ended."""

    def run(self) -> int:
        """Run the processes until they have ended; return the exit code."""
        self.start()
        while not self.is_over:
            self.step(self._monotonic())
            is_settled = all(place.is_ready for place in self._places)
            self._wait(_LOOK_SECONDS_READY if is_settled and not self._stops else _LOOK_SECONDS)
        return self.exit_code

    def start(self) -> None:
        """Let the first process start with the next step."""
        self._places[0].start_at = self._monotonic()

    def stop(self) -> None:
        """Drain the processes; called again, stop them at once. Safe in a signal handler."""
        self._stops += 1

    def states(self, *, metrics: bool = False) -> Sequence[ProcessState]:
        """Return the states of the processes, with their metrics if wanted. Waits for their reports."""
        return [self._state(place, metrics=metrics) for place in self._places]

    @property
    def is_over(self) -> bool:
        """Whether all processes have ended and none is to start."""
        return all(place.process is None and place.start_at is None for place in self._places)

    def step(self, now: float) -> None:
        """Note ends, start processes that are due, and pass on a stop."""
        if self._stops:
            self._pass_on_stop(now)
        for place in self._places:
            self._look_at(place, now)
        if not self._has_started and self._places[0].is_ready:
            self._has_started = True
            for place in self._places[1:]:
                place.start_at = now
        for place in self._places:
            if place.start_at is not None and place.start_at <= now:
                place.start_at = None
                self._start(place, now)

    def _start(self, place: _Place, now: float) -> None:
        try:
            place.process = self._spawn(place.number, place.session)
        except OSError as error:
            self._note_end(place, f"worker process {place.number} could not be started ({error})", 0, now)
        else:
            place.answers, place.unanswered_seconds, place.looked_at = 0, 0.0, now
            _log.debug("worker process %s started, pid %s", place.number, place.process.pid)

    def _look_at(self, place: _Place, now: float) -> None:
        process = place.process
        if process is None:
            return
        code = process.exit_code()
        if code is not None:
            place.process, place.is_ready = None, False
            process.close()
            what = f"worker process {place.number} (pid {process.pid}) ended with {_name_of(code)}"
            self._note_end(place, what, code, now)
            return
        report = process.read_report(metrics=False, timeout=_LOOK_SECONDS)
        if report is not None and report.session is not None:
            place.session = report.session
            place.is_ready = place.is_ready or report.is_ready
        if place.is_ready:
            place.restarts.note_ready(now)
        place.note_answers(process.answers, now)
        if place.answers and place.unanswered_seconds >= self._hung_after:
            _log.error(
                "worker process %s (pid %s) has not answered for %.0f s: it is killed",
                place.number,
                process.pid,
                place.unanswered_seconds,
            )
            place.unanswered_seconds = 0.0
            process.send_signal(signal.SIGKILL)

    def _note_end(self, place: _Place, what: str, code: int, now: float) -> None:
        """Note that a place is empty again. `what` is the event in the log, `code` 0 if there was no process."""
        if self._stops:
            return
        restart_at = place.restarts.note_end(now)
        if not self._has_started or place.restarts.is_hopeless:
            if self._has_started or code <= 0:  # a first process with an exit code has shown its error itself
                _log.error("%s: the supervisor ends", what)
            self.exit_code = code if code > 0 else 1
            self.stop()
            self._pass_on_stop(now)
            return
        place.start_at = restart_at
        _log.warning("%s; another one starts in %.0f s and frees its jobs", what, restart_at - now)

    def _pass_on_stop(self, now: float) -> None:
        """Send the processes a signal for each stop, and kill them if they take too long."""
        for place in self._places:
            place.start_at = None
        if self._kill_at is None:
            self._kill_at = now + self._drain_grace + KILL_SECONDS
            self._send(signal.SIGTERM)
        elif self._stops > 1 or now >= self._kill_at:
            self._send(signal.SIGKILL if now >= self._kill_at else signal.SIGTERM)
            self._stops = 1

    def _send(self, number: int) -> None:
        for place in self._places:
            if place.process is not None:
                place.process.send_signal(number)

    def _state(self, place: _Place, *, metrics: bool) -> ProcessState:
        process, restarts = place.process, place.restarts.count
        if process is None:
            phase = (
                "stopped"
                if place.start_at is None and self._has_started
                else "restarting"
                if restarts
                else "starting"
            )
            return ProcessState(process=place.number, pid=None, phase=phase, restarts=restarts)
        report = process.read_report(metrics=metrics, timeout=REPORT_SECONDS)
        if report is None:
            phase = "silent" if place.is_ready else "starting"
            return ProcessState(process=place.number, pid=process.pid, phase=phase, restarts=restarts)
        return ProcessState(
            process=place.number,
            pid=process.pid,
            phase=report.phase if report.session is not None else "starting",
            session=report.session,
            running=report.running,
            restarts=restarts,
            metrics=report.metrics,
        )


def _name_of(code: int) -> str:
    """Return the name of an exit code, which is negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # Python has no names for most of the real-time signals
        return f"signal {-code}"
