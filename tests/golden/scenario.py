"""A short story in which every command of the kernel is decided at least once, recorded."""

from datetime import timedelta

import attrs

from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import (
    Attempt,
    AttemptOutput,
    AttemptReport,
    Blocked,
    BrowserSessionCreate,
    BrowserSessionDelete,
    BrowserSessionTouch,
    Cancelled,
    ChannelMessage,
    ChildRunStarted,
    ChildStart,
    Completed,
    ConditionEvaluated,
    ContinuedAsNew,
    CredentialCreate,
    CredentialRevoke,
    CredentialRotate,
    CredentialTouch,
    DeadLetterReplay,
    EventAppend,
    Failed,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobAdmit,
    JobClaim,
    JobClaimOne,
    JobHeartbeat,
    JobReapUnresponsive,
    JobRecord,
    LeaderAcquire,
    LimitClear,
    LimitSet,
    MapExpanded,
    Missed,
    NamespaceCreate,
    NamespaceDelete,
    NewAnnotation,
    NewTopicMessage,
    OutboxFlush,
    OutboxRead,
    OutboxSettle,
    OutboxSweep,
    Overlap,
    PollNotReady,
    QueuedStepCompleted,
    QueuedStepFailed,
    QueuedStepJob,
    RunAnnotate,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunExpire,
    RunPause,
    RunRemove,
    RunRepair,
    RunRerunFrom,
    RunResume,
    RunSignal,
    RunTerminate,
    RunTransition,
    RunUpdate,
    ScheduleBackfill,
    ScheduleFire,
    SchedulePause,
    SchedulePolicy,
    SchedulePut,
    ScheduleRemove,
    ScheduleReplan,
    ScheduleResume,
    ScheduleTrigger,
    ServedQueue,
    SessionClose,
    SessionOpen,
    SessionRenew,
    SinkRegister,
    SinkRemove,
    StagePollSuspended,
    StageWake,
    StepCancel,
    StepQueue,
    StreamFailure,
    StreamProgress,
    TimerFire,
    TopicDeliver,
    TopicPublish,
    TopicRemove,
    TopicSend,
    TopicSubscribe,
    TopicUnsubscribe,
    TriggerFire,
    TriggerPause,
    TriggerPut,
    TriggerRemove,
    TriggerResume,
    UpdateSend,
    WorkerAbout,
    WorkflowRegister,
    WorkflowSchemas,
)
from holdfast.kernel.dispatch.decision_records import Recording
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.kernel.pipelines.plan import Enough, RatePlan, RetryPolicy, RetryRule, StagePlan
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.kernel.topics.selections import channel_of, selection_text
from holdfast.kernel.topics.trigger_data import trigger_digest
from holdfast.ports.actors import Actor
from holdfast.ports.changes import DeleteJobs, Update
from holdfast.ports.json import parse
from holdfast.ports.queries.schedules import FindSchedule
from holdfast.ports.records.job import LOSSES_MIN
from holdfast.ports.records.run import GivenOptions
from holdfast.ports.records.schedule import ScheduleName
from holdfast.ports.records.trigger import TriggerName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from tests.unit.kernel.world import (
    LEASE,
    SECOND,
    World,
    child,
    completing,
    each,
    external,
    failed,
    payload,
    pipeline,
    settling,
    stage,
    when,
)

PLAN = pipeline(stage("a", attempts=2), each("m", over="a", limit=2), (stage("b"), stage("c")))


CHILD = pipeline(stage("a"), workflow="c")
GROWN = pipeline(
    when(stage("t"), stage("o")),
    external("e"),
    child("c"),
    each("p", enough=Enough(tolerated=1)),
    workflow="g",
)


