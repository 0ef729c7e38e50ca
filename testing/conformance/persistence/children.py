"""The contract of a store for child runs, and for deliveries that ended runs have pending."""

from collections.abc import Iterable
from typing import Final

import pytest

from holdfast.ports.changes import Delete, DeleteJobs, DeleteJobsOfNode, Insert, Update
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.runs import OrphanedChildren, PendingDeliveries
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import TERMINAL, ClosePolicy, Run, RunStatus
from holdfast.ports.searches import AnyPendingDelivery
from holdfast.ports.tables import JOBS
from holdfast.testing.conformance.builders import NAMESPACE, a_job, a_key, a_run
from holdfast.testing.conformance.persistence.case import PersistenceCase, jobs_of, put, put_jobs, put_run

PREFIXES: Final = ("K", "K0", "K1", "K-", "K/", "K!", "k", "KK")
"""Run keys of which one is a prefix of another, followed by characters next to the dot."""


def _pending_delivery(run: int, number: int = 1, *, namespace: str = NAMESPACE) -> Job:
    return a_job(
        run,
        number,
        namespace=namespace,
        kind=JobKind.DELIVER,
        state=JobState.PENDING_DELIVERY,
        input='"parent.1"',
    )


def _child(
    number: int,
    parent: str,
    job: int = 1,
    *,
    policy: ClosePolicy = ClosePolicy.CANCEL,
    status: RunStatus = RunStatus.RUNNING,
) -> Run:
    return a_run(number, parent=f"{parent}.{job}", close_policy=policy, status=status)


def _in_order(children: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(children, key=lambda child: child.parent or ""))


