"""The contract of a store for reading jobs, sessions, leader leases, plans and replies in a transaction."""

from collections.abc import Sequence

import attrs
import pytest

from holdfast.ports.changes import Insert, Update
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.searches import ClaimableJobs, JobsOfRuns
from holdfast.ports.tables import JOBS, LEADERS, PLANS, REPLIES, RUNS, SESSIONS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    SECOND,
    a_job,
    a_key,
    a_leader_lease,
    a_leased_job,
    a_plan,
    a_reply,
    a_session,
)
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    a_queue_claim,
    claimable,
    put,
    put_jobs,
    query,
)

FULL_JOB = Job(
    run=a_key(1),
    number=12,
    namespace="tenant-1",
    queue="reports",
    definition="orders@2026.1",
    kind=JobKind.EXPAND_MAP,
    node="bill items",
    item=3,
    state=JobState.LEASED,
    priority=-7,
    wake_at=NOW + 1,
    epoch=4,
    attempts=2,
    max_attempts=5,
    session=a_key(9),
    leased_at=NOW + 2,
    lost_attempts=1,
    input='["item","bill",0,3]',
    timeout_total=3_600 * 1_000_000,
    first_claimed_at=NOW - 1,
    heartbeat_timeout=60 * 1_000_000,
    heartbeat_by=NOW + 3,
    concurrency_key="orders/bill items",
    concurrency_limit=8,
    waiting_for="work 1",
    check_after=5,
    give_up_at=NOW + 3,
    queue_position=-5,
    rate_limit=9,
    rate_period=60 * 1_000_000,
    turn=12,
)
"""A job with every field set."""


