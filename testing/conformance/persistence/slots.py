"""The contract of a store for runs and jobs that wait for slots, and for runs that wait for a time."""

from collections.abc import Sequence

import pytest
from attrs import evolve

from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import LimitRow, RateName, RateWindow, SlotName, run_slot, stage_slot
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.searches import (
    AllKeysWaitedFor,
    DueRuns,
    FirstLimitedJobs,
    FirstPendingRuns,
    IncompleteRuns,
    KeysWaitedFor,
    OpenRuns,
    OpenRunsOfKey,
    OverdueRuns,
    QueuedUnderRates,
    SlotPlace,
    UsedSlots,
    WaitedFor,
    Waiting,
)
from holdfast.ports.tables import RATES, RUNS, SLOTS
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_job, a_key, a_run
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_jobs, query
from holdfast.testing.conformance.persistence.values import TEXTS
from holdfast.testing.conformance.threads import in_threads

OTHER = "tenant-2"


def pending(number: int, key: str | None = "k", *, limit: int = 1, priority: int = 0) -> Run:
    """Return a run that waits for a slot."""
    run = a_run(number, status=RunStatus.PENDING, priority=priority)
    return evolve(run, concurrency_key=key, concurrency_limit=limit)


def under_way(number: int, key: str = "k") -> Run:
    """Return a run that holds a slot."""
    return evolve(pending(number, key), status=RunStatus.RUNNING, last_job=1)


def of_stage(job: Job) -> Job:
    """Return a job of a stage with a concurrency limit."""
    return evolve(job, concurrency_key="w/a", concurrency_limit=7)


def rated(job: Job) -> Job:
    """Return a job with a rate limit."""
    return evolve(job, concurrency_key="/r", rate_limit=5, rate_period=60)


def a_window(name: str) -> RateWindow:
    """Return a row that counts starts under a rate limit."""
    return RateWindow(namespace=NAMESPACE, name=name, updated_at=NOW)


def place(key: str = "k", namespace: str = NAMESPACE) -> SlotPlace:
    """Return a concurrency key of a namespace."""
    return SlotPlace(namespace, key)


def put_runs(store: Persistence, *runs: Run) -> None:
    """Store runs."""
    put(store, *map(Insert, runs))


