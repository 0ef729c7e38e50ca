"""The worker's state machine under a test's clock: no store, no thread, no event loop."""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import pytest

from holdfast.hosts.worker.machine import (
    BACKOFF_MAX,
    BACKOFF_MIN,
    IDLE_POLLS,
    STOP_GRACE,
    Phase,
    WorkerMachine,
)
from holdfast.hosts.worker.machine_protocol import (
    Action,
    BodyEnded,
    CallFailed,
    Cancel,
    Claim,
    Claimed,
    Drain,
    EventsFound,
    FindEvents,
    Finish,
    Flush,
    FollowedUp,
    Heartbeat,
    HeartbeatAnswered,
    HistoriesGrew,
    Input,
    OpenSession,
    Release,
    RunsEnded,
    SessionLost,
    SessionReady,
    Settle,
    Settled,
    SinkFlushed,
    Start,
    Stop,
    Sweep,
    SweepDone,
    WakeDue,
    WokeDue,
    Woken,
)
from holdfast.hosts.worker.running_attempts import TAKES_MAX, TAKES_SECONDS_MAX
from holdfast.hosts.worker.settings import Settings
from holdfast.kernel.commands import NO_FOLLOW_UP, Attempt, Completed, FollowUp, JobSettle
from holdfast.kernel.dispatch.command_batches import BATCH_BYTES_MAX, BATCH_COMMANDS_MAX
from holdfast.ports.records.job import JobKind, PassOver
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim

A = TypeVar("A")

POLL = 1.0
IDLE = IDLE_POLLS * POLL
BEAT = 2.0
GRACE = 20.0
SETTINGS = Settings(
    definitions=("w@1",),
    queues=("default",),
    concurrency=10,
    poll_interval=POLL,
    heartbeat_interval=BEAT,
    drain_grace=GRACE,
)


def attempt(number: int, *, queue: str = "default", epoch: int = 1, losses: int = 0) -> Attempt:
    return Attempt(
        job=f"run.{number}",
        epoch=epoch,
        run="run",
        definition="w@1",
        queue=queue,
        kind=JobKind.STAGE,
        node="a",
        item=None,
        attempt=epoch,
        max_attempts=3,
        lost_attempts=losses,
        input="1",
    )


def attempts(*numbers: int, queue: str = "default") -> tuple[Attempt, ...]:
    return tuple(attempt(number, queue=queue) for number in numbers)


def settle(done: Attempt) -> JobSettle:
    return JobSettle(job=done.job, epoch=done.epoch, outcome=Completed(output=Payload(inline="1")))


def ended(*done: Attempt) -> list[BodyEnded]:
    return [BodyEnded(one, settle(one)) for one in done]


def only(actions: list[Action], kind: type[A]) -> A:
    """Return the only action of a kind."""
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


class Driven:
    """A machine and its clock. Checks after every step that the next is not due at once."""

    def __init__(self, **changes: Any) -> None:
        self.machine = WorkerMachine(attrs.evolve(SETTINGS, **changes))
        self.now = 0.0

    def step(self, *inputs: Input, after: float = 0.0) -> list[Action]:
        self.now += after
        actions = self.machine.step(self.now, inputs)
        due = self.machine.next_step()
        assert due is None or due > self.now, "its driver would never rest"
        return actions

    def until_next(self) -> list[Action]:
        """Let time pass until its next timer."""
        due = self.machine.next_step()
        assert due is not None
        return self.step(after=due - self.now)

    def ready(self) -> list[Action]:
        """Give it a session, and complete its first sweep."""
        self.step()
        actions = self.step(SessionReady())
        self.step(SweepDone(more=False))
        return actions

    def idle(self) -> None:
        """Give it a session and nothing to do."""
        claim = only(self.ready(), Claim)
        self.step(Claimed((), claim.limit))

    def running(self, *some: Attempt) -> None:
        """Give it a session and these attempts, which do not fill it."""
        claim = only(self.ready(), Claim)
        assert len(some) < claim.limit
        self.step(Claimed(some, claim.limit))


# Sessions -------------------------------------------------------------------------------------------------------


def test_it_opens_a_session_before_it_does_anything_else() -> None:
    driven = Driven()

    assert driven.step() == [OpenSession()]
    assert driven.step(Woken()) == []
    assert kinds(driven.step(SessionReady())) == [Claim, Sweep]


def test_a_session_that_can_not_be_opened_is_tried_again_ever_later() -> None:
    driven = Driven()
    waits: list[float] = []
    driven.step()
    for _ in range(9):
        driven.step(CallFailed(OpenSession()))
        before = driven.now
        assert driven.until_next() == [OpenSession()]
        waits.append(driven.now - before)

    assert waits[0] == pytest.approx(2 * BACKOFF_MIN)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(BACKOFF_MAX)


