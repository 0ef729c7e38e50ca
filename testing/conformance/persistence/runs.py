"""The contract of a store for reading runs in a transaction."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import pytest

from holdfast.ports.changes import Insert, Update
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.history import HistoryOf, NodeRowsOf
from holdfast.ports.queries.outbox import StreamRows, StreamStart
from holdfast.ports.records.history import (
    STAGE_COMPLETED,
    STAGE_FAILED,
    STAGE_OUTCOMES,
    STAGE_SUSPENDED,
)
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.limits import WhenFull
from holdfast.ports.records.run import TERMINAL, ClosePolicy, Run, RunName, RunStatus
from holdfast.ports.references import KeptRows
from holdfast.ports.searches import (
    ActiveRuns,
    CompletedRow,
    IncompleteRuns,
    LatestRuns,
    LatestRunsAndDrivers,
    NodeResults,
    NodeRows,
    NodeSummaries,
)
from holdfast.ports.tables import HISTORY, RUNS
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_completed_row, a_job, a_key, a_row, a_run
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_run, query

_SKIPPED: Final = "stage.skipped"
"""A type that stores know nothing about."""

FULL_RUN = Run(
    key=a_key(7),
    namespace="tenant-1",
    id="order/7 \u2013 Größe",
    generation=3,
    workflow="orders",
    version="2026.1",
    plan="0123456789abcdef" * 4,
    status=RunStatus.COMPLETED,
    queue="reports",
    priority=-5,
    created_at=NOW,
    updated_at=NOW + 1,
    ended_at=NOW + 2,
    last_row=12,
    last_job=34,
    open_jobs=5,
    progress='{"group":2}',
    result='["list",1,2]',
    error='{"code":"x"}',
    attributes='{"customer":"c-1"}',
    headers='{"locale":"de"}',
    rerun_of=a_key(6),
    rerun_from="bill",
    inherited='{"check":["of","k",2]}',
    start_at=NOW + 3,
    deadline=NOW + 4,
    concurrency_key="customer c-1 \u2013 Größe",
    concurrency_limit=6,
    concurrency_waiting=3,
    concurrency_full=WhenFull.REPLACE,
    concurrency_outer="[9,8]",
    parent=f"{a_key(6)}.3",
    parent_run="run-6",
    close_policy=ClosePolicy.ABANDON,
    children=2,
    mailbox='{"unread":[[3,5]]}',
    gathered='{"items":0,"keep":"last","name":"f/","open":true,"rows":[[1,1]],"size":9,"starts":1,"until":7}',
    rate_key="run-rate:w",
    rate_limit=7,
    rate_period=8,
    rate_units=2,
    rate_counted_at=NOW + 6,
    in_rate_line=1,
    scheduled='{"at":1767225600000000,"kind":"due","offset":0,"schedule":"nightly","zone":"UTC"}',
)
"""A run with every field set."""


class RunReads(PersistenceCase):
    """Reads of runs by key and name, searches for active and inconsistent runs, and reads of their histories."""

    def test_a_run_is_read_as_it_was_stored(self, store: Persistence) -> None:
        """Every field survives."""
        assert not [field.name for field in attrs.fields(Run) if getattr(FULL_RUN, field.name) is None]
        put(store, Insert(FULL_RUN))

        assert query(store, lambda tx: tx.lock(RUNS, [FULL_RUN.key])) == [FULL_RUN]

    def test_what_a_run_has_not_stays_none(self, store: Persistence) -> None:
        """None is not turned into an empty text or a zero."""
        put(store, Insert(a_run()))

        assert [a_run()] == query(store, lambda tx: tx.lock(RUNS, [a_key(1)]))
        assert (a_run().parent, a_run().close_policy, a_run().children) == (None, ClosePolicy.CANCEL, 0)

    def test_what_is_unread_of_a_run_changes_with_its_rows(self, store: Persistence) -> None:
        """The mailbox changes with a new message, and with its receipt."""
        put(store, Insert(a_run()))
        for number, unread in ((1, '{"unread":[[1,1]]}'), (2, '{"unread":[[1,2]]}'), (3, None)):
            run = a_run(last_row=number, updated_at=number, mailbox=unread)

            def work(tx: Transaction, run: Run = run) -> None:
                tx.lock(RUNS, [run.key])
                tx.apply([Update(run)])

            store.transact(work)
            assert query(store, lambda tx: tx.lock(RUNS, [a_key(1)])) == [run]

    @pytest.mark.parametrize("policy", ClosePolicy)
    def test_every_close_policy_is_read_as_it_was_stored(
        self, store: Persistence, policy: ClosePolicy
    ) -> None:
        """It comes back as a member of its enumeration, also after a change."""
        put(store, Insert(a_run(1)), Insert(a_run(2, close_policy=policy)))
        put(store, Update(a_run(1, close_policy=policy, parent="k.1", children=3)))

        updated, created = query(store, lambda tx: tx.lock(RUNS, [a_key(1), a_key(2)]))

        assert updated.close_policy is created.close_policy is policy
        assert (updated.parent, updated.children) == ("k.1", 3)

    @pytest.mark.parametrize("status", RunStatus)
    def test_every_status_is_read_as_it_was_stored(self, store: Persistence, status: RunStatus) -> None:
        """It comes back as a member of its enumeration."""
        put(store, Insert(a_run(status=status)))

        (run,) = query(store, lambda tx: tx.lock(RUNS, [a_key(1)]))

        assert run.status is status

    def test_many_runs_are_read_at_once(self, store: Persistence) -> None:
        """A thousand runs in one call."""
        runs = [a_run(number) for number in range(1_000)]
        put(store, *map(Insert, runs))

        found = query(store, lambda tx: tx.lock(RUNS, {run.key for run in runs}))

        assert runs == sorted(found, key=lambda run: run.key)

    def test_a_run_that_does_not_exist_is_not_in_the_answer(self, store: Persistence) -> None:
        """Unknown keys are left out."""
        put(store, Insert(a_run(1)))

        assert [a_run(1)] == query(store, lambda tx: tx.lock(RUNS, [a_key(1), a_key(2)]))
        assert query(store, lambda tx: tx.lock(RUNS, [a_key(2)])) == []

    def test_nothing_is_asked_and_nothing_answered(self, store: Persistence) -> None:
        """An empty collection is allowed."""
        assert query(store, lambda tx: tx.lock(RUNS, [])) == []
        assert query(store, lambda tx: tx.find(LatestRuns([]))) == []
        assert query(store, lambda tx: tx.find(IncompleteRuns([]))) == []
        assert query(store, lambda tx: tx.find(NodeResults([]))) == []
        assert query(store, lambda tx: tx.find(NodeSummaries([]))) == []
        assert query(store, lambda tx: tx.get(HISTORY, [])) == []

    def test_where_a_run_comes_from_stays_when_it_goes_on(self, store: Persistence) -> None:
        """An update leaves it as it is."""
        put(store, Insert(FULL_RUN))
        put(store, Update(attrs.evolve(FULL_RUN, last_row=13)))

        assert [attrs.evolve(FULL_RUN, last_row=13)] == query(store, lambda tx: tx.lock(RUNS, [FULL_RUN.key]))

    def test_what_a_history_has_about_nodes_is_counted_by_type(self, store: Persistence) -> None:
        """First row, last row and number; rows without a stage do not count, nor do those of other runs."""
        put(store, *(Insert(a_run(run)) for run in (1, 2, 3)))
        rows = [
            a_row(1, 1, type="run.created"),
            a_row(1, 2, type="stage.retrying", node="check"),
            a_completed_row(1, 3, node="check"),
            a_row(1, 4, type="stage.expanded", node="bill"),
            *(a_completed_row(1, 5 + item, node="bill", item=4 - item) for item in range(5)),
            a_row(1, 10, type="run.completed"),
            a_completed_row(2, 1, node="check"),
            a_completed_row(3, 1, node="check"),
        ]
        put(store, *map(Insert, rows))

        expected = {
            NodeRows(a_key(1), "check", "stage.retrying", 2, 2, 1),
            NodeRows(a_key(1), "check", "stage.completed", 3, 3, 1),
            NodeRows(a_key(1), "bill", "stage.expanded", 4, 4, 1),
            NodeRows(a_key(1), "bill", "stage.completed", 5, 9, 5),
        }
        found = query(store, lambda tx: tx.find(NodeSummaries({a_key(1), a_key(2), a_key(9)})))
        assert {rows for rows in found if rows.run == a_key(1)} == expected
        assert {rows.run for rows in found} == {a_key(1), a_key(2)}
        assert len(found) == len(expected) + 1
        assert set(store.read(NodeRowsOf(a_key(1)))) == expected
        assert store.read(NodeRowsOf(a_key(9))) == ()

    def test_rows_of_a_history_are_read_by_number(self, store: Persistence) -> None:
        """Of many runs at once, ascending; missing ones are left out."""
        put(store, *(Insert(a_run(run)) for run in (1, 2)))
        rows = {(run, number): a_completed_row(run, number) for run in (1, 2) for number in (1, 2, 3)}
        put(store, *map(Insert, rows.values()))

        wanted = [(a_key(2), 1), (a_key(1), 3), (a_key(1), 1), (a_key(1), 4), (a_key(1), 0), (a_key(3), 1)]
        found = query(store, lambda tx: tx.get(HISTORY, wanted))

        assert found == [rows[1, 1], rows[1, 3], rows[2, 1]]

    def test_rows_of_a_history_that_begins_later_are_read_by_number(self, store: Persistence) -> None:
        """A fork may start its history after the rows that it keeps of other generations."""
        put(store, Insert(a_run(1, last_row=9, inherited=f'[["{a_key(7)}",6]]')))
        rows = [a_row(1, number) for number in (7, 8, 9)]
        put(store, *map(Insert, rows))

        wanted = [(a_key(1), number) for number in (1, 3, 6, 7, 9, 10)]

        assert query(store, lambda tx: tx.get(HISTORY, wanted)) == [rows[0], rows[2]]
        assert store.read(HistoryOf(a_key(1))) == tuple(rows)
        assert store.read(HistoryOf(a_key(1), after=7, limit=1)) == (rows[1],)
        assert [row.number for row in store.read(StreamRows((StreamStart(a_key(1), 0, 0),), 2))] == [7, 8]
        assert [row.number for row in store.read(StreamRows((StreamStart(a_key(1), 8, 0),), 2))] == [9]
        (run,) = query(store, lambda tx: tx.lock(RUNS, [a_key(1)]))
        assert (run.first_row, run.kept_rows) == (7, (KeptRows(a_key(7), 6),))

    def test_the_newest_generation_of_a_name_is_returned(self, store: Persistence) -> None:
        """Older generations are left out."""
        old = a_run(1, id="order", status=RunStatus.FAILED)
        new = a_run(2, id="order", generation=2)
        put(store, Insert(old))
        put(store, Insert(new))

        assert [new] == query(store, lambda tx: tx.find(LatestRuns([RunName(NAMESPACE, "order")])))

    def test_the_newest_generation_is_the_highest_number(self, store: Persistence) -> None:
        """Generation 10 is newer than generation 9."""
        for generation in range(1, 11):
            put(store, Insert(a_run(generation, id="order", generation=generation)))

        (run,) = query(store, lambda tx: tx.find(LatestRuns([RunName(NAMESPACE, "order")])))

        assert run.generation == 10

    def test_an_older_generation_that_is_updated_is_not_the_newest(self, store: Persistence) -> None:
        """Even if it was written last."""
        put(store, Insert(a_run(1, id="order")))
        put(store, Insert(a_run(2, id="order", generation=2)))
        put(store, Update(a_run(1, id="order", status=RunStatus.CANCELLED)))

        (run,) = query(store, lambda tx: tx.find(LatestRuns([RunName(NAMESPACE, "order")])))

        assert run.key == a_key(2)

    def test_several_names_are_looked_up_at_once(self, store: Persistence) -> None:
        """Unknown names are left out."""
        put(store, Insert(a_run(1, id="a")), Insert(a_run(2, id="b")), Insert(a_run(3, id="c")))
        names = [RunName(NAMESPACE, "c"), RunName(NAMESPACE, "a"), RunName(NAMESPACE, "nobody")]

        assert {"a", "c"} == {run.id for run in query(store, lambda tx: tx.find(LatestRuns(names)))}

    def test_the_first_job_is_found_with_its_run_if_it_drives_a_function(self, store: Persistence) -> None:
        """Jobs of stages, and later jobs, are left out."""
        driver = a_job(1, 1, kind=JobKind.WORKFLOW)
        put_run(store, a_run(1, id="a"), driver, a_job(1, 2, kind=JobKind.STEP))
        put_run(store, a_run(2, id="b"), a_job(2, 1))
        put_run(store, a_run(3, id="c"), a_job(3, 2, kind=JobKind.WORKFLOW))
        put_run(store, a_run(4, id="d"), a_job(4, 1, kind=JobKind.WORKFLOW))
        names = [RunName(NAMESPACE, name) for name in ("c", "b", "a", "nobody", "nul \0")]

        found = store.transact(lambda tx: tx.find(LatestRunsAndDrivers(names)))

        assert [run.id for run in found.runs] == ["a", "b", "c"]
        assert (list(found.jobs), list(found.sessions)) == ([driver], [])
        nothing = store.transact(lambda tx: tx.find(LatestRunsAndDrivers([])))
        assert (list(nothing.runs), list(nothing.jobs)) == ([], [])

    def test_only_the_driver_of_the_newest_generation_is_found(self, store: Persistence) -> None:
        """The job of an older one is left out, even if that is still open."""
        put_run(store, a_run(1, id="order"), a_job(1, 1, kind=JobKind.WORKFLOW))
        newest = a_job(2, 1, kind=JobKind.WORKFLOW)
        put_run(store, a_run(2, id="order", generation=2), newest)

        found = store.transact(lambda tx: tx.find(LatestRunsAndDrivers([RunName(NAMESPACE, "order")])))

        assert [run.generation for run in found.runs] == [2]
        assert list(found.jobs) == [newest]

    def test_a_name_is_a_namespace_and_an_id_together(self, store: Persistence) -> None:
        """A query for (a, x) and (b, y) finds neither (a, y) nor (b, x)."""
        put(store, Insert(a_run(1, namespace="a", id="y")), Insert(a_run(2, namespace="b", id="x")))
        put(store, Insert(a_run(3, namespace="a", id="x")))

        found = query(store, lambda tx: tx.find(LatestRuns([RunName("a", "x"), RunName("b", "y")])))

        assert [a_key(3)] == [run.key for run in found]

    def test_a_name_is_compared_letter_by_letter(self, store: Persistence) -> None:
        """Names that differ in case, accents or a trailing space are different names."""
        names = ["order", "Order", "ordér", "order "]
        put(store, *(Insert(a_run(number, id=name)) for number, name in enumerate(names)))

        for number, name in enumerate(names):
            found = query(store, partial(_named, name=name))
            assert [a_key(number)] == [run.key for run in found]

    def test_active_runs_are_those_that_have_not_ended(self, store: Persistence) -> None:
        """Every status except the terminal ones is active."""
        runs = [a_run(number, status=status) for number, status in enumerate(RunStatus)]
        put(store, *map(Insert, runs))

        active = [run.key for run in runs if run.status not in TERMINAL]
        assert active == query(store, lambda tx: tx.find(ActiveRuns("", 100)))

    def test_active_runs_are_paged_by_key(self, store: Persistence) -> None:
        """The next page starts after the last key of this one; the order is ascending."""
        put(store, *(Insert(a_run(number)) for number in (5, 3, 1, 4, 2)))

        assert [a_key(1), a_key(2)] == query(store, lambda tx: tx.find(ActiveRuns("", 2)))
        assert [a_key(3), a_key(4)] == query(store, lambda tx: tx.find(ActiveRuns(a_key(2), 2)))
        assert [a_key(5)] == query(store, lambda tx: tx.find(ActiveRuns(a_key(4), 2)))
        assert query(store, lambda tx: tx.find(ActiveRuns(a_key(5), 2))) == []

    def test_a_run_with_the_jobs_that_its_row_says_is_sound(self, store: Persistence) -> None:
        """Nothing is reported without a problem; unknown keys are left out."""
        put_run(store, a_run(1), a_job(1, 1), a_job(1, 2))

        assert query(store, lambda tx: tx.find(IncompleteRuns([a_key(1), a_key(2)]))) == []

    def test_a_run_without_a_job_is_unsound(self, store: Persistence) -> None:
        """A running run without a job can't continue."""
        put(store, Insert(a_run(1, open_jobs=0)))

        assert [a_key(1)] == query(store, lambda tx: tx.find(IncompleteRuns([a_key(1)])))

    def test_a_run_that_was_not_admitted_needs_no_job(self, store: Persistence) -> None:
        """It may be paused or blocked before its admission."""
        waits = (RunStatus.PENDING, RunStatus.PAUSED, RunStatus.BLOCKED)
        put(
            store,
            *(
                Insert(a_run(number, status=status, last_job=0, open_jobs=0))
                for number, status in enumerate(waits, 1)
            ),
        )

        keys = [a_key(number) for number, _ in enumerate(waits, 1)]
        assert query(store, lambda tx: tx.find(IncompleteRuns(keys))) == []

    def test_a_run_with_other_than_its_number_of_jobs_is_unsound(self, store: Persistence) -> None:
        """Too few and too many jobs are reported, for the requested runs only."""
        put_run(store, a_run(1), a_job(1, 1))
        put_run(store, a_run(2), a_job(2, 1))
        put_run(store, a_run(3), a_job(3, 1))
        put(store, Update(a_run(1, open_jobs=2)), Update(a_run(2, open_jobs=0)))

        assert {a_key(1), a_key(2)} == set(
            query(store, lambda tx: tx.find(IncompleteRuns([a_key(1), a_key(2), a_key(3)])))
        )
        assert [a_key(2)] == query(store, lambda tx: tx.find(IncompleteRuns([a_key(2)])))

    def test_completed_stages_come_in_the_order_of_the_history(self, store: Persistence) -> None:
        """Completed stages and items, and no other row."""
        put_run(store, a_run(1), a_job(1, 1))
        put(store, Insert(a_row(1, 1, type="stage.retrying", node="read")))
        put(store, Insert(a_completed_row(1, 2, node="read")))
        put(store, *(Insert(a_completed_row(1, 3 + at, node="bill", item=9 - at)) for at in range(10)))

        expected = [
            CompletedRow(a_key(1), 2, "read", None),
            *(CompletedRow(a_key(1), 3 + at, "bill", 9 - at) for at in range(10)),
        ]
        assert expected == query(store, lambda tx: tx.find(NodeResults([a_key(1)])))

    def test_completed_stages_are_told_of_several_runs(self, store: Persistence) -> None:
        """Those of each run are in order; other runs are left out."""
        for number in (1, 2, 3):
            put_run(store, a_run(number), a_job(number, 1))
            put(store, *(Insert(a_completed_row(number, row, node=f"n{row}")) for row in (1, 2)))

        found = query(store, lambda tx: tx.find(NodeResults([a_key(3), a_key(1), a_key(4)])))

        for number in (1, 3):
            assert [row.number for row in found if row.run == a_key(number)] == [1, 2]
        assert {a_key(1), a_key(3)} == {row.run for row in found}

    def test_what_else_became_of_stages_is_told_by_type(self, store: Persistence) -> None:
        """Rows of the requested types, with their types, in the order of the history."""
        types = (STAGE_FAILED, STAGE_COMPLETED, STAGE_SUSPENDED, _SKIPPED, "stage.failed.not")
        for run in (1, 2, 3):
            put_run(store, a_run(run), a_job(run, 1))
            rows = (
                a_row(run, number, type=type_, node="bill", item=9 - number)
                for number, type_ in enumerate(types, 1)
            )
            put(store, *map(Insert, rows))

        def noted_rows(*wanted: str) -> list[CompletedRow]:
            return query(store, lambda tx: tx.find(NodeResults([a_key(1), a_key(3), a_key(4)], types=wanted)))

        for wanted in (STAGE_OUTCOMES, (STAGE_FAILED,), (STAGE_SUSPENDED, _SKIPPED, _SKIPPED)):
            expected = [
                CompletedRow(a_key(run), number, "bill", 9 - number, type_)
                for run in (1, 3)
                for number, type_ in enumerate(types, 1)
                if type_ in wanted
            ]
            assert expected == noted_rows(*wanted)
        assert noted_rows("nothing of the kind") == noted_rows() == []

    def test_a_run_with_jobs_that_are_owed_beside_its_own_is_sound(self, store: Persistence) -> None:
        """Pending deliveries to others do not count as open jobs."""
        put_run(store, a_run(1), a_job(1, 1))
        put(store, Insert(a_job(1, 2, kind=JobKind.DELIVER, state=JobState.PENDING_DELIVERY)))

        assert query(store, lambda tx: tx.find(IncompleteRuns([a_key(1)]))) == []

    def test_a_run_whose_only_jobs_are_owed_is_unsound(self, store: Persistence) -> None:
        """They can't continue the run, whether its row counts them or not."""
        for run, open_jobs in ((1, 0), (2, 1)):
            put(store, Insert(a_run(run, open_jobs=open_jobs, last_job=1)))
            put(store, Insert(a_job(run, 1, kind=JobKind.DELIVER, state=JobState.PENDING_DELIVERY)))

        assert [a_key(1), a_key(2)] == sorted(
            query(store, lambda tx: tx.find(IncompleteRuns([a_key(1), a_key(2)])))
        )

    def test_a_run_that_has_ended_is_sound_whatever_it_owes(self, store: Persistence) -> None:
        """Whatever deliveries are pending."""
        put(store, Insert(a_run(1, status=RunStatus.COMPLETED)))
        put(store, Insert(a_job(1, 1, kind=JobKind.DELIVER, state=JobState.PENDING_DELIVERY)))

        assert query(store, lambda tx: tx.find(IncompleteRuns([a_key(1)]))) == []


def _named(tx: Transaction, name: str) -> Sequence[Run]:
    return tx.find(LatestRuns([RunName(NAMESPACE, name)]))
