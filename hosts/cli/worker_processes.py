"""Several worker processes under one supervisor: `holdfast worker --processes N`."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

import attrs
import click

from holdfast.hosts.cli.configuration import ARGUMENTS
from holdfast.hosts.cli.console import Screen
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.metrics_options import MetricsAddress
from holdfast.hosts.supervisor.processors import available_processors
from holdfast.hosts.supervisor.reports import BLOCKED
from holdfast.hosts.supervisor.spawned_processes import SpawnedProcess
from holdfast.hosts.supervisor.supervisor import ProcessState, Supervisor
from holdfast.hosts.worker.stop_signals import stop_signals

if TYPE_CHECKING:
    from holdfast.hosts.metrics.metrics import Exposition
    from holdfast.hosts.metrics.status_server import Health

PROCESSES_MAX: Final = 256
AUTO: Final = "auto"
HUNG_SECONDS_MIN: Final = 10.0
"""A process that fails to answer for twice its lease, and at least for so long, is killed."""


@attrs.frozen
class Place:
    """The place of a worker process under its supervisor."""

    number: int
    """From 0."""
    descriptor: int
    """The file descriptor of the socket to the supervisor."""
    former: str | None = None
    """The session of the process that this one replaces."""

    @classmethod
    def from_text(cls, _: click.Context, __: click.Parameter, text: str | None) -> "Place | None":
        """Return the value of the option `--supervised`, as click calls it."""
        if text is None:
            return None
        number, descriptor, former = text.split(":")
        return cls(int(number), int(descriptor), former or None)


def processes_of(_: click.Context, parameter: click.Parameter, text: str) -> int:
    """Return the value of the option `--processes`, as click calls it. Raises BadParameter."""
    if text == AUTO:
        return available_processors()
    if not text.isdecimal() or not 1 <= int(text) <= PROCESSES_MAX:
        raise click.BadParameter(
            f"{text!r} is neither a number from 1 to {PROCESSES_MAX} nor {AUTO}", param=parameter
        )
    return int(text)


def run_processes(
    count: int, *, lease: float, drain_grace: float, metrics_at: MetricsAddress, screen: Screen
) -> None:
    """Run worker processes with the arguments of this command until they have ended. Exits with their code."""
    arguments: Sequence[str] = click.get_current_context().meta[ARGUMENTS]
    # Without -P, a module of the current folder, such as its queue.py, would hide one of the standard library.
    command = [sys.executable, *_interpreter_options(), "-P", "-m", "holdfast.hosts.cli.main", *arguments]
    happened = threading.Event()

    def spawn(number: int, former: str | None) -> SpawnedProcess:
        return SpawnedProcess(lambda fd: [*command, "--supervised", f"{number}:{fd}:{former or ''}"])

    def wait(seconds: float) -> None:
        happened.wait(seconds)
        happened.clear()

    supervisor = Supervisor(
        count,
        spawn,
        drain_grace=drain_grace,
        hung_after=max(2 * lease, HUNG_SECONDS_MIN),
        monotonic=time.monotonic,
        wait=wait,
    )

    def health() -> "Health":
        return health_of(supervisor.states())

    def expose(accept: str) -> "Exposition":
        return _merged(supervisor.states(metrics=True), accept)

    with _obeying_signals(supervisor, happened), metrics_at.served_with_health(expose, health, screen):
        code = supervisor.run()
    if code:
        raise CliError(
            Exit(code) if code in set(Exit) else Exit.BUG,
            "processes",
            "the worker processes have ended, as their log says",
        )


def _interpreter_options() -> Sequence[str]:
    """Return the options of this interpreter for another one, such as -O, -W and -X.

    `multiprocessing` starts its processes with the same function.
    """
    options: Callable[[], Sequence[str]] = vars(subprocess)["_args_from_interpreter_flags"]
    return options()


def health_of(states: Sequence[ProcessState]) -> "Health":
    """Return the health of worker processes."""
    # Imported here, as the module needs the extra for metrics. So do all callers.
    from holdfast.hosts.metrics.status_server import Health

    is_well = all(state.phase in {"running", "draining"} for state in states)
    is_alive = all(state.phase != BLOCKED for state in states)  # the supervisor replaces one that is silent
    processes = [attrs.asdict(state, filter=lambda field, _: field.name != "metrics") for state in states]
    return Health(is_well, is_alive, {"status": "ok" if is_well else "degraded", "processes": processes})


def _merged(states: Sequence[ProcessState], accept: str) -> "Exposition":
    from prometheus_client import CollectorRegistry

    from holdfast.hosts.metrics.merged_metrics import MergedMetrics
    from holdfast.hosts.metrics.metrics import exposition_of

    registry = CollectorRegistry()
    registry.register(
        MergedMetrics(
            {state.process: state.metrics for state in states if state.metrics is not None},
            {state.process: state.restarts for state in states},
            sum(state.phase == "running" for state in states),
        )
    )
    return exposition_of(registry, accept)


@contextmanager
def _obeying_signals(supervisor: Supervisor, happened: threading.Event) -> Generator[None]:
    """Let signals stop the supervisor, and wake it when a process has ended."""

    def stop(number: int, _: FrameType | None) -> None:
        supervisor.stop()
        happened.set()

    def wake(number: int, _: FrameType | None) -> None:
        happened.set()

    before = {number: signal.signal(number, stop) for number in stop_signals()}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, wake)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
