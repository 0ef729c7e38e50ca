"""The contract of a store for finding jobs to claim."""

from collections import Counter

import pytest
from attrs import evolve

from holdfast.ports.changes import Delete, DeleteJobs, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState, PassOver
from holdfast.ports.tables import JOBS
from holdfast.testing.conformance.builders import NOW, a_job, a_key, a_leased_job
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    a_queue_claim,
    claim,
    claimable,
    lease,
    put,
    put_jobs,
)
from holdfast.testing.conformance.threads import in_threads


def _keys(jobs: list[Job]) -> list[tuple[int, int]]:
    return [(int(job.run[-17:]), job.number) for job in jobs]


class Claims(PersistenceCase):
    """`Transaction.claimable`."""

    def test_a_queued_job_can_be_claimed(self, store: Persistence) -> None:
        """It is returned as it was stored."""
        put_jobs(store, a_job())

        assert [a_job()] == claimable(store, a_queue_claim())

    @pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.QUEUED}))
    def test_a_job_that_is_not_queued_can_not_be_claimed(self, store: Persistence, state: JobState) -> None:
        """Neither a sleeping job (even if it is due), nor a leased or paused one."""
        put_jobs(
            store,
            a_leased_job(session=a_key(1)) if state is JobState.LEASED else a_job(state=state, wake_at=0),
        )

        assert claimable(store, a_queue_claim()) == []

    def test_nothing_can_be_claimed_from_an_empty_store(self, store: Persistence) -> None:
        """Without jobs, claim requests or a limit nothing is returned."""
        assert claimable(store, a_queue_claim()) == []
        put_jobs(store, a_job())

        assert claimable(store) == []
        assert claimable(store, a_queue_claim(0)) == []
        assert claimable(store, a_queue_claim(), limit=0) == []
        assert claimable(store, a_queue_claim(definitions=())) == []

    def test_jobs_that_were_lost_are_passed_over_if_that_is_asked_for(self, store: Persistence) -> None:
        """A suspect was lost at least twice. Jobs that are passed over do not count towards a limit."""
        suspect = a_job(1, 1, lost_attempts=2, attempts=2, max_attempts=3)
        lost_once = a_job(1, 2, lost_attempts=1, attempts=1, max_attempts=3)
        last_try = a_job(1, 3, lost_attempts=0, attempts=2, max_attempts=3)
        only_try = a_job(1, 4, lost_attempts=0, attempts=0, max_attempts=1)
        put_jobs(store, suspect, lost_once, last_try, only_try)

        assert [suspect, lost_once] == claimable(store, a_queue_claim(2), pass_over=PassOver.NOTHING)
        assert [lost_once, last_try] == claimable(store, a_queue_claim(2), pass_over=PassOver.SUSPECTS)
        assert [last_try, only_try] == claimable(store, a_queue_claim(2), pass_over=PassOver.LOST)

    def test_what_is_passed_over_follows_every_change(self, store: Persistence) -> None:
        """A second loss makes any job a suspect, whatever its remaining attempts; also a workflow job."""
        job = a_job(lost_attempts=1, attempts=1, max_attempts=3)
        driven = a_job(1, 2, lost_attempts=1, attempts=1, max_attempts=10, kind=JobKind.WORKFLOW)
        put_jobs(store, job, driven)
        for losses, attempts, left in (
            (2, 2, {PassOver.NOTHING}),
            (1, 1, {PassOver.NOTHING, PassOver.SUSPECTS}),
            (2, 9, {PassOver.NOTHING}),
            (1, 2, {PassOver.NOTHING, PassOver.SUSPECTS}),
            (0, 2, set(PassOver)),
        ):
            changed = [evolve(one, lost_attempts=losses, attempts=attempts) for one in (job, driven)]
            put(store, *map(Update, changed))

            assert left == {
                how for how in PassOver if claimable(store, a_queue_claim(2), pass_over=how) == changed
            }

    def test_other_queues_are_left_alone(self, store: Persistence) -> None:
        """A claim request takes jobs only from its own queue."""
        put_jobs(store, a_job(1, 1), a_job(1, 2, queue="reports"))

        assert _keys(claimable(store, a_queue_claim(queue="reports"))) == [(1, 2)]
        assert claimable(store, a_queue_claim(queue="nobody's")) == []

    def test_other_definitions_are_left_alone(self, store: Persistence) -> None:
        """A claim request takes jobs of the definitions that the worker has; the version is part of the name."""
        put_jobs(store, a_job(1, 1), a_job(1, 2, definition="orders@2"), a_job(1, 3, definition="users@1"))

        assert _keys(claimable(store, a_queue_claim(definitions=("orders@2",)))) == [(1, 2)]
        assert _keys(claimable(store, a_queue_claim(definitions=("users@1", "orders@1")))) == [(1, 1), (1, 3)]

    def test_other_namespaces_are_left_alone(self, store: Persistence) -> None:
        """A worker does not see the jobs of other namespaces."""
        put_jobs(store, a_job(1, 1), a_job(2, 1, namespace="tenant-2"))

        assert _keys(claimable(store, a_queue_claim(), namespace="tenant-2")) == [(2, 1)]

    def test_a_lane_is_a_queue_and_definitions_together(self, store: Persistence) -> None:
        """Two claim requests do not share their queues."""
        put_jobs(store, a_job(1, 1, queue="a", definition="x@1"), a_job(1, 2, queue="b", definition="y@1"))
        put_jobs(store, a_job(2, 1, queue="a", definition="y@1"), a_job(2, 2, queue="b", definition="x@1"))

        queue_claims = (
            a_queue_claim(queue="a", definitions=("x@1",)),
            a_queue_claim(queue="b", definitions=("y@1",)),
        )

        assert _keys(claimable(store, *queue_claims)) == [(1, 1), (1, 2)]

    def test_the_highest_priority_comes_first_then_the_oldest_run_then_the_lowest_number(
        self, store: Persistence
    ) -> None:
        """Numbers are compared as numbers: 9 comes before 10."""
        put_jobs(
            store, a_job(2, 1), a_job(2, 10), a_job(2, 9), a_job(3, 1, priority=5), a_job(4, 1, priority=-5)
        )
        put_jobs(store, a_job(1, 30), a_job(5, 1, priority=10))

        expected = [(5, 1), (3, 1), (1, 30), (2, 1), (2, 9), (2, 10), (4, 1)]
        assert expected == _keys(claimable(store, a_queue_claim()))

    def test_a_lane_gives_at_most_its_limit(self, store: Persistence) -> None:
        """The first jobs of a longer queue are taken, over all its definitions."""
        put_jobs(store, *(a_job(run, 1, definition=f"d{run % 2}@1") for run in range(1, 7)))
        put_jobs(store, *(a_job(run, 1, queue="reports") for run in range(7, 12)))

        found = claimable(
            store, a_queue_claim(3, definitions=("d0@1", "d1@1")), a_queue_claim(2, queue="reports")
        )

        assert _keys(found) == [(1, 1), (2, 1), (3, 1), (7, 1), (8, 1)]

    def test_all_lanes_together_give_at_most_the_limit(self, store: Persistence) -> None:
        """Queues are merged in the order of the jobs, not one after the other."""
        put_jobs(store, *(a_job(run, 1, queue="a", priority=run) for run in (2, 4, 6)))
        put_jobs(store, *(a_job(run, 1, queue="b", priority=run) for run in (1, 3, 5)))

        found = claimable(store, a_queue_claim(queue="a"), a_queue_claim(queue="b"), limit=4)

        assert _keys(found) == [(6, 1), (5, 1), (4, 1), (3, 1)]

    def test_a_job_in_two_lanes_is_returned_once(self, store: Persistence) -> None:
        """A worker that names a queue twice gets no job twice."""
        put_jobs(store, a_job(1, 1), a_job(1, 2))

        assert _keys(claimable(store, a_queue_claim(), a_queue_claim())) == [(1, 1), (1, 2)]

    def test_many_lanes_are_asked_at_once(self, store: Persistence) -> None:
        """A worker with fifty workflows on four queues claims in one call."""
        definitions = tuple(f"workflow-{number}@1" for number in range(50))
        queues = ("a", "b", "c", "d")
        put_jobs(
            store,
            *(
                a_job(run * 4 + at, 1, queue=queue, definition=definition)
                for run, definition in enumerate(definitions)
                for at, queue in enumerate(queues)
            ),
        )

        found = claimable(
            store, *(a_queue_claim(10, queue=queue, definitions=definitions) for queue in queues)
        )

        assert [(number, 1) for number in range(40)] == _keys(found)

    def test_what_can_be_claimed_follows_every_change(self, store: Persistence) -> None:
        """When a job is added, leased, put to sleep, woken, reprioritized, moved to another queue, or deleted."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(store, Update(lease(a_job(1, 1), a_key(9))))
        assert _keys(claimable(store, a_queue_claim())) == [(2, 1)]

        put(store, Update(a_job(1, 1, state=JobState.SLEEPING, wake_at=NOW)))
        assert _keys(claimable(store, a_queue_claim())) == [(2, 1)]

        put(store, Update(a_job(1, 1)))
        assert _keys(claimable(store, a_queue_claim())) == [(1, 1), (2, 1)]

        put(store, Update(a_job(2, 1, priority=1)))
        assert _keys(claimable(store, a_queue_claim())) == [(2, 1), (1, 1)]

        put(store, Update(a_job(2, 1, queue="elsewhere")), Insert(a_job(1, 2)))
        assert _keys(claimable(store, a_queue_claim())) == [(1, 1), (1, 2)]

        put(store, Delete(JOBS, JobKey(a_key(1), 1)))
        assert _keys(claimable(store, a_queue_claim())) == [(1, 2)]

        put(store, DeleteJobs(a_key(1)))
        assert claimable(store, a_queue_claim()) == []

    def test_jobs_that_are_gone_take_no_place(self, store: Persistence) -> None:
        """The limit counts existing jobs, not deleted ones before them."""
        put_jobs(store, *(a_job(run, number) for run in (1, 2, 3) for number in (1, 2)))
        put(store, DeleteJobs(a_key(1)), Delete(JOBS, JobKey(a_key(2), 1)), Delete(JOBS, JobKey(a_key(2), 2)))

        assert _keys(claimable(store, a_queue_claim(1))) == [(3, 1)]
        assert _keys(claimable(store, a_queue_claim(), limit=1)) == [(3, 1)]

    def test_looking_does_not_take(self, store: Persistence) -> None:
        """A transaction that changes nothing leaves the jobs to the next one."""
        put_jobs(store, a_job())

        assert claimable(store, a_queue_claim()) == claimable(store, a_queue_claim())

    @pytest.mark.parametrize("threads", [2, 6])
    def test_threads_that_claim_at_once_never_get_the_same_job(
        self, store: Persistence, threads: int
    ) -> None:
        """Two hundred jobs, each claimed exactly once."""
        put_jobs(store, *(a_job(run, number) for run in range(50) for number in range(1, 5)))

        def claim_until_empty(thread: int) -> list[JobKey]:
            claimed: list[JobKey] = []
            while jobs := claim(store, a_key(thread), 7):
                claimed += [job.key for job in jobs]
            return claimed

        claimed = Counter(key for keys in in_threads(threads, claim_until_empty) for key in keys)

        assert len(claimed) == 200
        assert max(claimed.values()) == 1

    def test_stores_on_the_same_rows_never_claim_the_same_job(
        self, store: Persistence, other: Persistence
    ) -> None:
        """The same with claims from two processes."""
        put_jobs(store, *(a_job(run, number) for run in range(25) for number in range(1, 5)))

        def claim_until_empty(at: int) -> list[JobKey]:
            claimed: list[JobKey] = []
            while jobs := claim((store, other)[at], a_key(at), 7):
                claimed += [job.key for job in jobs]
            return claimed

        claimed = Counter(key for keys in in_threads(2, claim_until_empty) for key in keys)

        assert len(claimed) == 100
        assert max(claimed.values()) == 1
