"""Batches of commands in one transaction: in order, bounded, and independent of each other."""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import attrs
import pytest

from holdfast.kernel.commands import (
    AttemptReport,
    Command,
    Completed,
    Failed,
    Failure,
    JobClaim,
    JobClaimOne,
    JobExecute,
    JobHeartbeat,
    JobRelease,
    MapExpanded,
    Outcome,
    RunCancel,
    RunCreate,
    RunDeliver,
    RunRepair,
    SessionClose,
    SessionRenew,
)
from holdfast.kernel.dispatch.command_batches import BATCH_BYTES_MAX, BATCH_COMMANDS_MAX
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.errors import (
    CommandError,
    ConflictError,
    IdempotencyConflictError,
    InvalidCommandError,
    RefusedError,
    RunExistsError,
    RunNotFoundError,
    SessionLostError,
    StorageRefusedError,
    UnknownWorkflowError,
    UnreadableRowError,
)
from holdfast.ports.json import parse
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.runs import PendingDeliveries
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros, Payload
from tests.unit.kernel.world import (
    World,
    child,
    completing,
    each,
    failed,
    field,
    payload,
    pipeline,
    settling,
    stage,
)

R = TypeVar("R")
POISON = "poison"


class Choosy:
    """A Persistence that counts its transactions, and refuses to store a word."""

    def __init__(self, inner: Persistence) -> None:
        self._inner = inner
        self.batches: list[int] = []
        self.refused = 0
        self.calm_with: int | None = None
        """The number of runs that a transaction may create without a conflict."""

    def setup(self) -> None:
        self._inner.setup()

    def prune(self, before: Micros, /) -> int:
        return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()

    def read(self, query: Query[R], /) -> R:
        return self._inner.read(query)

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        return self._inner.transact(lambda tx: work(cast("Transaction", _Choosing(tx, self))))


class _Choosing:
    def __init__(self, inner: Transaction, choosy: Choosy) -> None:
        self._inner = inner
        self._choosy = choosy

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def apply(self, changes: Sequence[Change], /) -> None:
        if any(POISON in repr(change) for change in changes):
            self._choosy.refused += 1
            raise RefusedError("not in here")
        created = sum(isinstance(change, Insert) and isinstance(change.record, Run) for change in changes)
        if self._choosy.calm_with is not None and created > self._choosy.calm_with:
            self._choosy.refused += 1
            raise ConflictError("somebody was there first")
        self._choosy.batches.append(
            sum(isinstance(change, Update) and isinstance(change.record, Run) for change in changes)
        )
        self._inner.apply(changes)


def _choosy(world: World) -> Choosy:
    return cast("Choosy", world.kernel.persistence)


def _create(id: str | None = None, input: object = 0) -> RunCreate:
    return RunCreate(workflow="w", id=id, input=payload(input))


# Order and isolation ----------------------------------------------------------------------------------------------


def test_replies_come_in_the_order_of_the_commands() -> None:
    world = World(pipeline(stage("a")))
    names = [f"r{number}" for number in range(20)]
    answers = world.send(*map(_create, names))

    assert [field(answer, "run_id") for answer in answers] == names


def test_each_command_sees_what_those_before_it_did() -> None:
    world = World(pipeline(stage("a")))
    commands: list[Command[object]] = [
        RunCancel(run_id="x"),
        _create("x"),
        RunCancel(run_id="x"),
        RunCancel(run_id="x"),
    ]
    before, created, first, second = world.send(*commands)

    assert isinstance(before, RunNotFoundError)
    assert not isinstance(created, CommandError)
    assert (field(first, "changed"), field(second, "changed")) == (True, False)


def test_no_commands_are_no_transaction() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)

    assert world.kernel.dispatch_many(()) == []
    assert _choosy(world).batches == []


BAD: dict[type[CommandError], Command[object]] = {
    UnknownWorkflowError: RunCreate(workflow="nope", input=payload(0)),
    RunExistsError: _create("there"),
    RunNotFoundError: RunCancel(run_id="nope"),
    IdempotencyConflictError: attrs.evolve(_create("other"), idempotency_key="used"),
    SessionLostError: SessionRenew(session="nope", lease=1),
    InvalidCommandError: JobRelease(job="no job id", epoch=1),
}
MORE_BAD: list[tuple[type[CommandError], Command[object]]] = [
    *BAD.items(),
    (InvalidCommandError, attrs.evolve(_create(), idempotency_key="")),
    (InvalidCommandError, JobHeartbeat(attempts=(AttemptReport(job="x", epoch=1),))),
    (InvalidCommandError, RunRepair(limit=-1)),
    (InvalidCommandError, JobExecute(session="s", job="x.1", epoch=0)),
    (SessionLostError, SessionClose(session="nope")),
    (SessionLostError, JobClaimOne(session="nope", job="x.1", epoch=0, definitions=())),
]


