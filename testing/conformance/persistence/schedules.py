"""The contract of a store for schedules."""

from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

import attrs
import pytest
from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.schedules import FindSchedule, ListSchedules, NextScheduleNamespace
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import DueSchedules, NextScheduleTime, SchedulesByName, SchedulesOfOtherZones
from holdfast.ports.tables import SCHEDULES
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_key, a_schedule
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.values import TEXTS
from holdfast.testing.conformance.threads import in_threads

OTHER: Final = "tenant-2"

FULL_SCHEDULE: Final = ScheduleRow(
    key=a_key(7),
    namespace="tenant-1",
    name="reports/nightly \u2013 Größe",
    workflow="orders",
    start='{"input":{"inline":"\\"\u00e9\\""},"workflow":"orders"}',
    timing='[{"kind":"cron","zone":"Europe/Paris"}]',
    policy='{"overlap":"queue"}',
    zones="2026f",
    next_at=NOW + 1,
    handled_until=NOW,
    last_local="2026-01-01T01:00:00 Europe/Paris",
    started=3,
    skipped=4,
    missed=5,
    failures=6,
    recent='[{"at":1,"handled_at":2,"kind":"due","outcome":"started"}]',
    changes='[{"at":1,"change":"created"}]',
    open_runs='["reports/nightly/2026-01-01T00:00:00Z"]',
    paused='{"since":7}',
    problem="UnknownZoneError: there is no time zone 'Europe/Pariss'",
    declared="0123456789abcdef" * 4,
    created_at=NOW - 9,
    updated_at=NOW - 8,
)
"""A schedule with every field set."""

_IDENTITY: Final = frozenset({"key", "namespace", "name", "created_at"})
"""What no update changes."""
_CHANGED: Final[dict[str, object]] = {
    field.name: 77 if isinstance(getattr(FULL_SCHEDULE, field.name), int) else "another text"
    for field in attrs.fields(ScheduleRow)
    if field.name not in _IDENTITY
}
_CLEARED: Final = ("next_at", "last_local", "paused", "problem", "declared")
"""What an update may set to None."""


def due(
    store: Persistence,
    now: Micros = NOW,
    workflows: Collection[str] = ("orders",),
    limit: int = 100,
    namespace: str = NAMESPACE,
) -> list[str]:
    """Return the keys of the schedules that are due, in order."""
    found = query(store, lambda tx: tx.find(DueSchedules(namespace, tuple(workflows), limit), now))
    return [row.key for row in found]


def next_time(
    store: Persistence,
    now: Micros = NOW,
    workflows: Collection[str] = ("orders",),
    namespace: str = NAMESPACE,
) -> Micros | None:
    """Return the next instant after `now` at which a schedule is due."""
    return store.transact(lambda tx: tx.find(NextScheduleTime(namespace, tuple(workflows)), now))


def of_other_zones(
    store: Persistence,
    version: str = "2026a",
    *,
    after: str = "",
    limit: int = 100,
    workflows: tuple[str, ...] = ("orders",),
    namespace: str = NAMESPACE,
) -> list[str]:
    """Return the keys of the schedules that were computed with other time zone data."""
    search = SchedulesOfOtherZones(namespace, workflows, version, after, limit)
    return [row.key for row in query(store, lambda tx: tx.find(search))]


def named(store: Persistence, *names: ScheduleName) -> list[ScheduleRow]:
    """Return schedules by name, as a transaction finds them."""
    return query(store, lambda tx: tx.find(SchedulesByName(names)))


