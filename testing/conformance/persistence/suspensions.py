"""The contract of a store for finding the jobs of external work."""

from collections.abc import Sequence
from typing import Final

import pytest

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.searches import DueJobs, ExternalJobs, StageJobs
from holdfast.ports.tables import JOBS
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_job, a_key, a_run
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_jobs, put_run, query

ORDER: Final = RunName(NAMESPACE, "order")
_WAKEABLE_STATES: Final = (JobState.SLEEPING, JobState.QUEUED, JobState.LEASED, JobState.PAUSED)


def _check(run: int, number: int, *, key: str | None = "work", namespace: str = NAMESPACE) -> Job:
    return a_job(
        run,
        number,
        namespace=namespace,
        kind=JobKind.POLL,
        state=JobState.SLEEPING,
        wake_at=NOW,
        waiting_for=key,
        check_after=5,
    )


class Suspensions(PersistenceCase):
    """`stage_jobs`, `external_jobs`, and `due` of one kind."""

    def test_the_checks_of_a_stage_are_found_whatever_state_they_are_in(self, store: Persistence) -> None:
        """By the name of their run, ascending."""
        checks = [
            a_job(1, number, kind=JobKind.POLL, state=state, wake_at=NOW)
            for number, state in enumerate(_WAKEABLE_STATES, 1)
        ]
        put_run(store, a_run(1, id="order"), *reversed(checks))

        assert [job.key for job in checks] == self._of_stage(store, "bill")

    def test_a_body_is_found_while_it_runs(self, store: Persistence) -> None:
        """It may be about to suspend. A body that has not started can't be."""
        bodies = [a_job(1, number, state=state, wake_at=NOW) for number, state in enumerate(JobState, 1)]
        put_run(store, a_run(1, id="order"), *bodies)

        (leased,) = [job.key for job in bodies if job.state is JobState.LEASED]
        assert self._of_stage(store, "bill") == [leased]

    @pytest.mark.parametrize("state", [JobState.LEASED, JobState.SLEEPING, JobState.QUEUED])
    def test_no_job_of_another_kind_is_found(self, store: Persistence, state: JobState) -> None:
        """Other kinds of jobs do not wait for external work."""
        kinds = [kind for kind in JobKind if kind not in {JobKind.STAGE, JobKind.POLL}]
        jobs = [
            a_job(1, number, kind=kind, state=state, wake_at=NOW, waiting_for="work")
            for number, kind in enumerate(kinds, 1)
        ]
        put_run(store, a_run(1, id="order"), *jobs)

        assert self._of_stage(store, "bill") == []
        assert query(store, lambda tx: tx.find(ExternalJobs(NAMESPACE, "work"))) == []

    def test_of_a_map_the_jobs_of_one_item_are_found_or_those_of_all(self, store: Persistence) -> None:
        """Item 0 is an item; a missing item has no jobs."""
        checks = [a_job(1, 1 + item, kind=JobKind.POLL, item=item) for item in range(12)]
        put_run(store, a_run(1, id="order"), *checks, a_job(1, 50, kind=JobKind.POLL, node="other", item=1))

        assert self._of_stage(store, "bill") == [job.key for job in checks]
        for item in (0, 1, 11):
            assert self._of_stage(store, "bill", item) == [checks[item].key]
        assert self._of_stage(store, "bill", 12) == self._of_stage(store, "bill", -1) == []
        assert self._of_stage(store, "bill", 2**63) == self._of_stage(store, "bill", -(2**63) - 1) == []

    def test_a_job_of_no_item_is_not_that_of_item_0(self, store: Persistence) -> None:
        """A stage that is not mapped has no items."""
        put_run(store, a_run(1, id="order"), a_job(1, 1, kind=JobKind.POLL))

        assert self._of_stage(store, "bill", 0) == []
        assert self._of_stage(store, "bill") == [JobKey(a_key(1), 1)]

    def test_only_jobs_of_the_newest_generation_are_found(self, store: Persistence) -> None:
        """Even if it has no jobs. Generation 10 is newer than generation 2."""
        put_run(store, a_run(9, id="order"), a_job(9, 1, kind=JobKind.POLL))
        assert self._of_stage(store, "bill") == [JobKey(a_key(9), 1)]
        put(store, Insert(a_run(10, id="order", generation=2)))
        assert self._of_stage(store, "bill") == []

        put_run(store, a_run(20, id="order", generation=10), a_job(20, 1, kind=JobKind.POLL))
        assert self._of_stage(store, "bill") == [JobKey(a_key(20), 1)]

    def test_no_job_of_another_run_stage_or_namespace_is_found(self, store: Persistence) -> None:
        """Names are compared exactly."""
        put_run(store, a_run(1, id="order"), a_job(1, 1, kind=JobKind.POLL))
        put_run(store, a_run(2, id="Order"), a_job(2, 1, kind=JobKind.POLL))
        put_run(
            store,
            a_run(3, id="order", namespace="tenant-2"),
            a_job(3, 1, kind=JobKind.POLL, namespace="tenant-2"),
        )

        assert self._of_stage(store, "bill") == [JobKey(a_key(1), 1)]
        assert self._of_stage(store, "Bill") == self._of_stage(store, "bil") == []
        for name in (RunName(NAMESPACE, "order "), RunName("tenant-3", "order"), RunName("a\0b", "order")):
            assert self._of_stage(store, "bill", name=name) == []
        assert self._of_stage(store, "a\0b") == self._of_stage(store, "\ud800") == []

    def test_external_work_is_found_by_its_key(self, store: Persistence) -> None:
        """In every run of the namespace, in any state of the check, ascending."""
        states = [
            a_job(3, number, kind=JobKind.POLL, state=state, waiting_for="work")
            for number, state in enumerate(_WAKEABLE_STATES, 1)
        ]
        put_jobs(store, *states, _check(2, 1), _check(1, 2), _check(1, 1))

        expected = [JobKey(a_key(1), 1), JobKey(a_key(1), 2), JobKey(a_key(2), 1), *(j.key for j in states)]
        assert expected == query(store, lambda tx: tx.find(ExternalJobs(NAMESPACE, "work")))

    def test_external_work_of_another_key_or_namespace_is_not_found(self, store: Persistence) -> None:
        """Keys are compared exactly; a job without external work has no key."""
        keys: Sequence[str | None] = ("work", "Work", "work ", "wor", "w%", None, "")
        put_jobs(store, *(_check(1, number, key=key) for number, key in enumerate(keys, 1)))
        put_jobs(store, _check(2, 1, namespace="tenant-2"))

        for number, key in enumerate(keys, 1):
            if key is not None:
                assert [JobKey(a_key(1), number)] == _external(store, key)
        assert _external(store, "work", "tenant-2") == [JobKey(a_key(2), 1)]
        assert _external(store, "wo") == _external(store, "a\0b") == _external(store, "\ud800") == []

    def test_external_work_is_not_found_by_the_run_that_a_job_waits_for(self, store: Persistence) -> None:
        """The id of a child run may equal the key of external work."""
        put_jobs(store, a_job(1, 1, kind=JobKind.CHILD, state=JobState.SLEEPING, waiting_for="work"))
        put_jobs(store, a_job(2, 1, state=JobState.LEASED, waiting_for="work"), _check(3, 1))

        assert _external(store, "work") == [JobKey(a_key(3), 1)]

    def test_what_is_found_follows_every_change(self, store: Persistence) -> None:
        """When a check is added, given another key, or deleted."""
        put_run(store, a_run(1, id="order"), _check(1, 1), _check(1, 2), a_job(1, 3))
        put(store, Update(_check(1, 1, key="other")), Delete(JOBS, JobKey(a_key(1), 2)))
        put(store, Update(_check(1, 3)))

        assert _external(store, "work") == [JobKey(a_key(1), 3)]
        assert _external(store, "other") == [JobKey(a_key(1), 1)]
        assert self._of_stage(store, "bill") == [JobKey(a_key(1), 1), JobKey(a_key(1), 3)]

    def test_the_jobs_of_a_run_that_waits_or_is_paused_are_found(self, store: Persistence) -> None:
        """A wake-up is not lost meanwhile."""
        put_run(store, a_run(1, id="order", status=RunStatus.PAUSED), _check(1, 1))

        assert self._of_stage(store, "bill") == _external(store, "work") == [JobKey(a_key(1), 1)]

    def test_sleepers_of_one_kind_are_due_without_the_others(self, store: Persistence) -> None:
        """The earliest first, up to the limit, however many jobs of other kinds are due before them."""
        others = [
            a_job(run, 1, kind=kind, state=JobState.SLEEPING, wake_at=NOW - 100)
            for run, kind in enumerate(JobKind, 10)
            if kind is not JobKind.POLL
        ]
        checks = [
            a_job(run, 1, kind=JobKind.POLL, state=JobState.SLEEPING, wake_at=NOW - ago)
            for run, ago in ((1, 10), (2, 30), (3, 20), (4, 0), (5, -1))
        ]
        put_jobs(store, *others, *checks)

        assert self._due(store, JobKind.POLL, 10) == [a_key(2), a_key(3), a_key(1), a_key(4)]
        assert self._due(store, JobKind.POLL, 2) == [a_key(2), a_key(3)]
        assert self._due(store, JobKind.POLL, 0) == []
        for job in others:
            assert self._due(store, job.kind, 10) == [job.run]
        assert len(self._due(store, None, 100)) == len(others) + 4

    def test_a_sleeper_that_is_not_to_wake_at_any_time_is_never_due(self, store: Persistence) -> None:
        """It waits for the end of a run. It is due only while it has a wake-up time."""
        waiting = a_job(1, 1, kind=JobKind.CHILD, state=JobState.SLEEPING, waiting_for="child")
        put_jobs(store, waiting, a_job(2, 1, kind=JobKind.CHILD, state=JobState.SLEEPING, wake_at=0))
        assert self._due(store, None, 10) == self._due(store, JobKind.CHILD, 10) == [a_key(2)]

        put(store, Update(a_job(1, 1, kind=JobKind.CHILD, state=JobState.SLEEPING, wake_at=NOW)))
        assert self._due(store, JobKind.CHILD, 10) == [a_key(2), a_key(1)]
        put(store, Update(waiting), Delete(JOBS, JobKey(a_key(2), 1)))
        assert self._due(store, None, 10) == []
        put(store, Delete(JOBS, waiting.key))
        assert self._due(store, None, 10) == []

    def _of_stage(
        self, store: Persistence, stage: str, item: int | None = None, *, name: RunName = ORDER
    ) -> list[JobKey]:
        return query(store, lambda tx: tx.find(StageJobs(*name, stage, item)))

    def _due(self, store: Persistence, kind: JobKind | None, limit: int) -> list[str]:
        return [job.run for job in query(store, lambda tx: tx.find(DueJobs(limit, kind=kind), NOW))]


def _external(store: Persistence, key: str, namespace: str = NAMESPACE) -> list[JobKey]:
    return query(store, lambda tx: tx.find(ExternalJobs(namespace, key)))