def play() -> list[Recording]:
    """Play it, and return all decisions."""
    recordings: list[Recording] = []
    world = World(PLAN, recorder=recordings.append)
    _a_run_completes(world)
    _workers_die(world)
    _an_operator_steps_in(world)
    _a_worker_takes_what_comes_next(world)
    _a_run_is_paused(world)
    _events_go_to_a_sink(world)
    _a_run_is_run_again(world)
    _a_run_is_spoken_of(world)
    _a_body_is_silent(recordings)
    _runs_wait_for_their_turn(recordings)
    _starts_are_gathered(recordings)
    _work_is_done_elsewhere(World(GROWN, CHILD, recorder=recordings.append))
    _a_function_is_driven(recordings)
    _steps_are_in_queues(recordings)
    _schedules_fire(recordings)
    _limits_change(recordings)
    _keys_are_created_and_revoked(recordings)
    _browsers_sign_in(World(recorder=recordings.append))
    _a_namespace_has_quotas(World(PLAN, recorder=recordings.append))
    _a_worker_registers(World(PLAN, recorder=recordings.append))
    _workflows_are_registered(World(PLAN, recorder=recordings.append))
    _a_topic_is_delivered(recordings)
    _triggers_fire(World(PLAN, recorder=recordings.append))
    _headers_reach_a_child_run(recordings)
    return recordings


def _headers_reach_a_child_run(recordings: list[Recording]) -> None:
    world = World(
        pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f"),
        CHILD,
        recorder=recordings.append,
    )
    world.do(RunCreate(workflow="f", id="f", input=payload(1), headers='{"traceparent":"00-1"}'))
    (driven,) = world.claim(world.open())
    options = GivenOptions(headers='{"locale":"de","traceparent":"00-1"}')
    child = ChildRunStarted(run_id="f/1", workflow="c", version="1", input=payload(2), options=options)
    inherits = attrs.evolve(child, run_id="f/2", options=GivenOptions())
    records = (ChildStart(call="1", child=child), ChildStart(call="2", child=inherits))
    world.do(JobRecord(job=driven.job, epoch=driven.epoch, seen=1, records=records))


def _a_topic_is_delivered(recordings: list[Recording]) -> None:
    world = World(
        pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f"),
        recorder=recordings.append,
    )
    message = NewTopicMessage(topic="orders", payload='{"country":"nz"}', attributes='{"country":"nz"}')
    world.create("s", workflow="f")
    world.create("t", workflow="f")
    runs: tuple[tuple[str, dict[str, str]], ...] = (("s", {}), ("t", {"country": "nz"}))
    for driven, (name, selected) in zip(world.claim(world.open()), runs, strict=True):
        channel = channel_of("orders", selected)
        records = (
            TopicSubscribe(call="1", topic="orders", channel=channel, selection=selection_text(selected)),
            TopicSend(call="2", message=message, id=name),
            TopicUnsubscribe(call="3", topic="orders", channel="topic:other"),
        )
        world.do(JobRecord(job=driven.job, epoch=driven.epoch, seen=1, records=records))
        world.settle(driven, FunctionWaiting(seen=4))
    world.do(TopicPublish(message=message, id="s"))
    world.do(TopicPublish(message=message))
    deliver = TopicDeliver(topic="orders", limit=3)
    while world.do(deliver).more:
        pass
    world.do(TopicDeliver())


def _triggers_fire(world: World) -> None:
    message = NewTopicMessage(topic="orders", payload='{"n":1}', attributes='{"country":"nz"}')
    start = RunCreate(workflow="w", input=Payload(inline="null"), queue="q")
    put = TriggerPut(trigger="ship", topic="orders", selection='{"country":"nz"}', start=start)
    world.do(put)
    for name in ("a", "b", "c"):
        world.do(TopicPublish(message=message, id=name))
    world.do(TopicDeliver(topic="orders"))
    run = attrs.evolve(start, input=payload({"n": 1}), id="ship/orders/1", if_exists="return")
    digest = _digest_of_trigger(world)
    fire = TriggerFire(trigger="ship", expected=1, digest=digest, number=1, next=2, start=run)
    world.do(fire)
    world.do(fire)
    world.do(TriggerFire(trigger="ship", expected=2, digest=digest, number=2, next=3, refused="a wrong type"))
    world.do(TriggerPause(trigger="ship", reason="for a while"))
    world.do(TriggerResume(trigger="ship", skip=True))
    world.do(TriggerFire(trigger="ship", expected=4, digest=digest, next=5))
    world.do(TriggerFire(trigger="ship", expected=4, digest=_digest_of_trigger(world), next=5))
    world.do(attrs.evolve(put, since=0))
    world.do(TriggerRemove(trigger="ship"))
    world.do(TopicRemove(topic="orders", limit=2))
    world.do(TopicRemove(topic="orders"))