class Schedules(PersistenceCase):
    """Schedules, their searches and their queries."""

    def test_a_schedule_is_read_as_it_was_stored(self, store: Persistence) -> None:
        """Every field survives: in reads by key, by name, in searches and in queries."""
        unset = [name for name, value in attrs.asdict(FULL_SCHEDULE).items() if value in {None, "", 0}]
        assert not unset
        put(store, Insert(FULL_SCHEDULE))

        full, namespace = FULL_SCHEDULE, FULL_SCHEDULE.namespace
        assert query(store, lambda tx: tx.lock(SCHEDULES, [full.key])) == [full]
        assert named(store, full.schedule_name) == [full]
        assert query(store, lambda tx: tx.find(DueSchedules(namespace, ["orders"], 9), NOW + 1)) == [full]
        search = SchedulesOfOtherZones(namespace, ("orders",), "2026a", "", 9)
        assert query(store, lambda tx: tx.find(search)) == [full]
        assert store.read(FindSchedule(full.schedule_name)) == full
        assert store.read(ListSchedules(namespace=namespace)) == (full,)

    def test_what_a_schedule_has_not_stays_none(self, store: Persistence) -> None:
        """None is not turned into an empty text or a zero, nor a zero into None."""
        plain = a_schedule(next_at=None)
        put(store, Insert(plain))

        found = store.read(FindSchedule(plain.schedule_name))
        assert found == plain
        assert (plain.next_at, plain.last_local, plain.paused, plain.problem, plain.declared) == (None,) * 5
        assert (plain.started, plain.zones, plain.recent) == (0, "", "[]")

    @pytest.mark.parametrize("field", _CHANGED)
    def test_each_field_is_updated(self, store: Persistence, field: str) -> None:
        """That field alone, of that schedule alone."""
        put(store, Insert(FULL_SCHEDULE), Insert(a_schedule(1)))
        changed: dict[str, Any] = {field: _CHANGED[field]}
        assert getattr(FULL_SCHEDULE, field) != _CHANGED[field]
        put(store, Update(evolve(FULL_SCHEDULE, **changed)))

        found = query(store, lambda tx: tx.get(SCHEDULES, [a_key(1), a_key(7)]))
        assert found == [a_schedule(1), evolve(FULL_SCHEDULE, **changed)]

    @pytest.mark.parametrize("field", _CLEARED)
    def test_a_field_is_cleared(self, store: Persistence, field: str) -> None:
        """An update may set it to None, and back."""
        put(store, Insert(FULL_SCHEDULE))
        cleared: dict[str, Any] = {field: None}
        put(store, Update(evolve(FULL_SCHEDULE, **cleared)))
        assert store.read(FindSchedule(FULL_SCHEDULE.schedule_name)) == evolve(FULL_SCHEDULE, **cleared)

        put(store, Update(FULL_SCHEDULE))
        assert store.read(FindSchedule(FULL_SCHEDULE.schedule_name)) == FULL_SCHEDULE

    def test_many_schedules_are_updated_at_once(self, store: Persistence) -> None:
        """A hundred in one transaction, each with its own values."""
        rows = [a_schedule(number) for number in range(100)]
        put(store, *map(Insert, rows))
        moved = [
            evolve(row, next_at=None if number % 3 else NOW + number, started=number)
            for number, row in enumerate(rows)
        ]
        put(store, *map(Update, moved))

        assert store.read(ListSchedules(namespace=NAMESPACE)) == tuple(moved)

    def test_a_removed_schedule_is_gone_and_its_name_is_free(self, store: Persistence) -> None:
        """Others stay. A schedule that does not exist can be removed, too."""
        put(store, Insert(a_schedule(1)), Insert(a_schedule(2)))
        put(store, Delete(SCHEDULES, a_key(1)), Delete(SCHEDULES, a_key(9)))

        assert store.read(ListSchedules(namespace=NAMESPACE)) == (a_schedule(2),)
        assert due(store) == [a_key(2)]
        again = a_schedule(3, name=a_schedule(1).name)
        put(store, Insert(again))
        assert named(store, again.schedule_name) == [again]

    def test_a_schedule_is_removed_and_made_again_in_one_transaction(self, store: Persistence) -> None:
        """The removal comes first."""
        put(store, Insert(a_schedule(1)))
        again = a_schedule(2, name=a_schedule(1).name)
        put(store, Delete(SCHEDULES, a_key(1)), Insert(again))

        assert store.read(ListSchedules(namespace=NAMESPACE)) == (again,)

    def test_a_name_is_used_once_in_a_namespace(self, store: Persistence) -> None:
        """A second one is a conflict, and nothing of its transaction is stored."""
        put(store, Insert(a_schedule(1, name="nightly")))
        with pytest.raises(ConflictError):
            put(store, Insert(a_schedule(3)), Insert(a_schedule(2, name="nightly")))
        with pytest.raises(ConflictError):
            put(store, Insert(a_schedule(4, name="x")), Insert(a_schedule(5, name="x")))

        assert store.read(ListSchedules(namespace=NAMESPACE)) == (a_schedule(1, name="nightly"),)
        put(
            store,
            Insert(a_schedule(2, name="nightly", namespace=OTHER)),
            Insert(a_schedule(3, name="Nightly")),
        )
        assert len(store.read(ListSchedules(namespace=NAMESPACE))) == 2

    # Due schedules --------------------------------------------------------------------------------------------

    def test_due_schedules_come_longest_due_first(self, store: Persistence) -> None:
        """And by key where two are due since the same instant."""
        instants = {1: NOW, 2: NOW - 5, 3: NOW, 4: NOW - 9, 5: NOW - 5}
        put(store, *(Insert(a_schedule(number, next_at=at)) for number, at in instants.items()))

        assert due(store) == [a_key(number) for number in (4, 2, 5, 1, 3)]

    def test_a_schedule_is_due_at_its_time_and_not_before(self, store: Persistence) -> None:
        """To the microsecond."""
        put(store, Insert(a_schedule(1, next_at=NOW)))

        assert due(store, NOW - 1) == []
        assert due(store, NOW) == due(store, NOW + 1) == [a_key(1)]

    def test_a_schedule_without_a_time_is_never_due(self, store: Persistence) -> None:
        """Nor is one that was moved on."""
        put(store, Insert(a_schedule(1, next_at=None)), Insert(a_schedule(2)), Insert(a_schedule(3)))
        put(store, Update(a_schedule(2, next_at=None)), Update(a_schedule(3, next_at=NOW + 1)))

        assert due(store, 2**53) == [a_key(3)]
        assert due(store, NOW) == []

    def test_only_schedules_of_these_workflows_are_due(self, store: Persistence) -> None:
        """In this namespace. Of several workflows, all are in one order."""
        put(
            store,
            Insert(a_schedule(1, workflow="a", next_at=NOW - 1)),
            Insert(a_schedule(2, workflow="b", next_at=NOW - 2)),
            Insert(a_schedule(3, workflow="c", next_at=NOW - 3)),
            Insert(a_schedule(4, workflow="a", next_at=NOW - 4)),
            Insert(a_schedule(5, workflow="a", namespace=OTHER, next_at=NOW - 5)),
        )

        assert due(store, workflows=["a", "b"]) == [a_key(4), a_key(2), a_key(1)]
        assert due(store, workflows=["b", "a", "a"]) == [a_key(4), a_key(2), a_key(1)]
        assert due(store, workflows=["c", "unknown"]) == [a_key(3)]
        assert due(store, workflows=["A"]) == due(store, workflows=[]) == []
        assert due(store, workflows=["a"], namespace=OTHER) == [a_key(5)]

    def test_at_most_the_limit_is_due(self, store: Persistence) -> None:
        """Those due longest; a limit of zero is allowed."""
        put(store, *(Insert(a_schedule(number, next_at=NOW - number)) for number in range(1, 6)))

        assert due(store, limit=2) == [a_key(5), a_key(4)]
        assert due(store, limit=1) == [a_key(5)]
        assert due(store, limit=0) == []

    # The next time --------------------------------------------------------------------------------------------

    def test_the_next_time_is_the_earliest_after_now(self, store: Persistence) -> None:
        """What is due already does not count."""
        put(
            store,
            Insert(a_schedule(1, next_at=NOW - 1)),
            Insert(a_schedule(2, next_at=NOW)),
            Insert(a_schedule(3, next_at=NOW + 7)),
            Insert(a_schedule(4, next_at=NOW + 5)),
            Insert(a_schedule(5, next_at=None)),
        )

        assert next_time(store, NOW - 2) == NOW - 1
        assert next_time(store, NOW - 1) == NOW
        assert next_time(store, NOW) == next_time(store, NOW + 4) == NOW + 5
        assert next_time(store, NOW + 5) == NOW + 7
        assert next_time(store, NOW + 7) is None

    def test_the_next_time_is_that_of_these_workflows(self, store: Persistence) -> None:
        """In this namespace; None if they have no time."""
        assert next_time(store) is None
        put(
            store,
            Insert(a_schedule(1, workflow="a", next_at=NOW + 3)),
            Insert(a_schedule(2, workflow="b", next_at=NOW + 2)),
            Insert(a_schedule(3, workflow="c", next_at=NOW + 1)),
            Insert(a_schedule(4, workflow="b", namespace=OTHER, next_at=NOW + 1)),
            Insert(a_schedule(5, workflow="d", next_at=None)),
        )

        assert next_time(store, workflows=["a", "b"]) == next_time(store, workflows=["b", "b"]) == NOW + 2
        assert next_time(store, workflows=["a", "unknown"]) == NOW + 3
        assert next_time(store, workflows=["b"], namespace=OTHER) == NOW + 1
        assert next_time(store, workflows=["d"]) is next_time(store, workflows=[]) is None

    # By name --------------------------------------------------------------------------------------------------

    def test_schedules_are_found_by_name(self, store: Persistence) -> None:
        """In the order of their keys, each once; unknown names are left out."""
        rows = [a_schedule(1, name="c"), a_schedule(2, name="a"), a_schedule(3, name="b")]
        put(store, *map(Insert, rows), Insert(a_schedule(4, name="a", namespace=OTHER)))
        a, b, c, d = (ScheduleName(NAMESPACE, name) for name in "abcd")

        assert named(store, a, d, c, a) == [rows[0], rows[1]]
        assert named(store, b) == [rows[2]]
        assert named(store, ScheduleName(OTHER, "b"), ScheduleName(OTHER, "c")) == []
        assert named(store) == []

    # Other time zone data -------------------------------------------------------------------------------------

    def test_schedules_of_other_zone_data_are_found_by_key(self, store: Persistence) -> None:
        """Those that depend on no zone, or on this version, are left out, as are other workflows and namespaces."""
        put(
            store,
            Insert(a_schedule(1, zones="")),
            Insert(a_schedule(2, zones="2025b")),
            Insert(a_schedule(3, zones="2026a")),
            Insert(a_schedule(4, zones="2026b", next_at=None)),
            Insert(a_schedule(5, zones="2025b", paused="{}", workflow="other")),
            Insert(a_schedule(6, zones="2025b", namespace=OTHER)),
            Insert(a_schedule(7, zones="2025b")),
        )

        assert of_other_zones(store) == [a_key(2), a_key(4), a_key(7)]
        assert of_other_zones(store, "2025b") == [a_key(3), a_key(4)]
        assert of_other_zones(store, workflows=("other", "orders"), limit=3) == [a_key(2), a_key(4), a_key(5)]
        assert of_other_zones(store, after=a_key(2)) == [a_key(4), a_key(7)]
        assert of_other_zones(store, after=a_key(4), limit=1) == [a_key(7)]
        assert of_other_zones(store, after=a_key(7)) == of_other_zones(store, limit=0) == []
        assert of_other_zones(store, workflows=()) == []
        assert of_other_zones(store, namespace=OTHER) == [a_key(6)]

    # Queries --------------------------------------------------------------------------------------------------

    def test_a_schedule_is_looked_up_by_name(self, store: Persistence) -> None:
        """Letter by letter, in its namespace."""
        names = ["nightly", "Nightly", "nightlý", "nightly "]
        put(store, *(Insert(a_schedule(number, name=name)) for number, name in enumerate(names)))
        put(store, Insert(a_schedule(9, name="of others", namespace=OTHER)))

        for number, name in enumerate(names):
            found = store.read(FindSchedule(ScheduleName(NAMESPACE, name)))
            assert found is not None
            assert found.key == a_key(number)
        assert store.read(FindSchedule(ScheduleName(NAMESPACE, "of others"))) is None
        assert store.read(FindSchedule(ScheduleName(OTHER, "nightly"))) is None

    def test_schedules_are_listed_by_name_page_by_page(self, store: Persistence) -> None:
        """Each page starts after a name, in the order of code points; other namespaces are left out."""
        names = sorted(["Z", "a", "a/b", "a-b", "ab", "\u00e9", "\U0001f600", "\uffee"])
        rows = [a_schedule(90 - number, name=name) for number, name in enumerate(names)]
        put(store, *map(Insert, rows), Insert(a_schedule(99, name="b", namespace=OTHER)))

        def page(after: str, limit: int = 100) -> list[str]:
            found = store.read(ListSchedules(namespace=NAMESPACE, after=after, limit=limit))
            return [row.name for row in found]

        assert page("") == names
        assert [*page("", 3), *page(names[2], 3), *page(names[5], 3)] == names
        assert page("aa") == names[names.index("ab") :]
        assert page(names[-1]) == page("", 0) == []

    def test_namespaces_with_schedules_are_found_one_after_the_other(self, store: Persistence) -> None:
        """In the order of code points, each once, however many schedules it has; None after the last."""
        assert store.read(NextScheduleNamespace()) is None
        namespaces = ["Z", "a", "a", "a-b", "\uffee", "\U0001f600"]
        put(
            store,
            *(
                Insert(a_schedule(number, name=f"s{number}", namespace=namespace))
                for number, namespace in enumerate(namespaces)
            ),
        )

        for before, after in pairwise(["", *dict.fromkeys(namespaces), None]):
            assert store.read(NextScheduleNamespace(before or "")) == after
        assert store.read(NextScheduleNamespace("a/")) == "\uffee"

    def test_schedules_that_are_due_are_listed(self, store: Persistence) -> None:
        """Those whose time is earlier than an instant; one without a time is not among them."""
        instants = {1: NOW, 2: NOW - 1, 3: None, 4: NOW + 1, 5: NOW - 9}
        put(store, *(Insert(a_schedule(number, next_at=at)) for number, at in instants.items()))

        def listed(before: Micros, **options: Any) -> list[str]:
            found = store.read(ListSchedules(namespace=NAMESPACE, due_before=before, **options))
            return [row.key for row in found]

        assert listed(NOW) == [a_key(2), a_key(5)]
        assert listed(NOW + 1) == [a_key(1), a_key(2), a_key(5)]
        assert listed(NOW + 1, after=a_schedule(1).name, limit=1) == [a_key(2)]
        assert listed(0) == []

    def test_schedules_that_code_declares_are_listed(self, store: Persistence) -> None:
        """Also together with the other conditions."""
        put(
            store,
            Insert(a_schedule(1, declared="f1")),
            Insert(a_schedule(2)),
            Insert(a_schedule(3, declared="f3", next_at=NOW + 5)),
            Insert(a_schedule(4, declared="f4", namespace=OTHER)),
        )

        def listed(**options: Any) -> list[str]:
            return [row.key for row in store.read(ListSchedules(namespace=NAMESPACE, **options))]

        assert listed(declared=True) == [a_key(1), a_key(3)]
        assert listed(declared=True, due_before=NOW + 1) == [a_key(1)]
        assert listed(declared=True, after=a_schedule(1).name) == [a_key(3)]
        assert listed() == [a_key(1), a_key(2), a_key(3)]

    # Locks ----------------------------------------------------------------------------------------------------

    def test_the_next_time_waits_for_no_lock(self, store: Persistence) -> None:
        """It is that of the rows committed before."""
        if self.serial:
            pytest.skip("this store carries out one transaction at a time")
        put(store, Insert(a_schedule(1, next_at=NOW + 5)))

        def work(tx: Transaction) -> list[Micros | None]:
            (row,) = tx.lock(SCHEDULES, [a_key(1)])
            tx.apply([Update(evolve(row, next_at=NOW + 9))])
            return in_threads(1, lambda _: next_time(store))

        assert store.transact(work) == [NOW + 5]
        assert next_time(store) == NOW + 9

    def test_schedules_are_fired_once_by_those_who_compete(self, store: Persistence) -> None:
        """Each transaction moves what it finds on; no schedule is found twice."""
        put(store, *(Insert(a_schedule(number)) for number in range(40)))

        def fire(_: int) -> list[str]:
            fired: list[str] = []
            for _ in range(20):

                def work(tx: Transaction) -> list[str]:
                    rows = tx.find(DueSchedules(NAMESPACE, ["orders"], 3), NOW)
                    tx.apply([Update(evolve(row, next_at=NOW + 1, started=row.started + 1)) for row in rows])
                    return [row.key for row in rows]

                fired += store.transact(work)
            return fired

        fired = [key for keys in in_threads(4, fire) for key in keys]

        assert sorted(fired) == [a_key(number) for number in range(40)]
        assert {row.started for row in store.read(ListSchedules(namespace=NAMESPACE))} == {1}

    # Texts ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("text", TEXTS)
    def test_any_text_is_a_name(self, store: Persistence, text: str) -> None:
        """It is found, listed and compared exactly."""
        row = a_schedule(1, name=text, workflow=text, start=text, problem=text)
        put(store, Insert(row))

        assert store.read(FindSchedule(row.schedule_name)) == row
        assert store.read(ListSchedules(namespace=NAMESPACE)) == (row,)
        assert named(store, row.schedule_name) == [row]
        assert due(store, workflows=[text]) == [row.key]
        assert next_time(store, NOW - 1, workflows=[text]) == NOW

    def test_nasty_names_are_found_or_not_there(self, store: Persistence) -> None:
        """No text breaks a query."""
        for text in ("nul \0", "half \ud800", "'; DROP TABLE holdfast_runs; --", "%", "x" * 10_000):
            assert store.read(FindSchedule(ScheduleName(text, text))) is None
            assert store.read(ListSchedules(namespace=text, after=text)) == ()
            assert store.read(NextScheduleNamespace(text)) is None
            assert named(store, ScheduleName(text, text)) == []
            assert due(store, workflows=[text], namespace=text) == []
            assert next_time(store, workflows=[text], namespace=text) is None
            assert of_other_zones(store, text, after=text, workflows=(text,), namespace=text) == []
