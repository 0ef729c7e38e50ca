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
from holdfast.kernel.functions.protocol import HistoryEvent, SignalReceived
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import JobsOfRun, ListRuns, RunFilter
from holdfast.ports.records import TERMINAL, Job, JobState
from holdfast.testing.clock import DEFAULT_START

_BUSY_SECONDS: Final = 60.0
_MANY: Final = 500


class StillClock:
    """A clock whose wall time leaps when it is told to; monotonic time goes on besides, as timeouts need it to."""

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
    """That a run is run again from a row on."""

    row: int


@attrs.frozen
class Play:
    """A call, and what its run is told from outside, by how many seconds after the beginning."""

    call: Call[Any]
    told: Sequence[tuple[float, HistoryEvent | Again]] = ()


def tell(run: SyncRunHandle[Any], one: HistoryEvent | Again) -> None:
    """Tell a run something from outside, if it is not too late for that."""
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
    """Start runs together, and let them be worked on until all have ended. `work` does some of what there is to do."""
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
    """A worker, which does all that there is to do; what is returned waits for it. Its lease bears the leaps."""
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 0.02)
    with Worker(engine, lease=timedelta(days=1_000), poll_interval=0.05, function_cache=0):
        yield lambda: time.sleep(0.02)


def _until_quiet(engine: Engine, clock: StillClock, work: Callable[[], None]) -> list[Job]:
    """Have work done until none is left that is due; return the jobs there are."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        work()
        resting, busy = _jobs(engine, micros(clock.now()))
        if busy is None:
            return resting
        assert time.monotonic() < until, f"this is not done: {busy}"


def _jobs(engine: Engine, now: int) -> tuple[list[Job], Job | None]:
    """Return the jobs that rest, up to the first that does not, and that one."""
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