def _digest_of_trigger(world: World) -> str:
    return trigger_digest(world.tables().triggers[TriggerName("default", "ship")])


def _workflows_are_registered(world: World) -> None:
    row = WorkflowSchemas(workflow="w", version=PLAN.version, schemas='{"input":{}}')
    world.do(WorkflowRegister(namespace="team", workflows=(row,)))
    world.do(WorkflowRegister(namespace="team", workflows=(attrs.evolve(row, schemas="{}"),)))


def _a_namespace_has_quotas(world: World) -> None:
    world.do(NamespaceCreate(namespace="team", note="ours", max_active_runs=2, max_starts_per_minute=9))
    world.do(RunCreate(namespace="team", workflow="w", id="n", input=payload(1)))
    world.do(NamespaceDelete(namespace="other"))


def _a_worker_registers(world: World) -> None:
    about = WorkerAbout(
        name="mail", versions=("holdfast 1",), queues=(ServedQueue(name="q", limit=2),), definitions=("w@1",)
    )
    opened = world.do(SessionOpen(host="h", lease=LEASE, about=about, principal="key:a"))
    changed = attrs.evolve(about, definitions=("w@1", "step:s"))
    world.do(SessionRenew(session=opened.session, lease=LEASE, about=changed))


def _a_run_completes(world: World) -> None:
    create = RunCreate(workflow="w", id="x", input=payload({"n": 1}), priority=1, idempotency_key="once")
    world.do(create)
    session = world.open()
    world.do(LeaderAcquire(name="maintenance", session=session, lease=LEASE))
    first = world.claim_one(session)
    said = (AttemptOutput(kind="log", at=world.now, data='"hello"'),)
    world.do(
        JobHeartbeat(
            attempts=(
                AttemptReport(job=first.job, epoch=1, outputs=said),
                AttemptReport(job="gone.1", epoch=1),
            )
        )
    )
    world.release(first, delay=SECOND)
    world.wait(1)
    world.wake_due()
    world.do(SessionRenew(session=session, lease=LEASE))
    claim = JobClaimOne(session=session, job=first.job, epoch=1, definitions=("w@1",))
    attempt = world.do(claim).attempt
    assert attempt is not None
    world.fail(attempt)
    attempt = world.claim_one(session)
    world.do(attrs.evolve(completing(attempt, [1, 2, 3]), started_at=world.now, host="here", outputs=said))
    world.settle(world.claim_one(session), MapExpanded(items=(payload(1), Payload(blob="k"), payload(3))))
    while attempts := world.claim(session):
        world.send(*(settling(one, Completed(output=payload([one.node, one.item]))) for one in attempts))
    assert world.run("x").status == "completed"
    world.complete(attempt)


def _workers_die(world: World) -> None:
    world.create("y")
    for _ in range(LOSSES_MIN - 1):
        world.claim_one(world.open())
        world.lose()
    session = world.open()
    world.claim_one(session)
    world.do(SessionClose(session=session))
    world.lose()
    assert world.run("y").status == "failed"
    world.create("z")
    world.settle(world.claim_one(world.open()), failed(retryable=False))


def _an_operator_steps_in(world: World) -> None:
    world.create("p")
    world.create("q")
    world.put(DeleteJobs(world.run("p").key), Update(attrs.evolve(world.run("q"), open_jobs=3)))
    world.do(RunRepair())
    world.do(RunTransition(run_id="p"))
    world.do(RunCancel(run_id="p", reason="enough"))
    world.do(RunTerminate(run_id="q", reason="enough"))
    world.do(RunTransition(run_id="q"))


def _a_worker_takes_what_comes_next(world: World) -> None:
    world.create("t")
    session = world.open()
    settle = attrs.evolve(completing(world.claim_one(session), [1]), take_next=session)
    expand = world.do(settle).next
    assert expand is not None
    item = world.do(attrs.evolve(settling(expand, MapExpanded(items=(payload(1),))), take_next=session)).next
    assert item is not None
    world.do(attrs.evolve(completing(item, 1), take_next=session))


