"""Session renewal in a thread of its own, and the detection of a blocked event loop."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

import anyio
import pytest
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.worker import session_renewal as renewal_module
from holdfast.hosts.worker.session_renewal import Renewal
from holdfast.kernel.commands import SessionClose, SessionOpen
from holdfast.ports.clock import micros
from holdfast.ports.errors import UnavailableError
from holdfast.ports.persistence import Query
from holdfast.ports.queries.store import StoreTime
from holdfast.testing.clock import ManualClock
from holdfast.testing.faults import Fault, FaultPlan, FaultyPersistence
from tests.unit.hosts.attempt_harness import Bench, StoreWithClock

R = TypeVar("R")

LEASE = 0.03


class Renewed:
    """A store with sessions, and their renewal every 10 ms."""

    def __init__(self, plan: FaultPlan | None = None) -> None:
        self.store = MemoryPersistence()
        self.bench = Bench(persistence=FaultyPersistence(self.store, plan or FaultPlan(())))
        self.sessions: list[str] = []
        self.lost = threading.Semaphore(0)
        self.renewal = Renewal(self.bench.core, lease=LEASE, sessions=self._sessions, lost=self.lost.release)

    def _sessions(self) -> Sequence[str]:
        return tuple(self.sessions)

    def open(self) -> str:
        opened = self.bench.engine.kernel.dispatch(SessionOpen(host="h", lease=1))
        self.sessions.append(opened.session)
        return opened.session

    def is_renewed(self, session: str) -> bool:
        """Return whether it is renewed within a while."""
        began = self.store.dump().sessions[session].expires_at
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            if self.store.dump().sessions[session].expires_at > began:
                return True
            self.bench.clock.advance(timedelta(milliseconds=1))
            time.sleep(0.001)
        return False


@pytest.fixture(autouse=True)
def _no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for an event loop where there is none to watch."""
    monkeypatch.setattr(renewal_module, "BLOCKED_AFTER", 0.0)


@pytest.fixture
def renewed() -> Iterator[Renewed]:
    renewed = Renewed()
    yield renewed
    renewed.renewal.stop()


def test_all_sessions_are_renewed(renewed: Renewed) -> None:
    first, second = renewed.open(), renewed.open()
    renewed.renewal.start()

    assert renewed.is_renewed(first)
    assert renewed.is_renewed(second)


def test_when_the_current_session_is_dead_that_is_told_once(renewed: Renewed) -> None:
    current, former = renewed.open(), renewed.open()
    renewed.bench.engine.kernel.dispatch(SessionClose(session=current))
    renewed.renewal.start()

    assert renewed.lost.acquire(timeout=5.0)
    assert renewed.is_renewed(former)
    assert not renewed.lost.acquire(timeout=2 * LEASE)


def test_when_a_former_session_is_dead_nobody_is_told(renewed: Renewed) -> None:
    current, former = renewed.open(), renewed.open()
    renewed.bench.engine.kernel.dispatch(SessionClose(session=former))
    renewed.renewal.start()

    assert renewed.is_renewed(current)
    assert not renewed.lost.acquire(timeout=2 * LEASE)


def test_a_new_session_takes_the_place_of_one_that_was_lost(renewed: Renewed) -> None:
    lost = renewed.open()
    renewed.bench.engine.kernel.dispatch(SessionClose(session=lost))
    renewed.renewal.start()
    assert renewed.lost.acquire(timeout=5.0)
    renewed.sessions.clear()

    assert renewed.is_renewed(renewed.open())


def test_a_store_that_does_not_answer_is_asked_again_soon() -> None:
    plan = FaultPlan([None] * 3 + [Fault.FAILS_BEFORE] * 5)
    renewed = Renewed(plan)
    session = renewed.open()
    renewed.renewal.start()

    assert renewed.is_renewed(session)
    assert plan.fired[Fault.FAILS_BEFORE] == 5
    renewed.renewal.stop()


def test_every_renewal_asks_what_time_the_store_has() -> None:
    bench = Bench()
    bench.store.asked.clear()
    renewal = Renewal(bench.core, lease=LEASE, sessions=lambda: (), lost=lambda: None)
    renewal.start()
    until = time.monotonic() + 5.0
    while StoreTime() not in bench.store.asked and time.monotonic() < until:
        time.sleep(0.001)
    renewal.stop()

    assert StoreTime() in bench.store.asked


def test_after_it_was_stopped_nothing_is_renewed(renewed: Renewed) -> None:
    session = renewed.open()
    renewed.renewal.start()
    assert renewed.is_renewed(session)
    renewed.renewal.stop()
    until = time.monotonic() + 5.0
    while any(thread.name == "holdfast-renewal" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.001)


def hold_up_the_loop(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.anyio
async def test_who_blocks_the_loop_is_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewal_module, "BLOCKED_AFTER", 0.02)
    renewed = Renewed()
    session = renewed.open()
    renewed.renewal.watch_loop()
    renewed.renewal.start()
    with caplog.at_level(logging.WARNING):
        hold_up_the_loop(0.15)
    seconds = renewed.renewal.blocked_seconds
    renewed.renewal.stop()

    assert renewed.renewal.blocked > 0
    assert seconds >= 0.02
    assert renewed.renewal.blocked_seconds == 0.0
    assert "hold_up_the_loop" in caplog.text
    assert renewed.store.dump().sessions[session].state == "open"


@pytest.mark.anyio
async def test_a_loop_that_turns_is_not_complained_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewal_module, "BLOCKED_AFTER", 1.0)
    renewed = Renewed()
    session = renewed.open()
    renewed.renewal.watch_loop()
    renewed.renewal.start()
    for _ in range(2):
        assert await anyio.to_thread.run_sync(renewed.is_renewed, session)
        assert renewed.renewal.blocked_seconds == 0.0
    renewed.renewal.stop()

    assert (renewed.renewal.blocked, caplog.text) == (0, "")


class DeafStore(StoreWithClock):
    """A store that answers the time once, and then is too busy."""

    @override
    def read(self, query: Query[R], /) -> R:
        answer = super().read(query)
        if isinstance(query, StoreTime) and self.asked[1:]:
            raise UnavailableError("busy")
        return answer


def _opened(store: StoreWithClock, machine: ManualClock) -> tuple[Renewal, str]:
    bench = Bench(persistence=store, clock=machine)
    session = bench.engine.kernel.dispatch(SessionOpen(host="h", lease=30_000_000)).session
    return Renewal(bench.core, lease=30, sessions=lambda: (session,), lost=lambda: None), session


def test_a_store_that_does_not_say_what_time_it_is_costs_no_lease() -> None:
    clock = ManualClock()
    store = DeafStore(clock)
    renewal, session = _opened(store, clock)
    clock.advance(timedelta(seconds=10))
    renewal.round()

    assert store.dump().sessions[session].expires_at >= micros(clock.now() + timedelta(seconds=29.9))


def test_a_host_that_stood_still_asks_what_time_it_is_before_it_renews() -> None:
    """Otherwise its lease would expire as soon as it is renewed."""
    there, machine = ManualClock(), ManualClock()
    store = StoreWithClock(there)
    renewal, session = _opened(store, machine)
    there.advance(timedelta(seconds=40))
    machine.jump(timedelta(seconds=40))
    renewal.round()

    assert store.dump().sessions[session].expires_at >= micros(there.now() + timedelta(seconds=29.9))
