"""The supervisor starts, restarts and stops worker processes, with processes and a clock of the test."""

import errno
import signal
from collections.abc import Callable

import attrs
import pytest

from holdfast.hosts.supervisor.reports import WorkerReport
from holdfast.hosts.supervisor.restarts import FAILURES_MAX, RESTART_MAX, STABLE_SECONDS, Restarts
from holdfast.hosts.supervisor.supervisor import KILL_SECONDS, Supervisor

GRACE = 20.0
HUNG = 60.0


@attrs.define(eq=False)
class Process:
    """A worker process that does what the test says."""

    pid: int
    former: str | None
    report: WorkerReport | None = None
    code: int | None = None
    signals: list[int] = attrs.field(factory=list[int])
    is_closed: bool = False
    answers: int = 0

    def exit_code(self) -> int | None:
        return self.code

    def send_signal(self, number: int, /) -> None:
        self.signals.append(number)

    def read_report(self, *, metrics: bool, timeout: float) -> WorkerReport | None:
        assert timeout > 0
        self.answers += self.report is not None
        return self.report if self.report is None or metrics else attrs.evolve(self.report, metrics=None)

    def close(self) -> None:
        self.is_closed = True

    def get_ready(self, running: int = 0) -> None:
        self.report = WorkerReport(
            phase="running", session=f"session {self.pid}", running=running, metrics=f"m{self.pid}"
        )


class World:
    """A supervisor and the processes that it has started."""

    def __init__(self, count: int) -> None:
        self.now = 100.0
        self.started: list[Process] = []
        self.on_wait: Callable[[], object] = lambda: None
        self.refusals = 0
        """How often the system refuses to start a process."""
        self.supervisor = Supervisor(
            count,
            self._spawn,
            drain_grace=GRACE,
            hung_after=HUNG,
            monotonic=lambda: self.now,
            wait=self._wait,
        )
        self.supervisor.start()

    def _spawn(self, number: int, former: str | None) -> Process:
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.started.append(Process(pid=1_000 * number + len(self.started), former=former))
        return self.started[-1]

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self.on_wait()

    def step(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.supervisor.step(self.now)

    def all_ready(self) -> "World":
        """Start all processes, and let them get ready."""
        self.step()
        self.started[0].get_ready()
        self.step()
        self.step()
        for process in self.started:
            process.get_ready()
        self.step()
        return self

    def phases(self) -> list[str]:
        return [state.phase for state in self.supervisor.states()]


def test_the_first_process_starts_alone_and_the_others_once_it_is_ready() -> None:
    world = World(3)
    world.step()
    world.step(5)
    assert [process.pid for process in world.started] == [0]
    assert world.phases() == ["starting"] * 3
    world.started[0].get_ready()
    world.step()
    assert [process.pid for process in world.started] == [0, 1_001, 2_002]
    assert world.phases() == ["running", "starting", "starting"]


@pytest.mark.parametrize(("code", "exit_code"), [(8, 8), (2, 2), (-signal.SIGKILL, 1)])
def test_a_first_process_that_can_not_start_ends_the_supervisor_with_its_code(
    code: int, exit_code: int
) -> None:
    world = World(3)
    world.on_wait = lambda: setattr(world.started[0], "code", code)
    assert world.supervisor.run() == exit_code
    assert len(world.started) == 1
    assert world.started[0].is_closed


def test_a_process_that_ends_is_replaced_and_the_new_one_frees_its_jobs() -> None:
    world = World(2).all_ready()
    killed = world.started[1]
    killed.code = -signal.SIGKILL
    world.step()
    assert killed.is_closed
    assert world.phases() == ["running", "restarting"]
    world.step(0.9)
    assert len(world.started) == 2
    world.step(0.2)
    assert world.started[2].former == f"session {killed.pid}"
    world.started[2].get_ready()
    world.step()
    assert [(state.phase, state.restarts) for state in world.supervisor.states()] == [
        ("running", 0),
        ("running", 1),
    ]


def test_a_process_that_hangs_is_killed_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    world = World(2).all_ready()
    hanging = world.started[1]
    hanging.report = None
    for _ in range(59):
        world.step(1)
    assert not hanging.signals
    world.step(1)
    assert hanging.signals == [signal.SIGKILL]
    assert f"worker process 1 (pid {hanging.pid}) has not answered for 60 s: it is killed" in caplog.text
    world.step(1)
    assert hanging.signals == [signal.SIGKILL]
    hanging.code = -signal.SIGKILL
    world.step(1)
    world.step(1)
    assert world.started[2].former == f"session {hanging.pid}"
    assert not world.started[0].signals


def test_a_process_that_answers_too_late_does_not_hang() -> None:
    world = World(1).all_ready()
    (slow,) = world.started
    slow.report = None
    for _ in range(10):
        world.step(59)
        slow.answers += 1
    for _ in range(50):
        world.step(1)
    assert not slow.signals


def test_the_time_in_which_the_supervisor_stood_still_does_not_count() -> None:
    world = World(1).all_ready()
    (process,) = world.started
    process.report = None
    for _ in range(20):
        world.step(3_600)
    assert not process.signals


def test_a_process_that_hangs_before_it_is_ready_is_killed() -> None:
    world = World(2)
    world.step()
    (first,) = world.started
    first.report = WorkerReport(phase="running")
    world.step(1)
    first.report = None
    for _ in range(60):
        world.step(1)
    assert first.signals == [signal.SIGKILL]


def test_a_process_that_takes_long_to_start_is_not_killed() -> None:
    world = World(2)
    for _ in range(1_000):
        world.step(1)
    assert [process.signals for process in world.started] == [[]]


def test_a_process_that_the_system_refuses_is_started_later(caplog: pytest.LogCaptureFixture) -> None:
    world = World(2).all_ready()
    world.started[1].code = 70
    world.refusals = 2
    world.step()
    world.step(1)
    assert "worker process 1 could not be started ([Errno" in caplog.text
    world.step(2)
    assert world.phases() == ["running", "restarting"]
    world.step(3.9)
    assert len(world.started) == 2
    world.step(0.2)
    assert world.started[2].former == "session 1001"
    assert world.supervisor.states()[1].restarts == 3


def test_a_process_that_the_system_never_starts_ends_the_supervisor() -> None:
    world = World(2).all_ready()
    world.started[1].code = 70
    world.refusals = FAILURES_MAX
    for _ in range(FAILURES_MAX + 1):
        world.step(RESTART_MAX)
    assert world.started[0].signals == [signal.SIGTERM]


def test_a_first_process_that_the_system_refuses_ends_the_supervisor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(2)
    world.refusals = 1
    assert world.supervisor.run() == 1
    assert "could not be started" in caplog.text


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (-40, "signal 40"), (3, "exit code 3")])
def test_the_log_names_how_a_process_ended(caplog: pytest.LogCaptureFixture, code: int, name: str) -> None:
    world = World(2).all_ready()
    world.started[1].code = code
    world.step()
    assert f"ended with {name}; another one starts in 1 s" in caplog.text
    assert world.phases() == ["running", "restarting"]