def _a_body_is_silent(recordings: list[Recording]) -> None:
    patient = RetryPolicy(attempts=2, wait_us=SECOND, jitter=0.0)
    busy = RetryRule(error="Busy", policy=RetryPolicy(attempts=3, wait_us=5 * SECOND, jitter=0.0))
    watched = StagePlan(
        name="a",
        retry=patient,
        retry_rules=(busy,),
        timeout_total_us=3600 * SECOND,
        heartbeat_timeout_us=60 * SECOND,
    )
    world = World(pipeline(watched), recorder=recordings.append)
    world.create("s")
    session = world.open(lease=7200 * SECOND)
    attempt = world.claim_one(session)
    said = AttemptOutput(kind="heartbeat", at=world.now, data='{"page":7}')
    world.wait(50)
    world.do(JobHeartbeat(attempts=(AttemptReport(job=attempt.job, epoch=1, outputs=(said,)),)))
    world.wait(70)
    world.do(JobReapUnresponsive(grace=SECOND))
    world.wait(1)
    world.wake_due()
    world.settle(
        world.claim_one(session), Failed(failure=Failure(code="busy", message="later", rule=0, retry_after=9))
    )


def _a_run_is_paused(world: World) -> None:
    world.create("h")
    world.do(RunPause(run_id="h", reason="wait"))
    world.do(RunResume(run_id="h"))


def _events_go_to_a_sink(world: World) -> None:
    world.do(SinkRegister(sink="s", since=0, types=("run.*",)))
    began = world.now
    swept = world.do(OutboxSweep(sinks=("s",), began=began, limit=2))
    while swept.next is not None:
        swept = world.do(OutboxSweep(sinks=("s",), began=began, after=swept.next))
    for _ in range(6):
        leased = world.do(OutboxFlush(sink="s", lease=LEASE))
        first, *rest = leased.streams
        refused = StreamFailure(
            run=first.run, delivered=first.after, number=first.after + 1, error="no", final=True
        )
        settle = OutboxSettle(
            sink="s", registration=leased.registration, holder=leased.holder, refused=(refused,)
        )
        delivered = tuple(StreamProgress(run=one.run, number=one.head_row) for one in rest[1:])
        untouched = tuple(one.run for one in rest[:1])
        world.do(attrs.evolve(settle, delivered=delivered, untouched=untouched, took=bool(delivered)))
        world.wait(120)
    world.do(DeadLetterReplay(sink="s", skip=True, reason="odd"))
    batch = world.do(OutboxRead(sink="s", limit=2))
    world.do(OutboxRead(sink="s", registration=batch.registration, acknowledged=batch.number))
    world.do(SinkRemove(sink="s"))


def _a_run_is_run_again(world: World) -> None:
    world.create("r")
    session = world.open()
    world.do(RunCancel(run_id="h"))
    while attempts := [one for one in world.claim(session) if one.node != "c"]:
        for one in attempts:
            world.settle(one, MapExpanded(items=(payload(1),)) if one.kind == "expand_map" else _gave(one))
    world.do(RunRerunFrom(run_id="r", stage="c", reason="a bug"))
    world.do(RunRerunFrom(run_id="r", generation=1))


