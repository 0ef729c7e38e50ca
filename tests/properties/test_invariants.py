"""The invariant checker finds each violation, and none in a valid history."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import attrs
import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.kernel.commands import Attempt, Completed, MapExpanded, Outcome, SessionClose
from holdfast.kernel.invariants import Snapshot, check, check_part, check_step, overdue
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import Query, Transaction
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.working_set import Tables
from holdfast.testing.snapshots import snapshot_of
from tests.unit.kernel.world import World, each, failed, payload, pipeline, settling, stage

R = TypeVar("R")
Damage: TypeAlias = Callable[[Tables], None]
PLAN = pipeline(stage("a"), (each("m", limit=2), stage("b")), stage("z"))


def _world() -> World:
    """One run with a map half done (m: 1 of 4 items; b done), one of each end, and one that has just begun."""
    world = World(PLAN)
    world.create("done")
    world.drain(_give)
    world.create("failed")
    world.fail(world.claim_one(world.open()), retryable=False)
    session = world.open()
    world.create("half")
    world.fail(world.claim_one(session))
    world.complete(world.claim_one(session))
    for attempt in world.claim(session):
        if attempt.kind is JobKind.EXPAND_MAP:
            world.expand(attempt, range(4))
        else:
            world.complete(attempt)
    first, second = world.claim(session)
    world.complete(first)
    world.release(second)
    world.claim(session, limit=1)
    world.create("new")
    world.do(SessionClose(session=world.open()))
    world.rerun("z", id="done")
    return world


def _give(attempt: Attempt) -> Outcome:
    return (
        MapExpanded(items=(payload(1),))
        if attempt.kind is JobKind.EXPAND_MAP
        else Completed(output=payload(2))
    )


WORLD = _world()
SOUND = WORLD.tables()
HALF = WORLD.run("half").key
DONE = WORLD.run("done", generation=1).key
AGAIN = WORLD.run("done").key
FAILED = WORLD.run("failed").key
NEW = WORLD.run("new").key


def _run(key: str, **fields: Any) -> Damage:
    """Change fields of a run's row."""

    def damage(tables: Tables) -> None:
        tables.runs[key] = attrs.evolve(tables.runs[key], **fields)

    return damage


