"""Virtual time for real hosts: it stands still while work is under way, then jumps to the next due instant."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.worker import worker as worker_module
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.protocol import FunctionEvent, SignalReceived
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import HoldfastError
from holdfast.ports.queries.runs import JobsOfRun, ListRuns, RunFilter
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import TERMINAL
from holdfast.testing.clock import DEFAULT_START

_BUSY_SECONDS: Final = 60.0
_MANY: Final = 500


class StillClock:
    """A clock whose wall time advances only on command; monotonic time runs on, as timeouts need it."""

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        self._lock = threading.Lock()
        self._now = start
        self._leaped = 0.0

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return time.monotonic() + self._leaped

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)

    def leap_to(self, at: datetime) -> None:
        with self._lock:
            by = max(timedelta(), at - self._now)
            self._now += by
            self._leaped += by.total_seconds()


@attrs.frozen
class Again:
    """A fork of the run from a row."""

    row: int


@attrs.frozen
class Play:
    """A call, and its run's external events with their time in seconds since the start."""

    call: Call[Any]
    told: Sequence[tuple[float, FunctionEvent | Again]] = ()


def tell(run: SyncRunHandle[Any], one: FunctionEvent | Again) -> None:
    """Send a run an external event, unless it has ended."""
    with suppress(HoldfastError):  # it has ended by now, or can't be run again from there
        if isinstance(one, SignalReceived):
            run.signal(Signal(one.channel, one.text))
        elif isinstance(one, Again):
            run.rerun_from(row=one.row)
        else:
            run.cancel(reason="enough")


def carry_out(
    engine: Engine, plays: Sequence[Play], clock: StillClock, work: Callable[[], None]
) -> list[SyncRunHandle[Any]]:
    """Start runs together, and work until all have ended. `work` does some of the available work."""
    runs = [engine.sync.start(play.call, id=f"{number}") for number, play in enumerate(plays)]
    began = clock.now()
    told = sorted(
        (
            (began + timedelta(seconds=at), number, one)
            for number, play in enumerate(plays)
            for at, one in play.told
        ),
        key=lambda each: each[:2],
    )
    while True:
        jobs = _until_quiet(engine, clock, work)
        if not jobs:
            return runs
        dues = [instant(job.wake_at) for job in jobs if job.wake_at is not None]
        dues += [told[0][0]] if told else []
        assert dues, f"they wait for ever: {jobs}"
        clock.leap_to(min(dues))
        while told and told[0][0] <= clock.now():
            _, number, one = told.pop(0)
            tell(runs[number], one)


@contextmanager
def worker_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[], None]]:
    """Start a worker; return a function that waits until it is idle. Its lease outlasts the jumps in time."""
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 0.02)
    with Worker(engine, lease=timedelta(days=1_000), poll_interval=0.05, function_cache=0):
        yield lambda: time.sleep(0.02)


def _until_quiet(engine: Engine, clock: StillClock, work: Callable[[], None]) -> list[Job]:
    """Work until nothing is due; return the remaining jobs."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        work()
        resting, busy = _jobs(engine, micros(clock.now()))
        if busy is None:
            return resting
        assert time.monotonic() < until, f"this is not done: {busy}"


def _jobs(engine: Engine, now: int) -> tuple[list[Job], Job | None]:
    """Return the sleeping jobs up to the first that is not asleep, and that one."""
    persistence, namespace = engine.core.stores.persistence, engine.core.namespace
    runs = persistence.read(ListRuns(RunFilter(namespace=namespace), limit=_MANY))
    assert len(runs) < _MANY
    resting: list[Job] = []
    for run in runs:
        if run.status in TERMINAL:
            continue
        for job in persistence.read(JobsOfRun(run.key)):
            if job.state is not JobState.SLEEPING or (job.wake_at is not None and job.wake_at <= now):
                return resting, job
            resting.append(job)
    return resting, None
