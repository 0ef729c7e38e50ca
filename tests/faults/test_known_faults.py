"""The faults of other engines that no other test covers; docs/explanation/faults.md lists them all."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import RunCreate
from holdfast.ports.errors import UnavailableError
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from holdfast.testing.faults import Fault, FaultPlan, FaultyPersistence
from tests.faults.fleet import POLL, Fleet

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

ran: list[str] = []
checked: Counter[str] = Counter()
keys: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    ran.clear()
    checked.clear()
    keys.clear()


@stage
def first(number: int) -> int:
    ran.append("first")
    return number + 1


@stage
def second(number: int) -> int:
    ran.append("second")
    return number * 10


@stage.external
def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
    return suspend(number, check_after=HOUR)


@hand_on.check
def handed_on(ctx: StageContext, number: int) -> int | NotReady:
    checked[ctx.run_id] += 1
    return number if checked[ctx.run_id] == 2 else NotReady()


@stage(queue="gpu", retry=Retry(attempts=2, wait=MINUTE))
def far(ctx: StageContext, number: int) -> int:
    keys.append(ctx.idempotency_key)
    if ctx.attempt == 1:
        raise ConnectionError("not yet")
    return number


@stage(retry=Retry(attempts=2, wait=MINUTE))
def stumble(ctx: StageContext, number: int) -> int:
    if ctx.attempt == 1 or number < 0:
        raise ConnectionError(f"attempt {ctx.attempt}")
    return number


TWO = Pipeline("two", input=int).pipe(first).pipe(second)
ELSEWHERE = Pipeline("elsewhere", input=int).pipe(handed_on)
FAR = Pipeline("far", input=int).pipe(far)
STUMBLES = Pipeline("stumbles", input=int).pipe(stumble)


def _payload(value: int) -> Payload:
    return Payload(inline=str(value))


def statuses(fleet: Fleet) -> set[RunStatus]:
    return {run.status for run in fleet.store.dump().runs.values()}


def test_p1_who_dies_after_a_stage_is_done_leaves_a_run_that_goes_on() -> None:
    """The end of a stage and the start of the next one are one commit, so no crash can come between."""
    fleet = Fleet((TWO,))
    run = fleet.engine.sync.start(TWO(1))
    dying = ServerlessHost(fleet.open(fleet.time))
    dying.process_available_jobs(max_jobs=1)
    assert ran == ["first"]  # and this was the last that was heard of it
    fleet.time.advance(DAY)
    fleet.worker()
    fleet.pass_time(timedelta(seconds=2 * POLL))

    assert run.result() == 20
    assert ran == ["first", "second"]
    assert fleet.rows("run.repaired") == []


def test_p8_a_start_whose_answer_was_lost_is_one_start_however_late_it_is_repeated() -> None:
    fleet = Fleet((TWO,))
    lost = FaultPlan([Fault.LOST_ANSWER])
    losing = Engine.on(
        attrs.evolve(fleet.engine.core.stores, persistence=FaultyPersistence(fleet.store, lost)),
        workflows=(TWO,),
    )
    create = RunCreate(workflow="two", input=_payload(1), idempotency_key="order-7")
    with pytest.raises(UnavailableError):
        losing.core.kernel_with(None).dispatch(create)
    assert lost.fired == {Fault.LOST_ANSWER: 1}
    told = set[str]()
    for later in (MINUTE, 10 * MINUTE, DAY):
        fleet.time.advance(later)
        told.add(fleet.engine.kernel.dispatch(create).run)

    assert told == set(fleet.store.dump().runs)
    assert len(told) == 1


@pytest.mark.slow
def test_a1_runs_that_wait_for_a_worker_for_a_day_are_done_when_one_comes() -> None:
    """A backlog does not fail the runs in it."""
    fleet = Fleet((TWO,))
    for number in range(50):
        fleet.engine.sync.start(TWO(number))
    host = ServerlessHost(fleet.open(fleet.time, FAR))  # it has maintenance to do, and no code of theirs
    for _ in range(48):
        fleet.time.advance(HOUR / 2)
        host.run_maintenance_tick()
    assert statuses(fleet) == {RunStatus.RUNNING}
    fleet.worker()
    fleet.pass_time(10 * MINUTE)

    assert statuses(fleet) == {RunStatus.COMPLETED}


@pytest.mark.slow
def test_a1_a_thousand_checks_that_are_due_at_once_are_made_and_none_is_given_up() -> None:
    fleet = Fleet((ELSEWHERE,))
    engine = fleet.engine.sync
    engine.kernel.dispatch_many(
        [RunCreate(workflow="elsewhere", input=_payload(number), id=f"r{number}") for number in range(1_000)]
    )
    fleet.worker()
    fleet.pass_time(2 * HOUR + 30 * MINUTE)

    assert statuses(fleet) == {RunStatus.COMPLETED}
    assert set(checked.values()) == {2}
    assert len(checked) == 1_000


def test_b4_however_many_hosts_look_a_check_is_made_once_and_holds_up_no_tick() -> None:
    """A tick only queues due polls. The worker that claims one makes it, outside of any tick."""
    fleet = Fleet((ELSEWHERE,))
    fleet.engine.sync.start(ELSEWHERE(1), id="x")
    hosts = [ServerlessHost(fleet.open(fleet.time), time_limit=60.0) for _ in range(5)]
    hosts[0].process_available_jobs(max_jobs=1)
    fleet.time.advance(HOUR)
    for host in hosts:
        host.run_maintenance_tick()
    assert checked["x"] == 0
    for host in hosts:
        host.process_available_jobs(max_jobs=10)

    assert checked["x"] == 1


def test_b12_work_for_other_machines_waits_for_them_as_long_as_it_takes() -> None:
    """An attempt after a failed one is a new attempt with the same key."""
    fleet = Fleet((FAR,))
    run = fleet.engine.sync.start(FAR(7))
    near = ServerlessHost(fleet.open(fleet.time, TWO))
    for _ in range(24):
        fleet.time.advance(HOUR)
        near.run_maintenance_tick()
        assert near.process_available_jobs(max_jobs=1).processed == 0
    (job,) = fleet.store.dump().all_jobs()
    assert (job.queue, job.state, job.attempts) == ("gpu", JobState.QUEUED, 0)
    fleet.worker()
    fleet.pass_time(10 * MINUTE)

    assert run.result() == 7
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_c2_a_failed_attempt_leaves_no_mark_on_a_run_that_then_completes() -> None:
    fleet = Fleet((STUMBLES,))
    good, bad = (fleet.engine.sync.start(STUMBLES(number)) for number in (1, -1))
    fleet.worker()
    fleet.pass_time(10 * MINUTE)

    assert (good.info().status, good.info().error) == (RunStatus.COMPLETED, None)
    assert [event.type for event in good.history()][1:-1] == ["stage.retrying", "stage.completed"]
    assert good.info().ended_at is not None
    assert bad.info().status is RunStatus.FAILED
    assert "stage 'stumble', attempt 2: ConnectionError: attempt 2" in bad.info().end_cause


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{}, {"default": 50}])
def test_c5_what_is_urgent_starves_nothing_that_has_room_of_its_own(limits: dict[str, int]) -> None:
    """Work that must not wait for urgent work at all has a queue of its own, and the urgent work a limit."""
    fleet = Fleet((TWO, FAR), lasts={"first": 100.0, "second": 100.0})
    patient = fleet.engine.sync.start(FAR(7), priority=-100)
    urgent = [RunCreate(workflow="two", input=_payload(number), priority=100) for number in range(1_000)]
    fleet.engine.kernel.dispatch_many(urgent)
    fleet.worker(limits=limits)
    fleet.pass_time(10 * MINUTE)

    assert RunStatus.RUNNING in statuses(fleet)  # there is urgent work left
    assert patient.info().status is (RunStatus.COMPLETED if limits else RunStatus.RUNNING)


@pytest.mark.slow
def test_c5_what_is_patient_gets_its_turn_however_much_comes_that_is_urgent() -> None:
    """Urgent work arrives at twice the capacity: only what comes within ten minutes overtakes."""
    fleet = Fleet((TWO,), lasts={"first": 30.0, "second": 30.0})
    fleet.worker(limits={"default": 1})
    fleet.engine.sync.start(TWO(0), priority=10)
    fleet.pass_time(MINUTE / 4)
    patient = fleet.engine.sync.start(TWO(0))
    for _ in range(8):
        for number in range(2):
            fleet.engine.sync.start(TWO(number), priority=10)
        fleet.pass_time(MINUTE)
    assert [event.type for event in patient.history()] == ["run.created"]
    for _ in range(16):
        for number in range(2):
            fleet.engine.sync.start(TWO(number), priority=10)
        fleet.pass_time(MINUTE)

    assert [event.type for event in patient.history()][1] == "stage.completed"
    assert (
        sum(status is RunStatus.RUNNING for status in statuses(fleet)) == 1
    )  # most of it is still to be done
