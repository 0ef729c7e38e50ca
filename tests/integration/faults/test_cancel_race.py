"""Cancelling and completing at the same moment: one of the two happens, and both callers learn which."""

import random
import threading
import time
from collections import Counter

import attrs

from holdfast import Engine, SyncEngine
from holdfast.client import RunStatus
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    Attempt,
    Completed,
    JobClaim,
    JobSettle,
    JobSettled,
    RunCancel,
    RunStopped,
    SessionOpen,
)
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.testing.conformance.threads import in_threads
from tests.chaos.faults import StrikingStore
from tests.chaos.programs import ONE, WORKFLOWS
from tests.chaos.site import Site

ROUNDS = 60
NEVER_MIND = 0.1


class Hold:
    """Holds a transaction before its commit until another call has had time to arrive."""

    def __init__(self, point: str) -> None:
        self._point = point
        self.reached = threading.Event()
        self.fired = 0

    def reach(self, point: str) -> None:
        if point == self._point:
            self.fired += 1
            self.reached.set()
            time.sleep(NEVER_MIND)


def held_engine(site: Site, hold: Hold) -> SyncEngine:
    """Return an engine whose transactions are held."""
    plain = Engine.open(site.url)
    stores = attrs.evolve(
        plain.core.stores, persistence=StrikingStore(plain.core.stores.persistence, hold.reach)
    )
    site.engines.append(plain.sync)
    return Engine(Core(stores, list(WORKFLOWS.values()), namespace="default", migrate=True)).sync


def begun(site: Site) -> tuple[str, Attempt]:
    """A run whose only body is running."""
    run = site.start(ONE(1))
    session = site.engine.kernel.dispatch(SessionOpen(host="here", lease=600_000_000)).session
    lane = QueueClaim(queue="default", definitions=tuple(WORKFLOWS), limit=1)
    (attempt,) = site.engine.kernel.dispatch(
        JobClaim(session=session, queue_claims=(lane,), limit=1)
    ).attempts
    return run, attempt


def settle(engine: SyncEngine, attempt: Attempt) -> JobSettled:
    outcome = Completed(output=Payload(inline="2"))
    return engine.kernel.dispatch(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome))


def cancel(engine: SyncEngine, run: str) -> RunStopped:
    return engine.kernel.dispatch(RunCancel(run_id=run, reason="enough"))


def test_a_cancel_that_waits_for_a_completion_comes_too_late(site: Site) -> None:
    run, attempt = begun(site)
    hold = Hold("job.settle:inside")
    first, second = held_engine(site, hold), site.engine

    def act(number: int) -> object:
        if number == 0:
            return settle(first, attempt)
        assert hold.reached.wait(10)
        return cancel(second, run)

    settled, ended = in_threads(2, act)

    assert hold.fired == 1
    assert settled == JobSettled(status="settled", run_status=RunStatus.COMPLETED)
    assert ended == RunStopped(status=RunStatus.COMPLETED, changed=False)
    assert site.result(run) == 2
    assert "run.cancelled" not in {row.type for row in site.history(run)}


def test_a_completion_that_waits_for_a_cancel_is_fenced(site: Site) -> None:
    run, attempt = begun(site)
    hold = Hold("run.end:inside")
    first, second = held_engine(site, hold), site.engine

    def act(number: int) -> object:
        if number == 0:
            return cancel(first, run)
        assert hold.reached.wait(10)
        return settle(second, attempt)

    ended, settled = in_threads(2, act)

    assert hold.fired == 1
    assert ended == RunStopped(status=RunStatus.CANCELLED, changed=True)
    assert settled == JobSettled(status="fenced")
    assert [row.type for row in site.history(run)] == ["run.created", "run.cancelled"]


def test_of_a_cancel_and_a_completion_at_once_one_happens(site: Site) -> None:
    others = [site.open_here(), site.open_here()]
    draw = random.Random(8)
    seen: Counter[RunStatus] = Counter()
    for _ in range(ROUNDS):
        run, attempt = begun(site)
        head_starts = (draw.uniform(0, 0.003), draw.uniform(0, 0.003))

        def act(number: int) -> JobSettled | RunStopped:
            time.sleep(head_starts[number])  # noqa: B023
            return cancel(others[1], run) if number else settle(others[0], attempt)  # noqa: B023

        settled, ended = in_threads(2, act)
        assert isinstance(settled, JobSettled)
        assert isinstance(ended, RunStopped)
        is_completed = settled.status == "settled"
        assert ended.changed is not is_completed
        status = RunStatus.COMPLETED if is_completed else RunStatus.CANCELLED
        assert site.run(run).status is ended.status is status
        assert site.jobs(run) == ()
        seen[status] += 1

    assert min(seen[RunStatus.COMPLETED], seen[RunStatus.CANCELLED]) >= 3, seen