def test_when_its_session_is_lost_it_cancels_what_runs_and_opens_another() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))

    actions = driven.step(SessionLost(), after=IDLE)

    assert actions == [Cancel(attempt(1)), Cancel(attempt(2)), OpenSession()]
    assert only(driven.step(SessionReady()), Claim).limit == 8
    assert driven.machine.running == 2


def test_a_call_that_was_refused_for_its_session_is_made_again_under_the_next() -> None:
    driven = Driven()
    claim = only(driven.ready(), Claim)

    assert driven.step(SessionLost(claim)) == []
    assert driven.until_next() == [OpenSession()]
    assert driven.step(SessionReady()) == [claim]


def test_without_a_session_nothing_is_asked_of_bodies_that_take_long_to_end() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(SessionLost(), after=IDLE)

    assert driven.step(after=10 * BEAT) == []
    assert driven.machine.next_step() is None


def test_what_ends_without_a_session_is_settled_all_the_same() -> None:
    """The store decides whether it is fenced."""
    driven = Driven()
    claim = only(driven.ready(), Claim)
    driven.step(SessionLost(), after=IDLE)
    driven.step(Claimed(attempts(1), claim.limit))

    assert driven.step(*ended(attempt(1))) == [Settle((settle(attempt(1)),), (False,))]


# Claims ---------------------------------------------------------------------------------------------------------


def test_a_claim_asks_for_as_many_as_there_is_room_for() -> None:
    driven = Driven()

    assert only(driven.ready(), Claim) == Claim(
        queue_claims=(QueueClaim(queue="default", definitions=("w@1",), limit=10),), limit=10
    )


def test_an_idle_worker_asks_again_after_the_poll_interval_and_not_before() -> None:
    driven = Driven()
    driven.idle()

    assert driven.step(after=IDLE - 0.01) == []
    assert kinds(driven.step(after=0.01)) == [Claim]


def test_an_idle_worker_that_is_told_of_work_asks_at_once_and_only_once() -> None:
    driven = Driven()
    driven.idle()

    assert kinds(driven.step(Woken(), Woken(), after=0.1)) == [Claim]
    assert driven.step(Woken()) == []


def test_word_of_work_that_comes_during_a_claim_leads_to_another() -> None:
    """The claim may have read before the job was there."""
    driven = Driven()
    claim = only(driven.ready(), Claim)
    driven.step(Woken())

    assert kinds(driven.step(Claimed((), claim.limit))) == [Claim]


def test_what_was_claimed_is_started_in_order() -> None:
    driven = Driven()
    claim = only(driven.ready(), Claim)

    assert driven.step(Claimed(attempts(2, 1, 3), claim.limit)) == list(map(Start, attempts(2, 1, 3)))
    assert driven.machine.running == 3


def test_a_full_worker_asks_for_nothing_whatever_it_hears() -> None:
    driven = Driven()
    claim = only(driven.ready(), Claim)
    driven.step(Claimed(attempts(*range(10)), claim.limit))

    assert driven.step(Woken(), after=1.0) == []


def test_with_a_backlog_it_waits_until_half_its_room_is_free_so_that_claims_stay_large() -> None:
    driven = Driven()
    claim = only(driven.ready(), Claim)
    full = attempts(*range(10))
    driven.step(Claimed(full, claim.limit))

    assert kinds(driven.step(*ended(*full[:6]))) == [Settle]
    assert only(driven.step(Settled(opened=True)), Claim).limit == 6


def test_with_a_backlog_a_little_room_is_filled_after_a_moment() -> None:
    driven = Driven(claim_again_after=0.05)
    claim = only(driven.ready(), Claim)
    full = attempts(*range(10))
    driven.step(Claimed(full, claim.limit))
    driven.step(*ended(full[0]))
    assert driven.step(Settled(opened=True)) == []

    assert only(driven.step(after=0.05), Claim).limit == 1


def test_what_has_ended_and_is_not_settled_takes_up_room() -> None:
    """Otherwise results would pile up without bound while the store does not answer."""
    driven = Driven()
    driven.running(*attempts(1, 2, 3))

    actions = driven.step(*ended(*attempts(1, 2)), Woken())
    assert only(actions, Claim).limit == 7
    assert driven.machine.unsettled == 2


def test_a_queue_gets_no_more_than_its_limit() -> None:
    driven = Driven(queues=("default", "gpu"), limits={"gpu": 2})
    claim = only(driven.ready(), Claim)
    assert {lane.queue: lane.limit for lane in claim.queue_claims} == {"default": 10, "gpu": 2}
    driven.step(Claimed((attempt(1, queue="gpu"), attempt(2, queue="gpu"), attempt(3)), claim.limit))

    (lane,) = only(driven.step(Woken()), Claim).queue_claims
    assert lane.queue == "default"


