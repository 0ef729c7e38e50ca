"""Changes: applied one by one and as a net effect, which must be equal."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ports.changes import (
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    DeleteRun,
    Insert,
    NetChanges,
    Update,
    net_changes,
)
from holdfast.ports.errors import ConflictError
from holdfast.ports.records.job import JobKey, JobKind
from holdfast.ports.records.run import RunName
from holdfast.ports.tables import HISTORY, JOBS, PLANS, RUNS, SESSIONS, SINKS, TABLES, StoredRecord, Table
from holdfast.ports.working_set import Tables
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    a_job,
    a_key,
    a_note,
    a_page,
    a_plan,
    a_reply,
    a_row,
    a_run,
    a_session,
    a_sink,
    an_ai_call,
    an_annotation,
    an_artifact,
)

NUMBERS: Sequence[int] = (1, 2)
_NUMBERS = st.integers(1, 4)
_NODES = st.sampled_from(("a", "b"))
_KINDS = st.sampled_from((JobKind.STAGE, JobKind.POLL, JobKind.CANCEL))


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tables, list[Change]]:
    """Draw existing rows, and changes that a kernel could make to them: numbers are never reused."""
    tables = Tables()
    changes: list[Change] = []
    for run in draw(st.sets(st.sampled_from(NUMBERS))):
        tables.apply(Insert(a_run(run)))
        for number in draw(st.sets(_NUMBERS)):
            tables.apply(Insert(a_job(run, number, kind=draw(_KINDS), node=draw(_NODES))))
    scratch = _copy(tables)
    following: dict[int, int] = dict.fromkeys(NUMBERS, 5)
    for _ in range(draw(st.integers(0, 12))):
        run = draw(st.sampled_from(NUMBERS))
        changes.append(draw(_change(scratch, run, following)))
        scratch.apply(changes[-1])
    return tables, changes


@st.composite
def _change(draw: st.DrawFn, tables: Tables, run: int, following: dict[int, int]) -> Change:
    key = a_key(run)
    if key not in tables.runs:
        return Insert(a_run(run))
    live = sorted(tables.jobs.get(key, {}))
    kinds = ["run", "add", "history", "cancel", "close node", "close all"]
    kinds += ["update", "close"] if live else []
    match draw(st.sampled_from(kinds)):
        case "run":
            return Update(a_run(run, priority=draw(st.integers(0, 9))))
        case "add":
            following[run] += 1
            return Insert(a_job(run, following[run], kind=draw(_KINDS), node=draw(_NODES)))
        case "history":
            return Insert(a_row(run, len(tables.history.get(key, ())) + 1))
        case "update":
            number = draw(st.sampled_from(live))
            return Update(attrs.evolve(tables.jobs[key][number], priority=draw(st.integers(0, 9))))
        case "close":
            return Delete(JOBS, JobKey(key, draw(st.sampled_from(live))))
        case "cancel":
            return CancelExternalWork(key, draw(_NODES), attempts=draw(st.integers(1, 9)))
        case "close node":
            return DeleteJobsOfNode(key, draw(_NODES))
        case _:
            return DeleteJobs(key)


def _copy(tables: Tables) -> Tables:
    copy = Tables()
    for run in tables.runs.values():
        copy.put(run)
    for job in tables.all_jobs():
        copy.put(job)
    for key, rows in tables.history.items():
        copy.history[key] = list(rows)
    return copy


def _write(tables: Tables, net: NetChanges) -> None:
    """Write as a database does: each row once, in the order of `NetChanges`."""
    for run in (*net.inserted[RUNS].values(), *net.updated[RUNS].values()):
        tables.put(run)
    for (run_key, node), attempts in net.cancelled_work.items():
        tables.apply(CancelExternalWork(run_key, node, attempts))
    for key in net.closed_runs:
        tables.apply(DeleteJobs(key))
    for run_key, node in net.closed_nodes:
        tables.apply(DeleteJobsOfNode(run_key, node))
    for job_key in net.deleted[JOBS]:
        gone = tables.jobs.get(job_key.run, {}).pop(job_key.number, None)
        closed_with_others = job_key.run in {*net.closed_runs, *(run for run, _ in net.closed_nodes)}
        assert gone or closed_with_others, "a job is closed that is not there"
    for job in net.inserted[JOBS].values():
        assert tables.job(job.key) is None, "a job is added that is there"
        tables.put(job)
    for job in net.updated[JOBS].values():
        assert tables.job(job.key) is not None, "a job is updated that is not there"
        tables.put(job)
    for row in net.inserted[HISTORY].values():
        tables.put(row)


def _seen(tables: Tables) -> object:
    return tables.runs, {run: jobs for run, jobs in tables.jobs.items() if jobs}, tables.history


@given(batches())
def test_the_net_effect_is_that_of_the_changes_one_by_one(batch: tuple[Tables, list[Change]]) -> None:
    tables, changes = batch
    one_by_one, at_once = _copy(tables), _copy(tables)
    for change in changes:
        one_by_one.apply(change)
    _write(at_once, net_changes(changes))

    assert _seen(at_once) == _seen(one_by_one)


@pytest.mark.slow
@given(batches())
def test_each_row_is_written_once(batch: tuple[Tables, list[Change]]) -> None:
    net = net_changes(batch[1])
    keys = [*net.deleted[JOBS], *net.inserted[JOBS], *net.updated[JOBS]]

    assert len(keys) == len(set(keys))
    assert net.inserted[RUNS].keys().isdisjoint(net.updated[RUNS])


# Tables -----------------------------------------------------------------------------------------------------------

THERE: Sequence[Change] = (
    Insert(a_run(1, id="order")),
    Insert(a_job(1, 1)),
    Insert(a_row(1, 1)),
    Insert(a_page(1, 0)),
    Insert(a_reply("k")),
    Insert(a_note(1)),
)
TAKEN: Sequence[Change] = (
    Insert(a_run(1, id="other")),
    Insert(a_run(9, id="order")),
    Insert(a_job(1, 1, priority=3)),
    Insert(a_row(1, 1)),
    Insert(a_page(1, 0)),
    Insert(a_reply("k", body="other")),
)


@pytest.mark.parametrize("change", TAKEN, ids=lambda change: type(change.record).__name__)
def test_what_is_taken_is_a_conflict_and_changes_nothing(change: Change) -> None:
    tables, same = Tables(), Tables()
    for there in THERE:
        tables.apply(there)
        same.apply(there)
    assert isinstance(change, Insert)
    assert tables.taken(change.record) is not None
    with pytest.raises(ConflictError):
        tables.apply(change)

    assert tables == same


def test_what_may_be_there_before_is_no_conflict() -> None:
    tables = Tables()
    for _ in range(2):
        tables.apply(Insert(a_plan(1)))
        tables.apply(Insert(a_session(1)))
        tables.apply(Insert(a_note(1)))

    assert (len(tables.plans), len(tables.sessions), len(tables.notes)) == (1, 1, 1)


def test_a_plan_that_is_there_stays_as_it_is() -> None:
    tables = Tables()
    tables.apply(Insert(a_plan(1, body="first")))
    tables.apply(Insert(a_plan(1, body="second")))

    assert [plan.body for plan in tables.plans.values()] == ["first"]


def test_a_name_stands_for_the_newest_generation() -> None:
    tables = Tables()
    for generation in (2, 1, 3):
        tables.put(a_run(generation, id="order", generation=generation))

    newest = tables.run_named(RunName(NAMESPACE, "order"))
    assert newest is not None
    assert newest.generation == 3
    assert tables.run_named(RunName("other", "order")) is None


def test_closing_what_is_not_there_does_nothing() -> None:
    tables = Tables()
    tables.apply(Delete(JOBS, JobKey("r", 1)))
    tables.apply(DeleteJobs("r"))

    assert list(tables.all_jobs()) == []


def test_two_new_rows_of_one_key_are_a_conflict() -> None:
    with pytest.raises(ConflictError, match="two new rows"):
        net_changes([Insert(a_row(1, 1)), Insert(a_row(1, 1, type="other"))])


def test_of_two_new_plans_the_first_is_kept_and_of_two_sessions_the_last() -> None:
    net = net_changes(
        [
            *(Insert(a_plan(1, body=body)) for body in ("first", "second")),
            *(Insert(a_session(1, host=host)) for host in ("first", "second")),
        ]
    )

    assert [plan.body for plan in net.inserted[PLANS].values()] == ["first"]
    assert [session.host for session in net.inserted[SESSIONS].values()] == ["second"]


def test_a_row_that_is_deleted_may_be_inserted_again() -> None:
    sink = a_sink("audit")
    net = net_changes([Delete(SINKS, sink.key), Insert(sink), Update(sink)])

    assert (net.deleted[SINKS], net.inserted[SINKS], net.updated[SINKS]) == ({sink.key}, {sink.key: sink}, {})


def test_a_row_that_is_inserted_and_deleted_is_not_written() -> None:
    sink = a_sink("audit")
    net = net_changes([Insert(sink), Update(sink), Delete(SINKS, sink.key)])

    assert not any((net.deleted[SINKS], net.inserted[SINKS], net.updated[SINKS]))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_removed_run_takes_all_other_changes_of_its_rows_along(table: Table[Any, Any]) -> None:
    records: Sequence[StoredRecord] = (
        a_run(1),
        a_job(1, 1),
        a_row(1, 1),
        a_page(1, 0),
        a_note(1),
        an_annotation(1),
        an_artifact(),
        an_ai_call(1),
    )
    net = net_changes([*map(Insert, records), DeleteRun(a_key(1))])

    assert not net.inserted[table]
    assert net.removed_runs == {a_key(1)}


def test_a_deleted_sink_frees_its_name() -> None:
    tables = Tables()
    tables.apply(Insert(a_sink("audit", key="1")))
    assert tables.taken(a_sink("audit", key="2")) is not None
    tables.apply(Delete(SINKS, "1"))

    assert tables.taken(a_sink("audit", key="2")) is None


def test_a_copy_is_independent() -> None:
    tables = Tables()
    for there in THERE:
        tables.apply(there)
    copy = tables.copy()
    assert copy == tables
    copy.apply(Insert(a_sink("audit")))
    copy.apply(Insert(a_job(1, 2)))
    copy.apply(Insert(a_row(1, 2)))

    assert not tables.sinks
    assert (len(tables.jobs[a_key(1)]), len(tables.history[a_key(1)])) == (1, 1)
