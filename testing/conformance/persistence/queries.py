"""The contract of a store for queries: `Persistence.read`."""

import pytest
from attrs import evolve

from holdfast.ports.changes import Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import (
    HistoriesOf,
    HistoryOf,
    LastHeartbeat,
    NewestRows,
    NotesOf,
    OutputRows,
)
from holdfast.ports.queries.runs import FindRun, JobsOfRun, QueuedJobs, RunsByKey
from holdfast.ports.queries.store import CountAll, DueKind, EarliestDue, SchemaVersion, StoreTime
from holdfast.ports.queries.values import LoadedWork, LoadValues, LoadWork, PlansByFingerprint
from holdfast.ports.records.job import JobKey, JobState
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, item_reference, map_reference, of_run, partial_reference
from holdfast.ports.searches import CompletedRow
from holdfast.testing.conformance.builders import (
    DEFINITION,
    NAMESPACE,
    NOW,
    a_completed_row,
    a_failed_row,
    a_job,
    a_key,
    a_leased_job,
    a_note,
    a_page,
    a_plan,
    a_row,
    a_run,
)
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    UnknownQuery,
    put,
    put_jobs,
    put_run,
)
from holdfast.testing.conformance.persistence.jobs import FULL_JOB
from holdfast.testing.conformance.persistence.runs import FULL_RUN