def test_a_queue_at_its_limit_is_asked_again_as_soon_as_one_of_its_bodies_is_settled() -> None:
    """There may be more in it, whatever the other queues had."""
    driven = Driven(queues=("default", "gpu"), limits={"gpu": 1})
    claim = only(driven.ready(), Claim)
    driven.step(Claimed((attempt(1, queue="gpu"),), claim.limit))
    assert kinds(driven.step(*ended(attempt(1, queue="gpu")))) == [Settle]

    actions = driven.step(Settled(opened=False))

    assert {lane.queue: lane.limit for lane in only(actions, Claim).queue_claims} == {"default": 10, "gpu": 1}


def test_a_worker_whose_queues_are_all_at_their_limits_rests_until_one_is_not() -> None:
    driven = Driven(queues=("gpu",), limits={"gpu": 1})
    gpu = attempt(1, queue="gpu")
    claim = only(driven.ready(), Claim)
    assert claim.limit == 1
    driven.step(Claimed((gpu,), claim.limit))

    assert driven.step(Woken(), after=1.0) == []
    assert kinds(driven.step(*ended(gpu))) == [Settle]
    assert kinds(driven.step(Settled(opened=False))) == [Claim]


def test_a_worker_without_code_claims_nothing_and_rests() -> None:
    driven = Driven(definitions=())

    assert kinds(driven.ready()) == [Sweep]
    assert driven.step(Woken(), after=1.0) == []


SUSPECT, LOST = attempt(1, epoch=3, losses=2), attempt(2, epoch=2, losses=1)


@pytest.mark.parametrize(
    ("lost", "pass_over"), [(SUSPECT, PassOver.LOST), (LOST, PassOver.SUSPECTS)], ids=["suspect", "lost"]
)
def test_beside_a_job_that_was_lost_no_job_is_asked_for_that_must_not_run_beside_it(
    lost: Attempt, pass_over: PassOver
) -> None:
    """Until it is settled: a job that has just ended would still be lost with the worker."""
    driven = Driven()
    claim = only(driven.ready(), Claim)
    assert claim.pass_over is PassOver.NOTHING

    asked = [only(driven.step(Claimed((attempt(3), lost), claim.limit)), Claim)]
    asked.append(only(driven.step(Claimed((), 8), Woken()), Claim))
    assert kinds(driven.step(*ended(lost), Claimed((), 8), Woken())) == [Settle, Claim]
    asked.append(only(driven.step(Claimed((), 8), Woken()), Claim))
    assert [claim.pass_over for claim in asked] == [pass_over] * 3

    driven.step(Claimed((), 8))
    assert only(driven.step(Settled(opened=False)), Claim).pass_over is PassOver.NOTHING


def test_a_claim_follows_at_once_on_one_that_found_jobs_that_were_lost() -> None:
    """Some of the jobs found may not have been taken, though others behind them could have been."""
    driven = Driven()
    claim = only(driven.ready(), Claim)

    assert kinds(driven.step(Claimed((SUSPECT,), claim.limit))) == [Start, Claim]
    assert kinds(driven.step(Claimed((attempt(3),), 9))) == [Start]


def test_a_job_that_comes_again_while_its_lost_attempt_still_runs_is_started_and_settled() -> None:
    """A body may be slow to react to its cancellation while its job is leased to this worker again."""
    driven = Driven()
    driven.running(attempt(1, epoch=1))
    driven.step(SessionLost(), after=IDLE)
    claim = only(driven.step(SessionReady()), Claim)
    again = attempt(1, epoch=2)

    assert driven.step(Claimed((again,), claim.limit)) == [Start(again)]
    assert driven.machine.running == 2
    assert driven.step(BodyEnded(attempt(1, epoch=1), None)) == []
    assert driven.step(*ended(again)) == [Settle((settle(again),), (True,))]


def test_that_a_job_can_be_claimed_again_proves_that_its_earlier_attempt_is_lost() -> None:
    driven = Driven()
    driven.running(attempt(1, epoch=1))
    claim = only(driven.step(Woken()), Claim)

    actions = driven.step(Claimed((attempt(1, epoch=2),), claim.limit))

    assert actions == [Cancel(attempt(1, epoch=1)), Start(attempt(1, epoch=2))]


# Settling -------------------------------------------------------------------------------------------------------


def test_whatever_has_ended_is_settled_together() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2, 3))

    batch = only(driven.step(*ended(*attempts(1, 2))), Settle)

    assert batch.settles == (settle(attempt(1)), settle(attempt(2)))