@pytest.mark.parametrize(("error", "bad"), MORE_BAD, ids=lambda one: getattr(one, "type", ""))
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_command_harms_nobody_in_its_batch(
    error: type[CommandError], bad: Command[object], place: int
) -> None:
    def world() -> tuple[World, list[Command[object]]]:
        world = World(pipeline(stage("a")))
        world.do(attrs.evolve(_create("there"), idempotency_key="used"))
        return world, [completing(world.claim_one(world.open())), _create("new")]

    without, good = world()
    expected = without.send(*good)
    spoilt, good = world()
    answers = spoilt.send(*good[:place], bad, *good[place:])

    assert type(answers.pop(place)) is error
    assert answers == expected
    assert spoilt.tables() == without.tables()


def test_a_run_without_a_plan_harms_nobody_in_its_batch() -> None:
    world = World(pipeline(stage("a")), pipeline(stage("a"), workflow="v"))
    world.create("x")
    world.create("y", workflow="v")
    first, second = world.claim(world.open())
    world.put(Update(attrs.evolve(world.run("x"), plan="lost")))

    refused, settled = world.kernel.dispatch_many((completing(first), completing(second)))

    assert isinstance(refused, UnreadableRowError)
    assert (refused.run, refused.column) == (world.run("x").key, "plan")
    assert field(settled, "status") == "settled"
    assert world.run("x").status == "blocked"


# Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_of_too_many_commands_is_split() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    world.send(*(_create() for _ in range(2 * BATCH_COMMANDS_MAX + 1)))

    assert len(_choosy(world).batches) == 3
    assert len(world.tables().runs) == 2 * BATCH_COMMANDS_MAX + 1


def test_a_full_batch_is_one_transaction() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    world.send(*(_create() for _ in range(BATCH_COMMANDS_MAX)))

    assert len(_choosy(world).batches) == 1


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("sizes", "transactions"),
    [
        ([BATCH_BYTES_MAX - 2], 1),
        ([BATCH_BYTES_MAX * 3], 1),
        ([2 * MIB - 2, 2 * MIB - 2], 1),
        ([2 * MIB, 2 * MIB - 1], 2),
        ([MIB, BATCH_BYTES_MAX * 2, MIB], 3),
        ([MIB] * 9, 3),
    ],
)
def test_a_batch_of_too_many_bytes_is_split(sizes: list[int], transactions: int) -> None:
    """The quotation marks of a JSON text count as well."""
    world = World(pipeline(stage("a")), wrap=Choosy)
    answers = world.send(*(_create(None, "x" * size) for size in sizes))

    assert len(_choosy(world).batches) == transactions
    assert not any(isinstance(answer, CommandError) for answer in answers)


