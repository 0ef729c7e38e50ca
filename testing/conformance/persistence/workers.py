"""The contract of a store for the worker registry, and for what is in queues."""

from typing import Any, Final

from attrs import evolve

from holdfast.ports.changes import Delete, Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.workers import (
    HeldJob,
    HeldJobs,
    ListWorkers,
    QueueContents,
    QueueLine,
    QueueLines,
    RegisteredSession,
)
from holdfast.ports.records.job import PRIORITY_STEP, Job, JobState
from holdfast.ports.records.session import Registration, SessionState
from holdfast.ports.tables import REGISTRATIONS, SESSIONS
from holdfast.testing.conformance.builders import (
    DEFINITION,
    NAMESPACE,
    NOW,
    QUEUE,
    SECOND,
    a_job,
    a_key,
    a_leased_job,
    a_run,
    a_session,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query

ELSEWHERE: Final = "elsewhere"


def _a_registration(number: int, **fields: Any) -> Registration:
    about = f'{{"name":"worker-{number}"}}'
    row = Registration(session=a_key(number), namespace=NAMESPACE, about=about, lease=30 * SECOND)
    return evolve(row, **fields)


def _in_queue(run: int, queue: str, definition: str, **fields: Any) -> Job:
    return evolve(a_job(run), queue=queue, definition=definition, **fields)


class Workers(PersistenceCase):
    """ListWorkers, HeldJobs and QueueLines, and the fields of sessions that they go by."""

    def test_a_session_keeps_who_opened_it_and_where(self, store: Persistence) -> None:
        """Its namespace, its principal if it has one, and whether it is registered."""
        sessions = [
            a_session(1),
            a_session(2, namespace="höfe", principal="key:a3k9", is_registered=1),
        ]
        put(store, *map(Insert, sessions))
        assert [*query(store, lambda tx: tx.get(SESSIONS, [a_key(1), a_key(2)]))] == sessions

    def test_a_registration_is_replaced_and_deleted(self, store: Persistence) -> None:
        """There is one for a session."""
        put(store, Insert(_a_registration(1)))
        put(store, Insert(_a_registration(1, about='{"name":"other"}')))
        (found,) = query(store, lambda tx: tx.get(REGISTRATIONS, [a_key(1)]))
        assert found == _a_registration(1, about='{"name":"other"}')

        put(store, Delete(REGISTRATIONS, a_key(1)))
        assert query(store, lambda tx: tx.get(REGISTRATIONS, [a_key(1)])) == []

    def test_workers_are_listed_by_pages(self, store: Persistence) -> None:
        """Those of the namespace whose sessions are open, expired or not, by id."""
        sessions = [a_session(n, is_registered=1, expires_at=NOW - 1) for n in (1, 2, 3, 4, 5)]
        sessions[1] = evolve(sessions[1], state=SessionState.DEAD)
        put(store, *map(Insert, sessions))
        put(store, *(Insert(_a_registration(n)) for n in (3, 2, 1)))
        put(store, Insert(_a_registration(4, namespace=ELSEWHERE)), Insert(_a_registration(5)))
        put(store, Insert(_a_registration(9)))

        first = store.read(ListWorkers(namespace=NAMESPACE, limit=2))
        assert first == tuple(RegisteredSession(sessions[n - 1], _a_registration(n)) for n in (1, 3))
        following = store.read(ListWorkers(namespace=NAMESPACE, after=a_key(3), limit=2))
        assert [one.session.id for one in following] == [a_key(5)]
        assert store.read(ListWorkers(namespace=NAMESPACE, limit=0)) == ()
        assert store.read(ListWorkers(namespace="none")) == ()
        assert store.read(ListWorkers(namespace="\0", after="\0")) == ()

    def test_held_jobs_are_those_leased_to_the_sessions(self, store: Persistence) -> None:
        """Of each session the first by run and number, with the id and generation of their runs."""
        jobs = [a_leased_job(run, 1, session=a_key(9)) for run in (3, 1, 2)]
        other, queued = a_leased_job(1, 2, session=a_key(8)), a_job(1, 3)
        put(store, *(Insert(a_run(run, id=f"run-{run}", generation=run)) for run in (1, 2, 3)))
        put(store, *map(Insert, (*jobs, other, queued, a_leased_job(2, 4, session=a_key(7)))))

        found = store.read(HeldJobs(sessions=[a_key(9), a_key(8), a_key(5), "\0"], limit=2))
        assert found == (
            HeldJob(other, "run-1", 1),
            HeldJob(jobs[1], "run-1", 1),
            HeldJob(jobs[2], "run-2", 2),
        )
        assert store.read(HeldJobs(sessions=[])) == ()
        assert store.read(HeldJobs(sessions=[a_key(9)], limit=0)) == ()

    def test_the_contents_of_queues_go_by_queue_and_code(self, store: Persistence) -> None:
        """How many are queued, leased and asleep, and since when the first in line waits."""
        leased = evolve(a_leased_job(6, session=a_key(9)), queue="b", definition="z@1")
        put(
            store,
            *map(
                Insert,
                (
                    _in_queue(1, "b", DEFINITION, queue_position=NOW - PRIORITY_STEP + 5, priority=1),
                    _in_queue(2, "b", DEFINITION, queue_position=NOW + 1),
                    _in_queue(3, "b", "a@1", queue_position=NOW + 2),
                    _in_queue(4, "a", "z@1", queue_position=NOW + 3),
                    _in_queue(5, "a", "a@1", state=JobState.SLEEPING, wake_at=NOW),
                    leased,
                    _in_queue(7, "b", "z@1", state=JobState.SLEEPING),
                    _in_queue(8, "c", "z@1", state=JobState.PAUSED),
                    evolve(_in_queue(9, "a", "z@1"), namespace=ELSEWHERE),
                    evolve(leased, run=a_key(10), namespace=ELSEWHERE),
                ),
            ),
        )

        found = store.read(QueueLines(namespace=NAMESPACE))

        assert found == QueueContents(
            lines=(
                QueueLine(queue="a", definition="a@1", sleeping=1),
                QueueLine(queue="a", definition="z@1", queued=1, since=NOW + 3),
                QueueLine(queue="b", definition="a@1", queued=1, since=NOW + 2),
                QueueLine(queue="b", definition=DEFINITION, queued=2, since=NOW + 5),
                QueueLine(queue="b", definition="z@1", running=1, sleeping=1),
            )
        )
        assert store.read(QueueLines(namespace="none")) == QueueContents(lines=())
        assert store.read(QueueLines(namespace="\0")) == QueueContents(lines=())

    def test_the_lines_of_queues_are_bounded(self, store: Persistence) -> None:
        """So many of each state are counted, and that there are more is shown."""
        put(store, *(Insert(_in_queue(n, QUEUE, f"w-{n}@1", queue_position=NOW)) for n in (3, 1, 2)))
        exact = store.read(QueueLines(namespace=NAMESPACE, limit=3))
        assert (len(exact.lines), exact.is_partial) == (3, False)
        cut = store.read(QueueLines(namespace=NAMESPACE, limit=2))
        assert [line.definition for line in cut.lines] == ["w-1@1", "w-2@1"]
        assert cut.is_partial