def test_what_ends_while_a_batch_is_under_way_goes_into_the_next() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2, 3))
    driven.step(*ended(attempt(1)))

    assert driven.step(*ended(attempt(2))) == []
    assert driven.step(*ended(attempt(3))) == []
    assert only(driven.step(Settled(opened=False)), Settle).settles == tuple(map(settle, attempts(2, 3)))


def test_a_batch_is_never_larger_than_a_transaction_may_be() -> None:
    driven = Driven(concurrency=1_000)
    some = attempts(*range(BATCH_COMMANDS_MAX + 100))
    driven.running(*some)

    assert len(only(driven.step(*ended(*some)), Settle).settles) == BATCH_COMMANDS_MAX
    assert len(only(driven.step(Settled(opened=False)), Settle).settles) == 100


def test_long_values_are_settled_in_several_transactions() -> None:
    """Slots become free, and other bodies run, while the store writes what is left."""
    driven = Driven()
    some = attempts(*range(5))
    driven.running(*some)
    output = Payload(inline=f'"{"x" * (BATCH_BYTES_MAX // 2 - 100)}"')
    results = [BodyEnded(one, attrs.evolve(settle(one), outcome=Completed(output=output))) for one in some]

    counts = [len(only(driven.step(*results), Settle).settles)]
    counts += [len(only(driven.step(Settled(opened=False)), Settle).settles) for _ in range(2)]

    assert counts == [2, 2, 1]


def test_a_value_longer_than_a_transaction_may_be_is_settled_alone() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    output = Payload(inline=f'"{"x" * (BATCH_BYTES_MAX + 1)}"')
    long = attrs.evolve(settle(attempt(1)), outcome=Completed(output=output))

    assert only(driven.step(BodyEnded(attempt(1), long), *ended(attempt(2))), Settle).settles == (long,)


def test_a_batch_that_was_not_stored_is_tried_again_later_with_what_has_ended_since() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    batch = only(driven.step(*ended(attempt(1))), Settle)

    assert driven.step(CallFailed(batch)) == []
    assert driven.step(*ended(attempt(2))) == []
    retried = only(driven.step(after=2 * BACKOFF_MIN), Settle)

    assert retried.settles == tuple(map(settle, attempts(1, 2)))


def test_when_runs_go_on_after_a_settle_their_next_jobs_are_asked_for_at_once() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))

    assert kinds(driven.step(Settled(opened=True))) == [Claim]


def test_when_no_run_goes_on_after_a_settle_nothing_is_asked() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))

    assert driven.step(Settled(opened=False)) == []


def test_the_next_jobs_of_runs_are_taken_with_the_settles_and_started() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    batch = only(driven.step(*ended(*attempts(1, 2))), Settle)
    assert batch.lease_next == (True, True)

    assert driven.step(Settled(opened=False, next_attempts=(attempt(3), None))) == [Start(attempt(3))]
    assert (driven.machine.running, driven.machine.unsettled) == (1, 0)


def test_a_run_is_taken_on_so_often_and_then_queues_again() -> None:
    driven = Driven()
    driven.running(attempt(0))
    took: list[bool] = []
    for number in range(TAKES_MAX + 1):
        took += only(driven.step(*ended(attempt(number))), Settle).lease_next
        driven.step(Settled(opened=False, next_attempts=(attempt(number + 1),)))

    assert took == [True] * TAKES_MAX + [False]


def test_a_run_is_taken_on_for_so_long_and_then_queues_again() -> None:
    driven = Driven()
    driven.running(attempt(0))
    took: list[bool] = []
    for number in range(5):
        took += only(driven.step(*ended(attempt(number)), after=TAKES_SECONDS_MAX / 3), Settle).lease_next
        driven.step(Settled(opened=False, next_attempts=(attempt(number + 1),)))

    assert took == [True, True, False, False, False]


def test_a_batch_that_is_tried_again_takes_as_before() -> None:
    driven = Driven()
    driven.running(attempt(1))
    batch = only(driven.step(*ended(attempt(1))), Settle)
    driven.step(CallFailed(batch))

    assert driven.step(after=2 * BACKOFF_MIN) == [batch]


def test_a_worker_that_drains_takes_nothing_and_gives_back_what_it_took_before() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    assert only(driven.step(*ended(attempt(1))), Settle).lease_next == (True,)
    driven.step(Drain())

    actions = driven.step(Settled(opened=False, next_attempts=(attempt(3),)), *ended(attempt(2)))

    assert only(actions, Release) == Release((attempt(3),))
    assert only(actions, Settle).lease_next == (False,)


def test_what_is_taken_takes_up_the_room_of_its_queue() -> None:
    driven = Driven(queues=("default", "gpu"), limits={"gpu": 1})
    claim = only(driven.ready(), Claim)
    driven.step(Claimed((attempt(1, queue="gpu"),), claim.limit))
    driven.step(*ended(attempt(1, queue="gpu")))

    actions = driven.step(Settled(opened=False, next_attempts=(attempt(2, queue="gpu"),)))

    assert [lane.queue for lane in only(actions, Claim).queue_claims] == ["default"]