def _a_function_is_driven(recordings: list[Recording]) -> None:
    world = World(
        pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f"),
        recorder=recordings.append,
    )
    world.create("f", workflow="f")
    session = world.open()
    driven = world.claim_one(session)
    rows = (
        EventAppend(
            event=events.StepCompleted(call="1", step="charge", attempt=1, host="here", site="a.py:1"),
            payload=payload(3),
        ),
        EventAppend(
            event=events.StepFailed(
                call="2",
                step="pack",
                attempt=3,
                host="here",
                error=events.RecordedError(type="E", message="no", code="body_error"),
            )
        ),
        TimerFire(call="3", due=world.now),
        TimerFire(call="4", due=world.now + SECOND),
    )
    record = JobRecord(
        job=driven.job,
        epoch=driven.epoch,
        seen=1,
        records=rows,
    )
    world.do(record)
    world.do(attrs.evolve(record, epoch=9))
    parked = FunctionWaiting(seen=4, wake_at=world.now + SECOND)
    world.settle(driven, parked)
    world.wait(1)
    world.wake_due()
    failure = Failure(code="nondeterminism", message="it asks for something else")
    world.settle(world.claim_one(session), Blocked(failure=failure))
    world.do(RunResume(run_id="f"))
    again = world.claim_one(session)
    world.settle(again, FunctionWaiting(seen=7))
    world.do(RunSignal(run_id="f", signal=ChannelMessage(channel="c", payload=payload("go"))))
    world.complete(world.claim_one(session), 5)
    _a_function_is_asked(world, session)
    world.create("g", workflow="f")
    told_to_end = world.claim_one(session)
    world.settle(told_to_end, FunctionWaiting(seen=1))
    world.do(RunCancel(run_id="g", reason="too late"))
    world.settle(world.claim_one(session), Cancelled())
    world.create("h", workflow="f")
    world.do(RunSignal(run_id="h", signal=ChannelMessage(channel="c", payload=payload("kept"))))
    goes_on = ContinuedAsNew(
        workflow="f",
        version="1",
        input=payload(2),
        seen=1,
    )
    world.settle(world.claim_one(session), goes_on)


def _a_function_is_asked(world: World, session: str) -> None:
    world.create("u", workflow="f")
    drive = world.claim_one(session)
    world.settle(drive, FunctionWaiting(seen=1))
    world.do(RunUpdate(run_id="u", update="Board.move_to", arguments=payload({"field": "e4"})))
    again = world.claim_one(session)
    answer = EventAppend(event=events.UpdateCompleted(call="update2"), payload=payload("a1"))
    world.do(JobRecord(job=again.job, epoch=again.epoch, seen=2, records=(answer,)))
    world.complete(again, 5)
    world.create("v", workflow="f")
    world.create("w", workflow="f")
    sender, receiver = world.claim(session)
    sent = UpdateSend(call="1", run_id="w", update="Board.move_to", arguments=payload({"field": "e4"}))
    world.do(JobRecord(job=sender.job, epoch=sender.epoch, seen=1, records=(sent,)))
    world.settle(sender, FunctionWaiting(seen=2))
    answers = JobRecord(job=receiver.job, epoch=receiver.epoch, seen=2, records=(answer,))
    world.do(answers)
    world.deliver()
    world.complete(receiver, 5)
    world.complete(world.claim_one(session), 5)


def _steps_are_in_queues(recordings: list[Recording]) -> None:
    """One gives something, one is tried again and lost, one is dropped; then the function is run again from a row."""
    world = World(
        pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f"),
        recorder=recordings.append,
    )
    world.create("q", workflow="f")
    driven = world.claim_one(world.open())
    record = JobRecord(job=driven.job, epoch=driven.epoch, seen=1, records=tuple(map(_queued, "123")))
    dropped = world.do(record).rows[-1]
    number = parse(dropped.data or "{}")["job"]
    out = StepCancel(call="3", job=number)
    world.do(attrs.evolve(record, seen=4, records=(out,)))
    world.settle(driven, FunctionWaiting(seen=5))
    lanes = (QueueClaim(queue="gpu", definitions=("step:embed",), limit=10),)
    first, second = world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=10)).attempts
    world.settle(first, QueuedStepCompleted(output=payload("vector")))
    error = '{"code":"body_error","message":"busy","type":"OSError"}'
    world.settle(second, QueuedStepFailed(error=error, retry=RetryPolicy(jitter=0.0)))
    world.wait(1)
    world.wake_due()
    world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=10))
    world.lose()
    world.do(RunSignal(run_id="q", signal=ChannelMessage(channel="c", payload=payload("told again"))))
    # Of the rows that it keeps, the last is that of a step which is in its queue.
    assert world.do(RunRerunFrom(run_id="q", row=4, reason="a bug")).row == 4
    assert world.run("q").kept_rows


def _queued(call: str) -> FunctionRecord:
    how = QueuedStepJob(queue="gpu", input=payload({"text": call}), attempts=3)
    return StepQueue(call=call, step="embed", site="a.py:3", queued=how)