class Queries(PersistenceCase):
    """Each class of query."""

    def test_the_newest_generation_of_a_run_is_found(self, store: Persistence) -> None:
        """FindRun without a generation."""
        put(store, Insert(a_run(1, id="order", status=RunStatus.FAILED)))
        put(store, Insert(a_run(2, id="order", generation=2)))
        put(store, Insert(a_run(3, id="order", namespace="tenant-2")))

        assert a_run(2, id="order", generation=2) == store.read(FindRun(RunName(NAMESPACE, "order")))

    def test_the_given_generation_of_a_run_is_found(self, store: Persistence) -> None:
        """FindRun with a generation."""
        old = a_run(1, id="order", status=RunStatus.FAILED)
        put(store, Insert(old))
        put(store, Insert(a_run(2, id="order", generation=2)))

        assert old == store.read(FindRun(RunName(NAMESPACE, "order"), 1))
        assert None is store.read(FindRun(RunName(NAMESPACE, "order"), 3))

    def test_a_run_that_is_not_there_is_none(self, store: Persistence) -> None:
        """FindRun in another namespace, or by another id."""
        put(store, Insert(a_run(1, id="order")))

        assert None is store.read(FindRun(RunName("tenant-2", "order")))
        assert None is store.read(FindRun(RunName(NAMESPACE, "Order")))

    def test_runs_are_found_by_key(self, store: Persistence) -> None:
        """RunsByKey leaves out missing runs; every field survives."""
        put(store, Insert(FULL_RUN), Insert(a_run(1)), Insert(a_run(2)))

        found = store.read(RunsByKey((a_key(1), FULL_RUN.key, a_key(9))))

        assert isinstance(found, tuple)
        assert [a_run(1), FULL_RUN] == sorted(found, key=lambda run: run.key)
        assert store.read(RunsByKey(())) == ()

    def test_jobs_of_a_run_come_by_number(self, store: Persistence) -> None:
        """JobsOfRun, in any state; 9 comes before 10; every field survives."""
        put_jobs(store, *(a_job(1, number) for number in (10, 9, 2, 1)), FULL_JOB, a_job(2, 1))

        assert tuple(job.number for job in store.read(JobsOfRun(a_key(1)))) == (1, 2, 9, 10, 12)
        assert store.read(JobsOfRun(a_key(1)))[-1] == FULL_JOB
        assert store.read(JobsOfRun(a_key(3))) == ()

    def test_queued_jobs_of_quiet_runs_are_found_by_key(self, store: Persistence) -> None:
        """QueuedJobs leaves out other states, definitions and namespaces, and runs changed since; 9 comes before 10."""
        put_run(
            store,
            a_run(2, updated_at=NOW),
            a_job(2, 10),
            a_job(2, 9, priority=-1),
            a_job(2, 1, queue="other"),
            a_job(2, 2, state=JobState.SLEEPING, wake_at=NOW),
            a_job(2, 3, state=JobState.PAUSED),
            a_job(2, 4, definition="nobody's@1"),
            a_leased_job(2, 5, session="S"),
        )
        put_run(store, a_run(1, updated_at=NOW - 1), a_job(1, 1, definition="other@2"))
        put_run(store, a_run(3, updated_at=NOW + 1), a_job(3, 1))
        put_run(store, a_run(4, updated_at=NOW, namespace="tenant-2"), a_job(4, 1, namespace="tenant-2"))

        found = store.read(self._queued())

        assert (
            a_job(1, 1, definition="other@2"),
            a_job(2, 1, queue="other"),
            a_job(2, 9, priority=-1),
            a_job(2, 10),
        ) == found

    def test_queued_jobs_are_read_page_by_page(self, store: Persistence) -> None:
        """QueuedJobs starts after a job and ends at the limit."""
        keys: list[JobKey] = []
        for run in (1, 2, 3):
            put_run(store, a_run(run, updated_at=NOW), *(a_job(run, number) for number in range(1, 12)))

        after = None
        while page := store.read(self._queued(after=after, limit=4)):
            assert len(page) <= 4
            keys += [job.key for job in page]
            after = keys[-1]

        assert [JobKey(a_key(run), number) for run in (1, 2, 3) for number in range(1, 12)] == keys

    def test_no_queued_job_is_found_where_nothing_is_asked_for(self, store: Persistence) -> None:
        """QueuedJobs without definitions, with texts that can't be stored, or with limit 0."""
        put_run(store, a_run(1, updated_at=NOW), a_job(1, 1))

        assert store.read(self._queued(definitions=())) == ()
        assert store.read(self._queued(definitions=("nul \0", "half \ud800"))) == ()
        assert store.read(self._queued(namespace="nul \0")) == ()
        assert store.read(self._queued(limit=0)) == ()

    def test_history_is_read_page_by_page(self, store: Persistence) -> None:
        """HistoryOf starts after a row and ends at the limit; 9 comes before 10."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        rows = tuple(a_row(1, number) for number in range(1, 13))
        put(store, *map(Insert, rows), Insert(a_row(2, 1)))

        assert rows == store.read(HistoryOf(a_key(1)))
        assert rows[:5] == store.read(HistoryOf(a_key(1), limit=5))
        assert rows[5:10] == store.read(HistoryOf(a_key(1), after=5, limit=5))
        assert rows[10:] == store.read(HistoryOf(a_key(1), after=10, limit=5))
        assert store.read(HistoryOf(a_key(1), after=12)) == ()
        assert store.read(HistoryOf(a_key(3))) == ()

    def test_histories_of_several_runs_are_read_together(self, store: Persistence) -> None:
        """HistoriesOf begins after a row of its own in each run, and ends at the limit; 9 comes before 10."""
        put_jobs(store, a_job(1, 1), a_job(2, 1), a_job(3, 1))
        first = tuple(a_row(1, number) for number in range(1, 13))
        third = tuple(a_row(3, number) for number in range(1, 4))
        put(store, *map(Insert, (*first, a_row(2, 1), *third)))

        whole = HistoriesOf(((a_key(1), 0), (a_key(3), 0)))
        assert store.read(whole) == (*first, *third)
        assert store.read(HistoriesOf(((a_key(3), 2), (a_key(1), 7)))) == (*first[7:], *third[2:])
        assert store.read(HistoriesOf(((a_key(1), 10), (a_key(3), 0)), limit=4)) == (*first[10:], *third[:2])
        assert store.read(HistoriesOf(((a_key(1), 12), (a_key(2), 1)))) == ()
        assert store.read(HistoriesOf(((a_key(4), 0), ("nul \0", 0), ("half \ud800", 0)))) == ()
        assert store.read(HistoriesOf(())) == ()

    def test_the_newest_rows_of_a_type_are_read_page_by_page(self, store: Persistence) -> None:
        """NewestRows returns rows of one type, the last first, before a row, up to the limit."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        kinds = ("stage.completed", "value.published", "value.published", "run.paused", "value.published")
        shown = [evolve(a_row(1, number), type=kind) for number, kind in enumerate(kinds, 1)]
        put(store, *map(Insert, (*shown, evolve(a_row(2, 1), type="value.published"))))

        def newest(before: int | None = None, limit: int = 100) -> list[int]:
            query = NewestRows(run=a_key(1), type="value.published", before=before, limit=limit)
            return [row.number for row in store.read(query)]

        assert newest() == [5, 3, 2]
        assert newest(limit=2) == [5, 3]
        assert newest(before=3) == [2]
        assert newest(before=2) == []
        assert store.read(NewestRows(run=a_key(1), type="value.published"))[0] == shown[4]

    def test_notes_are_read_page_by_page(self, store: Persistence) -> None:
        """NotesOf returns them by id, after an id, up to the limit."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(
            store,
            *(Insert(a_note(number)) for number in (3, 1, 4, 2)),
            Insert(a_note(5, run=2)),
        )

        assert tuple(a_note(number) for number in (1, 2, 3, 4)) == store.read(NotesOf(a_key(1)))
        assert (a_note(1), a_note(2)) == store.read(NotesOf(a_key(1), limit=2))
        assert (a_note(3), a_note(4)) == store.read(NotesOf(a_key(1), after=a_key(2)))
        assert store.read(NotesOf(a_key(1), after=a_key(4))) == ()

    def test_the_last_heartbeat_before_an_attempt_is_the_newest_of_its_job(self, store: Persistence) -> None:
        """LastHeartbeat reads one job, heartbeats only, and earlier epochs only."""
        put_jobs(store, a_job(1, 1), a_job(1, 2))
        put(
            store,
            *map(
                Insert,
                (
                    a_note(1, kind="heartbeat", epoch=1),
                    a_note(2, kind="heartbeat", epoch=1),
                    a_note(3, kind="log", epoch=1),
                    a_note(4, kind="heartbeat", epoch=1, job=2),
                    a_note(5, kind="heartbeat", epoch=3),
                    a_note(6, kind="heartbeat", epoch=1, run=2),
                ),
            ),
        )

        def last(before: int, run: int = 1, job: int = 1) -> str | None:
            note = store.read(LastHeartbeat(a_key(run), job, before))
            return None if note is None else note.id

        assert [last(1), last(2), last(3), last(4)] == [None, a_key(2), a_key(2), a_key(5)]
        assert [last(9, job=2), last(9, job=3), last(9, run=2), last(9, run=3)] == [
            a_key(4),
            None,
            a_key(6),
            None,
        ]

    def test_plans_are_read_by_fingerprint(self, store: Persistence) -> None:
        """PlansByFingerprint leaves out missing plans."""
        put(store, Insert(a_plan(1)), Insert(a_plan(2)))

        assert (a_plan(2),) == store.read(PlansByFingerprint((a_plan(2).fingerprint, "0" * 64)))
        assert store.read(PlansByFingerprint(())) == ()

    def test_the_value_of_a_history_row_is_loaded(self, store: Persistence) -> None:
        """Inline or in a blob."""
        blob = Payload(blob=f"a/{'0' * 64}")
        put_jobs(store, a_job(1, 1))
        put(store, Insert(a_completed_row(1, 1, output='{"b":1,"a":1.0}')))
        put(store, Insert(a_row(1, 2, payload=blob)))

        assert [(Payload(inline='{"b":1,"a":1.0}'),), (blob,)] == self._load(store, 1, 2)

    def test_the_value_of_an_item_is_loaded(self, store: Persistence) -> None:
        """At its place in its page; inline or in a blob."""
        blob = Payload(blob=f"a/{'0' * 64}")
        put_jobs(store, a_job(1, 1))
        put(store, Insert(a_page(1, 0, items=(Payload(inline="0"), Payload(inline='"é"')))))
        put(store, Insert(a_page(1, 1, items=(blob, Payload(inline="null")))))

        wanted = [item_reference("bill", page, at) for page, at in ((1, 1), (0, 0), (1, 0), (0, 1))]

        expected = [(Payload(inline="null"),), (Payload(inline="0"),), (blob,), (Payload(inline='"é"'),)]
        assert expected == self._load(store, *wanted)

    def test_the_values_of_a_map_are_loaded_in_the_order_of_its_items(self, store: Persistence) -> None:
        """Whatever the order of completion; rows of other stages in between are left out."""
        put_jobs(store, a_job(1, 1))
        rows = [
            a_completed_row(1, 1, node="bill", item=99, output='"before"'),
            a_row(1, 2, type="stage.expanded", node="bill"),
            *(a_completed_row(1, 3 + at, node="bill", item=11 - at, output=str(11 - at)) for at in range(6)),
            a_completed_row(1, 9, node="other", output='"other"'),
            a_row(1, 10, type="stage.retrying", node="bill", item=0, payload=Payload(inline='"no output"')),
            *(a_completed_row(1, 11 + at, node="bill", item=5 - at, output=str(5 - at)) for at in range(6)),
            a_completed_row(1, 17, node="bill", item=98, output='"after"'),
        ]
        put(store, *map(Insert, rows))

        (loaded,) = self._load(store, map_reference("bill", 2, 16))

        assert [str(number) for number in range(12)] == [payload.inline for payload in loaded]

    def test_values_of_several_runs_are_loaded_at_once(self, store: Persistence) -> None:
        """Each value has its run and reference; their order is free."""
        put_jobs(store, *(a_job(run, 1) for run in range(1, 51)))
        put(
            store,
            *(Insert(a_completed_row(run, 1, item=0, output=f'"{run}"')) for run in range(1, 51)),
        )
        put(store, *(Insert(a_page(run, 0, items=(Payload(inline=f"[{run}]"),))) for run in range(1, 51)))
        references: tuple[Reference, ...] = (1, item_reference("bill", 0, 0), map_reference("bill", 1, 1))

        found = store.read(
            LoadValues(tuple((a_key(run), reference) for run in range(1, 51) for reference in references))
        )

        values = {
            (value.run, value.reference): [payload.inline for payload in value.payloads] for value in found
        }
        for run in range(1, 51):
            assert [[f'"{run}"'], [f"[{run}]"], [f'"{run}"']] == [
                values[a_key(run), which] for which in references
            ]

    def test_a_value_of_another_run_is_loaded_from_there(self, store: Persistence) -> None:
        """A row, an item and a map; the value has the requested reference."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        for run in (1, 2):
            put(
                store,
                Insert(a_completed_row(run, 1, node="read", output=f'"of {run}"')),
                *(Insert(a_completed_row(run, 2 + at, item=at, output=f"{run}{at}")) for at in range(2)),
                Insert(a_page(run, 0, items=(Payload(inline=f"[{run}]"),))),
            )
        there: tuple[Reference, ...] = (1, item_reference("bill", 0, 0), map_reference("bill", 1, 3), 9)
        wanted = tuple((a_key(1), of_run(a_key(2), reference)) for reference in there)

        found = {
            (value.run, value.reference): [payload.inline for payload in value.payloads]
            for value in store.read(LoadValues((*wanted, (a_key(1), 1))))
        }

        assert [found[key] for key in wanted] == [['"of 2"'], ["[2]"], ["20", "21"], []]
        assert found[a_key(1), 1] == ['"of 1"']

    def test_the_failures_of_a_map_are_loaded_in_the_order_of_its_items(self, store: Persistence) -> None:
        """Completed items are left out, as failures are of the map's outputs; so are rows outside the range."""
        blob = Payload(blob=f"a/{'0' * 64}")
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        rows = [
            a_failed_row(1, 1, item=99, why='"before"'),
            a_failed_row(1, 2, item=7, why='"seven"'),
            a_completed_row(1, 3, item=6, output='"six"'),
            a_row(1, 4, type="stage.retrying", node="bill", item=5, payload=Payload(inline='"tried"')),
            a_failed_row(1, 5, item=4, node="other", why='"other"'),
            evolve(a_failed_row(1, 6, item=3), payload=blob),
            a_failed_row(1, 7, item=0, why='"zero"'),
            a_completed_row(1, 8, item=1, output='"one"'),
            a_failed_row(1, 9, item=98, why='"after"'),
        ]
        put(store, *map(Insert, rows), Insert(a_failed_row(2, 5, item=1, why='"of 2"')))

        failures, results, none = self._load(
            store, ("failures", "bill", 2, 8), map_reference("bill", 2, 8), ("failures", "bill", 3, 5)
        )

        assert failures == (Payload(inline='"zero"'), blob, Payload(inline='"seven"'))
        assert results == (Payload(inline='"one"'), Payload(inline='"six"'))
        assert none == ()

    def test_the_failures_of_a_map_of_another_run_are_loaded_from_there(self, store: Persistence) -> None:
        """Under the requested reference, beside those of the run itself."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        for run in (1, 2):
            rows = (a_failed_row(run, 1 + at, item=2 - at, why=f"{run}{2 - at}") for at in range(3))
            put(store, *map(Insert, rows), Insert(a_completed_row(run, 4, item=3, output="9")))
        here: Reference = ("failures", "bill", 1, 4)
        wanted = [here, *(of_run(a_key(2), part) for part in (here, map_reference("bill", 1, 4)))]
        wanted += [of_run(a_key(9), here)]

        loaded = self._load(store, *wanted)

        assert [[payload.inline for payload in payloads] for payloads in loaded] == [
            ["10", "11", "12"],
            ["20", "21", "22"],
            ["9"],
            [],
        ]

    def test_what_a_partial_reference_stands_for_is_asked_for_by_its_parts(self, store: Persistence) -> None:
        """Like a list: it is not stored as a whole."""
        with pytest.raises(TypeError):
            store.read(LoadValues(((a_key(1), partial_reference("bill", 1, 2)),)))

    def test_no_value_is_loaded_where_none_is_wanted(self, store: Persistence) -> None:
        """An empty query has an empty answer."""
        assert store.read(LoadValues(())) == ()

    def test_what_attempts_need_is_read_together(self, store: Persistence) -> None:
        """LoadWork: each run once, in any order, and values as in LoadValues; missing ones are left out."""
        put_jobs(store, a_job(1, 1), a_job(2, 1), a_job(2, 2))
        put(store, Insert(a_row(a_key(1), 1, payload=Payload(inline="1"))))
        jobs = tuple(
            (job, 1) for job in (a_job(1, 1).key, a_job(2, 1).key, a_job(2, 2).key, JobKey(a_key(9), 1))
        )
        wanted = ((a_key(1), 1), (a_key(1), 7), (a_key(2), item_reference("bill", 0, 0)))

        work = store.read(LoadWork(jobs, wanted))

        assert sorted(run.key for run in work.runs) == [a_key(1), a_key(2)]
        assert {run.key: run for run in work.runs} == {
            run.key: run for run in store.read(RunsByKey((a_key(1), a_key(2))))
        }
        assert work.values == store.read(LoadValues(wanted))
        assert [value.payloads for value in work.values] == [(Payload(inline="1"),), (), ()]
        assert store.read(LoadWork(jobs, ())).values == ()
        assert store.read(LoadWork((), ())) == LoadedWork((), ())

    def test_the_rows_in_which_a_stage_was_completed_are_told(self, store: Persistence) -> None:
        """OutputRows returns one for a stage, one for each item of a map, and no other row."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(store, Insert(a_row(1, 1, node="read")), Insert(a_completed_row(1, 2, node="read")))
        put(store, *(Insert(a_completed_row(1, 3 + at, node="bill", item=at)) for at in range(3)))
        put(store, Insert(a_completed_row(2, 1, node="read")))

        assert (CompletedRow(a_key(1), 2, "read", None),) == store.read(OutputRows(a_key(1), "read"))
        found = store.read(OutputRows(a_key(1), "bill"))
        assert {CompletedRow(a_key(1), 3 + at, "bill", at) for at in range(3)} == set(found)
        assert len(found) == 3
        assert store.read(OutputRows(a_key(1), "nobody's")) == ()

    def test_runs_and_jobs_are_counted(self, store: Persistence) -> None:
        """CountAll counts those of one namespace, by status and by state."""
        put_run(store, a_run(1), a_job(1, 1), a_job(1, 2), a_job(1, 3, state=JobState.SLEEPING, wake_at=NOW))
        put_run(store, a_run(2), a_job(2, 1, state=JobState.PAUSED))
        put_run(store, a_run(3, status=RunStatus.FAILED))
        put_run(store, a_run(4, namespace="tenant-2"), a_job(4, 1, namespace="tenant-2"))

        counts = store.read(CountAll(NAMESPACE))

        assert {status: n for status, n in counts.runs.items() if n} == {"running": 2, "failed": 1}
        assert {state: n for state, n in counts.jobs.items() if n} == {
            "queued": 2,
            "sleeping": 1,
            "paused": 1,
        }

    def test_an_empty_namespace_counts_nothing(self, store: Persistence) -> None:
        """CountAll of an unused namespace."""
        counts = store.read(CountAll("nobody's"))

        assert sum(counts.runs.values()) + sum(counts.jobs.values()) == 0

    def test_what_is_due_first_is_found_by_kind(self, store: Persistence) -> None:
        """EarliestDue reads all namespaces, and leaves out ended runs, ending runs and jobs without an instant."""
        assert store.read(EarliestDue()) == {}
        put_run(
            store,
            evolve(a_run(1), deadline=NOW + 9),
            a_job(1, 1, state=JobState.SLEEPING, wake_at=NOW + 5),
            a_job(1, 2, state=JobState.SLEEPING, wake_at=None),
            a_job(1, 3, state=JobState.PAUSED, wake_at=NOW + 1),
        )
        put_run(store, a_run(2, namespace="other"), a_job(2, 1, state=JobState.SLEEPING, wake_at=NOW + 4))
        put_run(store, evolve(a_run(3, status=RunStatus.PENDING), start_at=NOW + 8, deadline=NOW + 7))
        put_run(store, evolve(a_run(4, status=RunStatus.PENDING), start_at=NOW + 6))
        put_run(store, evolve(a_run(5, status=RunStatus.FAILED), start_at=NOW, deadline=NOW))
        put_run(
            store, evolve(a_run(6, status=RunStatus.CANCELLING), deadline=NOW, error='{"code": "timeout"}')
        )

        assert store.read(EarliestDue()) == {
            DueKind.SLEEP: NOW + 4,
            DueKind.START: NOW + 6,
            DueKind.DEADLINE: NOW + 7,
        }

    def test_the_time_of_the_store_goes_on_or_is_unknown(self, store: Persistence) -> None:
        """StoreTime is unknown, or microseconds since 1970 that never decrease."""
        first = store.read(StoreTime())
        second = store.read(StoreTime())

        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert NOW - 10 * 365 * 86_400_000_000 < first <= second

    def test_the_version_of_the_tables_is_told(self, store: Persistence) -> None:
        """SchemaVersion exists after `setup`, and stays the same."""
        version = store.read(SchemaVersion())

        assert version
        store.setup()
        assert version == store.read(SchemaVersion())

    def test_an_unknown_question_is_a_type_error(self, store: Persistence) -> None:
        """And has no effect."""
        with pytest.raises(TypeError):
            store.read(UnknownQuery())

    def _queued(
        self,
        *,
        namespace: str = NAMESPACE,
        definitions: tuple[str, ...] = (DEFINITION, "other@2"),
        after: JobKey | None = None,
        limit: int = 100,
    ) -> QueuedJobs:
        return QueuedJobs(
            namespace=namespace, definitions=definitions, quiet_since=NOW, after=after, limit=limit
        )

    def _load(self, store: Persistence, *references: Reference) -> list[tuple[Payload, ...]]:
        found = store.read(LoadValues(tuple((a_key(1), reference) for reference in references)))
        values = {value.reference: value.payloads for value in found if value.run == a_key(1)}
        return [values[reference] for reference in references]
