"""The contract of a store for cancelling external work: checks become cancel jobs, which outlive their run."""

from collections.abc import Sequence

import pytest
from attrs import evolve

from holdfast.ports.changes import (
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    DeleteRun,
    Insert,
    Update,
)
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState, cancelling
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.searches import DueJobs, ExternalJobs, IncompleteRuns, StageJobs
from holdfast.ports.tables import JOBS
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_job, a_key, a_leased_job, a_run
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    claim,
    jobs_of,
    put,
    put_jobs,
    put_run,
    query,
)
from holdfast.testing.conformance.persistence.jobs import FULL_JOB

_CHECK = a_job(1, 1, kind=JobKind.POLL, state=JobState.SLEEPING, wake_at=NOW, waiting_for="work")
_CANCEL = cancelling(_CHECK, 4)
_WORK = CancelExternalWork(a_key(1), _CHECK.node, attempts=4)
_ALL, _NODE = DeleteJobs(a_key(1)), DeleteJobsOfNode(a_key(1), _CHECK.node)
_NEW = evolve(_CHECK, number=2)
_LEASED = evolve(
    a_leased_job(session=a_key(8)), kind=JobKind.POLL, waiting_for="work", check_after=5, give_up_at=9
)

NET_EFFECTS: Sequence[tuple[str, tuple[Change, ...], tuple[Job, ...]]] = (
    ("cancel", (_WORK,), (_CANCEL,)),
    ("cancel, twice", (_WORK, _WORK), (_CANCEL,)),
    ("cancel, close all", (_WORK, _ALL), (_CANCEL,)),
    ("cancel, close all, twice", (_WORK, _ALL, _WORK, _ALL), (_CANCEL,)),
    ("cancel, close the node", (_WORK, _NODE), (_CANCEL,)),
    ("cancel, close that", (_WORK, Delete(JOBS, _CHECK.key)), ()),
    ("cancel, close that, close all", (_WORK, Delete(JOBS, _CHECK.key), _ALL), ()),
    ("close, cancel, close all", (Delete(JOBS, _CHECK.key), _WORK, _ALL), ()),
    ("close, cancel, close the node", (Delete(JOBS, _CHECK.key), _WORK, _NODE), ()),
    ("close all, cancel", (_ALL, _WORK), ()),
    ("close the node, cancel", (_NODE, _WORK), ()),
    ("close all, add, cancel, close all", (_ALL, Insert(_NEW), _WORK, _ALL), (cancelling(_NEW, 4),)),
    ("cancel, cancel more often", (_WORK, CancelExternalWork(a_key(1), _CHECK.node, attempts=9)), (_CANCEL,)),
    ("add, cancel, close all", (Insert(_NEW), _WORK, _ALL), (_CANCEL, cancelling(_NEW, 4))),
    ("add, cancel, close that", (Insert(_NEW), _WORK, Delete(JOBS, _NEW.key)), (_CANCEL,)),
    ("update, cancel, close all", (Update(_LEASED), _WORK, _ALL), (cancelling(_LEASED, 4),)),
    (
        "cancel, close all, update",
        (_WORK, _ALL, Update(evolve(_CANCEL, epoch=1, attempts=1))),
        (evolve(_CANCEL, epoch=1, attempts=1),),
    ),
    ("cancel of another node, close all", (CancelExternalWork(a_key(1), "ship", attempts=4), _ALL), ()),
    ("add of another kind, cancel, close all", (Insert(a_job(1, 2)), _WORK, _ALL), (_CANCEL,)),
)
"""Changes to run 1, whose job 1 is a check; and its jobs after them."""


