"""Sessions hold leases; the reaper takes the leases of dead ones."""

import pytest

from holdfast.kernel.commands import (
    Attempt,
    AttemptReport,
    Command,
    JobClaim,
    JobClaimOne,
    JobHeartbeat,
    JobRelease,
    LeaseReapStale,
    LeasesReaped,
    RunCancel,
    RunCreate,
    SessionClose,
    SessionReap,
    SessionRenew,
    SessionRenewed,
    combine_pass_over,
)
from holdfast.ports.errors import InvalidCommandError, SessionLostError
from holdfast.ports.json import parse
from holdfast.ports.records.job import JobState, PassOver
from holdfast.ports.records.session import SessionState
from tests.unit.kernel.world import LEASE, SECOND, World, completing, each, field, payload, pipeline, stage

HOUR = 3_600 * SECOND


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def _session(world: World, id: str) -> tuple[SessionState, int]:
    session = world.tables().sessions[id]
    return session.state, session.expires_at


# Lives ----------------------------------------------------------------------------------------------------------


def test_a_session_is_opened_under_a_fresh_id(world: World) -> None:
    first, second = world.open(host="me"), world.open(host="me")

    assert first != second
    session = world.tables().sessions[first]
    assert (session.host, session.state) == ("me", SessionState.OPEN)
    assert (session.opened_at, session.expires_at) == (world.now, world.now + LEASE)


def test_a_renewal_moves_the_end_of_a_session(world: World) -> None:
    session = world.open()
    world.wait(20)

    assert world.do(SessionRenew(session=session, lease=LEASE)) == SessionRenewed(
        expires_at=world.now + LEASE
    )
    assert _session(world, session) == (SessionState.OPEN, world.now + LEASE)


def test_a_renewal_never_moves_it_back(world: World) -> None:
    session = world.open()

    assert world.do(SessionRenew(session=session, lease=1)).expires_at == world.now + LEASE
    assert _session(world, session) == (SessionState.OPEN, world.now + LEASE)


def test_a_session_that_expired_can_be_renewed_until_it_is_reaped(world: World) -> None:
    session = world.open()
    world.wait(3600)
    world.do(SessionRenew(session=session, lease=LEASE))

    assert world.do(SessionReap(grace=0)).sessions == 0


@pytest.mark.parametrize("end", ["reaped", "closed", "unknown"])
def test_a_dead_session_is_never_renewed(world: World, end: str) -> None:
    session = world.open()
    if end == "closed":
        assert world.do(SessionClose(session=session)).expires_at == world.now
    world.wait(3600)
    if end == "reaped":
        world.do(SessionReap(grace=0))
    unfit = "unknown" if end == "unknown" else session

    dead: list[Command[object]] = [SessionRenew(session=unfit, lease=LEASE), SessionClose(session=unfit)]
    with world.unchanged():
        for command in dead:
            with pytest.raises(SessionLostError) as caught:
                world.do(command)
            assert caught.value.session == unfit


# Reaping sessions -----------------------------------------------------------------------------------------------


def test_a_session_is_reaped_only_after_its_end_and_the_grace(world: World) -> None:
    session = world.open()
    world.wait(LEASE / SECOND + 10)
    with world.unchanged():
        assert world.do(SessionReap(grace=10 * SECOND)) == LeasesReaped(sessions=0, freed=0, dead=0)
    world.wait(0.000001)

    assert world.do(SessionReap(grace=10 * SECOND)).sessions == 1
    assert world.do(SessionReap(grace=10 * SECOND)).sessions == 0
    assert _session(world, session)[0] is SessionState.DEAD


def test_reaping_a_session_does_not_touch_its_jobs(world: World) -> None:
    """The death is stored first; after that no claim or renewal can succeed."""
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.wait(3600)
    world.do(SessionReap(grace=0))

    assert (world.job(attempt).state, world.job(attempt).session) == (JobState.LEASED, session)
    assert world.complete(attempt).status == "settled"


def test_no_more_sessions_are_reaped_than_asked(world: World) -> None:
    for _ in range(5):
        world.open()
    world.wait(3600)

    assert [world.do(SessionReap(grace=0, limit=2)).sessions for _ in range(4)] == [2, 2, 1, 0]


