"""The contract of a store for unreadable rows: they are found, and their runs can be blocked without being read."""

from typing import Any

import pytest
from attrs import evolve

from holdfast.ports.changes import BlockRun, DeleteJobs, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.audit import UnreadableRows
from holdfast.ports.queries.schedules import ListSchedules
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import DueSchedules, RunOutlines
from holdfast.ports.unreadable import RunOutline, Unreadable
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_job,
    a_key,
    a_page,
    a_row,
    a_run,
    a_schedule,
)
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    jobs_of,
    put,
    put_run,
    the_run,
)
from holdfast.testing.conformance.persistence.jobs import FULL_JOB
from holdfast.testing.conformance.persistence.runs import FULL_RUN

LATER = NOW + 60_000_000


class UnreadableRuns(PersistenceCase):
    """UnreadableRows, Transaction.outlines and BlockRun; and schedules that can't be read."""

    def test_what_can_be_read_is_not_found(self, store: Persistence) -> None:
        """Nor are missing runs."""
        put(store, Insert(FULL_RUN), Insert(evolve(FULL_JOB, run=FULL_RUN.key)))
        put_run(store, a_run(8), a_job(8, 1))
        put(store, Insert(a_row(8, 1, data='{"a":[]}', payload=Payload(blob=f"t/s/e/1/{'a' * 64}"))))

        assert store.read(UnreadableRows((FULL_RUN.key, a_key(8), a_key(9), "\0"))) == ()
        assert store.read(UnreadableRows(())) == ()

    def test_each_column_that_can_not_be_read_is_found_once(self, store: Persistence) -> None:
        """With the reason; sorted by table, run and column; only of the requested runs."""
        put_run(store, a_run(1, progress="["), a_job(1, 1, input="{"), a_job(1, 2, input='["map"]'))
        put(store, Insert(a_row(1, 1, data="[]", payload=Payload(blob="no key"))))
        put(store, Insert(evolve(a_page(1), items="{")))
        put_run(store, a_run(2, progress="["))

        found = store.read(UnreadableRows((a_key(1),)))

        assert [one[:3] for one in found] == [
            ("holdfast_history", a_key(1), "blob"),
            ("holdfast_history", a_key(1), "data"),
            ("holdfast_jobs", a_key(1), "input"),
            ("holdfast_map_items", a_key(1), "items"),
            ("holdfast_runs", a_key(1), "progress"),
        ]
        assert found[-1] == Unreadable("holdfast_runs", a_key(1), "progress", "it is '[', not a JSON object")

    def test_jobs_without_a_run_are_found(self, store: Persistence) -> None:
        """By the column that refers to the run."""
        put(store, Insert(a_job(5, 1)))

        (found,) = store.read(UnreadableRows((a_key(5),)))
        assert found[:3] == ("holdfast_jobs", a_key(5), "run")

    @pytest.mark.parametrize("lock", [False, True])
    def test_an_outline_is_what_can_be_read_whatever_a_row_holds(
        self, store: Persistence, *, lock: bool
    ) -> None:
        """The last row comes from the history, not from the row of the run."""
        put_run(store, a_run(1, progress="[", last_row=7))
        put(store, Insert(a_row(1, 1)), Insert(a_row(1, 3)))
        run = a_run(2)
        put_run(store, run)

        found = store.transact(
            lambda tx: tx.find(RunOutlines([a_key(2), a_key(1), a_key(9), "\0"], locks=lock))
        )

        first = a_run(1)
        assert list(found) == [
            RunOutline(first.key, first.namespace, first.id, first.workflow, first.version, "running", 3),
            RunOutline(run.key, run.namespace, run.id, run.workflow, run.version, "running", 0),
        ]

    def test_a_run_is_blocked_and_its_jobs_are_held(self, store: Persistence) -> None:
        """Except leased jobs and pending deliveries; other fields do not change."""
        states = (
            JobState.QUEUED,
            JobState.SLEEPING,
            JobState.LIMITED,
            JobState.LEASED,
            JobState.PENDING_DELIVERY,
        )
        jobs = [a_job(1, number, state=state) for number, state in enumerate(states, 1)]
        leased = evolve(jobs[3], session="s-1", leased_at=NOW)
        put_run(store, a_run(1), *jobs[:3], leased, jobs[4])
        put_run(store, a_run(2), a_job(2, 1))
        before = the_run(store, a_key(1))

        put(store, Insert(a_row(1, 4)), BlockRun(a_key(1), LATER, 4))

        expected = evolve(before, status=RunStatus.BLOCKED, updated_at=LATER, last_row=4)
        assert the_run(store, a_key(1)) == expected
        now = jobs_of(store, a_key(1))
        held = [JobState.PAUSED, JobState.PAUSED, JobState.PAUSED]
        assert [job.state for job in now] == [*held, JobState.LEASED, JobState.PENDING_DELIVERY]
        assert now[3] == leased
        assert the_run(store, a_key(2)).status is RunStatus.RUNNING
        assert [job.state for job in jobs_of(store, a_key(2))] == [JobState.QUEUED]

    def test_a_run_that_has_ended_stays_so(self, store: Persistence) -> None:
        """Its jobs are paused."""
        put_run(store, a_run(1, status=RunStatus.FAILED), a_job(1, 1))

        put(store, BlockRun(a_key(1), LATER, 1))

        assert the_run(store, a_key(1)).status is RunStatus.FAILED
        assert [job.state for job in jobs_of(store, a_key(1))] == [JobState.PAUSED]

    def test_jobs_are_held_that_have_no_run(self, store: Persistence) -> None:
        """Only the jobs change."""
        put(store, Insert(a_job(5, 1)))

        put(store, BlockRun(a_key(5), LATER, None))

        assert [job.state for job in jobs_of(store, a_key(5))] == [JobState.PAUSED]

    @pytest.mark.parametrize(
        "field", ["start", "timing", "policy", "recent", "changes", "open_runs", "paused"]
    )
    @pytest.mark.parametrize("text", ["", "{", "[" * 5_000, "null", '"x"', "0x\u202e"])
    def test_a_schedule_that_is_no_json_holds_up_no_other(
        self, store: Persistence, field: str, text: str
    ) -> None:
        """It is found and listed like others: the kernel stores what is wrong with it."""
        wrong: dict[str, Any] = {field: text}
        damaged, sound = evolve(a_schedule(1), **wrong), a_schedule(2)
        put(store, Insert(damaged), Insert(sound))

        search = DueSchedules(NAMESPACE, ["orders"], 10)
        assert list(store.transact(lambda tx: tx.find(search, NOW))) == [damaged, sound]
        assert store.read(ListSchedules(namespace=NAMESPACE)) == (damaged, sound)
        put(store, Update(evolve(damaged, problem="it can't be read", next_at=None)))
        assert list(store.transact(lambda tx: tx.find(search, NOW))) == [sound]

    def test_what_was_blocked_can_be_ended(self, store: Persistence) -> None:
        """Paused jobs are deleted like others."""
        put_run(store, a_run(1), a_job(1, 1))
        put(store, BlockRun(a_key(1), LATER, 1))

        put(store, DeleteJobs(a_key(1)))

        assert jobs_of(store, a_key(1)) == []