def _progress(key: str, change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change a run's progress."""

    def damage(tables: Tables) -> None:
        data = parse(tables.runs[key].progress)
        change(data)
        tables.runs[key] = attrs.evolve(tables.runs[key], progress=canonical(data))

    return damage


def _jobs(change: Callable[[dict[int, Job]], object], key: str = HALF) -> Damage:
    """Change the jobs of a run, and count them right."""

    def damage(tables: Tables) -> None:
        change(tables.jobs[key])
        tables.runs[key] = attrs.evolve(tables.runs[key], open_jobs=len(tables.jobs[key]))

    return damage


def _job(key: str, **fields: Any) -> Damage:
    """Change fields of a run's first job."""

    def damage(tables: Tables) -> None:
        number = min(tables.jobs[key])
        tables.jobs[key][number] = attrs.evolve(tables.jobs[key][number], **fields)

    return damage


def _history(change: Callable[[list[HistoryRow]], object], key: str = HALF) -> Damage:
    """Change a run's history, and count its rows right."""

    def damage(tables: Tables) -> None:
        change(tables.history[key])
        tables.runs[key] = attrs.evolve(tables.runs[key], last_row=len(tables.history[key]))

    return damage


def _row(place: int, key: str = HALF, **fields: Any) -> Damage:
    """Change fields of one history row."""

    def change(rows: list[HistoryRow]) -> None:
        rows[place] = attrs.evolve(rows[place], **fields)

    return _history(change, key)


def _added(rows: list[HistoryRow], type: str, **fields: Any) -> None:
    row = attrs.evolve(
        rows[-1], number=len(rows) + 1, type=type, node=None, item=None, payload=None, data=None
    )
    rows.append(attrs.evolve(row, **fields))


BROKEN: list[tuple[str, str, Damage]] = [
    ("O1", "a row is missing", _history(lambda rows: rows.pop(2))),
    ("O1", "a row is there twice", _history(lambda rows: rows.insert(2, rows[2]))),
    ("O1", "the last row is not counted", _run(HALF, last_row=3)),
    ("O1", "a history begins in the middle", _row(0, NEW, type="run.repaired")),
    ("S1", "two attempts ended in one epoch", _row(2, epoch=1)),
    ("S1", "a job is behind its history", _row(1, epoch=9)),
    (
        "S4",
        "an item was completed twice",
        _history(lambda rows: _added(rows, "stage.completed", node="m", item=0)),
    ),
    ("S4", "an item was completed that is not there", _row(-1, item=9)),
    ("S4", "a stage was completed twice", _history(lambda rows: _added(rows, "stage.completed", node="b"))),
    ("S4", "a map was expanded twice", _history(lambda rows: _added(rows, "stage.expanded", node="m"))),
    ("S4", "a map was completed like a stage", _row(-1, item=None)),
    ("S4", "a run refers to another row", _progress(HALF, lambda data: data.update(input=1))),
    ("S4", "a run forgot an output", _progress(HALF, lambda data: data["nodes"]["b"].update(output=2))),
    ("S4", "a run forgot a node", _progress(HALF, lambda data: data["nodes"].pop("b"))),
    ("S4", "a rerun forgot what it keeps", _run(AGAIN, inherited=None)),
    ("S4", "a rerun keeps another value", _run(AGAIN, inherited=canonical({"a": ["of", DONE, 1]}))),
    ("S4", "a rerun keeps what is not done", _run(AGAIN, rerun_of=HALF)),
    ("S4", "a rerun of nothing", _run(AGAIN, rerun_of="nothing")),
    ("S4", "a rerun keeps what it begins with", _run(AGAIN, rerun_from="b")),
    ("S4", "a rerun from the start keeps something", _run(AGAIN, rerun_from=None)),
    ("S4", "a run that is no rerun keeps something", _run(AGAIN, rerun_of=None)),
    ("S5", "an ended run has a job", lambda tables: tables.jobs.update({DONE: dict(tables.jobs[NEW])})),
    ("S5", "an ended run counts a job", _run(DONE, open_jobs=1)),
    ("S5", "an ended run has no end", _run(DONE, ended_at=None)),
    ("S5", "an active run has an end", _run(NEW, ended_at=1)),
    ("S5", "an older generation is active", _run(NEW, id="half", generation=2)),
    ("S5", "a generation is there twice", _run(NEW, id="half")),
    ("S6", "a run failed that had no failure", _history(lambda rows: rows.pop(-2), FAILED)),
    ("S6", "a run failed that was cancelled", _run(FAILED, status=RunStatus.CANCELLED)),
    ("S6", "a run failed without saying why", _run(FAILED, error=None)),
    ("S6", "a run went on after its end", _history(lambda rows: _added(rows, "run.repaired"), DONE)),
    ("C1", "a run went on", _history(lambda rows: _added(rows, "stage.completed", node="b"), DONE)),
    ("S6", "an active run has ended", _history(lambda rows: _added(rows, "run.completed"))),
    ("S6", "a run completed half-way", _run(HALF, status=RunStatus.COMPLETED)),
    ("S6", "a run completed with another result", _run(DONE, result="1")),
    ("S7", "a run has no job", _jobs(lambda jobs: jobs.clear(), NEW)),
    ("S7", "an item has no job", _jobs(lambda jobs: jobs.popitem())),
    (
        "S7",
        "an item has two jobs",
        _jobs(lambda jobs: jobs.update({99: attrs.evolve(jobs[max(jobs)], number=99)})),
    ),
    ("S7", "an item has a job before its turn", _job(HALF, item=3)),
    (
        "S7",
        "a stage is open again",
        _jobs(lambda jobs: jobs.update({99: attrs.evolve(jobs[max(jobs)], node="b")})),
    ),
    ("S7", "jobs are counted wrong", _run(HALF, open_jobs=1)),
    ("S7", "a stage waits for another job", _progress(NEW, lambda data: data["nodes"]["a"].update(job=9))),
    ("S7", "a map counts wrong", _progress(HALF, lambda data: data["nodes"]["m"]["map"].__setitem__(2, 2))),
    ("S7", "a lease without a session", _job(HALF, state=JobState.LEASED, session=None)),
    ("S7", "a lease of nobody", _job(HALF, state=JobState.LEASED, session="nobody", leased_at=1)),
    ("S7", "a sleeper without an alarm", _job(NEW, state=JobState.SLEEPING)),
    ("S7", "a queued job that somebody holds", _job(NEW, session="x")),
    ("S7", "a job for other code", _job(NEW, definition="w@2")),
    ("S7", "a job of another number", _run(NEW, last_job=0)),
    ("S7", "jobs without a run", lambda tables: tables.jobs.update(nobody=dict(tables.jobs[NEW]))),
    ("S7", "a plan is gone", lambda tables: tables.plans.clear()),
    ("S8", "a job was tried too often", _job(NEW, attempts=3, epoch=3)),
    ("S8", "a job may be tried too often", _job(NEW, max_attempts=4)),
    ("S8", "an attempt was counted that was not", _job(NEW, attempts=1, epoch=1)),
    ("S8", "more attempts than claims", _job(NEW, attempts=1)),
    ("S8", "attempts that are not one after the other", _row(1, data='{"attempt":2}')),
    ("S8", "an attempt beyond the last", _row(2, data='{"attempt":8}')),
    ("S8", "losses were counted that were not", _job(NEW, lost_attempts=1)),
    ("S9", "a stage was done before its turn", _row(2, node="z")),
    ("S9", "a job before its turn", _job(NEW, node="z")),
]


def _damaged(damage: Damage) -> Tables:
    tables = WORLD.store.dump()
    damage(tables)
    return tables


def test_a_sound_store_is_sound() -> None:
    assert check(SOUND) == []
    assert check(snapshot_of(WORLD.store)) == []
    assert check_step(SOUND, SOUND) == []


@pytest.mark.parametrize(("name", "_what", "damage"), BROKEN, ids=[what for _, what, _ in BROKEN])
def test_what_is_broken_is_seen(name: str, _what: str, damage: Damage) -> None:
    found = check(_damaged(damage))

    assert name in {violation.invariant for violation in found}, found


@pytest.mark.parametrize("damage", [damage for *_, damage in BROKEN], ids=[what for _, what, _ in BROKEN])
def test_a_part_of_a_store_is_judged_as_the_whole(damage: Damage) -> None:
    """Run by run, each with no more of the others than it hangs on."""
    tables = _damaged(damage)

    found = [violation for key in (*tables.runs, "nobody") for violation in check_part(tables, [key])]

    assert Counter(found) == Counter(check(tables))


UNREADABLE: list[Damage] = [
    _run(HALF, progress='{"group":"x"}'),
    _progress(HALF, lambda data: data["nodes"]["m"].update(map=[1])),
    _row(1, data="["),
    _history(lambda rows: _added(rows, "stage.expanded", node="b")),
]


@pytest.mark.parametrize("damage", UNREADABLE)
def test_rows_that_say_what_can_not_be_are_no_error_of_the_checker(damage: Damage) -> None:
    assert "S4" in {violation.invariant for violation in check(_damaged(damage))}


def test_plans_that_are_none_are_no_error_of_the_checker() -> None:
    tables = _damaged(lambda tables: None)
    tables.plans = {name: attrs.evolve(plan, body="{}") for name, plan in tables.plans.items()}

    assert {violation.invariant for violation in check(tables)} == {"S4"}


def test_nothing_is_said_of_limits_that_runs_outside_share() -> None:
    """What is over a limit can only be counted over all."""
    tables = _damaged(lambda tables: None)
    for key in (HALF, NEW):
        tables.runs[key] = attrs.evolve(tables.runs[key], concurrency_key="k", concurrency_limit=1)

    assert [violation.invariant for violation in check(tables)] == ["S10"]
    assert check_part(tables, [HALF, NEW]) == []


def test_a_violation_says_what_and_where() -> None:
    (found,) = check(_damaged(_run(DONE, result="1")))

    assert (found.invariant, found.where) == ("S6", DONE)
    assert str(found).startswith(f"S6 {DONE}: the run is completed, and must have the result ")


def _replace_plans(tables: Tables) -> None:
    tables.plans = {name: attrs.evolve(plan, body="{}") for name, plan in tables.plans.items()}


MOVED: list[tuple[str, str, Damage]] = [
    ("O1", "a row was changed", _row(1, at=1)),
    ("O1", "a row is gone", _history(lambda rows: rows.pop())),
    ("S1", "an epoch went back", _job(HALF, epoch=0)),
    ("S1", "an epoch rose by two", _job(NEW, epoch=2)),
    ("S1", "a lease changed hands", _job(HALF, session="other", state=JobState.LEASED)),
    ("S1", "attempts rose without a claim", _job(NEW, attempts=1)),
    ("S1", "a job became another", _job(NEW, input="2")),
    ("S4", "an output was replaced", _progress(HALF, lambda data: data["nodes"]["b"].update(output=2))),
    ("S4", "a map counts back", _progress(HALF, lambda data: data["nodes"]["m"]["map"].__setitem__(2, 0))),
    ("S4", "a run went back", _progress(HALF, lambda data: data.update(group=0))),
    (
        "S4",
        "a plan was replaced",
        _replace_plans,
    ),
    ("S5", "an ended run was touched", _run(DONE, updated_at=1)),
    ("S5", "an ended run was revived", _run(DONE, status=RunStatus.RUNNING)),
    ("S5", "a run went back to pending", _run(HALF, status=RunStatus.PENDING)),
    ("S5", "a job delivers, and did something else before", _job(NEW, state=JobState.PENDING_DELIVERY)),
    ("S5", "a job sleeps, and was queued before", _job(NEW, state=JobState.SLEEPING)),
    ("S5", "a run has another name", _run(HALF, id="other")),
    ("S5", "a rerun comes from elsewhere", _run(AGAIN, rerun_of=HALF)),
    ("S5", "a rerun keeps something else", _run(AGAIN, inherited=None)),
    ("S5", "numbers are given out again", _run(HALF, last_job=1)),
    ("S5", "a run is gone", lambda tables: tables.runs.__delitem__(DONE)),
    (
        "S5",
        "the dead live",
        lambda tables: tables.sessions.update(
            {one.id: attrs.evolve(one, state=SessionState.OPEN) for one in tables.sessions.values()}
        ),
    ),
    (
        "S5",
        "a session ends earlier",
        lambda tables: tables.sessions.update(
            {
                one.id: attrs.evolve(one, expires_at=1)
                for one in tables.sessions.values()
                if one.state is SessionState.OPEN
            }
        ),
    ),
]


@pytest.mark.parametrize(("name", "_what", "damage"), MOVED, ids=[what for _, what, _ in MOVED])
def test_a_step_that_can_not_be_is_seen(name: str, _what: str, damage: Damage) -> None:
    found = check_step(SOUND, _damaged(damage))

    assert name in {violation.invariant for violation in found}, found


def test_a_job_that_was_gone_does_not_come_back() -> None:
    without = _damaged(_jobs(lambda jobs: jobs.popitem()))

    assert [found.invariant for found in check_step(without, SOUND)] == ["S1"]


def test_many_commands_may_take_many_steps() -> None:
    claimed = _damaged(_job(NEW, epoch=3, attempts=3, state=JobState.LEASED, session="s", leased_at=1))

    assert check_step(SOUND, claimed, commands=2)
    assert check_step(SOUND, claimed, commands=3) == []
    assert check_step(SOUND, claimed, commands=None) == []


def test_some_statuses_are_reached_in_two_steps_only() -> None:
    before, after = (
        _damaged(_run(NEW, status=RunStatus.RUNNING)),
        _damaged(_run(NEW, status=RunStatus.PENDING)),
    )

    assert [found.invariant for found in check_step(before, after)] == ["S5"]
    assert check_step(before, after, commands=2) == []


# What is overdue -----------------------------------------------------------------------------------------------------


LATE: list[tuple[str, str, str, Damage]] = [
    ("T3", NEW, "a sleeper", _job(NEW, state=JobState.SLEEPING, wake_at=10)),
    ("T3", NEW, "a run that is to begin", _run(NEW, status=RunStatus.PENDING, start_at=10)),
    ("T3", NEW, "a run with a deadline", _run(NEW, deadline=10)),
    ("L1", DONE, "an end that is owed", lambda tables: _owe(tables, 10)),
    ("L1", HALF, "a lease of somebody who is gone", lambda tables: _expire(tables, 10)),
]


def _owe(tables: Tables, at: int) -> None:
    tables.runs[DONE] = attrs.evolve(tables.runs[DONE], ended_at=at)
    job = next(iter(tables.jobs[NEW].values()))
    tables.jobs[DONE] = {
        99: attrs.evolve(job, run=DONE, number=99, state=JobState.PENDING_DELIVERY, kind=JobKind.DELIVER)
    }


def _expire(tables: Tables, at: int) -> None:
    tables.sessions = {key: attrs.evolve(one, expires_at=at) for key, one in tables.sessions.items()}


@pytest.mark.parametrize(("name", "where", "_what", "damage"), LATE, ids=[what for _, _, what, _ in LATE])
def test_what_is_overdue_is_seen(name: str, where: str, _what: str, damage: Damage) -> None:
    tables = snapshot_of(_damaged(damage))

    found = overdue(tables, runs=tables.runs.keys(), before=11)

    assert [(violation.invariant, violation.where) for violation in found] == [(name, where)]
    assert overdue(tables, runs=tables.runs.keys(), before=10) == []
    assert overdue(tables, runs=[FAILED, "nobody"], before=11) == []


# Snapshots --------------------------------------------------------------------------------------------------------


class _Asked:
    """A store of another kind: what it says to questions is all that there is."""

    def __init__(self, inner: MemoryPersistence, between: Callable[[], None] = lambda: None) -> None:
        self._inner = inner
        self._between = between

    def read(self, query: Query[R], /) -> R:
        self._between()
        return self._inner.read(query)

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        return self._inner.transact(work)

    def setup(self) -> None:
        self._inner.setup()

    def prune(self, before: int, /) -> int:
        return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()


def _asked(world: World, between: Callable[[], None] = lambda: None) -> Snapshot:
    return snapshot_of(_Asked(world.store, between), ("default",))


def test_a_database_is_asked_for_what_memory_has() -> None:
    asked, dumped = _asked(WORLD), snapshot_of(WORLD.store)

    assert asked.runs == dumped.runs
    assert {key: jobs for key, jobs in asked.jobs.items() if jobs} == dumped.jobs
    assert asked.history == dumped.history
    assert asked.plans == dumped.plans
    assert {one: dumped.sessions[one] for one in asked.sessions} == asked.sessions
    assert check(asked) == []


def test_a_run_that_changes_while_it_is_read_is_read_again() -> None:
    world = World(pipeline(stage("a"), stage("b"), stage("c")))
    world.create()
    session = world.open()

    def between() -> None:
        for attempt in world.claim(session):
            world.complete(attempt)

    assert check(_asked(world, between)) == []


def test_a_run_that_never_rests_is_an_error() -> None:
    world = World(pipeline(stage("a", attempts=10_000)))
    world.create()
    session = world.open()

    def between() -> None:
        world.wait(1)
        world.do(settling(world.claim_one(session), failed()))

    with pytest.raises(TimeoutError):
        _asked(world, between)