class Slots(PersistenceCase):
    """Waiting for slots, used slots, and due runs."""

    def test_the_first_who_waits_for_a_key_says_its_limit(self, store: Persistence) -> None:
        """The first is the oldest of the highest priority. The number of used slots is included."""
        put_runs(store, pending(3, limit=3), pending(2, limit=2), pending(4, limit=4, priority=1))
        put_runs(store, under_way(8), under_way(9), pending(5, "other"), pending(6, "third"))

        def found(*keys: str) -> list[WaitedFor]:
            return query(store, lambda tx: tx.find(KeysWaitedFor(Waiting.RUNS, {*map(place, keys)})))

        first = WaitedFor(place(), 4, 2, position=pending(4, priority=1).queue_position)
        assert found("k") == [first]
        other = WaitedFor(place("other"), 1, 0, position=pending(5).queue_position)
        assert found("other", "k", "nobody's") == [first, other]
        assert found() == []
        assert [one.free for one in found("other", "k")] == [2, 1]

    def test_keys_are_gone_through_in_order(self, store: Persistence) -> None:
        """Of all namespaces, after a place, up to a limit; each once, however many wait."""
        put_runs(store, *(pending(number, f"k{number % 3}") for number in range(12)))
        put_runs(store, evolve(pending(20, "a"), namespace=OTHER), under_way(21, "alone"))

        def found(after: SlotPlace, limit: int) -> list[tuple[str, str]]:
            searched = query(store, lambda tx: tx.find(AllKeysWaitedFor(Waiting.RUNS, after, limit)))
            return [(one.place.namespace, one.place.key) for one in searched]

        everything = [(NAMESPACE, "k0"), (NAMESPACE, "k1"), (NAMESPACE, "k2"), (OTHER, "a")]
        assert found(SlotPlace("", ""), 100) == everything
        assert found(SlotPlace("", ""), 2) == everything[:2]
        assert found(place("k1"), 100) == everything[2:]
        assert found(place("k11"), 1) == everything[2:3]
        assert found(SlotPlace(OTHER, "a"), 100) == []
        assert found(SlotPlace("", ""), 0) == []

    def test_runs_wait_for_slots_only_while_they_are_pending_and_due(self, store: Persistence) -> None:
        """Delayed, paused and ended runs do not wait."""
        put_runs(store, evolve(pending(1, "later"), start_at=NOW))
        put_runs(store, *(evolve(pending(2 + n), status=status) for n, status in enumerate(RunStatus)))

        assert [one.place for one in store.transact(lambda tx: _all(tx, Waiting.RUNS))] == [place()]
        assert (
            len(store.transact(lambda tx: tx.find(FirstPendingRuns([(place(), 9), (place("later"), 9)]))))
            == 1
        )

    def test_so_many_who_wait_are_found_for_each_key(self, store: Persistence) -> None:
        """The first of each key; none if the number is 0."""
        put_runs(store, *(pending(number, priority=number % 2) for number in range(1, 7)))
        put_runs(store, *(pending(number, "other") for number in range(11, 14)), pending(15, "third"))

        def found(**wanted: int) -> set[str]:
            places = [(place(key), most) for key, most in wanted.items()]
            return set(store.transact(lambda tx: tx.find(FirstPendingRuns(places))))

        assert found(k=2) == {a_key(1), a_key(3)}
        assert found(k=4, other=1) == {a_key(1), a_key(3), a_key(5), a_key(2), a_key(11)}
        assert found(k=0, other=99) == {a_key(11), a_key(12), a_key(13)}
        assert found() == set()

    def test_runs_use_slots_from_their_admission_to_their_end(self, store: Persistence) -> None:
        """In any status meanwhile; not if they were paused before their admission."""
        put_runs(store, *(evolve(under_way(n), status=status) for n, status in enumerate(RunStatus)))
        put_runs(store, evolve(pending(20), status=RunStatus.PAUSED), under_way(21, "other"))
        put_runs(store, evolve(under_way(22), namespace=OTHER))

        used = store.transact(
            lambda tx: tx.find(UsedSlots(Waiting.RUNS, {place(), place("other"), place("no")}))
        )
        assert used == {place(): 4, place("other"): 1, place("no"): 0}
        assert store.transact(lambda tx: tx.find(UsedSlots(Waiting.RUNS, ()))) == {}

    def test_open_runs_of_a_key_are_counted_and_the_oldest_named(self, store: Persistence) -> None:
        """Those under way and those that wait apart, whatever they wait for, oldest first; the newest of all, too."""
        waiting = [pending(number) for number in (5, 3, 4)]
        late = evolve(pending(1), created_at=NOW + 3_600_000_000)
        delayed = evolve(pending(6), start_at=NOW + 1)
        put_runs(store, *waiting, late, delayed, evolve(pending(7), status=RunStatus.PAUSED))
        put_runs(store, *(under_way(number) for number in (13, 12, 14)), under_way(15, "other"))
        put_runs(store, evolve(under_way(16), status=RunStatus.BLOCKED))

        def found(**wanted: int) -> dict[SlotPlace, OpenRunsOfKey]:
            places = [(place(key), most) for key, most in wanted.items()]
            return dict(store.transact(lambda tx: tx.find(OpenRuns(places))))

        assert found(k=2, other=0, no=5) == {
            place(): OpenRunsOfKey(
                under_way=4,
                waiting=6,
                oldest_under_way=(a_key(12), a_key(13)),
                oldest_waiting=(a_key(3), a_key(4)),
                newest=late.key,
                newest_id=late.id,
            ),
            place("other"): OpenRunsOfKey(under_way=1, newest=a_key(15), newest_id=under_way(15).id),
        }
        everything = found(k=99)[place()]
        assert everything.oldest_waiting == (*map(a_key, (3, 4, 5, 6, 7)), late.key)
        assert everything.oldest_under_way == tuple(map(a_key, (12, 13, 14, 16)))
        assert found() == {}

    def test_open_runs_come_with_the_slots_that_an_operator_has_set(self, store: Persistence) -> None:
        """In the row of the runs of the key, in the namespace."""
        put_runs(store, pending(1), pending(2, "other"), evolve(pending(3), namespace=OTHER))
        rows = [
            LimitRow(namespace=NAMESPACE, name="run:k", slots=7, updated_at=NOW),
            LimitRow(namespace=OTHER, name="stage:k", slots=8, updated_at=NOW),
        ]
        store.transact(lambda tx: tx.apply([Insert(row) for row in rows]))

        wanted = [(place(), 1), (place("other"), 1), (place("k", OTHER), 1)]
        found = store.transact(lambda tx: tx.find(OpenRuns(wanted)))
        assert [found[one].slots for one, _ in wanted] == [7, None, None]

    def test_runs_that_end_do_not_count_as_open(self, store: Persistence) -> None:
        """Neither those that have ended, nor those that clean up, also if they are blocked then."""
        put_runs(store, *(evolve(under_way(n), status=status) for n, status in enumerate(RunStatus)))
        put_runs(store, evolve(under_way(20), status=RunStatus.CANCELLING, error='{"code":"cancelled"}'))
        put_runs(store, evolve(under_way(21), status=RunStatus.BLOCKED, error='{"code":"cancelled"}'))
        put_runs(store, evolve(under_way(22), namespace=OTHER), pending(23, None))

        wanted = [(place(), 0), (place("k", OTHER), 1)]
        counts = store.transact(lambda tx: tx.find(OpenRuns(wanted)))
        assert (counts[place()].under_way, counts[place()].waiting) == (4, 1)
        assert counts[place("k", OTHER)].oldest_under_way == (a_key(22),)

    @pytest.mark.parametrize("text", TEXTS)
    def test_open_runs_of_any_key_are_found(self, store: Persistence, text: str) -> None:
        """A key is compared character by character."""
        put_runs(store, pending(1, text), pending(2, text + "x"))

        found = store.transact(lambda tx: tx.find(OpenRuns([(place(text), 1)])))
        assert {one: line.oldest_waiting for one, line in found.items()} == {place(text): (a_key(1),)}

    def test_jobs_wait_while_they_are_limited_and_use_slots_while_queued_or_leased(
        self, store: Persistence
    ) -> None:
        """In the same order as runs; by run and number within one priority."""
        limited = [
            of_stage(a_job(run, number, state=JobState.LIMITED, priority=priority))
            for run, number, priority in ((2, 1, 0), (1, 2, 0), (1, 10, 0), (3, 1, 5))
        ]
        others = [of_stage(a_job(4, number, state=state)) for number, state in enumerate(JobState, 1)]
        put_jobs(store, *limited, *others, a_job(5, 1))

        def first(most: int) -> set[tuple[str, int]]:
            return set(store.transact(lambda tx: tx.find(FirstLimitedJobs([(place("w/a"), most)]))))

        expected = [WaitedFor(place("w/a"), 7, 2, position=limited[-1].queue_position)]
        assert query(store, lambda tx: tx.find(KeysWaitedFor(Waiting.JOBS, {place("w/a")}))) == expected
        assert query(store, lambda tx: _all(tx, Waiting.JOBS)) == expected
        assert first(1) == {(a_key(3), 1)}
        assert first(3) == {(a_key(3), 1), (a_key(1), 2), (a_key(1), 10)}
        used = store.transact(lambda tx: tx.find(UsedSlots(Waiting.JOBS, {place("w/a")})))
        assert used == {place("w/a"): 2}
        assert store.transact(lambda tx: tx.find(UsedSlots(Waiting.RUNS, {place("w/a")}))) == {
            place("w/a"): 0
        }

    def test_the_first_who_waits_under_a_rate_limit_says_it(self, store: Persistence) -> None:
        """Without a concurrency limit, used slots are not counted."""
        put_jobs(store, rated(a_job(1, 1, state=JobState.LIMITED)), rated(a_job(2, 1)), rated(a_job(3, 1)))
        both = evolve(of_stage(a_job(4, 1, state=JobState.LIMITED)), rate_limit=9, rate_period=8)
        put_jobs(store, both, of_stage(a_job(4, 2)))

        found = [
            WaitedFor(place("/r"), None, 0, 5, 60, position=both.queue_position),
            WaitedFor(place("w/a"), 7, 1, 9, 8, position=both.queue_position),
        ]
        assert (
            query(store, lambda tx: tx.find(KeysWaitedFor(Waiting.JOBS, {place("/r"), place("w/a")})))
            == found
        )
        assert query(store, lambda tx: _all(tx, Waiting.JOBS)) == found
        assert [one.free for one in found] == [None, 6]

    def test_jobs_that_may_start_are_counted_by_their_rate(self, store: Persistence) -> None:
        """Queued ones, and no others."""
        put_jobs(store, *(rated(a_job(1, n, state=state)) for n, state in enumerate(JobState, 1)))
        put_jobs(
            store, rated(a_job(2, 1)), of_stage(a_job(2, 2)), evolve(rated(a_job(3, 1)), namespace=OTHER)
        )

        places = {place("/r"), place("w/a"), place("/r", OTHER)}
        counted = store.transact(lambda tx: tx.find(QueuedUnderRates(places)))
        assert counted == {place("/r"): 2, place("w/a"): 0, place("/r", OTHER): 1}
        assert store.transact(lambda tx: tx.find(QueuedUnderRates(()))) == {}

    @pytest.mark.parametrize("lock", [True, False])
    def test_counts_of_starts_are_kept_as_they_are(self, store: Persistence, lock: bool) -> None:
        """Added once, then updated; returned in the order of their names."""
        a, b = a_window("a"), evolve(a_window("b"), starts="[[1,2]]", wakes_at=NOW + 1)
        put(store, Insert(b), Insert(a))
        changed = evolve(a, starts="[[3,4],[5,6]]", wakes_at=None, updated_at=NOW + 7)
        put(
            store,
            Update(changed),
            Insert(a_window("c")),
            Update(evolve(a_window("c"), wakes_at=3)),
        )

        def found(*names: str) -> Sequence[RateWindow]:
            keys = [RateName(NAMESPACE, name) for name in names]
            return query(store, lambda tx: (tx.lock if lock else tx.get)(RATES, keys))

        assert found("b", "a", "nobody's") == [changed, b]
        assert found("c") == [evolve(a_window("c"), wakes_at=3)]
        assert found() == []
        with pytest.raises(ConflictError):
            put(store, Insert(a_window("a")))

    def test_no_more_start_than_are_counted(self, store: Persistence) -> None:
        """Not even in a new window: of its concurrent creators all but one retry."""

        def start_some(_: int) -> None:
            for _ in range(5):
                store.transact(lambda tx: tx.apply(_counted(tx)))

        in_threads(4, start_some)

        (window,) = store.transact(lambda tx: tx.get(RATES, [RateName(NAMESPACE, "a")]))
        assert window.starts == "20"

    def test_counts_that_are_old_are_pruned(self, store: Persistence) -> None:
        """Windows last changed before the instant."""
        put(store, Insert(a_window("old")), Insert(evolve(a_window("new"), updated_at=NOW + 1)))
        assert store.prune(NOW + 1) == 1

        names = [RateName(NAMESPACE, name) for name in ("old", "new")]
        assert [one.name for one in query(store, lambda tx: tx.lock(RATES, names))] == ["new"]

    @pytest.mark.parametrize("text", TEXTS)
    def test_a_key_may_be_any_text(self, store: Persistence, text: str) -> None:
        """It is found, counted and locked exactly."""
        put_runs(store, pending(1, text), under_way(2, text))
        slot = run_slot(NAMESPACE, text)
        put(store, Insert(slot))

        assert query(store, lambda tx: tx.find(KeysWaitedFor(Waiting.RUNS, {place(text)}))) == [
            WaitedFor(place(text), 1, 1, position=pending(1).queue_position)
        ]
        assert query(store, lambda tx: tx.lock(SLOTS, {slot})) == [slot]
        assert query(store, lambda tx: tx.find(FirstPendingRuns([(place(text), 1)]))) == [a_key(1)]

    def test_slots_that_are_there_are_given_in_order(self, store: Persistence) -> None:
        """Missing ones are left out, repeated ones appear once."""
        names = [run_slot(NAMESPACE, "b"), run_slot(NAMESPACE, "a"), stage_slot(NAMESPACE, "a")]
        put(store, *map(Insert, names))

        wanted = [*names, run_slot(OTHER, "a"), SlotName(NAMESPACE, "a")]
        assert query(store, lambda tx: tx.lock(SLOTS, wanted)) == sorted(names)
        assert query(store, lambda tx: tx.lock(SLOTS, ())) == []

    @pytest.mark.parametrize("limit", [1, 3])
    def test_no_more_are_let_in_than_there_are_slots(self, store: Persistence, limit: int) -> None:
        """Not even for a new slot row: of its concurrent creators all but one retry."""
        put_runs(store, *(pending(number, limit=limit) for number in range(30)))

        def let_one_in(_: int) -> None:
            for _ in range(5):
                store.transact(lambda tx: tx.apply(_let_in(tx, limit)))

        in_threads(6, let_one_in)

        assert store.transact(lambda tx: tx.find(UsedSlots(Waiting.RUNS, {place()}))) == {place(): limit}

    def test_runs_that_are_due_are_found_earliest_first(self, store: Persistence) -> None:
        """Pending runs whose start time has passed."""
        starts = {1: NOW + 2, 2: NOW, 3: NOW - 5, 4: NOW + 1}
        put_runs(store, *(evolve(pending(number, None), start_at=at) for number, at in starts.items()))
        put_runs(store, evolve(pending(5, None), start_at=NOW, status=RunStatus.PAUSED), pending(6))

        def due(now: int, limit: int) -> list[str]:
            return query(store, lambda tx: tx.find(DueRuns(limit), now))

        assert due(NOW, 100) == [a_key(3), a_key(2)]
        assert due(NOW + 2, 3) == [a_key(3), a_key(2), a_key(4)]
        assert due(NOW - 6, 100) == due(NOW, 0) == []

    def test_due_runs_of_one_namespace_are_not_behind_those_of_others(self, store: Persistence) -> None:
        """The limit counts only its own. A namespace that no run can have has none."""
        names = {1: OTHER, 2: OTHER, 3: NAMESPACE}
        put_runs(
            store,
            *(evolve(pending(n, None), start_at=NOW - 9 + n, namespace=name) for n, name in names.items()),
        )

        def due(namespace: str | None) -> list[str]:
            return query(store, lambda tx: tx.find(DueRuns(1, namespace), NOW))

        assert (due(None), due(OTHER), due(NAMESPACE)) == ([a_key(1)], [a_key(1)], [a_key(3)])
        assert due("\0") == due("none") == []

    def test_runs_past_their_deadline_are_found_earliest_first(self, store: Persistence) -> None:
        """Runs that have not ended, in any state, and have no error: an error shows that the deadline was handled."""
        put_runs(store, *(evolve(a_run(n, status=s), deadline=NOW - n) for n, s in enumerate(RunStatus)))
        put_runs(store, evolve(a_run(20), deadline=NOW + 1), a_run(21))
        put_runs(store, evolve(a_run(22, status=RunStatus.CANCELLING), deadline=NOW, error="{}"))
        put_runs(store, evolve(a_run(23, status=RunStatus.BLOCKED), deadline=NOW, error="{}"))

        def overdue(now: int, limit: int) -> list[str]:
            return query(store, lambda tx: tx.find(OverdueRuns(limit), now))

        assert overdue(NOW, 100) == [a_key(number) for number in (4, 3, 2, 1, 0)]
        assert overdue(NOW - 4, 1) == [a_key(4)]
        assert overdue(NOW + 1, 100)[-1] == a_key(20)

    def test_a_run_that_has_not_begun_lacks_no_job(self, store: Persistence) -> None:
        """While it is pending, or paused before its start; a running run does, and so does one that has started."""
        put_runs(store, pending(1), evolve(pending(2), status=RunStatus.PAUSED))
        put_runs(store, evolve(pending(3), status=RunStatus.RUNNING), evolve(pending(4), last_job=1))

        keys = [a_key(number) for number in range(1, 5)]
        assert query(store, lambda tx: tx.find(IncompleteRuns(keys))) == keys[2:]


def _all(tx: Transaction, waiting: Waiting) -> Sequence[WaitedFor]:
    return tx.find(AllKeysWaitedFor(waiting, SlotPlace("", ""), 100))


def _counted(tx: Transaction) -> list[Change]:
    """Count one more start, as the kernel does."""
    found = tx.lock(RATES, [RateName(NAMESPACE, "a")])
    if not found:
        return [Insert(evolve(a_window("a"), starts="1"))]
    return [Update(evolve(found[0], starts=str(int(found[0].starts) + 1)))]


def _let_in(tx: Transaction, limit: int) -> list[Change]:
    """Admit the first waiting run if there is a slot, as the kernel does."""
    slot = run_slot(NAMESPACE, "k")
    candidates = tx.find(FirstPendingRuns([(place(), 1)]))
    runs = [run for run in tx.lock(RUNS, candidates) if run.status is RunStatus.PENDING]
    add: list[Change] = [] if tx.lock(SLOTS, [slot]) else [Insert(slot)]
    if not runs or tx.find(UsedSlots(Waiting.RUNS, {place()}))[place()] >= limit:
        return []
    return [*add, *(Update(evolve(run, status=RunStatus.RUNNING, last_job=1)) for run in runs)]
