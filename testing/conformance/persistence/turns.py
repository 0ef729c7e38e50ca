"""The contract of a store for turns: the jobs that wait for their first claim, and the accounts of keys."""

from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import PRIORITY_STEP, JobState
from holdfast.ports.records.limits import FairKey, FairKeyName
from holdfast.ports.searches import (
    FirstTurns,
    HighestTurns,
    NeighbouringTurns,
    PartTurn,
    QueuePart,
    TurnsAround,
    WaitingTurn,
)
from holdfast.ports.tables import FAIR_KEYS, JOBS
from holdfast.testing.conformance.builders import DEFINITION, NAMESPACE, NOW, QUEUE, a_job, a_leased_job
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_jobs, query

PART = QueuePart(NAMESPACE, QUEUE, DEFINITION)


def an_account(key: str, next_turn: int, line: str = "w/q") -> FairKey:
    """Return the account of a key."""
    return FairKey(namespace=NAMESPACE, line=line, key=key, next_turn=next_turn, weight=2, updated_at=NOW)


class Turns(PersistenceCase):
    """Searches for turns."""

    def test_the_first_turn_of_a_lane_is_found(self, store: Persistence) -> None:
        """Of jobs that wait for their first claim, queued or for a limit, whatever their rank."""
        put_jobs(
            store,
            a_job(1, turn=30),
            a_job(2, turn=20, priority=2, queue_position=NOW - 2 * PRIORITY_STEP),
            a_job(3, turn=25, state=JobState.LIMITED),
            a_job(4),
            a_job(5, turn=1, epoch=1),
            a_job(6, turn=2, state=JobState.SLEEPING),
            evolve(a_leased_job(7, session="s"), turn=3),
            a_job(8, turn=4, queue="other"),
            a_job(9, turn=5, definition="other@1"),
            a_job(10, turn=6, namespace="other"),
        )
        other, empty = QueuePart(NAMESPACE, "other", DEFINITION), QueuePart("none", QUEUE, DEFINITION)

        found = store.transact(lambda tx: tx.find(FirstTurns([PART, other, empty, PART])))

        assert found == {PART: WaitingTurn(20, NOW), other: WaitingTurn(4, NOW)}
        assert store.transact(lambda tx: tx.find(FirstTurns([]))) == {}

    def test_a_claimed_or_removed_job_waits_for_no_turn(self, store: Persistence) -> None:
        """The next one is the first."""
        one, two, three = (a_job(number, turn=number, queue_position=NOW + number) for number in (1, 2, 3))
        put_jobs(store, one, two, three)
        put(store, Delete(JOBS, one.key), Update(evolve(two, epoch=1, attempts=1, state=JobState.LEASED)))

        found = store.transact(lambda tx: tx.find(FirstTurns([PART])))

        assert found == {PART: WaitingTurn(3, NOW + 3)}

    def test_the_neighbours_of_a_turn_are_found(self, store: Persistence) -> None:
        """The last one before it, and the first one with this turn or a later one; of equal ones the oldest run."""
        put_jobs(
            store,
            *(a_job(number, turn=10 * number, queue_position=NOW + number) for number in (1, 2, 3)),
            a_job(4, turn=20, queue_position=NOW + 4),
        )
        one, two, three = (WaitingTurn(10 * number, NOW + number) for number in (1, 2, 3))
        wanted = [PartTurn(PART, turn) for turn in (5, 10, 15, 20, 25, 99)]

        found = store.transact(lambda tx: tx.find(NeighbouringTurns(wanted)))

        assert found == dict(
            zip(
                wanted,
                (
                    TurnsAround(None, one),
                    TurnsAround(None, one),
                    TurnsAround(one, two),
                    TurnsAround(one, two),
                    TurnsAround(WaitingTurn(20, NOW + 4), three),
                    TurnsAround(three, None),
                ),
                strict=True,
            )
        )
        assert store.transact(lambda tx: tx.find(NeighbouringTurns([]))) == {}

    def test_the_highest_turn_of_a_line_is_found(self, store: Persistence) -> None:
        """Of all its keys."""
        put(store, *map(Insert, (an_account("a", 5), an_account("b", 7), an_account("c", 9, "other"))))
        line, other, none = (FairKeyName(NAMESPACE, name, "") for name in ("w/q", "other", "none"))

        found = store.transact(lambda tx: tx.find(HighestTurns([line, other, none])))

        assert found == {line: 7, other: 9}
        assert store.transact(lambda tx: tx.find(HighestTurns([]))) == {}

    def test_an_account_is_replaced(self, store: Persistence) -> None:
        """By a later one of the same key, also if another transaction has added it meanwhile."""
        put(store, Insert(an_account("a", 5)))
        put(store, Insert(an_account("a", 6)), Insert(an_account("b", 1)))

        names = [FairKeyName(NAMESPACE, "w/q", key) for key in ("b", "a", "c")]
        assert query(store, lambda tx: tx.lock(FAIR_KEYS, names)) == [an_account("a", 6), an_account("b", 1)]
