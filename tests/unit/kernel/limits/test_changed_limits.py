"""Limits that are changed while running, and queues that are paused: they hold at once, also for what waits."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    FollowUp,
    JobAdmit,
    JobClaimed,
    JobClaimOne,
    LimitClear,
    LimitSet,
    LimitStored,
    RunClaimPending,
    RunCreate,
    SessionRenew,
    admissions,
    follow_up_of,
)
from holdfast.kernel.limits.limit_names import names_of_line, parsed_limit
from holdfast.kernel.pipelines.plan import RatePlan
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Update
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.job import JobState
from holdfast.ports.records.limits import LimitName, LimitRow, queue_limit
from holdfast.ports.records.run import RunStatus
from holdfast.ports.transport import JobHint
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, settling, stage
from tests.unit.kernel.world import failed as failing

ANN = Actor("user", "ann")
SLOTS = attrs.evolve(stage("a"), max_concurrency=1)
RATED = attrs.evolve(stage("a"), rate=RatePlan(limit=1, per_us=60 * SECOND))
SHARED = attrs.evolve(stage("a"), rate=RatePlan(limit=1, per_us=60 * SECOND, name="model", by="tenant"))


def put(world: World, name: str, **values: Any) -> LimitStored:
    """Set a limit, and do what follows from it, as hosts do."""
    return followed(world, world.do(LimitSet(name=name, actor=ANN, **values)))


def clear(world: World, name: str) -> LimitStored:
    return followed(world, world.do(LimitClear(name=name, actor=ANN)))


def followed(world: World, reply: LimitStored) -> LimitStored:
    admit(world, reply.follow_up)
    return reply


def admit(world: World, follow_up: FollowUp) -> None:
    while commands := admissions("default", follow_up):
        follow_up = follow_up_of(world.send(*commands))


def start(world: World, *ids: str, key: str | None = None, limit: int = 1, **attributes: str) -> None:
    for run in ids:
        command = RunCreate(
            workflow="w",
            id=run,
            input=payload(0),
            concurrency_key=key,
            concurrency_limit=limit,
            attributes=canonical(attributes),
        )
        admit(world, world.do(command).follow_up)


def states(world: World, *ids: str) -> list[str]:
    return [world.jobs(run)[0].state.value for run in ids]


# Slots.


def test_raising_the_slots_of_a_key_of_runs_admits_at_once_and_lowering_interrupts_nothing() -> None:
    world = World(pipeline(stage("a")))
    start(world, "1", "2", "3", "4", key="customer Ann")

    reply = put(world, "run:customer Ann", slots=3, reason="big import")
    assert (reply.changed, reply.follow_up) == (True, FollowUp(runs=("customer Ann",)))
    assert [world.run(run).status.value for run in "1234"] == ["running", "running", "running", "pending"]

    put(world, "run:customer Ann", slots=1)
    session = world.open()
    for attempt in world.claim(session)[:2]:
        admit(world, world.complete(attempt).follow_up)
    assert world.run("3").status is RunStatus.RUNNING
    assert world.run("4").status is RunStatus.PENDING, "one is under way, as many as may be"


def test_clearing_goes_back_to_the_plan() -> None:
    world = World(pipeline(SLOTS))
    put(world, "stage:w/a", slots=2)
    start(world, "1", "2", "3")
    assert states(world, "1", "2", "3") == ["queued", "queued", "limited"]

    assert clear(world, "stage:w/a").changed
    admit(world, world.complete(world.claim(world.open(), limit=1)[0]).follow_up)
    assert states(world, "2", "3") == ["queued", "limited"]
    assert not clear(world, "stage:w/a").changed


def test_no_slot_admits_nothing_more() -> None:
    world = World(pipeline(SLOTS))
    put(world, "stage:w/a", slots=0)
    start(world, "1")
    assert states(world, "1") == ["limited"]
    assert world.do(JobAdmit()).admitted == 0

    put(world, "stage:w/a", slots=1)
    assert states(world, "1") == ["queued"]


def test_maintenance_admits_by_the_limit_that_is_set() -> None:
    world = World(pipeline(stage("a")))
    world.do(LimitSet(name="run:k", slots=2))
    for run in "123":
        world.do(RunCreate(workflow="w", id=run, input=payload(0), concurrency_key="k", concurrency_limit=1))
    assert world.do(RunClaimPending()).admitted == 2


def test_slots_are_not_added_to_a_stage_without_them() -> None:
    world = World(pipeline(RATED))
    put(world, "stage:w/a", slots=1)
    start(world, "1", "2")
    assert world.claim(world.open()) != ()
    assert states(world, "1") == ["leased"]


# Rates.


def test_raising_a_rate_wakes_what_sleeps_for_it() -> None:
    world = World(pipeline(RATED))
    start(world, "1", "2", "3", "4")
    session = world.open()
    assert len(world.claim(session)) == 1
    admit(world, FollowUp(jobs=("w/a",)))
    assert states(world, "2", "3", "4") == ["sleeping", "limited", "limited"]

    put(world, "stage:w/a", rate_limit=3, rate_period=60 * SECOND)

    assert states(world, "2", "3", "4") == ["queued", "queued", "sleeping"]
    assert len(world.claim(session)) == 2


def test_a_lowered_rate_holds_for_what_is_queued_already() -> None:
    world = World(pipeline(attrs.evolve(RATED, rate=RatePlan(limit=5, per_us=60 * SECOND))))
    start(world, "1", "2", "3")
    assert states(world, "1", "2", "3") == ["queued"] * 3

    put(world, "stage:w/a", rate_limit=2, rate_period=60 * SECOND)

    assert len(world.claim(world.open())) == 2
    assert states(world, "3") == ["limited"]


def test_a_named_rate_is_changed_for_all_texts_and_for_one() -> None:
    world = World(pipeline(SHARED))
    put(world, "rate:model", rate_limit=2, rate_period=60 * SECOND)
    put(world, "rate:model/acme", rate_limit=3, rate_period=60 * SECOND)
    start(world, *"1234", tenant="acme")
    start(world, *"5678", tenant="other")

    assert len(world.claim(world.open())) == 5
    assert world.run("1").status is RunStatus.RUNNING


def test_one_text_of_a_named_rate_wakes_its_own_line_only() -> None:
    world = World(pipeline(SHARED))
    start(world, "1", "2", tenant="acme")
    start(world, "3", "4", tenant="other")
    assert len(world.claim(world.open())) == 2
    admit(world, FollowUp(jobs=tuple({job.concurrency_key or "" for run in "24" for job in world.jobs(run)})))
    assert states(world, "2", "4") == ["sleeping", "sleeping"]

    put(world, "rate:model/acme", rate_limit=9, rate_period=60 * SECOND)

    assert states(world, "2", "4") == ["queued", "sleeping"]


def test_what_wakes_by_pages_says_so() -> None:
    world = World(pipeline(SHARED))
    for tenant in ("a", "b", "c"):
        start(world, f"{tenant}1", f"{tenant}2", tenant=tenant)
    world.claim(world.open())
    admit(
        world,
        FollowUp(jobs=tuple({job.concurrency_key or "" for run in "abc" for job in world.jobs(f"{run}2")})),
    )
    assert states(world, "a2", "b2", "c2") == ["sleeping"] * 3

    command = LimitSet(name="rate:model", rate_limit=5, rate_period=SECOND, limit=2)
    reply = followed(world, world.do(command))
    assert reply.next is not None
    reply = followed(world, world.do(attrs.evolve(command, after=reply.next)))

    assert states(world, "a2", "b2", "c2") == ["queued"] * 3
    assert not reply.changed


# Queues.


def test_nothing_is_claimed_from_a_paused_queue_and_its_jobs_go_on_afterwards() -> None:
    world = World(pipeline(stage("a")))
    start(world, "1", "2")
    session = world.open()
    (first,) = world.claim(session, limit=1)

    assert put(world, "queue:default", paused=True, reason="deploy").changed
    assert world.claim(session) == ()
    refused = world.do(claim_one(world, session, "2"))
    assert (refused.attempt, refused.ignored) == (None, "paused")
    assert refused.retry_after is not None
    world.complete(first)
    assert world.run("1").status is RunStatus.COMPLETED, "what runs goes on"

    world.heard.hints.clear()
    assert put(world, "queue:default", paused=False).changed
    assert world.heard.hints == [JobHint(job=world.jobs("2")[0].key.text, epoch=0, queue="default")]
    assert world.do(claim_one(world, session, "2")).attempt is not None


def claim_one(world: World, session: str, id: str) -> JobClaimOne:
    return JobClaimOne(session=session, job=world.jobs(id)[0].key.text, epoch=0, definitions=("w@1",))


def test_a_claim_with_the_renewal_of_its_session_sees_the_pause() -> None:
    world = World(pipeline(stage("a")))
    start(world, "1")
    session = world.open()
    put(world, "queue:default", paused=True)

    renew = SessionRenew(session=session, lease=30 * SECOND)
    _, claimed = world.send(renew, claim_one(world, session, "1"))

    assert isinstance(claimed, JobClaimed)
    assert (claimed.attempt, claimed.ignored) == (None, "paused")


def test_a_settle_takes_no_next_job_of_a_paused_queue() -> None:
    world = World(pipeline(stage("a"), stage("b")))
    start(world, "1")
    session = world.open()
    attempt = world.claim_one(session)
    put(world, "queue:default", paused=True)

    settled = world.do(attrs.evolve(completing(attempt, 5), take_next=session))

    assert settled.next is None
    assert states(world, "1") == ["queued"]
    clear(world, "queue:default")
    assert world.claim_one(session).node == "b"


def test_a_retry_in_a_paused_queue_waits() -> None:
    world = World(pipeline(stage("a")))
    start(world, "1")
    session = world.open()
    attempt = world.claim_one(session)
    put(world, "queue:default", paused=True)
    world.do(settling(attempt, failing()))
    world.wait(1)
    world.wake_due()
    assert world.claim(session) == ()
    assert states(world, "1") == ["queued"]


def test_other_queues_and_namespaces_are_not_paused() -> None:
    world = World(pipeline(stage("a")))
    start(world, "1")
    put(world, "queue:other", paused=True)
    world.do(LimitSet(name="queue:default", namespace="tenant", paused=True))
    assert len(world.claim(world.open())) == 1


def test_many_jobs_are_announced_by_pages() -> None:
    world = World(pipeline(stage("a")))
    start(world, *"12345")
    put(world, "queue:default", paused=True)
    world.heard.hints.clear()

    command = LimitSet(name="queue:default", paused=False, limit=2)
    replies = [world.do(command)]
    while (after := replies[-1].next) is not None:
        replies.append(world.do(attrs.evolve(command, after=after)))

    assert [reply.changed for reply in replies] == [True, False, False]
    assert len({hint.job for hint in world.heard.hints if isinstance(hint, JobHint)}) == 5


# Rows.


def test_a_row_keeps_who_set_it_and_why() -> None:
    world = World(pipeline(stage("a")))
    put(world, "stage:w/a", rate_limit=300, rate_period=60 * SECOND, reason="provider is slow")
    at = world.now
    row = world.tables().limits[LimitName("default", "stage:w/a")]
    assert (row.actor, row.reason, row.updated_at) == (ANN, "provider is slow", at)

    world.wait(5)
    assert put(world, "stage:w/a", slots=4).changed, "what is not given stays"
    row = world.tables().limits[LimitName("default", "stage:w/a")]
    assert (row.slots, row.rate_limit, row.updated_at) == (4, 300, world.now)

    world.wait(5)
    assert not put(world, "stage:w/a", slots=4).changed
    assert world.tables().limits[LimitName("default", "stage:w/a")] == row

    clear(world, "stage:w/a")
    row = world.tables().limits[LimitName("default", "stage:w/a")]
    assert (row.is_in_force, row.actor) == (False, ANN)


def test_an_unpaused_queue_is_not_in_force() -> None:
    row = LimitRow(namespace="n", name="queue:q", is_paused=1, updated_at=0)
    assert row.limit_name == queue_limit("n", "q")
    assert row.is_in_force
    assert not attrs.evolve(row, is_paused=0).is_in_force
    assert row.actor is None


# Names and values.


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("run:customer Ann", "run:customer Ann"),
        ("run:a/b:c", "run:a/b:c"),
        ("stage:books/translate", "stage:books/translate"),
        ("stage:books/translate/acme", "stage:books/translate/acme"),
        ("step:fetch", "step:fetch"),
        ("step:fetch/a/b", "step:fetch/a/b"),
        ("rate:model", "rate:model"),
        ("rate:model/", "rate:model/"),
        ("rate:model/#" + "0" * 64, "rate:model/#" + "0" * 64),
        ("queue:llm", "queue:llm"),
    ],
)
def test_names(name: str, stored: str) -> None:
    assert parsed_limit(name).name == stored


def test_a_long_text_is_named_by_its_hash() -> None:
    name = parsed_limit(f"rate:model/{'x' * 200}").name
    assert len(name) == len("rate:model/#") + 64
    assert parsed_limit(name).name == name


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("w/a", ["stage:w/a"]),
        ("w/a/acme", ["stage:w/a/acme", "stage:w/a"]),
        ("w/a/x/y", ["stage:w/a/x/y", "stage:w/a"]),
        ("step:fetch", ["step:fetch"]),
        ("step:fetch/acme", ["step:fetch/acme", "step:fetch"]),
        ("/model~60000000", ["rate:model"]),
        ("/model~60000000/x/y", ["rate:model/x/y", "rate:model"]),
    ],
)
def test_names_of_lines(key: str, names: list[str]) -> None:
    assert [*names_of_line(key)] == names
    assert all(parsed_limit(name).has_line(key) for name in names)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (LimitSet(name="model", slots=1), "write one of run:<concurrency key>, stage:<workflow>/<stage>"),
        (LimitSet(name="worker:x", slots=1), "write one of"),
        (LimitSet(name="run:", slots=1), "it is empty"),
        (LimitSet(name=f"run:{'x' * 521}", slots=1), "521 characters"),
        (LimitSet(name="stage:books", slots=1), "names no stage"),
        (LimitSet(name="stage:books/", slots=1), "it is empty"),
        (LimitSet(name="step:a\0", slots=1), "NUL"),
        (LimitSet(name=f"rate:{'x' * 999}", slots=1), "characters"),
        (LimitSet(name="queue:q", slots=1), "can only be paused"),
        (LimitSet(name="queue:q", rate_limit=1, rate_period=SECOND), "can only be paused"),
        (LimitSet(name="queue:q"), "give paused=True or paused=False"),
        (LimitSet(name="run:k", paused=True), "slots=0"),
        (LimitSet(name="run:k", rate_limit=1, rate_period=SECOND), "has slots and no rate"),
        (LimitSet(name="run:k"), "give slots=..."),
        (LimitSet(name="rate:m", rate_limit=1), "give both"),
        (LimitSet(name="rate:m", rate_period=SECOND), "give both"),
        (LimitSet(name="rate:m"), "give rate=..."),
        (LimitSet(name="rate:m", slots=1), "has a rate and no slots"),
        (LimitSet(name="step:m"), "slots=... or rate=..."),
        (LimitClear(name="m"), "write one of"),
        (LimitSet(name="queue:q", paused=False, after="x"), "`next` of a reply"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_stored(command: LimitSet, says: str) -> None:
    world = World(pipeline(stage("a")))
    with world.unchanged(), pytest.raises(InvalidCommandError, match=says):
        world.do(command)


@pytest.mark.parametrize(
    "values",
    [
        {"slots": -1},
        {"slots": 1_000_001},
        {"rate_limit": 0, "rate_period": SECOND},
        {"rate_limit": 1, "rate_period": 999},
        {"rate_limit": 1, "rate_period": 86_400 * SECOND + 1},
    ],
)
def test_numbers_out_of_range(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidCommandError, match="it must be from"):
        LimitSet(name="rate:m", **values)


def test_a_damaged_limit_is_as_the_plan_says() -> None:
    world = World(pipeline(RATED))
    put(world, "stage:w/a", rate_limit=3, rate_period=60 * SECOND)
    row = world.tables().limits[LimitName("default", "stage:w/a")]
    world.put(Update(attrs.evolve(row, rate_period=None)))
    start(world, "1", "2")
    assert len(world.claim(world.open())) == 1
    assert JobState.LEASED.value in states(world, "1", "2")
