"""The contract of a store for limits that are changed while running, and for paused queues."""

from functools import partial
from typing import Any, Final

import pytest
from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.limits import (
    LineState,
    LineStates,
    ListLimits,
    QueueState,
    QueueStates,
    RateLines,
)
from holdfast.ports.records.job import PRIORITY_STEP, JobState
from holdfast.ports.records.limits import LimitName, LimitRow, RateWindow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.searches import (
    AllKeysWaitedFor,
    ClaimableJobs,
    KeysWaitedFor,
    LockedAttempts,
    QueuedOfQueue,
    SessionsForClaims,
    SleepersUnderRates,
    SlotPlace,
    Waiting,
)
from holdfast.ports.tables import LIMITS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_job,
    a_key,
    a_run,
    a_session,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, a_queue_claim, put

FULL: Final = LimitRow(
    namespace=NAMESPACE,
    name="run:customer Größe",
    slots=3,
    rate_limit=300,
    rate_period=60_000_000,
    is_paused=1,
    reason="provider is slow \u2013 \u00e9",
    actor_kind="user",
    actor_id="ann",
    actor_version="2",
    updated_at=NOW,
)
"""A limit with every field set."""
QUEUE: Final = a_job().queue
PAUSE: Final = LimitRow(namespace=NAMESPACE, name=f"queue:{QUEUE}", is_paused=1, updated_at=NOW)


def _found(tx: Transaction, search: SessionsForClaims) -> LockedAttempts:
    return tx.find(search)


def _rows(store: Persistence, *names: LimitName) -> list[LimitRow]:
    return [*store.transact(lambda tx: tx.get(LIMITS, names))]