def test_a_body_that_was_given_up_is_not_settled() -> None:
    driven = Driven()
    driven.running(attempt(1))

    assert driven.step(BodyEnded(attempt(1), None)) == []
    assert driven.machine.running == 0


def test_the_end_of_an_attempt_that_does_not_run_here_changes_nothing() -> None:
    driven = Driven()
    driven.idle()

    assert driven.step(*ended(attempt(1))) == []
    assert driven.machine.unsettled == 0


# Heartbeats -----------------------------------------------------------------------------------------------------


def test_bodies_that_have_run_for_a_while_are_asked_about_at_intervals() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(*attempts(1, 2))

    assert driven.step(after=BEAT - 0.01) == []
    beat = Heartbeat(attempts(1, 2))
    assert driven.step(after=0.01) == [beat]
    assert driven.step(after=10 * BEAT) == [Sweep()]
    assert driven.step(HeartbeatAnswered(())) == [beat]


def test_bodies_that_have_just_begun_are_not_asked_about() -> None:
    driven = Driven()
    driven.running(attempt(1))
    claim = only(driven.step(Woken(), after=BEAT * 0.75), Claim)
    driven.step(Claimed((attempt(2),), claim.limit))

    assert only(driven.step(after=BEAT / 4), Heartbeat).attempts == (attempt(1),)


def test_a_body_whose_attempt_is_lost_is_cancelled_once() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(*attempts(1, 2))
    driven.step(after=BEAT)

    assert driven.step(HeartbeatAnswered(attempts(1))) == [Cancel(attempt(1))]
    assert only(driven.step(after=BEAT), Heartbeat).attempts == attempts(2)
    assert driven.step(HeartbeatAnswered(attempts(1))) == []


def test_what_a_cancelled_body_gives_all_the_same_is_not_settled() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(after=BEAT)
    driven.step(HeartbeatAnswered(attempts(1)))

    assert Settle not in kinds(driven.step(*ended(attempt(1))))
    assert driven.machine.late == 1


def test_a_cancelled_body_that_gives_nothing_is_not_counted_as_late() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(after=BEAT)
    driven.step(HeartbeatAnswered(attempts(1)))
    driven.step(BodyEnded(attempt(1), None))

    assert driven.machine.late == 0


def test_an_answer_about_a_body_that_has_ended_changes_nothing() -> None:
    """The attempt may have been settled between the query and the answer."""
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(after=BEAT)
    driven.step(*ended(attempt(1)))

    assert driven.step(HeartbeatAnswered(attempts(1))) == []
    assert driven.machine.unsettled == 1


def test_a_late_answer_about_an_earlier_attempt_does_not_cancel_the_one_that_runs_now() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1, epoch=1))
    driven.step(after=BEAT)
    driven.step(BodyEnded(attempt(1, epoch=1), None))
    claim = only(driven.step(Woken()), Claim)
    driven.step(Claimed((attempt(1, epoch=2),), claim.limit))

    assert driven.step(HeartbeatAnswered((attempt(1, epoch=1),))) == []


def test_a_heartbeat_that_failed_is_sent_again() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    beat = only(driven.step(after=BEAT), Heartbeat)

    assert driven.step(CallFailed(beat)) == []
    assert driven.until_next() == [beat]


def test_bodies_of_a_run_that_is_said_to_have_ended_are_asked_about_at_once() -> None:
    """However short a time they have run; and once for each notification."""
    driven = Driven(poll_interval=100.0)
    driven.running(*attempts(1, 2))

    beat = Heartbeat(attempts(1, 2))
    assert driven.step(RunsEnded(frozenset({"run", "other"})), after=BEAT / 10) == [beat]
    assert driven.step(HeartbeatAnswered(attempts(1))) == [Cancel(attempt(1))]
    assert driven.step(RunsEnded(frozenset({"run"}))) == [Heartbeat(attempts(2))]


def test_the_end_of_runs_of_others_makes_it_ask_nothing() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))

    assert driven.step(RunsEnded(frozenset({"other"})), after=BEAT / 10) == []
    assert driven.step(BodyEnded(attempt(1), None), RunsEnded(frozenset({"run"}))) == []


def test_new_rows_send_no_heartbeat_and_are_looked_at_for_sinks() -> None:
    driven = Driven(sinks=("audit",), poll_interval=100.0, maintenance_interval=100.0)
    driven.running(attempt(1))
    driven.step(EventsFound(()))

    assert driven.step(HistoriesGrew(), after=BEAT / 10) == [FindEvents()]
    assert driven.step(HistoriesGrew(), after=BEAT / 10) == []


