"""The contract of a store for finding runs: filters, orders, pages and counts."""

from collections import Counter
from itertools import product
from typing import Any

import attrs
import pytest

from holdfast.ports.changes import Insert, Update
from holdfast.ports.json import canonical
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.runs import CountRuns, ListRuns, PlaceOfRun, RunFilter
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.search_values import (
    SearchValue,
    ValueMatch,
    ValueSource,
    code_of,
    span_of,
    span_of_prefix,
)
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_job,
    a_key,
    a_leased_job,
    a_run,
    an_annotation,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put
from holdfast.testing.conformance.persistence.values import TEXTS

EVERYTHING = RunFilter(namespace=NAMESPACE)


def with_attributes(number: int, **attributes: str) -> Run:
    """Return a run with these attributes."""
    return a_run(number, attributes=canonical(attributes))


def keys(store: Persistence, query: ListRuns) -> list[str]:
    """Return the keys of the listed runs."""
    return [run.key for run in store.read(query)]


class RunSearch(PersistenceCase):
    """`ListRuns` and `CountRuns`."""

    def test_runs_are_listed_newest_first(self, store: Persistence) -> None:
        """Those of one namespace, up to the limit; every field survives."""
        put(store, *(Insert(a_run(number)) for number in (3, 1, 2)))
        put(store, Insert(a_run(4, namespace="tenant-2")))

        assert (a_run(3), a_run(2), a_run(1)) == store.read(ListRuns(EVERYTHING))
        assert (a_run(3), a_run(2)) == store.read(ListRuns(EVERYTHING, limit=2))
        assert store.read(ListRuns(EVERYTHING, limit=0)) == ()
        assert store.read(ListRuns(RunFilter(namespace="nobody's"))) == ()

    def test_runs_are_listed_oldest_first_if_asked(self, store: Persistence) -> None:
        """The reverse order, up to the limit."""
        put(store, *(Insert(a_run(number)) for number in (3, 1, 2)))

        assert (a_run(1), a_run(2), a_run(3)) == store.read(ListRuns(EVERYTHING, oldest_first=True))
        assert (a_run(1),) == store.read(ListRuns(EVERYTHING, oldest_first=True, limit=1))

    def test_runs_are_in_the_order_of_their_creation_and_then_of_their_keys(self, store: Persistence) -> None:
        """A key does not decide, because its clock may be ahead; keys break ties."""
        put(store, Insert(a_run(9, created_at=NOW)), Insert(a_run(1, created_at=NOW + 1)))
        put(store, Insert(a_run(2, created_at=NOW + 1)), Insert(a_run(3, created_at=-1)))

        assert [a_key(2), a_key(1), a_key(9), a_key(3)] == keys(store, ListRuns(EVERYTHING))
        assert [a_key(3), a_key(9), a_key(1), a_key(2)] == keys(
            store, ListRuns(EVERYTHING, oldest_first=True)
        )

    def test_runs_are_listed_by_workflow_and_status(self, store: Persistence) -> None:
        """By both if both are given."""
        put(store, Insert(a_run(1)), Insert(a_run(2, workflow="users")))
        put(store, Insert(a_run(3, status=RunStatus.FAILED)))
        put(store, Insert(a_run(4, workflow="users", status=RunStatus.FAILED)))

        def listed(workflow: str | None, *statuses: RunStatus) -> list[str]:
            which = RunFilter(namespace=NAMESPACE, workflow=workflow, statuses=frozenset(statuses))
            return keys(store, ListRuns(which))

        assert [a_key(4), a_key(2)] == listed("users")
        assert [a_key(4), a_key(3)] == listed(None, RunStatus.FAILED)
        assert [a_key(4)] == listed("users", RunStatus.FAILED)
        assert listed("users", RunStatus.PAUSED) == []
        assert listed("Users") == []

    def test_runs_are_found_by_queue_parent_and_error(self, store: Persistence) -> None:
        """Alone, together, with other filters and in counts."""
        declined = canonical({"code": "body_error", "message": 'was "code":"late"', "type": "shop.Declined"})
        late = canonical({"code": "late", "message": "", "type": None})
        put(store, Insert(a_run(1, queue="slow")), Insert(a_run(2, parent="x.1", parent_run="p")))
        put(store, Insert(a_run(3, parent="x.1", parent_run="p", queue="slow", status=RunStatus.FAILED)))
        put(store, Insert(a_run(4, error=declined, status=RunStatus.FAILED)))
        put(store, Insert(a_run(5, error=late, parent="x.2", parent_run="p", status=RunStatus.CANCELLED)))
        put(store, Insert(a_run(6, parent="y.1", parent_run="P", error="damaged", status=RunStatus.FAILED)))
        put(store, Insert(a_run(7, namespace="tenant-2", parent="z.1", parent_run="p", queue="slow")))
        put(store, Insert(a_run(8, id=a_run(5).id, generation=2, parent="x.2", parent_run="p")))

        for which, numbers in (
            (attrs.evolve(EVERYTHING, queue="slow"), [1, 3]),
            (attrs.evolve(EVERYTHING, queue="Slow"), []),
            (attrs.evolve(EVERYTHING, queue="nul \0"), []),
            (attrs.evolve(EVERYTHING, children_of="p"), [2, 3, 5, 8]),
            (attrs.evolve(EVERYTHING, children_of="p", newest=True), [2, 3, 8]),
            (attrs.evolve(EVERYTHING, children_of="p", created_before=NOW + 5), [2, 3]),
            (attrs.evolve(EVERYTHING, children_of="p", queue="slow"), [3]),
            (attrs.evolve(EVERYTHING, children_of="p", statuses=frozenset({RunStatus.FAILED})), [3]),
            (attrs.evolve(EVERYTHING, children_of="p", workflow=a_run(2).workflow), [2, 3, 5, 8]),
            (attrs.evolve(EVERYTHING, children_of="p", ids=frozenset({a_run(2).id, a_run(1).id})), [2]),
            (attrs.evolve(EVERYTHING, children_of="half \ud800"), []),
            (attrs.evolve(EVERYTHING, error_code="late"), [5]),
            (attrs.evolve(EVERYTHING, error_code="late", newest=True), []),
            (attrs.evolve(EVERYTHING, error_code="late", children_of="p"), [5]),
            (attrs.evolve(EVERYTHING, error_code="body_error"), [4]),
            (attrs.evolve(EVERYTHING, error_type="shop.Declined"), [4]),
            (attrs.evolve(EVERYTHING, error_type="shop.declined"), []),
            (attrs.evolve(EVERYTHING, error_type="shop.%"), []),
            (attrs.evolve(EVERYTHING, error_type="shop.Declined", error_code="late"), []),
        ):
            expected = [a_key(number) for number in numbers]
            assert expected == keys(store, ListRuns(which, oldest_first=True)), which
            assert expected[::-1] == keys(store, ListRuns(which)), which
            assert expected[:1] == keys(store, ListRuns(which, oldest_first=True, limit=1)), which
            for at_most in (None, 50):
                assert sum(store.read(CountRuns(which, at_most)).values()) == len(numbers), which
            place = ListPlace(NOW + 3, a_key(3))
            following = [key for key in expected if key > a_key(3)]
            assert following == keys(store, ListRuns(which, after=place, oldest_first=True)), which

    @pytest.mark.parametrize("source", list(ValueSource))
    def test_runs_are_found_by_ranges_of_texts(self, store: Persistence, source: ValueSource) -> None:
        """Compared by the numbers of their characters; long texts, and those that can't be stored, among them."""
        texts = (
            "",
            "a",
            "A",
            "ab",
            "abc",
            "b",
            "\N{SNOWMAN}",
            "\U0010ffff",
            "nul \0",
            "a" * 200,
            "a" * 201,
            "a" * 201 + "b",
        )
        for number, text in enumerate(texts):
            if source is ValueSource.ATTRIBUTE:
                put(store, Insert(with_attributes(number, word=text)))
            else:
                put(store, Insert(a_run(number)))
                put(store, Insert(an_annotation(number, number, name="word", value=canonical(text))))
        # The same text of the other source does not count.
        put(store, Insert(with_attributes(50, other="ab")))
        put(store, Insert(an_annotation(50, 50, name="another", value='"ab"')))

        for low, high in product((None, *texts[:8], "a" * 200), repeat=2):
            if (low or high) is not None and (low or "") < (high or "\U0010ffff" * 9):
                span = span_of(low, high)
                self._check_values(
                    store,
                    [ValueMatch(source=source, name="word", span=span)],
                    [n for n, one in enumerate(texts) if (low or "") <= one and (high is None or one < high)],
                )
        for prefix in ("a", "ab", "A", "\N{SNOWMAN}", "\U0010ffff", "nul", "a" * 200, "c"):
            match = ValueMatch(source=source, name="word", span=span_of_prefix(prefix))
            self._check_values(store, [match], [n for n, one in enumerate(texts) if one.startswith(prefix)])
        for several in (("a", "b"), ("a" * 201, "nul \0", "absent"), ("absent", "too")):
            codes = tuple(sorted(code_of(one) or "" for one in several))
            match = ValueMatch(source=source, name="word", codes=codes)
            self._check_values(store, [match], [n for n, one in enumerate(texts) if one in several])

    def test_runs_are_found_by_ranges_of_numbers_and_by_booleans(self, store: Persistence) -> None:
        """Integers and floats are one kind; booleans, and texts of digits, are others."""
        values = (-1.5, 2**53, 0, True, False, "7", 7, 7.5, 2**53 + 1, -(2**63), 1e300, [7], {"a": 7}, None)
        for number, value in enumerate(values):
            put(store, Insert(a_run(number)))
            put(store, Insert(an_annotation(number, number, name="n", value=canonical(value))))

        for low, high in ((None, 7), (7, None), (7, 7.5), (2**53, 2**53 + 1), (-2, 8), (-(2**63), None)):
            match = ValueMatch(source=ValueSource.ANNOTATION, name="n", span=span_of(low, high))
            expected = [
                number
                for number, one in enumerate(values)
                if isinstance(one, int | float)
                and not isinstance(one, bool)
                and (low is None or one >= low)
                and (high is None or one < high)
            ]
            self._check_values(store, [match], expected)
        for value, expected in ((True, [3]), (False, [4]), (7, [6]), (7.0, [6]), ("7", [5]), (1, [])):
            match = ValueMatch(source=ValueSource.ANNOTATION, name="n", codes=(code_of(value) or "",))
            self._check_values(store, [match], expected)
        match = ValueMatch(source=ValueSource.ATTRIBUTE, name="n", span=span_of(None, 9))
        self._check_values(store, [match], [])

    def test_conditions_on_values_hold_together_and_with_others(self, store: Persistence) -> None:
        """A run that has a value several times, or several values that match, is found once."""
        for number in range(6):
            put(store, Insert(with_attributes(number, city="Ber" if number % 2 else "Bern")))
            put(
                store,
                Insert(an_annotation(3 * number, number, name="cents", value=str(number))),
                Insert(an_annotation(3 * number + 1, number, name="cents", value=str(number + 3))),
                Insert(
                    an_annotation(
                        3 * number + 2, number, name="tags", value=canonical(["new", f"t{number % 3}"])
                    )
                ),
            )
        # In the transaction of its run, too.
        put(
            store,
            Insert(a_run(7, parent="x.1", parent_run="p", status=RunStatus.FAILED, queue="slow")),
            Insert(an_annotation(40, 7, name="cents", value="4")),
            Insert(an_annotation(41, 7, name="tags", value='["new","new"]')),
        )
        put(store, Insert(a_run(8, namespace="tenant-2")))
        put(store, Insert(an_annotation(50, 8, name="cents", value="4", namespace="tenant-2")))

        def of(name: str, low: SearchValue | None, high: SearchValue | None = None) -> ValueMatch:
            return ValueMatch(source=ValueSource.ANNOTATION, name=name, span=span_of(low, high))

        cents, late = of("cents", 3, 6), of("cents", 7)
        new = ValueMatch(source=ValueSource.ANNOTATION, name="tags", codes=("tnew",))
        some = ValueMatch(source=ValueSource.ANNOTATION, name="tags", codes=("tt0", "tt1"))
        city = ValueMatch(source=ValueSource.ATTRIBUTE, name="city", span=span_of_prefix("Bern"))
        self._check_values(store, [cents], [0, 1, 2, 3, 4, 5, 7])
        self._check_values(store, [cents, late], [4, 5])
        self._check_values(store, [new], [0, 1, 2, 3, 4, 5, 7])
        self._check_values(store, [cents, new, some], [0, 1, 3, 4])
        self._check_values(store, [some, city], [0, 4])
        self._check_values(store, [city, cents], [0, 2, 4])
        self._check_values(store, [cents], [1, 3, 5], attributes=(("city", "Ber"),))
        self._check_values(store, [cents], [7], statuses=frozenset({RunStatus.FAILED}))
        self._check_values(store, [cents], [7], children_of="p")
        self._check_values(store, [late], [], children_of="p")
        self._check_values(store, [cents], [7], queue="slow", workflow=a_run(7).workflow)
        self._check_values(
            store, [cents, some], [1, 3], ids=frozenset({a_run(1).id, a_run(2).id, a_run(3).id})
        )
        self._check_values(store, [cents], [2, 3], created_from=NOW + 2, created_before=NOW + 4)
        self._check_values(store, [cents], [4], id_prefix=a_run(4).id)
        put(store, Insert(a_run(9, id=a_run(1).id, generation=2)))
        self._check_values(store, [cents], [0, 2, 3, 4, 5, 7], newest=True)
        assert keys(store, ListRuns(attrs.evolve(EVERYTHING, namespace="tenant-2", values=(cents,)))) == [
            a_key(8)
        ]

    def _check_values(
        self, store: Persistence, values: list[ValueMatch], numbers: list[int], **conditions: Any
    ) -> None:
        """Check that these runs match, in both orders, page by page, and in counts."""
        which = attrs.evolve(EVERYTHING, values=tuple(values), **conditions)
        expected = [a_key(number) for number in numbers]
        assert expected == keys(store, ListRuns(which, oldest_first=True)), which
        assert expected[::-1] == keys(store, ListRuns(which)), which
        for at_most in (None, 50):
            assert sum(store.read(CountRuns(which, at_most)).values()) == len(numbers), which
        if numbers:
            place = ListPlace(NOW + numbers[0], expected[0])
            assert expected[1:2] == keys(store, ListRuns(which, after=place, oldest_first=True, limit=1)), (
                which
            )

    def test_runs_are_found_by_how_their_ids_begin(self, store: Persistence) -> None:
        """Compared character by character: nothing in it is a pattern, and case counts."""
        ids = (
            "order-1",
            "order-12",
            "order-2",
            "Order-1",
            "order_1",
            "orders",
            "order",
            "or%er-1",
            "border-1",
        )
        put(store, *(Insert(a_run(number, id=one)) for number, one in enumerate(ids)))
        put(store, Insert(a_run(99, id="order-1", namespace="tenant-2")))

        for prefix in (
            "order-1",
            "order",
            "o",
            "or%",
            "order_",
            "Order",
            "order-12",
            "order-3",
            "order-123",
            "%",
        ):
            which = attrs.evolve(EVERYTHING, id_prefix=prefix)
            expected = [a_key(number) for number, one in enumerate(ids) if one.startswith(prefix)]
            assert expected == keys(store, ListRuns(which, oldest_first=True)), prefix
            last = ListPlace(NOW + 2, a_key(2))
            assert [key for key in expected[::-1] if key < a_key(2)][:1] == keys(
                store, ListRuns(which, after=last, limit=1)
            ), prefix
            assert sum(store.read(CountRuns(which)).values()) == len(expected), prefix

    def test_runs_are_found_by_their_ids(self, store: Persistence) -> None:
        """All generations, or the newest; ids that no run has, or that can't be stored, find nothing."""
        put(store, *(Insert(a_run(number, id=one)) for number, one in enumerate("abcd")))
        put(store, Insert(a_run(7, id="b", generation=2, status=RunStatus.FAILED)))
        put(store, Insert(a_run(8, id="a", namespace="tenant-2")))
        odd = {"nul \0", "half \ud800"}

        for ids, every, newest in (
            ({"a"}, [0], [0]),
            ({"d", "b", "a", "z", *odd}, [0, 1, 3, 7], [0, 3, 7]),
            ({"z", "A", ""}, [], []),
            (odd, [], []),
            ({str(number) for number in range(99)} | {"c"}, [2], [2]),
        ):
            which = attrs.evolve(EVERYTHING, ids=frozenset(ids))
            for query, numbers in ((which, every), (attrs.evolve(which, newest=True), newest)):
                assert [a_key(n) for n in numbers] == keys(store, ListRuns(query, oldest_first=True)), ids
                for at_most in (None, 50):
                    assert sum(store.read(CountRuns(query, at_most)).values()) == len(numbers), ids
        failed = attrs.evolve(EVERYTHING, ids=frozenset("abc"), statuses=frozenset({RunStatus.FAILED}))
        assert [a_key(7)] == keys(store, ListRuns(failed))
        assert keys(store, ListRuns(attrs.evolve(failed, id_prefix="c"))) == []

    @pytest.mark.parametrize("what", [*sorted(set(TEXTS) - {"empty"}), "before the surrogates", "the last"])
    def test_ids_may_begin_with_any_text(self, store: Persistence, what: str) -> None:
        """And the text that follows it bytewise does not begin so."""
        text = {**TEXTS, "before the surrogates": "a\ud7ff", "the last": "\U0010ffff\U0010ffff"}[what]
        ids = (text, f"{text}a", f"{text}\U0010ffff", text[:-1], f"{text[:-1]}\ue000", f"{text[:-1]}a")
        put(
            store,
            *(Insert(a_run(number, id=one)) for number, one in enumerate(dict.fromkeys(filter(None, ids)))),
        )
        expected = [run.key for run in store.read(ListRuns(EVERYTHING)) if run.id.startswith(text)]

        which = attrs.evolve(EVERYTHING, id_prefix=text)
        assert len(expected) >= 3
        assert expected == keys(store, ListRuns(which))
        assert store.read(CountRuns(which)) == {RunStatus.RUNNING: len(expected)}

    def test_runs_of_several_statuses_are_listed_in_one_order(self, store: Persistence) -> None:
        """Any statuses; up to the limit over all of them."""
        runs = [a_run(number, status=status) for number, status in enumerate([*RunStatus, *RunStatus])]
        put(store, *map(Insert, runs))
        for wanted in (
            {RunStatus.FAILED, RunStatus.BLOCKED},
            {RunStatus.COMPLETED, RunStatus.PENDING, RunStatus.CANCELLED},
            set(RunStatus),
        ):
            which = RunFilter(namespace=NAMESPACE, statuses=frozenset(wanted))
            expected = [run.key for run in runs if run.status in wanted]
            assert expected[::-1] == keys(store, ListRuns(which))
            assert expected[:3] == keys(store, ListRuns(which, oldest_first=True, limit=3))

    def test_a_run_is_listed_by_the_status_that_it_has_now(self, store: Persistence) -> None:
        """And not by the one that it was created with."""
        put(store, Insert(with_attributes(1, who="me")))
        put(store, Update(a_run(1, status=RunStatus.COMPLETED, attributes=canonical({"who": "me"}))))

        for attributes in ((), (("who", "me"),)):
            for status, found in ((RunStatus.RUNNING, []), (RunStatus.COMPLETED, [a_key(1)])):
                which = RunFilter(namespace=NAMESPACE, statuses=frozenset({status}), attributes=attributes)
                assert found == keys(store, ListRuns(which))

    def test_runs_of_a_span_of_time_are_listed(self, store: Persistence) -> None:
        """Including its start, excluding its end."""
        put(store, *(Insert(a_run(number, created_at=NOW + number)) for number in range(5)))

        def listed(first: int | None, end: int | None) -> list[str]:
            which = RunFilter(
                namespace=NAMESPACE,
                created_from=None if first is None else NOW + first,
                created_before=None if end is None else NOW + end,
            )
            return keys(store, ListRuns(which, oldest_first=True))

        assert [a_key(3), a_key(4)] == listed(3, None)
        assert [a_key(0), a_key(1)] == listed(None, 2)
        assert [a_key(1), a_key(2)] == listed(1, 3)
        assert listed(3, 3) == listed(4, 2) == listed(5, None) == []

    def test_runs_are_listed_by_what_they_were_started_with(self, store: Persistence) -> None:
        """Names and texts match exactly, and all must match; a run may have further ones."""
        put(store, Insert(with_attributes(1, who="me", what="x")), Insert(with_attributes(2, who="me")))
        put(store, Insert(with_attributes(3, who="Me")), Insert(with_attributes(4, what="me")))
        put(store, Insert(a_run(5)), Insert(a_run(6, namespace="tenant-2", attributes='{"who":"me"}')))

        def listed(**attributes: str) -> list[str]:
            return keys(store, ListRuns(RunFilter(namespace=NAMESPACE, attributes=tuple(attributes.items()))))

        assert [a_key(2), a_key(1)] == listed(who="me")
        assert [a_key(1)] == listed(who="me", what="x") == listed(what="x", who="me")
        assert listed(who="m") == listed(who="") == listed(who="me", what="me") == listed(nobody="me") == []

    @pytest.mark.parametrize("what", [*TEXTS, "long", "nul"])
    def test_attributes_may_be_any_texts(self, store: Persistence, what: str) -> None:
        """Of any length, in names as in texts."""
        text = {**TEXTS, "long": "x" * 20_000, "nul": "\0"}[what]
        put(store, Insert(with_attributes(1, name=text)), Insert(with_attributes(2, **{text: "text"})))

        for pair, number in ((("name", text), 1), ((text, "text"), 2)):
            which = RunFilter(namespace=NAMESPACE, attributes=(pair,))
            assert [a_key(number)] == keys(store, ListRuns(which))
            assert store.read(CountRuns(which)) == {RunStatus.RUNNING: 1}

    @pytest.mark.parametrize("attributes", ["", "[]", "7", "{", '{"a":1,"b":null}', "[" * 100_000])
    def test_attributes_that_are_no_texts_find_nothing(self, store: Persistence, attributes: str) -> None:
        """They are stored as they are and disturb no query."""
        run = a_run(1, attributes=attributes)
        put(store, Insert(run))

        assert (run,) == store.read(ListRuns(EVERYTHING))
        for pair in (("a", "1"), ("b", "null"), ("a", "")):
            assert store.read(ListRuns(RunFilter(namespace=NAMESPACE, attributes=(pair,)))) == ()

    def test_what_is_asked_for_together_holds_together(self, store: Persistence) -> None:
        """Each filter, in each order, returns and counts the same runs as a full scan."""
        statuses = (RunStatus.RUNNING, RunStatus.FAILED, RunStatus.COMPLETED)
        runs = [
            a_run(
                number,
                workflow=f"w{number % 2}",
                status=statuses[number % 3],
                created_at=NOW + number // 4,
                attributes=canonical({"four": str(number % 4), "five": str(number % 5)}),
            )
            for number in range(60)
        ]
        put(store, *map(Insert, runs))
        combinations = product(
            (None, "w0"),
            (frozenset[RunStatus](), frozenset({RunStatus.FAILED}), frozenset(statuses[1:])),
            ((None, None), (NOW + 3, None), (NOW + 2, NOW + 12)),
            ((), (("four", "2"),), (("five", "0"), ("four", "0"))),
            (None, "run-1", "run-10"),
        )
        for workflow, wanted, (first, end), attributes, prefix in combinations:
            which = RunFilter(
                namespace=NAMESPACE,
                workflow=workflow,
                id_prefix=prefix,
                statuses=wanted,
                created_from=first,
                created_before=end,
                attributes=attributes,
            )
            expected = [
                run
                for number, run in enumerate(runs)
                if workflow in {None, run.workflow}
                and run.id.startswith(prefix or "")
                and (not wanted or run.status in wanted)
                and (first is None or run.created_at >= first)
                and (end is None or run.created_at < end)
                and {"four": number % 4, "five": number % 5}.items() >= {(n, int(t)) for n, t in attributes}
            ]
            assert expected[::-1] == list(store.read(ListRuns(which, limit=100)))
            assert expected == list(store.read(ListRuns(which, oldest_first=True, limit=100)))
            after = expected[len(expected) // 2].place if expected else ListPlace(NOW, a_key(0))
            assert [run for run in expected[::-1] if run.place < after][:4] == list(
                store.read(ListRuns(which, after=after, limit=4))
            )
            assert {
                status: sum(run.status is status for run in expected)
                for status in {run.status for run in expected}
            } == store.read(CountRuns(which))

    @pytest.mark.parametrize("oldest_first", [False, True])
    @pytest.mark.parametrize(
        "which",
        [
            RunFilter(namespace=NAMESPACE, workflow="w1"),
            RunFilter(namespace=NAMESPACE, workflow="w1", created_from=NOW, created_before=NOW + 90),
            RunFilter(namespace=NAMESPACE, statuses=frozenset({RunStatus.FAILED, RunStatus.COMPLETED})),
            RunFilter(namespace=NAMESPACE, attributes=(("odd", "1"),)),
        ],
        ids=["workflow", "time", "status", "attribute"],
    )
    def test_runs_are_listed_page_by_page(
        self, store: Persistence, which: RunFilter, *, oldest_first: bool
    ) -> None:
        """While new runs are created: none is repeated and none of the old ones left out."""

        def a_new_run(number: int) -> Run:
            return a_run(
                number,
                workflow=f"w{number % 2}",
                status=(RunStatus.RUNNING, (RunStatus.FAILED, RunStatus.COMPLETED)[number // 2 % 2])[
                    number % 2
                ],
                created_at=NOW + number // 3,
                attributes=canonical({"odd": str(number % 2)}),
            )

        put(store, *(Insert(a_new_run(number)) for number in range(1, 26)))
        seen: list[str] = []
        after = None
        for extra in range(101, 121, 2):
            page = store.read(ListRuns(which, after=after, oldest_first=oldest_first, limit=4))
            seen += [run.key for run in page]
            if len(page) < 4:
                break
            after = page[-1].place
            put(store, Insert(a_new_run(extra)))

        old = [a_key(number) for number in range(1, 26, 2)]
        assert len(seen) == len(set(seen))
        assert (old if oldest_first else old[::-1]) == seen[: len(old)]

    def test_a_page_begins_where_the_last_one_ended_whatever_has_become_of_its_runs(
        self, store: Persistence
    ) -> None:
        """The run at that place may have another status by then, or be deleted."""
        put(store, *(Insert(a_run(number)) for number in (1, 2, 4)))
        put(store, Update(a_run(2, status=RunStatus.FAILED)))
        running = RunFilter(namespace=NAMESPACE, statuses=frozenset({RunStatus.RUNNING}))

        assert [a_key(1)] == keys(store, ListRuns(running, after=a_run(2).place))
        assert [a_key(1)] == keys(store, ListRuns(running, after=a_run(3).place))
        assert [a_key(4)] == keys(store, ListRuns(running, after=a_run(3).place, oldest_first=True))

    def test_waiting_runs_are_running_and_have_no_job_that_is_queued_or_leased(
        self, store: Persistence
    ) -> None:
        """Sleeping and limited jobs wait; so does a running run without jobs."""
        states = [JobState.SLEEPING, JobState.LIMITED, JobState.QUEUED]
        for number, state in enumerate(states, 1):
            put(store, Insert(a_run(number)), Insert(a_job(number, state=state)))
        put(store, Insert(a_run(4)), Insert(a_run(5, status=RunStatus.PAUSED)))
        put(store, Insert(a_job(4, 1, state=JobState.SLEEPING)), Insert(a_job(4, 2)))
        put(store, Insert(a_run(6)), Insert(a_leased_job(6, session="s")))
        put(store, Insert(a_run(7)))
        waiting = attrs.evolve(EVERYTHING, waiting=True)

        for which in (waiting, attrs.evolve(waiting, statuses=frozenset({RunStatus.RUNNING}))):
            assert [a_key(7), a_key(2), a_key(1)] == keys(store, ListRuns(which))
            assert store.read(CountRuns(which)) == {RunStatus.RUNNING: 3}

    def test_a_bounded_count_stops_at_its_bound(self, store: Persistence) -> None:
        """Older generations do not count towards it."""
        put(store, *(Insert(a_run(number, id="a", generation=number)) for number in range(1, 4)))
        put(store, Insert(a_run(4, id="b")), Insert(a_run(5, id="c", attributes='{"a":"b"}')))
        newest = attrs.evolve(EVERYTHING, newest=True)

        for which, every in ((EVERYTHING, 5), (newest, 3)):
            assert store.read(CountRuns(which, at_most=10)) == {RunStatus.RUNNING: every}
            assert store.read(CountRuns(which, at_most=2)) == {RunStatus.RUNNING: 2}

    def test_the_position_of_the_nth_newest_run_is_found(self, store: Persistence) -> None:
        """Of one namespace, every generation, in the order of lists."""
        put(store, *(Insert(a_run(number, id="a", generation=number)) for number in range(1, 4)))
        put(store, Insert(a_run(4, namespace="tenant-2")))
        listed = [run.place for run in store.read(ListRuns(EVERYTHING))]

        found = [store.read(PlaceOfRun(NAMESPACE, number)) for number in range(1, 5)]
        assert found == [*listed, None]
        assert store.read(PlaceOfRun(NAMESPACE, 1, before=listed[0])) == listed[1]
        assert store.read(PlaceOfRun(NAMESPACE, 2, before=listed[1])) is None

    def test_a_waiting_run_with_a_newer_generation_is_not_counted_if_only_the_newest_are(
        self, store: Persistence
    ) -> None:
        """A count subtracts older generations: only those that it has counted before."""
        put(
            store,
            Insert(a_run(1, id="a")),
            Insert(a_run(2, id="a", generation=2)),
            Insert(a_run(3, id="b")),
            Insert(a_run(4, id="b", generation=2)),
            Insert(a_run(5, id="c")),
        )
        put(store, Insert(a_job(3)), Insert(a_job(4)))
        newest = attrs.evolve(EVERYTHING, waiting=True, newest=True)

        assert [a_key(5), a_key(2)] == keys(store, ListRuns(newest))
        assert store.read(CountRuns(newest)) == {RunStatus.RUNNING: 2}

    def test_only_newest_generations_are_found_if_asked(self, store: Persistence) -> None:
        """An older one is not found even if the newest does not match: all filters apply to the newest."""
        failed, running = RunStatus.FAILED, RunStatus.RUNNING
        who = canonical({"who": "me"})
        put(
            store,
            Insert(a_run(1, id="a", status=failed, attributes=who)),
            Insert(a_run(2, id="b", status=failed)),
        )
        put(store, Insert(a_run(3, id="a", generation=2, status=failed, attributes=who)))
        put(
            store,
            Insert(a_run(4, id="a", generation=3, workflow="other", attributes=who)),
            Insert(a_run(5, id="a", namespace="tenant-2", status=failed, attributes=who)),
            Insert(a_run(6, id="c", generation=2, status=failed)),
        )
        newest = attrs.evolve(EVERYTHING, newest=True)
        of_me = attrs.evolve(newest, attributes=(("who", "me"),))
        for which, expected in (
            (newest, [6, 4, 2]),
            (attrs.evolve(newest, id_prefix="a"), [4]),
            (attrs.evolve(newest, id_prefix="a", statuses=frozenset({failed})), []),
            (attrs.evolve(newest, statuses=frozenset({failed})), [6, 2]),
            (attrs.evolve(newest, statuses=frozenset({running})), [4]),
            (attrs.evolve(newest, workflow="orders"), [6, 2]),
            (attrs.evolve(newest, workflow="other"), [4]),
            (attrs.evolve(newest, created_before=a_run(4).created_at), [2]),
            (of_me, [4]),
            (attrs.evolve(of_me, workflow="orders"), []),
            (EVERYTHING, [6, 4, 3, 2, 1]),
        ):
            runs = store.read(ListRuns(which))
            assert [a_key(number) for number in expected] == [run.key for run in runs], which
            assert Counter(run.status for run in runs) == store.read(CountRuns(which)), which
        assert [a_key(2), a_key(4)] == keys(store, ListRuns(newest, oldest_first=True, limit=2))
        assert [a_key(2)] == keys(store, ListRuns(newest, after=a_run(4).place))

    def test_runs_are_counted_by_status(self, store: Persistence) -> None:
        """Those of the filter, any number of them; statuses without runs are left out."""
        put(store, *(Insert(a_run(number)) for number in range(120)))
        put(store, *(Insert(a_run(number, status=RunStatus.FAILED)) for number in range(120, 123)))
        put(store, Insert(a_run(123, namespace="tenant-2", status=RunStatus.PAUSED)))

        found = store.read(CountRuns(EVERYTHING))

        assert found == {RunStatus.RUNNING: 120, RunStatus.FAILED: 3}
        assert all(isinstance(status, RunStatus) for status in found)
        assert store.read(CountRuns(RunFilter(namespace="nobody's"))) == {}

    @pytest.mark.parametrize("text", ["nul \0", "half \ud800"])
    def test_no_run_is_found_by_a_text_that_can_not_be_stored(self, store: Persistence, text: str) -> None:
        """Such a query is not an error."""
        put(store, Insert(with_attributes(1, who="me")))
        for which in (
            RunFilter(namespace=text),
            RunFilter(namespace=NAMESPACE, workflow=text),
            RunFilter(namespace=NAMESPACE, id_prefix=text),
            RunFilter(namespace=NAMESPACE, attributes=(("who", text),)),
            RunFilter(namespace=NAMESPACE, attributes=((text, "me"),)),
        ):
            assert store.read(ListRuns(which)) == ()
            assert store.read(CountRuns(which)) == {}
