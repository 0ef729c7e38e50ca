"""job.execute: one job message, from claim to settle."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Command,
    FollowUp,
    JobExecute,
    JobExecuted,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunStopped,
    SessionClose,
)
from holdfast.kernel.dispatch.job_execution import UNKNOWN_CODE, UNKNOWN_CODE_DELAY, executed
from holdfast.ports.errors import InvalidCommandError, SessionLostError
from holdfast.ports.records.job import JobState
from tests.unit.kernel.world import (
    LEASE,
    SECOND,
    World,
    completing,
    failed,
    payload,
    pipeline,
    settling,
    stage,
)


@attrs.define
class Bodies:
    """An Executor whose bodies complete, fail, are unknown or refused, or lose their run meanwhile."""

    way: str = "completes"
    world: World | None = None
    ran: list[Attempt] = attrs.field(factory=list[Attempt])

    def definitions(self) -> tuple[str, ...]:
        return ("w@1",)

    def execute(self, attempt: Attempt, /) -> JobExecuted:
        self.ran.append(attempt)
        assert self.world is not None
        settle = completing(attempt)
        match self.way:
            case "fails":
                settle = settling(attempt, failed())
            case "is unknown":
                self.world.release(attempt, delay=UNKNOWN_CODE_DELAY)
                return UNKNOWN_CODE
            case "is refused":
                raise InvalidCommandError("no")
            case "is cancelled":
                self.world.do(RunCancel(run_id="x"))
            case _:
                pass
        became = executed(settle, self.world.do(settle))
        assert isinstance(became, JobExecuted)
        return became


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
def world(bodies: Bodies) -> World:
    bodies.world = World(pipeline(stage("a", attempts=2), stage("b")), executor=bodies)
    bodies.world.create()
    return bodies.world


def _message(world: World, session: str) -> JobExecute:
    (job,) = world.jobs()
    return JobExecute(session=session, job=job.key.text, epoch=job.epoch)


def test_a_message_runs_its_job_to_the_end(world: World, bodies: Bodies) -> None:
    message = _message(world, world.open())
    answer = world.do(message)

    assert answer == JobExecuted(status="completed")
    assert [(attempt.node, attempt.epoch) for attempt in bodies.ran] == [("a", 1)]
    assert [job.node for job in world.jobs()] == ["b"]


def test_what_can_follow_the_end_of_a_run_is_in_the_reply(bodies: Bodies) -> None:
    world = bodies.world = World(pipeline(stage("a")), executor=bodies)
    for name in ("x", "y"):
        world.do(RunCreate(workflow="w", id=name, input=payload(0), concurrency_key="k"))
    world.do(RunClaimPending(keys=("k",)))

    answer = world.do(_message(world, world.open()))
    assert answer == JobExecuted(status="completed", follow_up=FollowUp(runs=("k",)))


def test_a_message_that_comes_twice_runs_nothing_the_second_time(world: World, bodies: Bodies) -> None:
    message = _message(world, world.open())
    world.do(message)
    with world.unchanged():
        again = world.do(message)

    assert (again.status, again.reason, again.acknowledge) == ("ignored", "closed", True)
    assert len(bodies.ran) == 1


def test_a_body_that_fails_is_to_be_tried_again_and_then_no_more(world: World, bodies: Bodies) -> None:
    bodies.way = "fails"
    session = world.open()

    assert world.do(_message(world, session)).status == "retrying"
    assert world.do(_message(world, session)).status == "failed"
    assert world.run().status == "failed"


def test_a_body_whose_run_was_cancelled_meanwhile_is_fenced(world: World, bodies: Bodies) -> None:
    bodies.way = "is cancelled"

    assert world.do(_message(world, world.open())).status == "fenced"
    assert world.run().status == "cancelled"


def test_an_attempt_without_code_is_given_back(world: World, bodies: Bodies) -> None:
    bodies.way = "is unknown"
    answer = world.do(_message(world, world.open()))

    assert (answer.status, answer.reason, answer.acknowledge) == ("ignored", "unknown_code", False)
    (job,) = world.jobs()
    assert (job.state, job.attempts) == (JobState.SLEEPING, 0)
    assert job.wake_at == world.now + (answer.retry_after or 0)


@pytest.mark.parametrize(
    ("reason", "acknowledge"),
    [("leased", True), ("stale", True), ("not_due", False), ("unknown_code", False)],
)
def test_a_message_that_is_not_to_be_run_says_what_to_do_with_it(reason: str, *, acknowledge: bool) -> None:
    bodies = Bodies()
    world = World(pipeline(stage("a"), workflow="v" if reason == "unknown_code" else "w"), executor=bodies)
    world.create(workflow=world.plans[0].workflow)
    session = world.open()
    message = _message(world, session)
    if reason != "unknown_code":
        attempt = world.claim_one(session)
        if reason != "leased":
            world.release(attempt, delay=SECOND if reason == "not_due" else 0)
    with world.unchanged():
        answer = world.do(message)

    assert (answer.status, answer.reason, answer.acknowledge) == ("ignored", reason, acknowledge)
    assert (answer.retry_after is None) == acknowledge
    assert bodies.ran == []


def test_a_dead_session_runs_nothing(world: World, bodies: Bodies) -> None:
    session = world.open()
    message = _message(world, session)
    world.do(SessionClose(session=session))
    with world.unchanged():
        for command in (message, attrs.evolve(message, lease=SECOND)):
            with pytest.raises(SessionLostError):
                world.do(command)

    assert bodies.ran == []


def test_a_message_can_renew_its_session(world: World) -> None:
    session = world.open()
    world.wait(20)
    world.do(attrs.evolve(_message(world, session), lease=LEASE))

    assert world.tables().sessions[session].expires_at == world.now + LEASE


def test_a_kernel_without_executor_refuses(world: World) -> None:
    plain = World(*world.plans)
    plain.create()
    with plain.unchanged(), pytest.raises(InvalidCommandError, match="executor"):
        plain.do(_message(plain, "s"))


def test_a_message_takes_no_idempotency_key(world: World) -> None:
    message = attrs.evolve(_message(world, world.open()), idempotency_key="k")
    with world.unchanged(), pytest.raises(InvalidCommandError, match="idempotency"):
        world.do(message)


def test_a_settle_that_is_refused_is_the_answer_of_its_message_alone(world: World, bodies: Bodies) -> None:
    bodies.way = "is refused"
    answers = world.kernel.dispatch_many([_message(world, world.open()), RunCancel(run_id="x")])

    assert [type(answer) for answer in answers] == [InvalidCommandError, RunStopped]


def test_messages_among_other_commands_are_carried_out_in_their_turn(world: World) -> None:
    session = world.open()
    message = _message(world, session)
    commands: list[Command[object]] = [message, RunCancel(run_id="x"), message, RunCancel(run_id="nope")]
    done, cancelled, again, refused = world.kernel.dispatch_many(commands)

    assert done == JobExecuted(status="completed")
    assert getattr(cancelled, "changed", None) is True
    assert getattr(again, "reason", None) == "closed"
    assert getattr(refused, "code", None) == "run_not_found"