class Children(PersistenceCase):
    """`has_deliveries`, PendingDeliveries and OrphanedChildren."""

    def test_what_is_owed_is_read_oldest_run_first(self, store: Persistence) -> None:
        """In every namespace, up to the limit; jobs in other states are left out."""
        put_jobs(
            store,
            _pending_delivery(3),
            _pending_delivery(2, 10),
            _pending_delivery(2, 9),
            _pending_delivery(4, namespace="tenant-2"),
        )
        states = [state for state in JobState if state is not JobState.PENDING_DELIVERY]
        put_jobs(
            store,
            *(
                a_job(1, number, kind=JobKind.DELIVER, state=state, wake_at=0)
                for number, state in enumerate(states)
            ),
        )

        expected = (
            _pending_delivery(2, 9),
            _pending_delivery(2, 10),
            _pending_delivery(3),
            _pending_delivery(4, namespace="tenant-2"),
        )
        assert store.read(PendingDeliveries()) == expected
        assert store.read(PendingDeliveries(2)) == expected[:2]
        assert store.read(PendingDeliveries(0)) == ()
        assert store.read(PendingDeliveries(2, after=expected[0].key)) == expected[1:3]
        assert store.read(PendingDeliveries(after=JobKey(a_key(2), 11))) == expected[2:]
        assert store.read(PendingDeliveries(after=expected[-1].key)) == ()

    def test_it_is_known_whether_anything_is_owed(self, store: Persistence) -> None:
        """From the addition of a job until the last one is deleted or updated, in whatever way."""
        assert not self._has_pending_deliveries(store)
        put_jobs(store, a_job(1, 1, kind=JobKind.DELIVER))
        assert not self._has_pending_deliveries(store)

        put_jobs(store, *(_pending_delivery(run, number) for run in range(2, 7) for number in (1, 2)))
        assert self._has_pending_deliveries(store)
        put(store, Delete(JOBS, JobKey(a_key(2), 1)), Delete(JOBS, JobKey(a_key(2), 2)))
        put(store, *(Delete(JOBS, JobKey(a_key(3), number)) for number in (1, 2)))
        put(store, DeleteJobsOfNode(a_key(4), "bill"), Update(a_job(5, 1)))
        put(
            store,
            Delete(JOBS, JobKey(a_key(5), 2)),
            Insert(_pending_delivery(5, 3)),
            Delete(JOBS, JobKey(a_key(6), 1)),
        )
        assert store.read(PendingDeliveries()) == (_pending_delivery(5, 3), _pending_delivery(6, 2))
        assert self._has_pending_deliveries(store)

        put(store, Delete(JOBS, JobKey(a_key(6), 2)), Delete(JOBS, JobKey(a_key(5), 3)))
        assert not self._has_pending_deliveries(store)
        put(store, Update(_pending_delivery(1, 1)))
        assert self._has_pending_deliveries(store)

    def test_the_end_of_a_run_keeps_what_it_still_delivers(self, store: Persistence) -> None:
        """`DeleteJobs`, whether the delivery is older or of the same batch."""
        put_run(store, a_run(1), a_job(1, 3), _pending_delivery(1))
        put(store, Insert(_pending_delivery(1, 2)), DeleteJobs(a_key(1)))

        assert self._has_pending_deliveries(store)
        assert store.read(PendingDeliveries()) == (_pending_delivery(1), _pending_delivery(1, 2))
        assert jobs_of(store, a_key(1)) == [_pending_delivery(1), _pending_delivery(1, 2)]

    def test_a_job_that_is_owed_and_closed_in_one_batch_is_not_owed(self, store: Persistence) -> None:
        """The net effect counts."""
        put_run(store, a_run(1))
        put(store, Insert(_pending_delivery(1)), Delete(JOBS, _pending_delivery(1).key))

        assert not self._has_pending_deliveries(store)
        assert store.read(PendingDeliveries()) == ()

    def test_what_is_owed_and_not_stored_is_not_owed(self, store: Persistence) -> None:
        """A failed transaction leaves no pending delivery."""
        put_run(store, a_run(1))

        def work(tx: Transaction) -> None:
            tx.apply([Insert(_pending_delivery(1))])
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.transact(work)

        assert not self._has_pending_deliveries(store)

    def test_a_child_is_left_once_its_job_is_there_no_more(self, store: Persistence) -> None:
        """While the job exists, in any state, its run waits for the child."""
        put_run(store, a_run(1, children=4), *(a_job(1, number, kind=JobKind.CHILD) for number in (1, 2, 10)))
        children = [_child(20 + job, a_key(1), job) for job in (1, 2, 10, 11)]
        put(store, *map(Insert, children))
        assert store.read(OrphanedChildren((a_key(1),))) == (children[3],)

        put(store, Delete(JOBS, JobKey(a_key(1), 1)))
        assert store.read(OrphanedChildren((a_key(1),))) == (children[0], children[3])
        put(store, DeleteJobs(a_key(1)))
        assert store.read(OrphanedChildren((a_key(1),))) == _in_order(children)
        assert jobs_of(store, a_key(1)) == []

    def test_the_job_of_another_run_keeps_no_child(self, store: Persistence) -> None:
        """Although it has the same number."""
        put_run(store, a_run(1))
        put_run(store, a_run(2), a_job(2, 1, kind=JobKind.CHILD))
        put(store, Insert(_child(3, a_key(1))), Insert(_child(4, a_key(2))))

        assert store.read(OrphanedChildren((a_key(1),))) == (_child(3, a_key(1)),)
        assert store.read(OrphanedChildren((a_key(2),))) == ()
        assert store.read(OrphanedChildren((a_key(2), a_key(1), a_key(1)))) == (_child(3, a_key(1)),)
        assert store.read(OrphanedChildren(())) == ()

    def test_children_of_several_runs_come_by_the_jobs_that_started_them(self, store: Persistence) -> None:
        """Up to the limit, sorted by the text of the job's id."""
        put(store, Insert(a_run(1)), Insert(a_run(2)), Insert(a_run(3)))
        children = [_child(10 + n, a_key(1 + n % 3), n) for n in range(15)]
        put(store, *map(Insert, children))

        ours = _in_order(child for child in children if not (child.parent or "").startswith(a_key(3)))
        assert store.read(OrphanedChildren((a_key(2), a_key(1)), 7)) == ours[:7]

    def test_children_that_have_ended_or_are_to_be_abandoned_are_not_left(self, store: Persistence) -> None:
        """Children of every other status and policy are."""
        children = [
            _child(10 * at + place, a_key(1), policy=policy, status=status)
            for at, policy in enumerate(ClosePolicy, 1)
            for place, status in enumerate(RunStatus)
        ]
        put(store, Insert(a_run(1)), *map(Insert, children))

        left = _in_order(
            child
            for child in children
            if child.status not in TERMINAL and child.close_policy is not ClosePolicy.ABANDON
        )
        assert store.read(OrphanedChildren((a_key(1),))) == left
        put(store, Update(_child(10, a_key(1), status=RunStatus.CANCELLED)))
        assert len(store.read(OrphanedChildren((a_key(1),)))) == len(left) - 1

    def test_children_of_runs_whose_keys_begin_alike_are_told_apart(self, store: Persistence) -> None:
        """A key may be a prefix of another, followed by a character before or after the dot."""
        children = {key: _child(number, key, 7) for number, key in enumerate(PREFIXES, 1)}
        put(store, *map(Insert, children.values()))

        for key, child in children.items():
            assert store.read(OrphanedChildren((key,))) == (child,)
        assert store.read(OrphanedChildren(("nobody's",))) == store.read(OrphanedChildren(("K.",))) == ()

    def test_a_run_that_is_nobody_s_child_is_never_left(self, store: Persistence) -> None:
        """Nor is a child that a job of another run has taken over."""
        put(store, Insert(a_run(1)), Insert(a_run(2)), Insert(_child(3, a_key(1))))
        put_run(store, a_run(4), a_job(4, 1, kind=JobKind.CHILD))
        put(store, Update(_child(3, a_key(4))))

        assert store.read(OrphanedChildren((a_key(1),))) == store.read(OrphanedChildren((a_key(4),))) == ()

    def test_children_left_come_up_to_the_limit(self, store: Persistence) -> None:
        """Ending them leads to the others."""
        put(
            store,
            Insert(a_run(1)),
            *(Insert(_child(number, a_key(1), number)) for number in (5, 3, 4, 2)),
        )

        assert [run.key for run in store.read(OrphanedChildren((a_key(1),), 3))] == [
            a_key(2),
            a_key(3),
            a_key(4),
        ]
        assert store.read(OrphanedChildren((a_key(1),), 0)) == ()
        put(
            store,
            *(Update(_child(number, a_key(1), number, status=RunStatus.CANCELLED)) for number in (2, 3, 4)),
        )
        assert [run.key for run in store.read(OrphanedChildren((a_key(1),), 3))] == [a_key(5)]

    def _has_pending_deliveries(self, store: Persistence) -> bool:
        return store.transact(lambda tx: tx.find(AnyPendingDelivery()))