class CancelledWork(PersistenceCase):
    """`CancelExternalWork`, and the exclusion of cancel jobs from the open jobs of a run."""

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [(changes, expected) for _, changes, expected in NET_EFFECTS],
        ids=[name for name, _, _ in NET_EFFECTS],
    )
    def test_in_one_transaction_changes_are_made_in_order(
        self, store: Persistence, changes: Sequence[Change], expected: Sequence[Job]
    ) -> None:
        """As if each had its own transaction."""
        put_jobs(store, _CHECK)
        put(store, *changes)

        assert jobs_of(store, a_key(1)) == list(expected)

    @pytest.mark.parametrize("state", JobState)
    def test_a_check_is_made_what_cancels_whatever_it_was(self, store: Persistence, state: JobState) -> None:
        """The job equals the result of `cancelling`, and can be claimed at once."""
        check = evolve(FULL_JOB, kind=JobKind.POLL, state=state)
        put_jobs(store, check)
        put(store, CancelExternalWork(check.run, check.node, attempts=7))

        assert jobs_of(store, check.run) == [cancelling(check, 7)]

    def test_it_can_be_claimed_at_once(self, store: Persistence) -> None:
        """With its queue and code, like any job."""
        put_run(store, a_run(1), evolve(_CHECK, epoch=3))
        put(store, _WORK, _ALL)

        (job,) = claim(store, a_key(9), 10)
        assert (job.kind, job.key, job.epoch, job.attempts) == (JobKind.CANCEL, _CHECK.key, 4, 1)

    def test_nothing_else_is_touched(self, store: Persistence) -> None:
        """No other stage, run or kind, however similar the names."""
        others = [
            *(a_job(1, 10 + at, node=node, kind=JobKind.POLL) for at, node in enumerate(("Bill", "bil"))),
            *(a_job(1, 20 + at, kind=kind) for at, kind in enumerate(JobKind) if kind is not JobKind.POLL),
            a_job(2, 1, kind=JobKind.POLL),
        ]
        put_jobs(store, _CHECK, *others)
        put(store, _WORK)

        expected = sorted([_CANCEL, *others], key=lambda job: job.key)
        assert jobs_of(store, a_key(1), a_key(2)) == expected

    def test_many_nodes_of_many_runs_each_by_its_own_number(self, store: Persistence) -> None:
        """In one transaction, together with deleted jobs."""
        checks = [
            a_job(run, number, node=node, kind=JobKind.POLL, item=number)
            for run in range(1, 41)
            for node, numbers in (("bill", range(1, 6)), ("ship", range(6, 9)))
            for number in numbers
        ]
        put_jobs(store, *checks, *(a_job(run, 9) for run in range(1, 41)))
        put(
            store,
            *(CancelExternalWork(a_key(run), "bill", attempts=run) for run in range(1, 41)),
            *(CancelExternalWork(a_key(run), "ship", attempts=100) for run in range(1, 41, 2)),
            *(DeleteJobs(a_key(run)) for run in range(1, 41)),
        )

        expected = [
            cancelling(check, int(check.run[-3:]) if check.node == "bill" else 100)
            for check in checks
            if check.node == "bill" or int(check.run[-3:]) % 2
        ]
        assert jobs_of(store, *map(a_key, range(1, 41))) == expected

    def test_where_there_is_no_work_nothing_happens(self, store: Persistence) -> None:
        """Neither in a run without jobs nor in a missing run."""
        put(store, Insert(a_run(1)))
        put(store, _WORK, CancelExternalWork(a_key(9), "bill", attempts=1))

        assert jobs_of(store, a_key(1), a_key(9)) == []

    def test_what_cancels_is_none_of_the_jobs_by_which_a_run_goes_on(self, store: Persistence) -> None:
        """A run that has other jobs as well is consistent; one that has only this job is reported."""
        put_run(store, a_run(1), a_job(1, 2))
        put(store, Insert(_CANCEL))
        put(store, Insert(a_run(2, last_job=1)), Insert(evolve(_CANCEL, run=a_key(2))))
        put(store, Insert(a_run(3, status=RunStatus.CANCELLED)), Insert(evolve(_CANCEL, run=a_key(3))))

        keys = [a_key(1), a_key(2), a_key(3)]
        assert query(store, lambda tx: tx.find(IncompleteRuns(keys))) == [a_key(2)]

    def test_work_that_is_cancelled_can_not_be_woken(self, store: Persistence) -> None:
        """Neither by its key nor by its run and stage."""
        put_run(store, a_run(1, id="order"), _CHECK)
        put(store, _WORK)

        assert query(store, lambda tx: tx.find(ExternalJobs(NAMESPACE, "work"))) == []
        name = RunName(NAMESPACE, "order")
        assert query(store, lambda tx: tx.find(StageJobs(*name, _CHECK.node, None))) == []

    def test_what_sleeps_until_it_is_tried_again_is_due_like_any_job(self, store: Persistence) -> None:
        """Also in a run that has ended."""
        asleep = evolve(_CANCEL, state=JobState.SLEEPING, wake_at=NOW)
        put(store, Insert(a_run(1, status=RunStatus.CANCELLED)), Insert(asleep))

        assert query(store, lambda tx: tx.find(DueJobs(10), NOW)) == [asleep]
        assert query(store, lambda tx: tx.find(DueJobs(10), NOW - 1)) == []

    def test_a_run_that_is_removed_in_the_same_transaction_leaves_nothing(self, store: Persistence) -> None:
        """Neither a job nor a pending cancel call."""
        put(store, Insert(a_run(1, status=RunStatus.CANCELLED)))
        put(store, Insert(_CHECK), _WORK, _ALL, Delete(JOBS, _CHECK.key), DeleteRun(a_key(1)))

        assert jobs_of(store, a_key(1)) == []
        assert query(store, lambda tx: tx.lock(JOBS, [JobKey(a_key(1), 1)])) == []
