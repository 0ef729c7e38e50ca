"""Promises about concurrency limits within each other: runs count at every level of their key."""

from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.audit import SlotsOver, SlotsOverLimit
from holdfast.ports.queries.limits import LevelState, LevelStates, LineState, LineStates
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.searches import (
    AllKeysWaitedFor,
    KeySpan,
    KeysWaitedForInSpans,
    SlotPlace,
    SlotsInSpans,
    UsedSlots,
    WaitedFor,
    Waiting,
)
from holdfast.ports.structs import evolve
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_key, a_run
from holdfast.testing.conformance.persistence.case import PersistenceCase, query
from holdfast.testing.conformance.persistence.slots import OTHER, pending, place, put_runs, under_way

ANN, BOB = "all :: t/a :: u/ann", "all :: t/b :: u/bob"
BESIDE = ("all b", "al", "all!", "all ::", "all :: t/a2", "all :: t/a :", "allx :: t/a")
"""Keys that are not within `all :: t/a`, but sort near it."""


def nested(run: Run, *outer: int) -> Run:
    """Return a run with the limits of its outer levels, and its number as the microsecond of its rank."""
    return evolve(run, concurrency_outer=f"[{','.join(map(str, outer))}]", queue_position=run.created_at)


def span(first: str, beyond: str, namespace: str = NAMESPACE) -> KeySpan:
    """Return a span of concurrency keys."""
    return KeySpan(namespace, first, beyond)