def test_the_session_of_the_newest_report_counts() -> None:
    """A worker that has lost its session has opened another one."""
    world = World(2).all_ready()
    world.started[1].report = WorkerReport(phase="running", session="another")
    world.step(1)
    world.started[1].code = 70
    world.step(1)
    world.step(1)
    assert world.started[2].former == "another"


def test_a_process_that_never_gets_ready_ends_the_supervisor() -> None:
    world = World(2).all_ready()
    world.started[1].code = 8
    world.step()
    for _ in range(FAILURES_MAX):
        world.step(RESTART_MAX)
        world.started[-1].code = 8
        world.step()
    assert len(world.started) == 2 + FAILURES_MAX
    assert world.started[0].signals == [signal.SIGTERM]
    world.started[0].code = 0
    world.step()
    assert world.supervisor.exit_code == 8
    assert world.supervisor.is_over


def test_a_stop_drains_the_processes_a_second_one_stops_them_at_once() -> None:
    world = World(2).all_ready()
    world.supervisor.stop()
    world.step()
    world.step(1)
    assert [process.signals for process in world.started] == [[signal.SIGTERM]] * 2
    world.supervisor.stop()
    world.step(1)
    world.step(1)
    assert [process.signals for process in world.started] == [[signal.SIGTERM] * 2] * 2
    world.started[0].code = 0
    world.step(1)
    assert world.phases() == ["stopped", "running"]
    world.started[1].code = -signal.SIGTERM
    world.step()
    assert len(world.started) == 2
    assert world.supervisor.is_over
    assert world.supervisor.exit_code == 0


def test_a_process_that_does_not_drain_in_time_is_killed() -> None:
    world = World(2).all_ready()
    world.supervisor.stop()
    world.step()
    world.step(GRACE + KILL_SECONDS - 0.1)
    assert world.started[0].signals == [signal.SIGTERM]
    world.step(0.2)
    assert world.started[0].signals[-1] == signal.SIGKILL


def test_nothing_is_restarted_after_a_stop() -> None:
    world = World(2).all_ready()
    world.started[1].code = 1
    world.step()
    world.supervisor.stop()
    for _ in range(10):
        world.step(RESTART_MAX)
    assert len(world.started) == 2


def test_the_states_of_processes_have_their_metrics_if_wanted() -> None:
    world = World(2).all_ready()
    world.started[1].report = None
    assert [state.metrics for state in world.supervisor.states()] == [None, None]
    assert [state.metrics for state in world.supervisor.states(metrics=True)] == ["m0", None]
    assert world.phases() == ["running", "silent"]


def test_restarts_take_longer_and_longer_until_a_process_was_ready_for_a_while() -> None:
    restarts, now, delays = Restarts(), 0.0, list[float]()
    for _ in range(7):
        restarts.note_ready(now)
        delays.append(restarts.note_end(now + 1) - now - 1)
    assert delays == [1, 2, 4, 8, 16, RESTART_MAX, RESTART_MAX]
    assert not restarts.is_hopeless
    restarts.note_ready(now)
    assert restarts.note_end(now + STABLE_SECONDS) == now + STABLE_SECONDS + 1
    assert restarts.count == 8


def test_ends_before_a_process_was_ready_are_counted_in_a_row() -> None:
    restarts = Restarts()
    for _ in range(FAILURES_MAX - 1):
        restarts.note_end(0.0)
    assert not restarts.is_hopeless
    restarts.note_ready(0.0)
    restarts.note_end(1.0)
    assert not restarts.is_hopeless
    for _ in range(FAILURES_MAX):
        restarts.note_end(2.0)
    assert restarts.is_hopeless