def _gave(attempt: Attempt) -> Completed:
    return Completed(output=payload([attempt.node]))


def _a_run_is_spoken_of(world: World) -> None:
    said = (NewAnnotation(name="reviewed", value='"yes"'), NewAnnotation(name="score", value="0.5"))
    world.create("s")
    world.do(RunAnnotate(run_id="s", annotations=said[:1], key="once"))
    world.do(
        RunAnnotate(
            run_id="s",
            annotations=said,
            actor=Actor(kind="person", id="me", version="2"),
            reason="looks good",
            key="once",
            stage="m",
            item=0,
        )
    )


def _runs_wait_for_their_turn(recordings: list[Recording]) -> None:
    """One at a time, later, and only until then; and a stage of which one may be under way."""
    narrow = attrs.evolve(stage("n"), max_concurrency=1)
    world = World(pipeline(narrow, workflow="turns"), recorder=recordings.append)
    for name in ("first", "second"):
        world.do(
            RunCreate(
                workflow="turns",
                id=name,
                input=payload(1),
                concurrency_key="k",
                start_at=world.now + SECOND,
                deadline=60 * SECOND,
            )
        )
    world.wait(1)
    world.do(RunClaimPending())
    world.do(RunClaimPending(keys=("k",)))
    world.create("other", workflow="turns")
    world.do(JobAdmit())
    world.wait(60)
    world.do(RunExpire())
    world.do(
        RunCreate(workflow="turns", id="other", input=payload(2), if_active="terminate", if_ended="rerun")
    )


def _starts_are_gathered(recordings: list[Recording]) -> None:
    """Until the run is due, and until it is full."""
    gather = GatherPlan(within_us=10 * SECOND, quiet_us=2 * SECOND, most=3, keep="all", by="tenant")
    world = World(
        attrs.evolve(pipeline(stage("a"), workflow="batch"), gather=gather), recorder=recordings.append
    )
    for number in range(5):
        world.do(
            RunCreate(
                workflow="batch",
                input=payload([number]),
                items=1,
                attributes='{"tenant":"acme"}',
                idempotency_key=f"start {number}",
                deadline=60 * SECOND,
                actor=Actor(kind="user", id="ann"),
            )
        )
    world.wait(2)
    world.do(RunClaimPending(due=True))


def _work_is_done_elsewhere(world: World) -> None:
    world.create("g", workflow="g")
    session = world.open()
    world.settle(world.claim_one(session), ConditionEvaluated(passed=False))
    world.complete(world.claim_one(session))
    world.suspend(world.claim_one(session), give_up_in=999)
    world.wait(60)
    world.do(StagePollSuspended())
    world.settle(world.claim_one(session), PollNotReady())
    world.do(StageWake(key="key"))
    world.complete(world.claim_one(session), "done")
    world.start_child(world.claim_one(session), "g/c")
    world.complete(world.claim_one(session), [1, 2, 3])
    world.deliver()
    world.expand(world.claim_one(session), [1, 2, 3])
    for attempt in world.claim(session):
        if attempt.item == 1:
            world.fail(attempt, retryable=False)
        else:
            world.complete(attempt)
    assert world.run("g").status == "completed"
    world.deliver()
    assert world.do(RunRemove(run_id="g")).removed