@pytest.mark.parametrize("kind", ["completed", "expanded", "failed", "blob"])
def test_the_values_of_settles_are_counted(kind: str) -> None:
    world = World(pipeline(each("m") if kind == "expanded" else stage("a")), wrap=Choosy)
    half = "x" * (BATCH_BYTES_MAX // 2)
    outcomes: dict[str, Outcome] = {
        "completed": Completed(output=payload(half)),
        "expanded": MapExpanded(items=(payload(half[::2]), payload(half[::2]))),
        "failed": Failed(
            failure=Failure(code="c", message="m", arguments=f'"{"x" * 900_000}"', retryable=False)
        ),
        "blob": Completed(output=Payload(blob="some/key")),
    }
    of_failures = (
        BATCH_BYTES_MAX // 900_000
    )  # no more of an error is stored than that, so there are more of them
    for _ in range(3 * of_failures if kind == "failed" else 3):
        world.create(None)
    attempts = world.claim(world.open())
    _choosy(world).batches.clear()
    world.send(*(settling(attempt, outcomes[kind]) for attempt in attempts))

    assert len(_choosy(world).batches) == (1 if kind == "blob" else 3)


def test_a_split_batch_still_goes_in_order() -> None:
    world = World(pipeline(stage("a")))
    filler = [RunCancel(run_id="x") for _ in range(BATCH_COMMANDS_MAX - 1)]
    commands: list[Command[object]] = [_create("x"), *filler, _create("x"), RunCancel(run_id="x")]
    answers = world.send(*commands)

    assert field(answers[1], "changed") is True
    assert isinstance(answers[-2], RunExistsError)
    assert field(answers[-1], "changed") is False


@pytest.mark.parametrize("calm_with", [1, 3])
def test_a_batch_that_meets_others_all_the_time_is_split(calm_with: int) -> None:
    """Large batches whose keys are contended conflict at every attempt until they are small."""
    world = World(pipeline(stage("a")), wrap=Choosy)
    _choosy(world).calm_with = calm_with
    commands = [attrs.evolve(_create(), idempotency_key=f"k{number}") for number in range(8)]
    answers = world.send(*commands)

    assert _choosy(world).refused > 0
    assert len({field(answer, "run") for answer in answers}) == 8
    assert world.send(*commands) == answers


def test_one_command_that_meets_others_all_the_time_gets_the_error() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    _choosy(world).calm_with = 0

    with pytest.raises(ConflictError):
        world.do(_create())


# What the store refuses -------------------------------------------------------------------------------------------


def test_a_value_that_the_store_refuses_fails_its_attempt_and_no_other() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    for number in range(13):
        world.create(f"r{number}")
    attempts = world.claim(world.open())
    bad = 5
    answers = world.send(
        *(completing(attempt, POISON if place == bad else "fine") for place, attempt in enumerate(attempts))
    )

    statuses = [world.run(f"r{number}").status.value for number in range(13)]
    assert [field(answer, "status") for answer in answers] == ["settled"] * 13
    assert statuses == ["failed" if number == bad else "completed" for number in range(13)]
    error = parse(world.run(f"r{bad}").error or "")
    assert (error["code"], error["stage"], error["message"]) == ("storage_refused", "a", "not in here")
    assert POISON not in repr(world.tables())


@pytest.mark.slow
def test_it_takes_no_more_tries_than_halving_needs() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    for _ in range(128):
        world.create(None)
    attempts = world.claim(world.open())
    _choosy(world).batches.clear()
    world.send(*(completing(attempt, POISON if place == 77 else 1) for place, attempt in enumerate(attempts)))

    assert _choosy(world).refused == 8
    assert len(_choosy(world).batches) == 8


def test_what_a_child_gave_that_the_store_refuses_fails_the_stage_that_waits_and_no_other() -> None:
    """Instead of delivering it again for ever."""
    leaf = pipeline(stage("a"), workflow="c")
    world = World(pipeline(child("k")), leaf, wrap=Choosy)
    session = world.open()
    for id_ in ("x", "y"):
        world.create(id_)
        world.start_child(world.claim_one(session), f"{id_}/k")
        world.complete(world.claim_one(session), 1)
    told = [
        RunDeliver(
            job=owed.key.text,
            parent=str(parse(owed.input)),
            output=payload(POISON if owed.run == world.run("x/k").key else "fine"),
        )
        for owed in world.store.read(PendingDeliveries())
    ]
    answers = world.send(*told)

    assert [field(answer, "status") for answer in answers] == ["delivered"] * 2
    assert (world.run("x").status, world.run("y").status) == ("failed", "completed")
    assert parse(world.run("x").error or "")["code"] == "storage_refused"


def test_items_that_the_store_refuses_fail_the_reader() -> None:
    world = World(pipeline(each("m")), wrap=Choosy)
    world.create()
    settled = world.expand(world.claim_one(world.open()), ["fine", POISON])

    assert (settled.run_status, settled.retry_at) == ("failed", None)
    assert world.tables().pages == {}


def test_a_refused_value_is_not_tried_again_however_many_attempts_there_are() -> None:
    world = World(pipeline(stage("a", attempts=9)), wrap=Choosy)
    world.create()
    world.complete(world.claim_one(world.open()), POISON)

    assert world.events() == ["run.created", "stage.failed", "run.failed"]


def test_another_command_that_the_store_refuses_gets_the_error_alone() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    answers = world.send(_create("x"), _create("y", POISON), _create("z"))

    assert isinstance(answers[1], StorageRefusedError)
    assert "run.create" in str(answers[1])
    assert [run.id for run in world.tables().runs.values()] == ["x", "z"]


def test_a_failure_that_the_store_refuses_is_an_error() -> None:
    """Nothing is left of it that could be stored instead."""
    world = World(pipeline(stage("a")), wrap=Choosy)
    world.create()
    attempt = world.claim_one(world.open())
    with world.unchanged():
        (answer,) = world.send(settling(attempt, failed(code=POISON)))

    assert isinstance(answer, StorageRefusedError)


def test_commands_after_the_refused_one_still_see_those_before_it() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    commands: list[Command[object]] = [
        _create("x"),
        _create("y", POISON),
        _create("x"),
        RunCancel(run_id="x"),
        RunCancel(run_id="y"),
    ]
    answers = world.send(*commands)

    assert [type(answer).__name__ for answer in answers] == [
        "RunCreated",
        "StorageRefusedError",
        "RunExistsError",
        "RunStopped",
        "RunNotFoundError",
    ]


def test_a_claim_of_a_hundred_is_one_transaction() -> None:
    world = World(pipeline(stage("a")), wrap=Choosy)
    world.send(*(_create() for _ in range(100)))
    session = world.open()
    _choosy(world).batches.clear()
    claim = JobClaim(session=session, queue_claims=world.lanes(), limit=100)

    assert len(world.do(claim).attempts) == 100
    assert _choosy(world).batches == [0]