class Limits(PersistenceCase):
    """Changed limits, paused queues, and what waits under a limit."""

    def test_a_limit_is_returned_as_it_was_stored(self, store: Persistence) -> None:
        """It is inserted, updated with all its fields, and deleted."""
        put(store, Insert(FULL))
        assert _rows(store, FULL.limit_name) == [FULL]
        least = LimitRow(namespace=FULL.namespace, name=FULL.name, updated_at=NOW + 1)
        put(store, Update(least))
        assert _rows(store, FULL.limit_name, LimitName("elsewhere", FULL.name)) == [least]
        put(store, Delete(LIMITS, FULL.limit_name))
        assert _rows(store, FULL.limit_name) == []

    def test_a_limit_is_inserted_once(self, store: Persistence) -> None:
        """A second insert is a conflict."""
        put(store, Insert(FULL))
        with pytest.raises(ConflictError):
            put(store, Insert(evolve(FULL, slots=4)))
        assert _rows(store, FULL.limit_name) == [FULL]

    def test_limits_are_listed_by_name(self, store: Persistence) -> None:
        """Of one namespace, after a name, up to a limit."""
        rows = [evolve(FULL, name=f"run:{key}") for key in "cab"]
        put(store, *map(Insert, rows), Insert(evolve(FULL, namespace="elsewhere")))
        listed = store.read(ListLimits(namespace=NAMESPACE, limit=2))
        assert [row.name for row in listed] == ["run:a", "run:b"]
        following = store.read(ListLimits(namespace=NAMESPACE, after="run:b"))
        assert following == (rows[0],)
        assert store.read(ListLimits(namespace=NAMESPACE, limit=0)) == ()

    def test_nothing_is_claimed_from_a_paused_queue(self, store: Persistence) -> None:
        """Other queues, and queues of the same name in other namespaces, are claimed from."""
        others = [evolve(a_job(2), queue="other"), evolve(a_job(3), namespace="elsewhere")]
        put(store, *map(Insert, (a_job(1), *others)), Insert(PAUSE))

        def claimed(namespace: str, *queues: str) -> list[str]:
            claims = [evolve(a_queue_claim(), queue=queue) for queue in queues]
            found = store.transact(lambda tx: tx.find(ClaimableJobs(namespace, claims, 10)))
            return [job.run for job in found.jobs]

        assert claimed(NAMESPACE, QUEUE, "other") == [a_key(2)]
        assert claimed("elsewhere", QUEUE) == [a_key(3)]
        put(store, Update(evolve(PAUSE, is_paused=0)))
        assert claimed(NAMESPACE, QUEUE) == [a_key(1)]

    def test_whether_limits_were_changed_is_shown(self, store: Persistence) -> None:
        """With claims, with sessions, and with keys that are waited for."""
        waiting = evolve(a_job(2), state=JobState.LIMITED, concurrency_key="k", concurrency_limit=1)
        put(store, Insert(a_job(1)), Insert(waiting), Insert(a_session(1)))
        place = SlotPlace(NAMESPACE, "k")

        def shown() -> list[bool]:
            claim = ClaimableJobs(NAMESPACE, [a_queue_claim()], 1)
            return store.transact(
                lambda tx: [
                    tx.find(claim).has_limits,
                    tx.find(SessionsForClaims([a_session(1).id])).has_limits,
                    tx.lock_attempts([a_key(1)], [a_job(1).key], [a_session(1).id]).has_limits,
                    *(one.has_limits for one in tx.find(KeysWaitedFor(Waiting.JOBS, [place]))),
                    *(
                        one.has_limits
                        for one in tx.find(AllKeysWaitedFor(Waiting.JOBS, SlotPlace("", ""), 10))
                    ),
                ]
            )

        assert shown() == [False] * 5
        put(store, Insert(evolve(FULL, namespace="elsewhere")))
        assert shown() == [True] * 5

    def test_sessions_for_claims_are_those_that_exist(self, store: Persistence) -> None:
        """Each once, and none for unknown ids."""
        put(store, Insert(a_session(1)), Insert(a_session(2)))
        for locks in (False, True):
            search = SessionsForClaims([a_session(2).id, a_session(2).id, "?"], locks)
            found = store.transact(partial(_found, search=search))
            assert [*found.sessions] == [a_session(2)]
            assert ([*found.runs], [*found.jobs]) == ([], [])

    def test_queued_jobs_of_a_queue_come_by_pages(self, store: Persistence) -> None:
        """By definition, then in the order of claims."""
        jobs = [
            evolve(a_job(1), definition="b@1", queue_position=1),
            evolve(a_job(2), definition="a@1", queue_position=9),
            evolve(a_job(3), definition="a@1", queue_position=2),
        ]
        others = [evolve(a_job(4), queue="other"), evolve(a_job(5), state=JobState.PAUSED)]
        put(store, *map(Insert, (*jobs, *others)))
        first = store.transact(lambda tx: tx.find(QueuedOfQueue(NAMESPACE, QUEUE, ("", 0, "", 0), 2)))
        assert [*first] == [jobs[2], jobs[1]]
        last = first[-1]
        place = (last.definition, last.queue_position, last.run, last.number)
        following = store.transact(lambda tx: tx.find(QueuedOfQueue(NAMESPACE, QUEUE, place, 2)))
        assert [*following] == [jobs[0]]

    def test_the_sleepers_of_rates_are_found(self, store: Persistence) -> None:
        """Those that sleep until the instant in the row of their rate, by the ends of its name."""
        names = ["/m~60/a", "/m~60/b", "/m~60/", "/n~60/a", "/m~60/a"]
        jobs = [
            evolve(
                a_job(number),
                state=JobState.SLEEPING,
                wake_at=NOW + 5,
                concurrency_key=name,
                rate_limit=1,
                rate_period=60,
            )
            for number, name in enumerate(names, start=1)
        ]
        jobs[4] = evolve(jobs[4], wake_at=NOW + 6)  # a retry, not a start
        windows = [
            RateWindow(namespace=NAMESPACE, name=name, wakes_at=NOW + 5, updated_at=NOW) for name in names[:4]
        ]
        put(store, *map(Insert, jobs), *map(Insert, windows))

        def found(start: str, end: str, now: int = NOW, limit: int = 10) -> list[str]:
            search = SleepersUnderRates(NAMESPACE, start, end, limit)
            return [job.run for job in store.transact(lambda tx: tx.find(search, now))]

        assert found("/m~", "") == [a_key(1), a_key(2), a_key(3)]
        assert found("/m~", "/a") == [a_key(1)]
        assert found("/m~", "", limit=2) == [a_key(1), a_key(2)]
        assert found("/m~", "", now=NOW + 5) == []
        assert found("/x~", "") == []
        assert store.read(RateLines(namespace=NAMESPACE, start="/m~", end="")) == (
            "/m~60/",
            "/m~60/a",
            "/m~60/b",
        )
        assert store.read(RateLines(namespace=NAMESPACE, start="/m~", end="/a", limit=1)) == ("/m~60/a",)
        assert store.read(RateLines(namespace="elsewhere", start="/m~", end="")) == ()

    def test_the_state_of_a_line_of_jobs(self, store: Persistence) -> None:
        """Who is under way, how many wait and since when, and the planned limits of the first that waits."""
        line: dict[str, Any] = {"concurrency_key": "w/a", "concurrency_limit": 2}
        held = [
            evolve(a_job(n), state=state, **line) for n, state in ((1, JobState.QUEUED), (2, JobState.LEASED))
        ]
        held[1] = evolve(held[1], session=a_session(1).id, concurrency_limit=5)
        put(store, *map(Insert, held))
        place, empty = SlotPlace(NAMESPACE, "w/a"), SlotPlace(NAMESPACE, "w/z")
        states = store.read(LineStates(Waiting.JOBS, [empty, place]))
        assert states == (LineState(place, 2, 0, None, 5), LineState(empty, 0, 0, None, None))

        waiting = [
            evolve(
                a_job(n),
                state=JobState.LIMITED,
                queue_position=NOW - PRIORITY_STEP + n,
                priority=1,
                rate_limit=7,
                rate_period=8,
                **line,
            )
            for n in (4, 3)
        ]
        put(store, *map(Insert, waiting))
        assert store.read(LineStates(Waiting.JOBS, [place])) == (LineState(place, 2, 2, NOW + 3, 2, 7, 8),)

    def test_the_state_of_a_line_of_runs(self, store: Persistence) -> None:
        """Runs that are admitted hold slots, pending ones wait."""
        line: dict[str, Any] = {"concurrency_key": "k", "concurrency_limit": 1}
        runs = [
            evolve(a_run(1), status=RunStatus.RUNNING, last_job=1, **line),
            evolve(a_run(2), status=RunStatus.PENDING, queue_position=NOW, **line),
        ]
        put(store, *map(Insert, runs))
        place = SlotPlace(NAMESPACE, "k")
        assert store.read(LineStates(Waiting.RUNS, [place])) == (LineState(place, 1, 1, NOW, 1),)

    def test_the_state_of_a_queue(self, store: Persistence) -> None:
        """What is queued and leased of each queue."""
        leased = evolve(a_job(3), state=JobState.LEASED, session=a_session(1).id)
        queued = [evolve(a_job(n), queue_position=NOW + n) for n in (1, 2)]
        put(store, *map(Insert, (*queued, leased)))
        states = store.read(QueueStates(NAMESPACE, [QUEUE, "none"]))
        assert states == (QueueState(QUEUE, 2, 1, NOW + 1), QueueState("none", 0, 0, None))