def test_what_is_said_while_it_asks_makes_it_ask_again() -> None:
    """The pending answer may be from before the run ended."""
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(after=BEAT)

    assert driven.step(RunsEnded(frozenset({"run"}))) == []
    assert driven.step(HeartbeatAnswered(())) == [Heartbeat(attempts(1))]


def test_while_it_drains_too_it_asks_about_runs_that_are_said_to_have_ended() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(Drain())

    assert driven.step(RunsEnded(frozenset({"run"}))) == [Heartbeat(attempts(1))]


# Maintenance ----------------------------------------------------------------------------------------------------


def test_maintenance_is_due_at_intervals_and_never_twice_at_once() -> None:
    driven = Driven(maintenance_interval=5.0, definitions=())
    driven.ready()

    assert driven.step(after=4.9) == []
    assert driven.step(after=0.1) == [Sweep()]
    assert driven.step(after=60.0) == []


def test_maintenance_that_has_more_to_do_goes_on_at_once_and_looks_for_work() -> None:
    driven = Driven()
    driven.idle()
    driven.step(after=IDLE)
    driven.step(Claimed((), 10))
    assert kinds(driven.step(after=5.0 - IDLE)) == [Claim, Sweep]
    driven.step(Claimed((), 10))

    assert kinds(driven.step(SweepDone(more=True))) == [Claim, Sweep]


def test_a_body_that_is_to_be_tried_again_is_woken_when_that_is_due() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(*attempts(1, 2))
    driven.step(*ended(attempt(1)))
    driven.step(Settled(opened=False, retries_in=(1.5,)))

    assert driven.step(after=1.49) == []
    assert driven.step(after=0.01) == [WakeDue()]
    assert kinds(driven.step(WokeDue(more=False))) == [Claim]


def test_every_retry_is_woken_when_it_is_due_and_those_of_one_moment_together() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))
    driven.step(Settled(opened=False, retries_in=(2.0, 0.5, 0.505, 0.51)))

    assert driven.step(after=0.5) == [WakeDue()]
    driven.step(WokeDue(more=False))
    driven.step(Claimed((), 1))
    assert driven.step(after=0.01) == []
    assert driven.step(after=0.02) == [WakeDue()]
    driven.step(WokeDue(more=False))
    driven.step(Claimed((), 1))
    assert driven.step(after=1.4) == []
    assert driven.step(after=0.1) == [WakeDue()]


@pytest.mark.parametrize(
    "told",
    [
        FollowedUp(FollowUp(jobs=("w/a",)), opened=False, wakes_in=(1.5, 90.0)),
        WokeDue(more=False, wakes_in=(1.5,)),
        SweepDone(more=False, wakes_in=(1.5,)),
    ],
)
def test_who_waits_under_a_rate_limit_is_woken_when_there_is_room(told: Input) -> None:
    """By the worker that learnt of it. Jobs due later are left to the sweeps."""
    driven = Driven(poll_interval=100.0, maintenance_interval=200.0)
    driven.idle()
    driven.step(told)
    driven.step(Claimed((), 10))

    assert driven.step(after=1.49) == []
    assert driven.step(after=0.01) == [WakeDue()]
    driven.step(WokeDue(more=False))
    driven.step(Claimed((), 10))
    assert WakeDue() not in driven.step(after=90.0)


def test_a_claim_says_for_whom_it_has_made_clear_when_there_is_room() -> None:
    driven = Driven(poll_interval=100.0)
    driven.idle()

    assert FollowUp(jobs=("w/a",)) in driven.step(Claimed((), 10, FollowUp(jobs=("w/a",))))


def test_the_earliest_retry_is_the_one_that_counts() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(*attempts(1, 2, 3))
    for number, retry_in in ((1, 1.0), (2, 0.5), (3, 2.0)):
        driven.step(*ended(attempt(number)))
        driven.step(Settled(opened=False, retries_in=(retry_in,)))

    assert driven.step(after=0.5) == [WakeDue()]


def test_waking_goes_on_while_there_is_more_to_wake() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))
    driven.step(Settled(opened=False, retries_in=(0.5,)))
    driven.step(after=0.5)

    assert kinds(driven.step(WokeDue(more=True))) == [Claim, WakeDue]


def _hear_of_work(driven: Driven) -> list[Action]:
    return driven.step(Woken())


def _wait_for_maintenance(driven: Driven) -> list[Action]:
    return driven.step(after=5.0)


def _wait_for_a_retry(driven: Driven) -> list[Action]:
    return driven.step(after=0.5)