def test_a_renewal_and_a_reap_in_one_batch_go_in_order(world: World) -> None:
    kept, lost = world.open(), world.open()
    world.wait(3600)
    renewed, reaped, refused = world.send(
        SessionRenew(session=kept, lease=LEASE), SessionReap(grace=0), SessionRenew(session=lost, lease=LEASE)
    )

    assert field(reaped, "sessions") == 1
    assert isinstance(renewed, SessionRenewed)
    assert isinstance(refused, SessionLostError)
    assert _session(world, kept)[0] is SessionState.OPEN


@pytest.mark.parametrize(
    "command",
    [SessionReap(grace=-1), SessionReap(grace=0, limit=-1), LeaseReapStale(limit=-1)],
    ids=repr,
)
def test_what_would_reap_the_living_is_refused(world: World, command: Command[object]) -> None:
    world.open()
    with world.unchanged(), pytest.raises(InvalidCommandError, match="negative"):
        world.do(command)


# Reaping leases -------------------------------------------------------------------------------------------------


def test_the_jobs_of_a_dead_session_are_free_again_and_the_loss_counts(world: World) -> None:
    world.create()
    lost = world.claim_one(world.open())
    world.wait(5)
    reaped = world.lose()

    assert reaped == LeasesReaped(sessions=0, freed=1, dead=0)
    job = world.job(lost)
    assert (job.state, job.session, job.leased_at, job.wake_at) == (JobState.QUEUED, None, None, None)
    assert (job.attempts, job.epoch) == (1, 1)
    row = world.history()[-1]
    assert (row.type, row.node, row.epoch) == ("stage.lost", "a", 1)
    assert parse(row.data or "") == {"attempt": 1, "lost_attempts": 1}
    again = world.claim_one(world.open())
    assert (again.epoch, again.attempt) == (2, 2)
    with world.unchanged():
        assert world.complete(lost).status == "fenced"


def test_a_closed_session_leaves_its_jobs_to_others_at_once(world: World) -> None:
    world.create()
    session = world.open()
    world.claim_one(session)
    world.do(SessionClose(session=session))

    assert world.do(LeaseReapStale()).freed == 1
    assert world.claim_one(world.open()).attempt == 2


def test_the_living_keep_what_they_hold(world: World) -> None:
    for name in "xyz":
        world.create(name)
    dead, living = world.open(), world.open(lease=365 * 24 * HOUR)
    lost = world.claim(dead, limit=2)
    kept = world.claim_one(living)
    assert world.lose().freed == 2

    assert world.job(kept).session == living
    assert {world.job(one).state for one in lost} == {JobState.QUEUED}
    assert world.complete(kept).status == "settled"


def test_what_is_settled_released_or_ended_before_the_reap_is_left_alone(world: World) -> None:
    for name in "xyz":
        world.create(name)
    first, second, _ = world.claim(world.open())
    world.complete(first)
    world.release(second)
    world.do(RunCancel(run_id="z"))
    world.wait(3600)
    world.do(SessionReap(grace=0))

    with world.unchanged():
        assert world.do(LeaseReapStale()) == LeasesReaped(sessions=0, freed=0, dead=0)


