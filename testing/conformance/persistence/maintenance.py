"""The contract of a store for finding due jobs, expired sessions, lost jobs and overdue heartbeats."""

from typing import Final

from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import Job, JobKey, JobState
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.searches import DueJobs, ExpiredSessions, LostJobs, OverdueHeartbeats
from holdfast.ports.tables import JOBS
from holdfast.testing.conformance.builders import NOW, SECOND, a_job, a_key, a_leased_job, a_session
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_jobs, query

_NOT_HELD: Final = (JobState.QUEUED, JobState.SLEEPING, JobState.PAUSED)


def _asleep(run: int, number: int, wake_at: int) -> Job:
    return a_job(run, number, state=JobState.SLEEPING, wake_at=wake_at)


class Maintenance(PersistenceCase):
    """`due`, `expired_sessions`, `lost_jobs` and `heartbeat_overdue_jobs`."""

    def test_a_sleeper_is_due_from_its_instant_on(self, store: Persistence) -> None:
        """Not a microsecond earlier."""
        put_jobs(store, _asleep(1, 1, NOW))

        assert query(store, lambda tx: tx.find(DueJobs(10), NOW - 1)) == []
        assert [_asleep(1, 1, NOW)] == query(store, lambda tx: tx.find(DueJobs(10), NOW))
        assert [_asleep(1, 1, NOW)] == query(store, lambda tx: tx.find(DueJobs(10), NOW + 1))

    def test_the_earliest_sleeper_comes_first(self, store: Persistence) -> None:
        """The limit cuts off the latest, whatever their runs and namespaces."""
        put_jobs(store, _asleep(1, 1, NOW - 10), _asleep(2, 1, NOW - 30), _asleep(3, 1, NOW - 20))
        put_jobs(store, a_job(4, 1, state=JobState.SLEEPING, wake_at=NOW - 40, namespace="tenant-2"))

        found = query(store, lambda tx: tx.find(DueJobs(3), NOW))

        assert [job.wake_at for job in found] == [NOW - 40, NOW - 30, NOW - 20]
        assert query(store, lambda tx: tx.find(DueJobs(0), NOW)) == []

    def test_only_sleepers_are_due(self, store: Persistence) -> None:
        """A job in another state may still have its wake-up time."""
        states = sorted(set(JobState) - {JobState.SLEEPING})
        put_jobs(
            store, *(a_job(1, number, state=state, wake_at=NOW - 1) for number, state in enumerate(states))
        )

        assert query(store, lambda tx: tx.find(DueJobs(10), NOW)) == []

    def test_what_is_due_follows_every_change(self, store: Persistence) -> None:
        """When a job is woken, put to sleep for longer, or deleted."""
        put_jobs(store, _asleep(1, 1, NOW), _asleep(1, 2, NOW), _asleep(1, 3, NOW), a_job(1, 4))
        put(store, Update(a_job(1, 1)), Update(_asleep(1, 2, NOW + 5)), Delete(JOBS, JobKey(a_key(1), 3)))
        put(store, Update(_asleep(1, 4, NOW - 5)))

        assert [job.number for job in query(store, lambda tx: tx.find(DueJobs(10), NOW))] == [4]
        assert [job.number for job in query(store, lambda tx: tx.find(DueJobs(10), NOW + 5))] == [4, 2]

    def test_a_session_has_expired_after_its_instant(self, store: Persistence) -> None:
        """Not at it: the session holds its leases until then."""
        put(store, Insert(a_session(1, expires_at=NOW)))

        assert query(store, lambda tx: tx.find(ExpiredSessions(0, 10), NOW)) == []
        assert [a_session(1, expires_at=NOW)] == query(
            store, lambda tx: tx.find(ExpiredSessions(0, 10), NOW + 1)
        )

    def test_a_dead_session_does_not_expire_again(self, store: Persistence) -> None:
        """Only open sessions are returned."""
        put(store, Insert(a_session(1, expires_at=NOW, state=SessionState.DEAD)))

        assert query(store, lambda tx: tx.find(ExpiredSessions(0, 10), NOW + SECOND)) == []

    def test_a_renewed_session_has_not_expired(self, store: Persistence) -> None:
        """The last renewal counts."""
        put(store, Insert(a_session(1, expires_at=NOW)), Insert(a_session(2, expires_at=NOW)))
        put(store, Insert(a_session(1, expires_at=NOW + SECOND)))

        assert [a_key(2)] == [
            session.id for session in query(store, lambda tx: tx.find(ExpiredSessions(0, 10), NOW + 1))
        ]

    def test_expired_sessions_come_up_to_the_limit(self, store: Persistence) -> None:
        """Marking them dead leads to the others."""
        put(store, *(Insert(a_session(number, expires_at=NOW - number)) for number in range(1, 6)))

        seen: list[Session] = []
        for _ in range(4):
            found = query(store, lambda tx: tx.find(ExpiredSessions(0, 2), NOW))
            assert len(found) <= 2
            seen += found
            put(
                store,
                *(Insert(a_session(int(session.id[-3:]), state=SessionState.DEAD)) for session in found),
            )

        assert [a_key(number) for number in range(1, 6)] == sorted(session.id for session in seen)

    def test_a_job_leased_to_a_dead_session_is_lost(self, store: Persistence) -> None:
        """A job of an open session is not, expired or not; nor is one without a lease."""
        put(store, Insert(a_session(1, state=SessionState.DEAD)), Insert(a_session(2, expires_at=0)))
        put_jobs(store, a_leased_job(1, 1, session=a_key(1)), a_leased_job(1, 2, session=a_key(2)))
        put_jobs(store, a_job(2, 1), a_job(2, 2, state=JobState.PAUSED))

        assert [JobKey(a_key(1), 1)] == query(store, lambda tx: tx.find(LostJobs(10)))

    def test_lost_jobs_come_up_to_the_limit(self, store: Persistence) -> None:
        """Freeing them leads to the others."""
        put(store, Insert(a_session(1, state=SessionState.DEAD)))
        put_jobs(store, *(a_leased_job(1, number, session=a_key(1)) for number in range(1, 6)))

        seen: list[JobKey] = []
        for _ in range(4):
            found = query(store, lambda tx: tx.find(LostJobs(2)))
            assert len(found) <= 2
            seen += found
            put(store, *(Update(a_job(1, key.number)) for key in found))

        assert sorted(key.number for key in seen) == [1, 2, 3, 4, 5]

    def test_a_lost_job_is_found_until_it_is_freed(self, store: Persistence) -> None:
        """A session that dies loses the jobs that it holds then."""
        put(store, Insert(a_session(1)))
        put_jobs(store, a_leased_job(1, 1, session=a_key(1)), a_leased_job(1, 2, session=a_key(1)))
        assert query(store, lambda tx: tx.find(LostJobs(10))) == []

        put(store, Insert(a_session(1, state=SessionState.DEAD)))
        assert {1, 2} == {key.number for key in query(store, lambda tx: tx.find(LostJobs(10)))}

        put(store, Update(a_job(1, 1)), Delete(JOBS, JobKey(a_key(1), 2)))
        assert query(store, lambda tx: tx.find(LostJobs(10))) == []

    def test_a_silent_job_is_found_after_its_instant(self, store: Persistence) -> None:
        """Not at it; and only while it is leased."""
        overdue = evolve(a_leased_job(1, 1, session=a_key(1)), heartbeat_by=NOW)
        asleep = [
            a_job(1, 2 + place, state=state, heartbeat_by=NOW - 1) for place, state in enumerate(_NOT_HELD)
        ]
        put_jobs(store, overdue, *asleep, a_leased_job(1, 9, session=a_key(1)))

        assert query(store, lambda tx: tx.find(OverdueHeartbeats(0, 10), NOW)) == []
        assert [JobKey(a_key(1), 1)] == query(store, lambda tx: tx.find(OverdueHeartbeats(0, 10), NOW + 1))

    def test_the_jobs_that_are_silent_for_longest_come_first(self, store: Persistence) -> None:
        """The limit cuts off the others, whatever their runs."""
        for run, ago in ((1, 10), (2, 30), (3, 20)):
            put_jobs(store, evolve(a_leased_job(run, 1, session=a_key(9)), heartbeat_by=NOW - ago))

        assert [JobKey(a_key(2), 1), JobKey(a_key(3), 1)] == query(
            store, lambda tx: tx.find(OverdueHeartbeats(0, 2), NOW)
        )
        assert query(store, lambda tx: tx.find(OverdueHeartbeats(0, 0), NOW)) == []

    def test_a_job_that_was_heard_from_is_not_silent(self, store: Persistence) -> None:
        """The last change counts; a deleted job is not found."""
        jobs = [
            evolve(a_leased_job(1, number, session=a_key(1)), heartbeat_by=NOW - 1) for number in (1, 2, 3)
        ]
        put_jobs(store, *jobs)
        put(store, Update(evolve(jobs[0], heartbeat_by=NOW + 5)), Delete(JOBS, jobs[1].key))

        assert [jobs[2].key] == query(store, lambda tx: tx.find(OverdueHeartbeats(0, 10), NOW))