class JobReads(PersistenceCase):
    """Reads of jobs, sessions, leader leases, plans and replies by key."""

    def test_a_job_is_read_as_it_was_stored(self, store: Persistence) -> None:
        """Every field survives."""
        assert not [field.name for field in attrs.fields(Job) if getattr(FULL_JOB, field.name) is None]
        put_jobs(store, FULL_JOB)

        assert query(store, lambda tx: tx.lock(JOBS, [FULL_JOB.key])) == [FULL_JOB]
        assert query(store, lambda tx: tx.get(JOBS, [FULL_JOB.key])) == [FULL_JOB]
        assert query(store, lambda tx: tx.find(JobsOfRuns([FULL_JOB.run]))) == [FULL_JOB]

    def test_what_a_job_has_not_stays_none(self, store: Persistence) -> None:
        """None is not turned into an empty text or a zero, nor a zero into None."""
        put_jobs(
            store, a_job(1, 1), a_job(1, 2, item=0, wake_at=0, waiting_for="", check_after=0, give_up_at=0)
        )

        plain, zeros = query(store, lambda tx: tx.lock(JOBS, [JobKey(a_key(1), 1), JobKey(a_key(1), 2)]))

        assert (plain.item, plain.wake_at, plain.session, plain.leased_at) == (None, None, None, None)
        assert (plain.waiting_for, plain.check_after, plain.give_up_at) == (None, None, None)
        assert (zeros.item, zeros.wake_at, zeros.check_after, zeros.give_up_at) == (0, 0, 0, 0)
        assert zeros.waiting_for == ""

    @pytest.mark.parametrize("state", JobState)
    @pytest.mark.parametrize("kind", JobKind)
    def test_every_state_and_kind_is_read_as_it_was_stored(
        self, store: Persistence, state: JobState, kind: JobKind
    ) -> None:
        """Both come back as members of their enumerations."""
        put_jobs(store, a_job(state=state, kind=kind, wake_at=NOW))

        (job,) = query(store, lambda tx: tx.lock(JOBS, [JobKey(a_key(1), 1)]))

        assert job.state is state
        assert job.kind is kind

    def test_many_jobs_are_read_at_once(self, store: Persistence) -> None:
        """Jobs of several runs in one call; missing ones are left out."""
        jobs = [a_job(run, number) for run in range(20) for number in range(1, 26)]
        put_jobs(store, *jobs)
        wanted = {job.key for job in jobs} | {JobKey(a_key(1), 26), JobKey(a_key(20), 1)}

        assert jobs == sorted(query(store, lambda tx: tx.lock(JOBS, wanted)), key=lambda job: job.key)
        assert jobs == sorted(query(store, lambda tx: tx.get(JOBS, wanted)), key=lambda job: job.key)

    def test_a_job_is_named_by_its_run_and_number_together(self, store: Persistence) -> None:
        """A query for (1, 2) and (2, 1) finds neither (1, 1) nor (2, 2)."""
        put_jobs(store, a_job(1, 1), a_job(2, 2), a_job(1, 2))

        found = query(store, lambda tx: tx.lock(JOBS, [JobKey(a_key(1), 2), JobKey(a_key(2), 1)]))

        assert [JobKey(a_key(1), 2)] == [job.key for job in found]

    def test_all_jobs_of_runs_are_read(self, store: Persistence) -> None:
        """In any state; those of other runs are left out."""
        jobs = [a_job(1, number, state=state, wake_at=NOW) for number, state in enumerate(JobState, 1)]
        put_jobs(store, *jobs, a_job(2, 1), a_job(3, 1))

        found = query(store, lambda tx: tx.find(JobsOfRuns([a_key(1), a_key(3), a_key(4)])))

        assert [*jobs, a_job(3, 1)] == sorted(found, key=lambda job: job.key)

    def test_nothing_is_asked_and_nothing_answered(self, store: Persistence) -> None:
        """An empty collection is allowed."""
        assert query(store, lambda tx: tx.lock(JOBS, [])) == []
        assert query(store, lambda tx: tx.get(JOBS, [])) == []
        assert query(store, lambda tx: tx.find(JobsOfRuns([]))) == []
        assert query(store, lambda tx: tx.lock(SESSIONS, [])) == []
        assert query(store, lambda tx: tx.lock(LEADERS, [])) == []
        assert query(store, lambda tx: tx.get(PLANS, [])) == []
        assert query(store, lambda tx: tx.get(REPLIES, [])) == []

    @pytest.mark.parametrize("lock", [True, False])
    def test_sessions_are_read_by_id(self, store: Persistence, lock: bool) -> None:
        """With and without a lock; unknown ids are left out."""
        dead = Session(
            id=a_key(2), host="höst", state=SessionState.DEAD, opened_at=NOW - SECOND, expires_at=NOW + SECOND
        )
        put(store, Insert(a_session(1)), Insert(dead), Insert(a_session(3)))

        ids = [a_key(1), a_key(2), a_key(9)]
        found = query(store, lambda tx: (tx.lock if lock else tx.get)(SESSIONS, ids))

        assert [a_session(1), dead] == sorted(found, key=lambda session: session.id)

    def test_runs_jobs_and_sessions_are_read_together(self, store: Persistence) -> None:
        """The same as separate reads: by key, ascending; unknown ones are left out."""
        put_jobs(store, a_job(1, 1), a_job(2, 1), a_job(2, 2))
        put(store, Insert(a_session(1)))
        runs, jobs, sessions = (
            [a_key(2), a_key(1), a_key(9)],
            [a_job(2, 2).key, a_job(1, 1).key],
            [a_key(1), a_key(9)],
        )

        def apart(tx: Transaction) -> tuple[Sequence[object], ...]:
            return tx.lock(RUNS, runs), tx.lock(JOBS, jobs), tx.get(SESSIONS, sessions)

        found = store.transact(lambda tx: tx.lock_attempts(runs, jobs, sessions))

        assert [list(part) for part in found[:3]] == [list(part) for part in store.transact(apart)]
        assert [run.key for run in found.runs] == [a_key(1), a_key(2)]
        assert [job.key for job in found.jobs] == [a_job(1, 1).key, a_job(2, 2).key]
        assert list(found.sessions) == [a_session(1)]
        assert [list(part) for part in store.transact(lambda tx: tx.lock_attempts([], jobs, []))[:3]] == [
            [],
            list(found.jobs),
            [],
        ]
        assert [list(part) for part in store.transact(lambda tx: tx.lock_attempts([], [], []))[:3]] == [
            [],
            [],
            [],
        ]

    def test_jobs_to_claim_are_read_with_the_session_that_is_to_have_them(self, store: Persistence) -> None:
        """The same as separate reads. An unknown session is left out; without jobs the session is not read."""
        put_jobs(store, a_job(1, 1), a_job(2, 1))
        put(store, Insert(a_session(1)))

        def found(session: str, limit: int) -> list[list[object]]:
            queue_claims = (a_queue_claim(),)
            return [
                list(part)
                for part in store.transact(
                    lambda tx: tx.find(ClaimableJobs(NAMESPACE, queue_claims, limit, session=session))
                )[:3]
            ]

        jobs = claimable(store, a_queue_claim())
        assert found(a_key(1), 9) == [[], jobs, [a_session(1)]]
        assert found(a_key(1), 1) == [[], jobs[:1], [a_session(1)]]
        assert found(a_key(9), 9) == found("a\0b", 9) == [[], jobs, []]
        assert found(a_key(1), 0) == [[], [], []]

    def test_duties_are_read_by_name(self, store: Persistence) -> None:
        """Unknown names are left out."""
        put(store, Insert(a_leader_lease("maintenance")), Insert(a_leader_lease("other", session=2)))

        assert [a_leader_lease("maintenance")] == query(
            store, lambda tx: tx.lock(LEADERS, ["maintenance", "nobody's"])
        )

    def test_plans_are_read_by_fingerprint(self, store: Persistence) -> None:
        """Unknown fingerprints are left out."""
        put(store, *(Insert(a_plan(number)) for number in (1, 2, 3)))

        found = query(
            store, lambda tx: tx.get(PLANS, [a_plan(3).fingerprint, a_plan(1).fingerprint, "0" * 64])
        )

        assert [a_plan(1), a_plan(3)] == sorted(found, key=lambda plan: plan.fingerprint)

    def test_replies_are_read_by_namespace_and_key(self, store: Persistence) -> None:
        """A query for (a, x) and (b, y) finds neither (a, y) nor (b, x)."""
        wanted = a_reply("x", namespace="a", body='{"n":1}')
        others = (a_reply("y", namespace="a"), a_reply("x", namespace="b"))
        put(store, *map(Insert, (wanted, *others)))

        assert [wanted] == query(store, lambda tx: tx.get(REPLIES, [("a", "x"), ("b", "y")]))

    def test_a_transaction_sees_what_was_committed_before_it(self, store: Persistence) -> None:
        """The next transaction reads the changes of the one before."""
        put_jobs(store, a_job(1, 1))
        put(store, Update(a_leased_job(1, 1, session=a_key(5))), Insert(a_job(1, 2)))

        assert [a_leased_job(1, 1, session=a_key(5)), a_job(1, 2)] == query(
            store, lambda tx: tx.find(JobsOfRuns([a_key(1)]))
        )