def test_a_settle_before_the_reap_in_one_batch_is_respected(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.do(SessionClose(session=session))
    settled, reaped = world.send(completing(attempt), LeaseReapStale())

    assert field(settled, "status") == "settled"
    assert reaped == LeasesReaped(sessions=0, freed=0, dead=0)
    assert world.run().status == "completed"


def test_a_settle_after_the_reap_in_one_batch_is_fenced(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.do(SessionClose(session=session))
    reaped, settled = world.send(LeaseReapStale(), completing(attempt))

    assert field(reaped, "freed") == 1
    assert field(settled, "status") == "fenced"
    assert world.run().status == "running"


def test_two_reapers_free_a_job_once(world: World) -> None:
    world.create()
    session = world.open()
    world.claim_one(session)
    world.do(SessionClose(session=session))
    first, second = world.send(LeaseReapStale(), LeaseReapStale(limit=7))

    assert (field(first, "freed"), field(second, "freed")) == (1, 0)
    assert world.events().count("stage.lost") == 1


def test_no_more_jobs_are_freed_than_asked() -> None:
    world = World(pipeline(each("m")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(5))
    world.claim(session)
    world.do(SessionClose(session=session))

    assert [world.do(LeaseReapStale(limit=2)).freed for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(("attempts", "most"), [(1, 1), (2, 5), (3, 5), (6, 6)])
def test_a_job_that_kills_every_worker_is_given_up_once_it_was_lost_so_often(
    attempts: int, most: int
) -> None:
    """A job with one attempt is never started twice; any other is lost as a suspect, and more than once."""
    world = World(pipeline(stage("a", attempts=attempts)))
    world.create()
    deaths: list[LeasesReaped] = []
    starts: list[int] = []
    while claimed := world.claim(world.open()):
        starts.append(claimed[0].attempt)
        deaths.append(world.lose())

    assert starts == list(range(1, most + 1))
    assert [(one.freed, one.dead) for one in deaths] == [*[(1, 0)] * (most - 1), (0, 1)]
    assert world.run().status == "failed"
    error = parse(world.run().error or "")
    assert (error["code"], error["stage"], error["attempt"]) == ("worker_lost", "a", most)
    assert (
        f"{most} attempts in all, the last {most - 2} without another quarantined job" in error["message"]
    ) is (most > 1)
    lost = ["stage.lost"] * (most - 1)
    assert world.events() == ["run.created", *lost, "stage.failed", "run.failed"]


def test_losses_use_up_no_attempt(world: World) -> None:
    """A node lost three times keeps three attempts for errors of the body itself."""
    world.create()
    for _ in range(3):
        world.claim_one(world.open())
        assert world.lose().dead == 0
    for attempt in (4, 5):
        again = world.claim_one(world.open())
        assert (again.attempt, again.max_attempts, again.lost_attempts) == (attempt, 3, 3)
        assert world.fail(again).retry_at is not None
        world.wait(3600)
        world.wake_due()
    world.fail(world.claim_one(world.open()))

    kinds = ["stage.lost"] * 3 + ["stage.retrying"] * 2
    assert world.events() == ["run.created", *kinds, "stage.failed", "run.failed"]


def test_failures_leave_as_many_losses_as_there_were(world: World) -> None:
    """A job that failed once becomes a suspect after as many losses as one that did not."""
    world.create()
    world.fail(world.claim_one(world.open()))
    world.wait(3600)
    world.wake_due()
    for losses in (1, 2, 3, 4):
        world.claim_one(world.open())
        assert world.lose().dead == 0
        assert (world.jobs()[0].lost_attempts, world.jobs()[0].is_suspect) == (losses, losses >= 2)
    world.claim_one(world.open())

    assert world.lose().dead == 1


def test_poison_in_one_run_does_no_harm_to_another_of_the_same_session() -> None:
    world = World(pipeline(each("m", attempts=1)))
    world.create("x")
    world.create("y")
    session = world.open()
    for expand in world.claim(session):
        world.expand(expand, range(3))
    for attempt in world.claim(session):
        if attempt.run == world.run("y").key:
            world.complete(attempt)
    world.do(SessionClose(session=session))
    reaped = world.do(LeaseReapStale())

    assert reaped.dead == 1
    assert (world.run("x").status, world.run("y").status) == ("failed", "completed")
    assert world.jobs("x") == []


def test_a_heartbeat_tells_what_was_reaped(world: World) -> None:
    world.create("x")
    lost = world.claim_one(world.open())
    world.lose()
    world.claim_one(world.open())

    with world.unchanged():
        assert world.do(JobHeartbeat(attempts=(AttemptReport(job=lost.job, epoch=lost.epoch),))).lost == (
            lost.job,
        )


def test_a_session_opened_by_the_same_host_is_another(world: World) -> None:
    """A restarted process does not get its former jobs back."""
    world.create()
    old = world.open(host="me")
    attempt = world.claim_one(old)
    world.do(SessionClose(session=old))
    new = world.open(host="me")
    claim = JobClaim(session=new, queue_claims=world.lanes(), limit=1)

    assert world.do(claim).attempts == ()
    assert world.job(attempt).session == old


# Jobs that kill ---------------------------------------------------------------------------------------------------


def _suspects(world: World, number: int) -> None:
    """Runs whose only job was lost with two workers."""
    for place in range(number):
        world.create(f"r{place}")
    for _ in range(2):
        world.claim(world.open())
        world.lose()
    assert [job.is_suspect for job in world.tables().all_jobs()] == [True] * number


def test_a_claim_takes_one_suspect_at_most(world: World) -> None:
    _suspects(world, 3)
    world.create("good")
    session = world.open()
    taken = world.claim(session)

    assert [attempt.is_suspect for attempt in taken] == [True, False]
    assert taken[0].lost_attempts == 2


def _lost_once(world: World, *runs: str) -> None:
    """Runs whose only job was lost with one worker."""
    for run in runs:
        world.create(run)
    claim = JobClaim(session=world.open(), queue_claims=world.lanes(), limit=1_000, pass_over=PassOver.LOST)
    world.do(claim)
    world.lose()


def _names(world: World, attempts: tuple[Attempt, ...]) -> list[str]:
    """Return the runs of these attempts, in order."""
    names = {run.key: run.id for run in world.tables().runs.values()}
    return [names[attempt.run] for attempt in attempts]


def test_a_suspect_that_is_found_first_is_claimed_without_any_other_job_that_was_lost(world: World) -> None:
    _suspects(world, 2)
    _lost_once(world, "lost")
    world.create("good")

    assert _names(world, world.claim(world.open())) == ["r0", "good"]


def test_a_lost_job_that_is_found_first_is_claimed_with_others_but_without_suspects(world: World) -> None:
    _suspects(world, 2)
    for run in ("lost-1", "lost-2"):
        world.do(RunCreate(workflow="w", id=run, input=payload(0), priority=32_000))
    _lost_once(world)
    world.create("good")

    assert _names(world, world.claim(world.open())) == ["lost-1", "lost-2", "good"]


@pytest.mark.parametrize(
    ("pass_over", "claimed"),
    [(PassOver.SUSPECTS, ["lost", "good"]), (PassOver.LOST, ["good"])],
)
def test_what_is_passed_over_takes_no_place(world: World, pass_over: PassOver, claimed: list[str]) -> None:
    _suspects(world, 2)
    _lost_once(world, "lost")
    world.create("good")
    session, lanes = world.open(), world.lanes(limit=len(claimed))
    claim = JobClaim(session=session, queue_claims=lanes, limit=len(claimed), pass_over=pass_over)

    assert _names(world, world.do(claim).attempts) == claimed
    assert world.do(claim).attempts == ()
    assert len(world.claim(world.open())) == 1


def test_what_a_session_holds_says_what_it_passes_over(world: World) -> None:
    _suspects(world, 1)
    _lost_once(world, "lost")
    world.create("good")
    suspect, good = world.claim(world.open())
    lost = world.claim_one(world.open())

    assert combine_pass_over(()) is PassOver.NOTHING
    assert combine_pass_over((good,)) is PassOver.NOTHING
    assert combine_pass_over((good, lost)) is PassOver.SUSPECTS
    assert combine_pass_over((lost, good, suspect)) is PassOver.LOST


def test_a_job_that_was_lost_once_is_no_suspect(world: World) -> None:
    world.create()
    world.claim_one(world.open())
    world.lose()

    assert (world.jobs()[0].lost_attempts, world.jobs()[0].is_suspect) == (1, False)


def test_a_suspect_that_fails_stays_one(world: World) -> None:
    """Its worker survived this time; an intermittent killer must be found all the same."""
    _suspects(world, 1)
    world.fail(world.claim_one(world.open()))

    (job,) = world.jobs("r0")
    assert (job.attempts, job.lost_attempts, job.is_suspect) == (3, 2, True)


# Messages name their jobs ----------------------------------------------------------------------------------------


def _named(
    world: World, session: str, *runs: str, pass_over: PassOver = PassOver.NOTHING
) -> list[Command[object]]:
    jobs = [world.jobs(run)[0] for run in runs]
    return [
        JobClaimOne(
            session=session, job=job.key.text, epoch=job.epoch, definitions=("w@1",), pass_over=pass_over
        )
        for job in jobs
    ]


def test_of_the_messages_of_one_batch_a_suspect_goes_with_none_that_was_lost(world: World) -> None:
    _suspects(world, 2)
    _lost_once(world, "lost")
    world.create("good")
    answers = world.send(*_named(world, world.open(), "r0", "good", "r1", "lost"))

    assert [field(one, "ignored") for one in answers] == [None, None, "suspect", "suspect"]
    assert [field(one, "retry_after") for one in answers[2:]] == [5_000_000, 5_000_000]


def test_of_the_messages_of_one_batch_those_that_were_lost_once_go_together(world: World) -> None:
    _suspects(world, 1)
    for run in ("lost-1", "lost-2"):
        world.create(run)
    _lost_once(world)
    answers = world.send(*_named(world, world.open(), "lost-1", "r0", "lost-2"))

    assert [field(one, "ignored") for one in answers] == [None, "suspect", None]


@pytest.mark.parametrize(
    ("pass_over", "ignored"),
    [
        (PassOver.NOTHING, [None, None, None]),
        (PassOver.SUSPECTS, ["suspect", None, None]),
        (PassOver.LOST, ["suspect", "suspect", None]),
    ],
)
def test_a_message_is_given_back_whose_job_may_not_run_beside_what_the_process_holds(
    world: World, pass_over: PassOver, ignored: list[str | None]
) -> None:
    _suspects(world, 1)
    _lost_once(world, "lost")
    world.create("good")
    answers = [
        world.do(command)
        for run in ("r0", "lost", "good")
        for command in _named(world, world.open(), run, pass_over=pass_over)
    ]

    assert [field(one, "ignored") for one in answers] == ignored


def test_a_suspect_that_is_given_back_stays_one(world: World) -> None:
    _suspects(world, 1)
    attempt = world.claim_one(world.open())
    world.release(attempt)

    assert world.job(attempt).is_suspect


def test_neighbours_of_a_job_that_kills_do_not_die_with_it(world: World) -> None:
    """Otherwise a worker with ten jobs would use up the attempts of nine innocent ones."""
    for place in range(10):
        world.create(f"r{place}")
    poison = world.run("r4").key
    deaths = 0
    while attempts := world.claim(session := world.open()):
        if any(attempt.run == poison for attempt in attempts):
            deaths += 1
            world.lose()
        else:
            world.send(*map(completing, attempts))
            world.do(SessionClose(session=session))

    assert deaths == 5
    statuses = {place: world.run(f"r{place}").status for place in range(10)}
    assert statuses.pop(4) == "failed"
    assert set(statuses.values()) == {"completed"}


@pytest.mark.parametrize("concurrency", [2, 3, 100])
@pytest.mark.parametrize("poison_first", [False, True])
def test_neighbours_with_fewer_attempts_than_a_job_that_kills_do_not_die_with_it(
    concurrency: int, poison_first: bool
) -> None:
    """Running beside it repeatedly would lose them too often."""
    world = World(pipeline(stage("a", attempts=2)), pipeline(stage("a", attempts=7), workflow="poison"))
    for run in ("p", "n0", "n1", "n2", "n3") if poison_first else ("n0", "n1", "n2", "n3", "p"):
        world.create(run, workflow="poison" if run == "p" else "w")
    starts: list[int] = []
    while any(world.tables().all_jobs()):
        session, held = world.open(), list[Attempt]()
        while True:
            claim = JobClaim(
                session=session,
                queue_claims=world.lanes(),
                limit=concurrency - len(held),
                pass_over=combine_pass_over(held),
            )
            attempts = world.do(claim).attempts
            held += attempts
            if not attempts:
                break
        killers = [attempt.attempt for attempt in held if attempt.definition == "poison@1"]
        starts += killers
        if killers:
            world.lose()
        else:
            world.send(*map(completing, held))
            world.do(SessionClose(session=session))

    assert starts == [1, 2, 3, 4, 5, 6, 7]
    assert world.run("p").status == "failed"
    assert {world.run(f"n{place}").status for place in range(4)} == {"completed"}


def test_a_job_that_found_a_living_holder_before_the_reap_in_one_batch_is_left_to_it(world: World) -> None:
    """The reaper finds jobs of dead sessions without locks: other sessions may lease them first."""
    world.create()
    session, living = world.open(), world.open()
    attempt = world.claim_one(session)
    world.do(SessionClose(session=session))
    commands: list[Command[object]] = [
        JobRelease(job=attempt.job, epoch=1),
        JobClaimOne(session=living, job=attempt.job, epoch=1, definitions=("w@1",)),
        LeaseReapStale(),
    ]
    *_, reaped = world.send(*commands)

    assert reaped == LeasesReaped(sessions=0, freed=0, dead=0)
    assert (world.job(attempt).session, world.job(attempt).epoch) == (living, 2)
