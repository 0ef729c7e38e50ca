"""Promises about the lines of runs that wait for a rate of starts."""

from collections.abc import Sequence

from holdfast.ports.changes import Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.limits import LineState, LineStates
from holdfast.ports.records.limits import RateName
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.searches import (
    AllKeysWaitedFor,
    DueRunRates,
    FirstPendingRuns,
    KeysWaitedFor,
    SlotPlace,
    WaitedFor,
    Waiting,
)
from holdfast.ports.structs import evolve
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_key
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.slots import OTHER, a_window, pending, place, put_runs


def rated(number: int, line: str = "run-rate:w", *, limit: int = 5, key: str | None = None) -> Run:
    """Return a run that waits for its rate of starts."""
    run = pending(number, key)
    return evolve(run, rate_key=line, rate_limit=limit, rate_period=60, rate_units=2, in_rate_line=1)


class RunRates(PersistenceCase):
    """Lines of runs that wait for a rate of starts."""

    def test_lines_of_rates_say_the_rate_of_their_first_run(self, store: Persistence) -> None:
        """They have no slots, also if their runs have concurrency keys."""
        put_runs(store, rated(2, limit=2), rated(3, limit=3), rated(4, "run-rate:x", key="k"))
        expected = [
            WaitedFor(place("run-rate:w"), None, 0, 2, 60, position=NOW),
            WaitedFor(place("run-rate:x"), None, 0, 5, 60, position=NOW),
        ]
        wanted = {*map(place, ("run-rate:w", "run-rate:x", "k", "no"))}
        assert query(store, lambda tx: tx.find(KeysWaitedFor(Waiting.RATED_RUNS, wanted))) == expected

        def found(after: SlotPlace, limit: int) -> Sequence[WaitedFor]:
            return query(store, lambda tx: tx.find(AllKeysWaitedFor(Waiting.RATED_RUNS, after, limit)))

        assert found(SlotPlace("", ""), 9) == expected
        assert found(SlotPlace("", ""), 1) == expected[:1]
        assert found(place("run-rate:w"), 9) == expected[1:]

    def test_a_run_waits_in_one_line(self, store: Persistence) -> None:
        """In that of its rate, or that of its slot."""
        in_both = rated(1, key="k")
        put_runs(store, in_both, evolve(rated(2, key="k"), in_rate_line=0))

        def found(waiting: Waiting) -> list[str]:
            wanted = [(place("k"), 9), (place("run-rate:w"), 9)]
            return list(query(store, lambda tx: tx.find(FirstPendingRuns(wanted, waiting))))

        assert (found(Waiting.RATED_RUNS), found(Waiting.RUNS)) == ([a_key(1)], [a_key(2)])
        put(store, Update(evolve(in_both, in_rate_line=0)))
        assert (found(Waiting.RATED_RUNS), sorted(found(Waiting.RUNS))) == ([], [a_key(1), a_key(2)])

    def test_only_pending_runs_that_are_due_wait_for_a_rate(self, store: Persistence) -> None:
        """The first of each line are found, by rank."""
        put_runs(store, *(evolve(rated(n), status=status) for n, status in enumerate(RunStatus)))
        put_runs(
            store, evolve(rated(20), start_at=NOW), evolve(rated(21), namespace=OTHER), rated(22), rated(23)
        )

        def first(most: int) -> list[str]:
            search = FirstPendingRuns([(place("run-rate:w"), most)], Waiting.RATED_RUNS)
            return sorted(query(store, lambda tx: tx.find(search)))

        waiting = [n for n, status in enumerate(RunStatus) if status is RunStatus.PENDING]
        assert first(9) == [a_key(n) for n in (*waiting, 22, 23)]
        assert first(2) == [a_key(n) for n in (*waiting, 22)]

    def test_rates_whose_next_start_is_due_are_found_earliest_first(self, store: Persistence) -> None:
        """Those for which jobs wait, or nothing, are not."""
        at = {"a": NOW, "b": NOW - 5, "c": NOW + 1}
        put(store, *(Insert(evolve(a_window(name), admits_at=due)) for name, due in at.items()))
        put(store, Insert(evolve(a_window("jobs"), wakes_at=NOW - 9)))

        def due(now: int, limit: int = 9) -> list[str]:
            found: Sequence[RateName] = query(store, lambda tx: tx.find(DueRunRates(limit), now))
            assert {one.namespace for one in found} <= {NAMESPACE}
            return [one.name for one in found]

        assert (due(NOW), due(NOW + 1, 2), due(NOW - 6)) == (["b", "a"], ["b", "a"], [])
        put(store, Update(evolve(a_window("b"), admits_at=None)))
        assert due(NOW + 1) == ["a", "c"]

    def test_due_rates_of_one_namespace_are_not_behind_those_of_others(self, store: Persistence) -> None:
        """The limit counts only its own."""
        at = {OTHER: NOW - 5, NAMESPACE: NOW}
        put(
            store, *(Insert(evolve(a_window("a"), namespace=name, admits_at=due)) for name, due in at.items())
        )

        def due(namespace: str | None) -> list[str]:
            found: Sequence[RateName] = query(store, lambda tx: tx.find(DueRunRates(1, namespace), NOW))
            return [one.namespace for one in found]

        assert (due(None), due(OTHER), due(NAMESPACE)) == ([OTHER], [OTHER], [NAMESPACE])
        assert due("\0") == []

    def test_what_waits_in_lines_of_rates_is_counted(self, store: Persistence) -> None:
        """With the rate of the first run of each."""
        put_runs(store, rated(2, limit=2), rated(3), evolve(rated(4, key="k"), in_rate_line=0))
        places = [place("run-rate:w"), place("run-rate:x")]
        since = rated(2).queue_position
        assert store.read(LineStates(Waiting.RATED_RUNS, places)) == (
            LineState(places[0], 0, 2, since, None, 2, 60),
            LineState(places[1], 0, 0, None, None, None, None),
        )