@pytest.mark.parametrize(
    ("begin", "action"),
    [
        pytest.param(_hear_of_work, Claim, id="claim"),
        pytest.param(_wait_for_maintenance, Sweep, id="sweep"),
        pytest.param(_wait_for_a_retry, WakeDue, id="wake"),
    ],
)
def test_what_failed_is_tried_again_a_little_later(
    begin: Callable[[Driven], list[Action]], action: type[Claim | Sweep | WakeDue]
) -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))
    driven.step(Settled(opened=False, retries_in=(0.5,) if action is WakeDue else ()))
    begun = only(begin(driven), action)

    assert driven.step(CallFailed(begun)) == []
    assert driven.step(after=BACKOFF_MIN) == []
    assert action in kinds(driven.step(after=BACKOFF_MIN))


def test_the_wait_after_a_failure_is_short_again_once_the_store_has_answered() -> None:
    driven = Driven(maintenance_interval=100.0)
    claim = only(driven.ready(), Claim)
    for _ in range(8):
        driven.step(CallFailed(claim))
        claim = only(driven.until_next(), Claim)
    driven.step(Claimed((), claim.limit))
    claim = only(driven.step(Woken()), Claim)
    driven.step(CallFailed(claim))

    assert Claim in kinds(driven.step(after=2 * BACKOFF_MIN))


def test_flushes_that_fail_make_no_claim_wait_longer() -> None:
    driven = Driven(sinks=("audit", "search"), maintenance_interval=100.0)
    claim = only(driven.ready(), Claim)
    driven.step(EventsFound(("audit", "search")))
    waits: list[float] = []
    for _ in range(8):
        driven.step(SinkFlushed("search", more=False), CallFailed(Flush("audit")))
        before = driven.now
        while FindEvents not in kinds(driven.until_next()):
            pass
        waits.append(driven.now - before)
        driven.step(EventsFound(("audit", "search")))

    driven.step(CallFailed(claim))
    claims = kinds(driven.step(after=2 * BACKOFF_MIN))
    assert Claim in claims
    assert waits[0] == pytest.approx(2 * BACKOFF_MIN)
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(BACKOFF_MAX)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (Settle, Settled(opened=False)),
        (Heartbeat, HeartbeatAnswered(())),
        (Sweep, SweepDone(more=True)),
        (WakeDue, WokeDue(more=True)),
        (FindEvents, EventsFound(())),
    ],
)
def test_the_wait_of_each_kind_of_call_is_short_again_after_its_answer(
    kind: type[Action], answer: Input
) -> None:
    driven = Driven(sinks=("audit",))

    def until_call(actions: list[Action]) -> Action:
        while kind not in kinds(actions):
            actions = driven.until_next()
        return only(actions, kind)

    actions = [*driven.step(), *driven.step(SessionReady())]
    limit = only(actions, Claim).limit
    actions += driven.step(
        Claimed(attempts(1, 2, 3), limit), FollowedUp(NO_FOLLOW_UP, opened=False, wakes_in=(0.5,))
    )
    call = until_call([*actions, *driven.step(*ended(attempt(1)))])
    for _ in range(8):
        call = until_call(driven.step(CallFailed(call)))
    call = until_call(driven.step(answer, *ended(attempt(2))))
    before = driven.now
    until_call(driven.step(CallFailed(call)))

    assert driven.now - before == pytest.approx(2 * BACKOFF_MIN)


def test_failures_of_calls_that_are_not_repeated_are_forgotten_after_an_answer() -> None:
    driven = Driven(poll_interval=100.0, maintenance_interval=100.0)
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))
    follow_up = FollowUp(jobs=("w/a",), deliveries=True)
    actions = driven.step(Settled(opened=False, follow_up=follow_up))
    parts = [action for action in actions if isinstance(action, FollowUp)]
    assert parts == [FollowUp(jobs=("w/a",)), FollowUp(deliveries=True)]
    driven.step(*map(CallFailed, parts))
    failures = driven.machine._failures  # pyright: ignore[reportPrivateUsage]
    assert dict(failures) == {FollowUp: 2}

    driven.step(FollowedUp(parts[0], opened=False))
    assert not failures


def test_the_wait_after_a_flush_is_short_again_after_one_that_did_not_fail() -> None:
    driven = Driven(sinks=("audit",), maintenance_interval=100.0)
    driven.ready()
    for _ in range(8):
        driven.step(EventsFound(("audit",)))
        driven.step(CallFailed(Flush("audit")))
    driven.step(EventsFound(("audit",)))
    driven.step(SinkFlushed("audit", more=False))
    driven.step(EventsFound(("audit",)))
    driven.step(CallFailed(Flush("audit")))

    assert FindEvents in kinds(driven.step(after=2 * BACKOFF_MIN))


# The end --------------------------------------------------------------------------------------------------------


