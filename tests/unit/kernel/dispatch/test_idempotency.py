"""Idempotency keys: one effect, one reply."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

import attrs
import pytest

from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.commands import (
    BrowserSessionCreate,
    BrowserSessionDelete,
    BrowserSessionTouch,
    ChannelMessage,
    Command,
    ContinuedAsNew,
    CredentialCreate,
    CredentialRevoke,
    CredentialRotate,
    CredentialTouch,
    DeadLetterReplay,
    EventAppend,
    FunctionWaiting,
    JobAdmit,
    JobClaim,
    JobClaimOne,
    JobHeartbeat,
    JobReapUnresponsive,
    JobRecord,
    JobRelease,
    JobWakeDue,
    LeaderAcquire,
    LeaseReapStale,
    LimitClear,
    LimitSet,
    NamespaceCreate,
    NamespaceDelete,
    NewAnnotation,
    NewTopicMessage,
    OutboxFlush,
    OutboxRead,
    OutboxSettle,
    OutboxSweep,
    PollNotReady,
    RunAnnotate,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunDeliver,
    RunExpire,
    RunPause,
    RunRemove,
    RunRepair,
    RunRerunFrom,
    RunResume,
    RunSignal,
    RunTransition,
    RunUpdate,
    ScheduleBackfill,
    ScheduleFire,
    SchedulePause,
    SchedulePut,
    ScheduleRemove,
    ScheduleReplan,
    ScheduleResume,
    ScheduleTrigger,
    SessionClose,
    SessionOpen,
    SessionReap,
    SessionRenew,
    SinkRegister,
    SinkRemove,
    StagePollSuspended,
    StageWake,
    StreamFailure,
    TimerFire,
    TopicDeliver,
    TopicPublish,
    TopicRemove,
    TriggerFire,
    TriggerPause,
    TriggerPut,
    TriggerRemove,
    TriggerResume,
    UpdateDeliver,
    UpdateSend,
    WorkflowRegister,
    WorkflowSchemas,
)
from holdfast.kernel.commands.codec import reply_json
from holdfast.kernel.commands.names import IDEMPOTENCY_KEY_MAX
from holdfast.kernel.history import events
from holdfast.kernel.rules.outbox import DEAD_LETTER_AFTER
from holdfast.kernel.rules.registry import RULES
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.kernel.topics.trigger_data import trigger_digest
from holdfast.ports.errors import (
    IdempotencyConflictError,
    InvalidCommandError,
    RunExistsError,
    RunNotFoundError,
    UnavailableError,
)
from holdfast.ports.json import parse
from holdfast.ports.queries.runs import PendingDeliveries
from holdfast.ports.records.job import PassOver
from holdfast.ports.records.trigger import TriggerName
from holdfast.ports.records.values import Payload
from holdfast.testing.faults import Fault, FaultPlan, FaultyPersistence
from tests.unit.kernel.world import (
    SECOND,
    World,
    child,
    completing,
    external,
    failed,
    payload,
    pipeline,
    settling,
    stage,
)

C = TypeVar("C", bound=Command[object])


def _keyed(command: C, key: str = "k") -> C:
    return attrs.evolve(command, idempotency_key=key)


def _create(key: str | None = "k", input: object = 1, id: str | None = None) -> RunCreate:
    return RunCreate(workflow="w", id=id, input=payload(input), idempotency_key=key)


@pytest.fixture
def world() -> World:
    return World(
        pipeline(stage("a"), stage("b")),
        pipeline(external("e"), child("c", workflow="w"), workflow="e"),
        pipeline(attrs.evolve(stage("f"), function=True), workflow="f"),
    )


def _every_command(world: World) -> Iterator[Command[object]]:
    """Return a valid command of each class except run.terminate (like run.cancel), with its preconditions met."""
    yield NamespaceDelete()
    yield NamespaceCreate(note="ours")
    yield WorkflowRegister(workflows=(WorkflowSchemas(workflow="w", version="1"),))
    yield _create(None)
    session, other = world.open(), world.open()
    yield SessionOpen(host="h", lease=SECOND)
    yield SessionRenew(session=session, lease=999 * SECOND)
    yield LeaderAcquire(name="sweep", session=session, lease=SECOND)
    yield JobClaim(session=session, queue_claims=world.lanes(), limit=1)
    world.create("x")
    (job,) = world.jobs("x")
    yield JobClaimOne(session=session, job=job.key.text, epoch=0, definitions=("w@1",))
    held = next(job for job in world.jobs("x"))
    yield JobHeartbeat(attempts=())
    yield JobRelease(job=held.key.text, epoch=held.epoch, delay=SECOND)
    world.wait(2)
    yield JobWakeDue()
    yield JobReapUnresponsive()
    attempt = world.claim(session)[0]
    yield settling(attempt, failed())
    attempt = world.claim(session)[0]
    yield completing(attempt)
    yield RunTransition(run_id="x")
    yield RunAnnotate(run_id="x", annotations=(NewAnnotation(name="n", value="1"),))
    yield RunPause(run_id="x")
    yield RunResume(run_id="x")
    yield RunRepair()
    yield RunClaimPending()
    yield JobAdmit()
    yield RunExpire()
    yield SessionClose(session=other)
    world.open(lease=1)
    world.wait(1)
    yield SessionReap(grace=0)
    world.claim(session)
    world.do(SessionClose(session=session))
    yield LeaseReapStale()
    yield RunCancel(run_id="x")
    yield TopicPublish(message=NewTopicMessage(topic="t", payload="1"))
    yield TopicDeliver(topic="t")
    start = RunCreate(workflow="w", input=Payload(inline="null"))
    yield TriggerPut(trigger="t", topic="t", start=start)
    digest = trigger_digest(world.tables().triggers[TriggerName("default", "t")])
    yield TriggerFire(trigger="t", expected=1, digest=digest, number=1, next=2, start=start)
    yield TriggerPause(trigger="t")
    yield TriggerResume(trigger="t")
    yield TriggerRemove(trigger="t")
    yield TopicRemove(topic="t")
    yield SinkRegister(sink="s", since=0)
    yield OutboxSweep(sinks=("s",), began=world.now)
    yield OutboxFlush(sink="s", lease=SECOND)
    world.wait(2)
    for _ in range(DEAD_LETTER_AFTER):
        leased = world.do(OutboxFlush(sink="s", lease=SECOND))
        settle = OutboxSettle(
            sink="s",
            registration=leased.registration,
            holder=leased.holder,
            refused=(StreamFailure(run=leased.streams[0].run, delivered=0, number=1, error="e", final=True),),
        )
        yield settle
        world.do(settle)
        world.wait(60)
    yield DeadLetterReplay()
    yield OutboxRead(sink="s")
    yield SinkRemove(sink="s")
    yield RunRerunFrom(run_id="x", stage="a")
    for run in list(world.tables().runs.values()):
        world.do(RunCancel(run_id=run.id))
    world.create("e", workflow="e")
    session = world.open()
    world.suspend(world.claim_one(session), after=1)
    yield StageWake(key="key")
    yield settling(world.claim_one(session), PollNotReady(check_after=SECOND))
    world.wait(1)
    yield StagePollSuspended()
    world.complete(world.claim_one(session))
    world.start_child(world.claim_one(session), "e/c", workflow="w")
    yield RunCancel(run_id="e/c")
    (owed,) = world.store.read(PendingDeliveries())
    yield RunDeliver(job=owed.key.text, parent=str(parse(owed.input)))
    yield RunRemove(run_id="e/c")
    world.create("f", workflow="f")
    driven = world.claim_one(session)
    timer = TimerFire(call="1", due=0)
    yield JobRecord(job=driven.job, epoch=driven.epoch, seen=1, records=(timer,))
    yield settling(driven, FunctionWaiting(seen=2, wake_at=world.now))
    yield RunSignal(run_id="f", signal=ChannelMessage(channel="c", payload=payload(1)))
    yield RunUpdate(run_id="f", update="Board.move_to", arguments=payload({"field": "e4"}))
    answering = world.claim_one(session)
    world.create("g", workflow="f")
    sender = world.claim_one(session)
    sent = UpdateSend(call="1", run_id="f", update="Board.move_to", arguments=payload({"field": "e4"}))
    world.do(JobRecord(job=sender.job, epoch=sender.epoch, seen=1, records=(sent,)))
    answer = EventAppend(event=events.UpdateCompleted(call="update5"), payload=payload("a1"))
    world.do(JobRecord(job=answering.job, epoch=answering.epoch, seen=5, records=(answer,)))
    of_receiver = world.run("f").key
    owed = next(job for job in world.store.read(PendingDeliveries()) if job.run == of_receiver)
    yield UpdateDeliver(job=owed.key.text, run_id="g", output=payload("a1"))
    world.settle(answering, FunctionWaiting(seen=6))
    world.do(RunSignal(run_id="f", signal=ChannelMessage(channel="c", payload=payload(1))))
    goes_on = ContinuedAsNew(workflow="f", version="1", input=payload(2), seen=7)
    yield settling(world.claim_one(session), goes_on)
    start = RunCreate(workflow="w", input=payload(1))
    yield SchedulePut(schedule="s", start=start, timing=timing_of([Every(timedelta(seconds=1))]))
    world.wait(2)
    yield ScheduleFire(workflows=("w",))
    yield ScheduleTrigger(schedule="s")
    yield SchedulePause(schedule="s")
    yield ScheduleResume(schedule="s")
    yield ScheduleBackfill(schedule="s", times=(world.now // SECOND * SECOND - SECOND,))
    yield ScheduleReplan(workflows=("w",), version="2999a")
    yield ScheduleRemove(schedule="s")
    yield LimitSet(name="queue:q", paused=True)
    yield LimitClear(name="queue:q")
    yield CredentialCreate(id="b" * 12, label="ci", hash="0" * 64, scopes=("read",), namespaces=("*",))
    yield CredentialRotate(name="ci", hash="1" * 64)
    yield CredentialTouch(ids=("b" * 12,))
    yield CredentialRevoke(name="ci")
    yield BrowserSessionCreate(
        id="b" * 12,
        hash="0" * 64,
        principal="ann",
        scopes=("read",),
        namespaces=("*",),
        idle=300 * SECOND,
        expires_at=world.now + 3_600 * SECOND,
    )
    yield BrowserSessionTouch(ids=("b" * 12,))
    yield BrowserSessionDelete(principal="ann")


@pytest.mark.slow
def test_every_command_is_carried_out_once_and_answered_alike(world: World) -> None:
    seen: set[type] = set()
    for number, command in enumerate(_every_command(world)):
        keyed = _keyed(command, f"key {number}")
        first = world.do(keyed)
        world.wait(5)
        with world.unchanged():
            again = world.do(keyed)
        assert again == first
        assert (
            reply_json(again) == reply_json(first) == world.tables().replies["default", f"key {number}"].body
        )
        seen.add(type(command))

    assert {command.__name__ for command in RULES.keys() - seen} == {"RunTerminate"}


def test_a_reply_is_replayed_as_it_was_when_things_have_changed_since(world: World) -> None:
    first = world.do(_create(id="x"))
    world.do(RunCancel(run_id="x"))

    again = world.do(_create(id="x"))
    assert again == first
    assert (again.created, again.status) == (True, "running")


def test_a_key_used_for_another_command_is_a_conflict(world: World) -> None:
    world.do(_create(id="x"))
    others: list[Command[object]] = [
        _create(id="x", input=2),
        _create(id="y"),
        _keyed(RunCancel(run_id="x")),
        attrs.evolve(_create(id="x"), priority=1),
    ]
    with world.unchanged():
        for other in others:
            with pytest.raises(IdempotencyConflictError) as caught:
                world.do(other)
            assert caught.value.key == "k"


def test_what_a_session_holds_does_not_count_when_claims_are_compared(world: World) -> None:
    """It is more once a claim has succeeded whose reply was lost."""
    world.create("x")
    command = _keyed(JobClaim(session=world.open(), queue_claims=world.lanes(), limit=1))
    first = world.do(command)
    assert len(first.attempts) == 1
    assert world.do(attrs.evolve(command, pass_over=PassOver.LOST)) == first
    with pytest.raises(IdempotencyConflictError):
        world.do(attrs.evolve(command, limit=2))


def test_within_a_batch_a_key_means_the_same(world: World) -> None:
    first, again, conflict, other = world.send(_create(), _create(), _create(input=2), _create(key="l"))

    assert first == again != other
    assert isinstance(conflict, IdempotencyConflictError)
    assert len(world.tables().runs) == 2


def test_keys_are_of_a_namespace(world: World) -> None:
    first = world.do(_create())
    second = world.do(attrs.evolve(_create(), namespace="other", input=payload(2)))

    assert first.run != second.run


def test_commands_without_a_key_are_carried_out_each_time(world: World) -> None:
    world.send(_create(None), _create(None))

    assert len(world.tables().runs) == 2
    assert world.tables().replies == {}


def test_a_refused_command_does_not_use_its_key_up(world: World) -> None:
    with world.unchanged(), pytest.raises(RunNotFoundError):
        world.do(_keyed(RunCancel(run_id="x")))
    world.create("x")

    assert world.do(_keyed(RunCancel(run_id="x"))).changed


def test_a_refused_command_leaves_its_key_to_another_in_the_batch(world: World) -> None:
    world.create("x")
    refused, created = world.send(_create(id="x"), _create(id="y"))

    assert isinstance(refused, RunExistsError)
    assert not isinstance(created, Exception)


def test_a_fenced_settle_is_an_answer_and_is_replayed(world: World) -> None:
    world.create("x")
    attempt = world.claim_one(world.open())
    world.release(attempt)
    late = _keyed(completing(attempt))
    assert world.do(late).status == "fenced"
    world.claim_one(world.open())

    with world.unchanged():
        assert world.do(late).status == "fenced"


@pytest.mark.parametrize("key", ["", "k" * (IDEMPOTENCY_KEY_MAX + 1)])
def test_a_key_has_1_to_255_characters(world: World, key: str) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(_create(key))


def test_the_longest_key_is_a_key(world: World) -> None:
    key = "k" * IDEMPOTENCY_KEY_MAX

    assert world.do(_create(key)) == world.do(_create(key))


def test_the_reply_is_stored_with_the_effect(world: World) -> None:
    world.do(_create(id="x"))

    reply = world.tables().replies["default", "k"]
    assert (reply.created_at, len(reply.fingerprint)) == (world.now, 64)
    assert reply.body == (
        '{"created":true,"ended":[],"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"generation":1,"messages":[],'
        f'"run":"{world.run().key}",'
        '"run_id":"x","status":"running"}'
    )


# Faults ---------------------------------------------------------------------------------------------------------


def _faulty(*faults: Fault | None) -> World:
    return World(pipeline(stage("a")), wrap=lambda store: FaultyPersistence(store, FaultPlan(faults)))


def test_a_command_whose_answer_was_lost_is_carried_out_once() -> None:
    world = _faulty(Fault.LOST_ANSWER)
    with pytest.raises(UnavailableError):
        world.kernel.dispatch(_create())
    stored = world.tables()
    with world.unchanged():
        answer = world.do(_create())

    assert answer.run in stored.runs
    assert len(stored.runs) == 1


def test_a_command_that_was_not_begun_is_carried_out_when_it_comes_again() -> None:
    world = _faulty(Fault.FAILS_BEFORE)
    with world.unchanged(), pytest.raises(UnavailableError):
        world.kernel.dispatch(_create())

    assert world.do(_create()).run in world.tables().runs


def test_without_a_key_a_lost_answer_may_mean_a_second_run() -> None:
    """Keys exist to prevent that."""
    world = _faulty(Fault.LOST_ANSWER)
    with pytest.raises(UnavailableError):
        world.kernel.dispatch(_create(None))
    world.do(_create(None))

    assert len(world.tables().runs) == 2


def test_a_settle_whose_answer_was_lost_is_fenced_when_it_comes_again_and_counts_once() -> None:
    world = _faulty(None, None, None, Fault.LOST_ANSWER)
    world.create()
    attempt = world.claim_one(world.open())
    with pytest.raises(UnavailableError):
        world.kernel.dispatch(completing(attempt))
    with world.unchanged():
        assert world.complete(attempt).status == "fenced"

    assert world.run().status == "completed"
    assert world.events().count("stage.completed") == 1


def test_a_settle_with_a_key_whose_answer_was_lost_is_answered_as_settled() -> None:
    world = _faulty(None, None, None, Fault.LOST_ANSWER)
    world.create()
    command = _keyed(completing(world.claim_one(world.open())))
    with pytest.raises(UnavailableError):
        world.kernel.dispatch(command)
    with world.unchanged():
        assert world.do(command).status == "settled"


def test_work_that_is_run_again_comes_to_one_effect_and_one_announcement() -> None:
    """As after a deadlock: the results of the first execution must be forgotten, drawn ids and plans included."""
    world = _faulty(*[Fault.RUNS_AGAIN] * 10)
    created = world.do(_create(id="x"))
    assert len(world.heard.hints) == 1
    attempt = world.claim_one(world.open())
    assert attempt.epoch == 1
    assert world.complete(attempt).status == "settled"

    assert list(world.tables().runs) == [created.run]
    assert world.events() == ["run.created", "stage.completed", "run.completed"]
    assert len(world.tables().plans) == 1