def _schedules_fire(recordings: list[Recording]) -> None:
    """One of them in a time zone: its next time was computed with an older release of the database."""
    world = World(pipeline(stage("a", attempts=1), workflow="report"), recorder=recordings.append)

    def put(name: str, *specs: Spec, policy: SchedulePolicy, declared: str | None = None) -> None:
        start = RunCreate(workflow="report", input=payload({"of": name}), priority=1)
        command = SchedulePut(
            schedule=name, start=start, timing=timing_of(specs), policy=policy, declared=declared
        )
        world.do(attrs.evolve(command, if_exists="update", actor=Actor(kind="deploy", id="d-7")))

    hourly = Every(timedelta(hours=1))
    morning = Cron("30 2 * * *", zone="Europe/Paris")
    put("nightly", morning, hourly, policy=SchedulePolicy(missed=Missed.ALL, overlap=Overlap.ALLOW))
    put("newest", hourly, policy=SchedulePolicy(overlap=Overlap.TERMINATE, jitter=SECOND))
    put("single", hourly, policy=SchedulePolicy(pause_after_failures=1, runs_max=5), declared="v1")
    for hours in (1, 2):
        world.wait(3600 * hours)
        fired = world.do(ScheduleFire(workflows=("report",)))
        assert fired.runs
    put("nightly", morning, policy=SchedulePolicy(overlap=Overlap.QUEUE))
    world.do(ScheduleTrigger(schedule="nightly", actor=Actor(kind="user", id="ann")))
    world.do(SchedulePause(schedule="single", reason="holiday"))
    world.do(ScheduleResume(schedule="single", make_up=True))
    past = tuple(world.now // (3600 * SECOND) * 3600 * SECOND - 3600 * SECOND * ago for ago in (4, 3, 0))
    filled = world.do(ScheduleBackfill(schedule="newest", times=past))
    assert (len(filled.runs), filled.existing) == (2, 1)
    known = world.store.read(FindSchedule(ScheduleName("default", "nightly")))
    assert known is not None
    world.put(Update(attrs.evolve(known, zones="1999a", next_at=world.now)))
    assert world.do(ScheduleReplan(workflows=("report",), version="2999a")).moved == ("nightly",)
    world.do(ScheduleRemove(schedule="single", declared="v1"))


def _limits_change(recordings: list[Recording]) -> None:
    rate = RatePlan(limit=1, per_us=60 * SECOND, name="model")
    rated = attrs.evolve(stage("a"), rate=rate)
    world = World(pipeline(rated, workflow="limited"), recorder=recordings.append)
    for name in ("1", "2"):
        world.do(RunCreate(workflow="limited", id=name, input=payload(0)))
        world.do(JobAdmit())
    (claimed,) = world.claim(world.open())
    world.do(JobAdmit())
    ann = Actor(kind="user", id="ann")
    slower = LimitSet(
        name="rate:model", rate_limit=2, rate_period=60 * SECOND, reason="provider is slow", actor=ann
    )
    assert world.do(slower).follow_up.jobs
    world.do(LimitSet(name="queue:default", paused=True, actor=ann))
    world.complete(claimed)
    world.do(LimitClear(name="queue:default", reason="it is fast again", actor=ann))


def _keys_are_created_and_revoked(recordings: list[Recording]) -> None:
    world = World(recorder=recordings.append)
    hashes = [str(digit) * 64 for digit in range(2)]
    ann = Actor(kind="user", id="ann")
    create = CredentialCreate(
        id="b" * 12, label="ci", hash=hashes[0], scopes=("start", "read"), namespaces=("default",), actor=ann
    )
    assert world.do(create).created
    assert not world.do(create).created
    assert world.do(CredentialRotate(name="ci", hash=hashes[1], actor=ann)).previous_until > world.now
    assert world.do(CredentialTouch(ids=("b" * 12,))).touched == 1
    assert world.do(CredentialRevoke(name="ci", reason="it leaked", actor=ann)).revoked


def _browsers_sign_in(world: World) -> None:
    ann = Actor(kind="user", id="ann")
    first, second = (
        BrowserSessionCreate(
            id=digit * 12,
            hash=digit * 64,
            principal="ann",
            scopes=("read",),
            namespaces=("*",),
            idle=300 * SECOND,
            expires_at=world.now + 3_600 * SECOND,
            replaces=replaced,
            actor=ann,
        )
        for digit, replaced in (("2", None), ("3", "2" * 12))
    )
    world.do(first)
    assert world.do(second).deleted == 1
    world.wait(301)
    assert world.do(BrowserSessionTouch(ids=("3" * 12,))).touched == 0, "it was idle for too long"
    world.do(attrs.evolve(first, id="4" * 12, idle=600 * SECOND))
    world.wait(301)
    assert world.do(BrowserSessionTouch(ids=("4" * 12,))).touched == 1
    assert world.do(BrowserSessionDelete(principal="ann", actor=ann)).deleted == 2