def test_an_idle_worker_that_is_to_drain_ends_at_once() -> None:
    driven = Driven()
    driven.idle()

    assert driven.step(Drain()) == [Finish()]
    assert driven.machine.phase is Phase.STOPPED
    assert driven.machine.next_step() is None


def test_a_worker_can_be_told_to_drain_before_it_has_begun() -> None:
    assert Driven().step(Drain()) == [Finish()]


def test_while_it_drains_bodies_may_end_and_are_settled_and_nothing_is_claimed() -> None:
    driven = Driven()
    driven.running(attempt(1))

    assert driven.step(Drain(), Woken()) == []
    assert driven.step(*ended(attempt(1)), after=IDLE) == [Settle((settle(attempt(1)),), (False,))]
    assert driven.step(Settled(opened=True)) == [Finish()]


def test_while_it_drains_bodies_are_still_asked_about() -> None:
    """They may have been cancelled, and their output is still needed."""
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())

    assert driven.step(after=BEAT) == [Heartbeat((attempt(1),))]


def test_jobs_that_come_back_from_a_claim_during_a_drain_are_given_back() -> None:
    driven = Driven()
    claim = only(driven.ready(), Claim)
    assert driven.step(Drain()) == []

    assert driven.step(Claimed(attempts(1, 2), claim.limit)) == [Release(attempts(1, 2)), Finish()]


def test_after_the_grace_what_still_runs_is_cancelled_and_given_back() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    driven.step(Drain())

    actions = driven.step(after=GRACE)
    assert actions == [
        Heartbeat(attempts(1, 2)),
        Cancel(attempt(1)),
        Cancel(attempt(2)),
        Release(attempts(1, 2)),
    ]
    assert driven.machine.phase is Phase.STOPPING
    assert driven.step(BodyEnded(attempt(1), None)) == []
    assert driven.step(BodyEnded(attempt(2), None)) == [Finish()]


def test_what_a_body_gives_after_its_attempt_was_given_back_is_not_settled() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())
    driven.step(after=GRACE)

    assert driven.step(*ended(attempt(1))) == [Finish()]


def test_without_a_grace_what_runs_is_given_back_at_once() -> None:
    driven = Driven(drain_grace=0.0)
    driven.running(attempt(1))

    assert driven.step(Drain()) == [Cancel(attempt(1)), Release(attempts(1))]


def test_a_body_that_ignores_its_cancellation_does_not_keep_the_worker_for_ever() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())
    driven.step(after=GRACE)

    assert driven.step(after=STOP_GRACE - 0.01) == []
    assert driven.until_next() == [Finish()]


def test_a_store_that_does_not_answer_does_not_keep_the_worker_for_ever() -> None:
    driven = Driven()
    driven.running(attempt(1))
    batch = only(driven.step(*ended(attempt(1))), Settle)
    driven.step(Drain())
    tries = 0
    while driven.machine.phase is not Phase.STOPPED:
        tries += Settle in kinds(driven.step(CallFailed(batch)))
        if driven.machine.next_step() is not None:
            tries += Settle in kinds(driven.until_next())

    assert driven.now == pytest.approx(GRACE + STOP_GRACE)
    assert tries > 5


def test_a_session_that_is_lost_during_a_drain_is_not_replaced() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())

    assert driven.step(SessionLost()) == [Cancel(attempt(1))]
    assert driven.step(BodyEnded(attempt(1), None)) == [Finish()]


def test_a_second_drain_does_not_lengthen_the_first() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())
    driven.step(Drain(), after=GRACE / 2)

    assert Release(attempts(1)) in driven.step(after=GRACE / 2)


def test_stopping_at_once_waits_for_nothing_and_gives_nothing_back() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    driven.step(*ended(attempt(1)))

    assert driven.step(Stop()) == [Finish()]
    assert driven.machine.next_step() is None


def test_a_worker_that_drains_can_be_stopped_at_once() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())

    assert driven.step(Stop(), after=1.0) == [Finish()]


# Counts ---------------------------------------------------------------------------------------------------------


def test_an_idle_worker_calls_the_store_less_than_once_in_a_poll_interval() -> None:
    """Claims and sweeps of a minute, and the work for a lease of 30 seconds.

    Six renewals, each with a query of the store's time; and three acquisitions of the leader lease.
    """
    driven = Driven()
    calls = 0
    driven.step()
    pending: list[Input] = [SessionReady()]
    while driven.now < 60 * POLL:
        actions = driven.step(*pending)
        calls += len(actions)
        pending = [
            Claimed((), action.limit) if isinstance(action, Claim) else SweepDone(more=False)
            for action in actions
        ]
        if not pending:
            due = driven.machine.next_step()
            assert due is not None
            driven.now = due

    assert calls + 6 + 6 + 3 <= 60