class Levels(PersistenceCase):
    """Slots of outer levels, keys with a common beginning, and the states of levels."""

    def test_a_run_holds_a_slot_of_every_level_of_its_key(self, store: Persistence) -> None:
        """Only whole levels count: a key that begins alike is another one."""
        put_runs(store, nested(under_way(1, ANN), 9, 5), nested(under_way(2, ANN), 9, 5))
        put_runs(store, nested(under_way(3, BOB), 9, 5), under_way(4, "all"), nested(pending(5, ANN), 9, 5))
        put_runs(store, *(under_way(6 + number, key) for number, key in enumerate(BESIDE)))
        put_runs(store, evolve(under_way(20, ANN), namespace=OTHER))

        keys = ("all", "all :: t/a", ANN, "all :: t/b", "t/a")
        used = store.transact(lambda tx: tx.find(UsedSlots(Waiting.RUNS, [*map(place, keys)])))

        assert [used[place(key)] for key in keys] == [6, 2, 2, 1, 0]

    def test_holders_are_counted_by_their_keys_in_spans(self, store: Persistence) -> None:
        """Keys without a holder are left out."""
        put_runs(
            store,
            nested(under_way(1, ANN), 9, 5),
            nested(under_way(2, ANN), 9, 5),
            nested(under_way(3, BOB), 9, 5),
        )
        put_runs(
            store,
            under_way(4, "all"),
            nested(pending(5, f"{BOB}b"), 9, 5),
            evolve(under_way(6, ANN), namespace=OTHER),
        )

        def found(*spans: KeySpan) -> object:
            return store.transact(lambda tx: tx.find(SlotsInSpans(spans)))

        assert found(span("all", "all\x01"), span("all :: ", "all ::!")) == {
            place("all"): 1,
            place(ANN): 2,
            place(BOB): 1,
        }
        assert found(span("all :: ", BOB)) == {place(ANN): 2}
        assert found(span("b", "c")) == found() == {}

    def test_keys_with_runs_that_wait_are_found_span_by_span(self, store: Persistence) -> None:
        """From the first key on, before the last one, as many as requested of each, with all limits of the first."""
        put_runs(store, nested(pending(1, ANN, limit=2), 9, 5), nested(pending(2, ANN, limit=3), 9, 6))
        put_runs(
            store, nested(under_way(3, ANN), 9, 5), nested(pending(4, BOB), 8, 4), pending(5, "all", limit=7)
        )
        put_runs(store, pending(6, "zoo"), nested(evolve(pending(7, ANN), namespace=OTHER), 1, 1))

        def found(*spans: KeySpan, limit: int = 10) -> list[WaitedFor]:
            return query(store, lambda tx: tx.find(KeysWaitedForInSpans(spans, limit)))

        rank = a_run(1).created_at
        ann = WaitedFor(place(ANN), 2, 0, outer=(9, 5), position=rank)
        assert found(span("all :: ", "all ::!"))[0] == ann
        assert [one.place.key for one in found(span("all", "all\x01"), span("all :: ", "all ::!"))] == [
            "all",
            ANN,
            BOB,
        ]
        assert [one.used for one in found(span("all", "all\x01"))] == [1]
        assert [one.place.key for one in found(span(f"{ANN}\x01", "all ::!"))] == [BOB]
        assert [one.place.key for one in found(span("all :: ", BOB))] == [ANN]
        assert [one.place.key for one in found(span("a", "z"), span("z", "zz"), limit=1)] == ["all", "zoo"]
        assert found() == found(span("b", "c")) == found(span("a", "z"), limit=0) == []
        assert [one.outer for one in found(span("", "z", OTHER))] == [(1, 1)]
        every = query(store, lambda tx: tx.find(AllKeysWaitedFor(Waiting.RUNS, SlotPlace("", ""), 10)))
        assert ann in every

    def test_damaged_outer_limits_leave_the_key_to_be_found(self, store: Persistence) -> None:
        """Its admission finds out that it can't be read; others must not wait behind it."""
        put_runs(store, evolve(pending(1, ANN), concurrency_outer="[9,"))

        (found,) = store.transact(lambda tx: tx.find(KeysWaitedForInSpans([span("all", "z")], 10)))

        assert (found.place.key, found.outer) == (ANN, ())

    def test_the_state_of_a_level(self, store: Persistence) -> None:
        """It has what is under way and waits within it. Its limit is that of its own runs, else of those within it."""
        put_runs(store, nested(under_way(1, ANN), 9, 5), nested(under_way(2, BOB), 9, 6))
        outer, inner = place("all"), place("all :: t/a")

        def states() -> tuple[LineState, ...]:
            return store.read(LineStates(Waiting.RUNS, [outer, inner, place(BOB)]))

        assert states() == (
            LineState(outer, 2, 0, None, 9),
            LineState(inner, 1, 0, None, 5),
            LineState(place(BOB), 1, 0, None, 1),
        )
        put_runs(store, nested(pending(3, ANN), 8, 4), pending(4, "all", limit=7))
        assert [(one.used, one.waiting, one.limit) for one in states()] == [(2, 2, 7), (1, 1, 4), (1, 0, 1)]

    def test_the_levels_of_a_run_that_waits(self, store: Persistence) -> None:
        """Who holds their slots, oldest first, and how many runs with a lower rank wait within each of them."""
        put_runs(store, nested(under_way(1, ANN), 9, 5), nested(under_way(2, BOB), 9, 5))
        put_runs(store, evolve(nested(under_way(3, ANN), 9, 5), error="{}", status=RunStatus.CANCELLING))
        put_runs(
            store,
            *(nested(pending(number, key), 9, 5) for number, key in ((4, ANN), (5, BOB), (6, ANN), (7, ANN))),
        )
        me = nested(pending(6, ANN), 9, 5)
        query_of_run = LevelStates(place=place(ANN), position=me.queue_position, run=me.key, holders=1)

        assert store.read(query_of_run) == (
            LevelState("all", 3, 2, (a_key(1),)),
            LevelState("all :: t/a", 2, 1, (a_key(1),)),
            LevelState(ANN, 2, 1, (a_key(1),)),
        )
        (flat,) = store.read(LevelStates(place=place("none"), position=NOW, run=""))
        assert flat == LevelState("none", 0, 0, ())

    def test_levels_over_their_limit(self, store: Persistence) -> None:
        """The holders within a level count together, and its limit is the highest of theirs."""
        put_runs(store, nested(under_way(1, ANN), 2, 2), nested(under_way(2, BOB), 1, 2))
        assert store.read(SlotsOverLimit(Waiting.RUNS)) == ()

        put_runs(store, under_way(3, "all"))
        assert store.read(SlotsOverLimit(Waiting.RUNS)) == (SlotsOver(place("all"), 3, 2),)
