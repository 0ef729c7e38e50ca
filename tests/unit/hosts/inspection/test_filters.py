"""Filters of runs are validated before the store is queried."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest

from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.adapters.system.clock import SystemClock
from holdfast.adapters.system.ids import UlidIds
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.inspection.filters import ATTRIBUTES_MAX, IDS_MAX, run_filter, run_list_query
from holdfast.hosts.inspection.value_filters import (
    OneOf,
    Prefix,
    Range,
    ValueFilter,
    value_from_wire,
    wire_text,
)
from holdfast.hosts.wiring.stores import Stores
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import RunFilter
from holdfast.ports.records.run import RunStatus
from holdfast.ports.search_values import code_of, instant_text

WHEN = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
AT = 1_767_225_600_000_000


@stage
def nothing() -> None:
    pass


SHOP = Pipeline("shop", version="2").pipe(nothing)


class Unasked:
    """A store that must not be queried."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        raise AssertionError(f"the store was asked: {name}")


def test_what_is_said_is_what_is_asked_for() -> None:
    wanted = run_list_query(
        "n",
        {
            "workflow": SHOP,
            "status": iter(["failed", RunStatus.BLOCKED]),
            "attributes": {"b": "2", "a": "1"},
            "since": WHEN,
            "until": WHEN.astimezone(UTC) + timedelta(seconds=1),
            "ids": iter(["order-1", "order-2", "order-1"]),
            "id_prefix": "order-",
            "queue": "slow",
            "children_of": "p",
            "error_code": "late",
            "error_type": "ValueError",
            "oldest_first": True,
            "after": "7.KEY",
            "limit": 3,
        },
        "runs",
    )

    assert wanted.which == RunFilter(
        namespace="n",
        workflow="shop",
        statuses=frozenset({RunStatus.FAILED, RunStatus.BLOCKED}),
        created_from=AT,
        created_before=AT + 1_000_000,
        attributes=(("a", "1"), ("b", "2")),
        ids=frozenset({"order-1", "order-2"}),
        id_prefix="order-",
        queue="slow",
        children_of="p",
        error_code="late",
        error_type="ValueError",
        newest=True,
    )
    assert (wanted.oldest_first, wanted.after, wanted.limit) == (True, ListPlace(7, "KEY"), 3)


def test_nothing_said_asks_for_all() -> None:
    assert run_filter("n", {}, "count") == RunFilter(namespace="n", newest=True)
    assert run_filter("n", {"all_generations": True}, "count") == RunFilter(namespace="n")
    nones: Any = dict.fromkeys(("ids", "id_prefix", "workflow", "status", "attributes", "since", "until"))
    assert run_filter("n", nones, "count") == RunFilter(namespace="n", newest=True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("workflow", ""),
        ("workflow", 7),
        ("ids", []),
        ("ids", "order-1"),
        ("ids", 7),
        ("ids", [7]),
        ("ids", ["a", ""]),
        ("ids", ["x" * 257]),
        ("ids", [str(number) for number in range(IDS_MAX + 1)]),
        ("id_prefix", ""),
        ("id_prefix", "x" * 257),
        ("id_prefix", ["a"]),
        ("queue", ""),
        ("queue", 7),
        ("queue", "x" * 201),
        ("children_of", ""),
        ("children_of", ["p"]),
        ("children_of", "x" * 257),
        ("error_code", ""),
        ("error_code", ["late"]),
        ("error_type", ValueError),
        ("error_type", "x" * 1_001),
        ("status", "gone"),
        ("status", 7),
        ("status", []),
        ("status", ["failed", "gone"]),
        ("status", [None]),
        ("attributes", "who=me"),
        ("attributes", [("who", "me")]),
        ("attributes", {"who": 7}),
        ("attributes", {7: "who"}),
        ("attributes", {"who": True}),
        ("attributes", {"who": WHEN}),
        ("attributes", {"who": Range(at_least=1)}),
        ("attributes", {"who": OneOf("a", 1)}),
        ("annotations", "who=me"),
        ("annotations", {7: "who"}),
        ("annotations", {"who": None}),
        ("annotations", {"who": ["a"]}),
        ("annotations", {"who": float("nan")}),
        ("annotations", {"who": -float("inf")}),
        ("annotations", {"who": 2**63 + 1}),
        ("annotations", {"who": datetime(2026, 1, 1)}),  # noqa: DTZ001  # to be refused is the point
        ("annotations", {"who": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}),
        ("annotations", {"who": Range()}),
        ("annotations", {"who": Range(at_least=1, below=1)}),
        ("annotations", {"who": Range(at_least=1, below="2")}),
        ("annotations", {"who": Range(at_least=WHEN, below=7)}),
        ("annotations", {"who": Range(at_least=WHEN, below=WHEN)}),
        ("annotations", {"who": Range(at_least=False)}),
        ("annotations", {"who": Range(below=float("nan"))}),
        ("annotations", {"who": Range(below="x" * 201)}),
        ("annotations", {"who": Range(below="nul \0")}),
        ("annotations", {"who": Range(at_least=cast("Any", [1]))}),
        ("annotations", {"who": Prefix("")}),
        ("annotations", {"who": Prefix("x" * 201)}),
        ("annotations", {"who": Prefix("half \ud800")}),
        ("annotations", {"who": Prefix(cast("Any", 7))}),
        ("annotations", {"who": OneOf()}),
        ("annotations", {"who": OneOf(*range(101))}),
        ("annotations", {"who": OneOf("a", cast("Any", None))}),
        ("annotations", {str(number): 1 for number in range(ATTRIBUTES_MAX + 1)}),
        ("attributes", {str(number): "x" for number in range(ATTRIBUTES_MAX + 1)}),
        ("since", datetime(2026, 1, 1)),  # noqa: DTZ001  # to be refused is the point
        ("since", "2026-01-01T00:00Z"),
        ("until", AT),
        ("limit", 0),
        ("limit", -1),
        ("limit", True),
        ("limit", "3"),
        ("oldest_first", "no"),
        ("waiting", "yes"),
        ("after", "run-1"),
        ("after", 7),
        ("after", ""),
    ],
)
def test_what_can_not_be_is_refused_before_the_store_is_asked(option: str, value: object) -> None:
    unasked: Any = Unasked()
    stores = Stores(
        persistence=unasked,
        transport=MemoryTransport(),
        blobs=None,
        clock=SystemClock(),
        ids=UlidIds(),
        url="memory://",
    )
    engine = Engine.on(stores, workflows=[SHOP])
    asked: Any = {option: value}

    for ask in (
        engine.sync.runs,
        engine.runs,
        *(() if option in {"limit", "oldest_first", "after"} else (engine.sync.count,)),
    ):
        with pytest.raises(InvalidFilterError, match=option) as raised:
            ask(**asked)
        assert raised.value.option == option


def test_an_id_prefix_that_is_too_long_is_answered_with_what_to_do() -> None:
    assert run_filter("n", {"id_prefix": "x" * 256}, "runs").id_prefix == "x" * 256
    with pytest.raises(InvalidFilterError, match="has 257 characters; give the first 1 to 256 characters"):
        run_filter("n", {"id_prefix": "x" * 257}, "runs")


def test_values_are_compared_by_their_codes() -> None:
    which = run_filter(
        "n",
        {
            "attributes": {"who": "me", "city": Prefix("Ber")},
            "annotations": {
                "cents": Range(at_least=10, below=20.5),
                "due": Range(below=WHEN),
                "express": True,
                "note": "a",
                "tag": OneOf("b", "a", 1),
                "sent": WHEN,
            },
        },
        "runs",
    )

    assert (which.attributes, which.annotations) == ((("who", "me"),), (("note", "a"),))
    found = {(match.source.value, match.name): match for match in which.values}
    assert found["attribute", "city"].span == ("tBer", "tBes")
    assert found["annotation", "cents"].span == (code_of(10), code_of(20.5))
    assert found["annotation", "due"].span == ("t", f"t{instant_text(WHEN)}")
    assert found["annotation", "express"].codes == ("b1",)
    assert found["annotation", "tag"].codes == tuple(sorted(("ta", "tb", code_of(1) or "")))
    assert found["annotation", "sent"].codes == (f"t{instant_text(WHEN)}",)
    assert len(found) == len(which.values) == 6


@pytest.mark.parametrize(
    "value",
    [
        True,
        7,
        -1.5,
        "a",
        Range(at_least=1),
        Range(below="b"),
        Range(at_least=1, below=2.5),
        Prefix("a"),
        OneOf("a", 1, False),
    ],
)
def test_the_server_gets_the_filter_of_the_client(value: ValueFilter) -> None:
    assert value_from_wire("annotations_where", wire_text(value)) == value


def test_an_instant_is_sent_as_its_text() -> None:
    text = instant_text(WHEN)
    assert value_from_wire("annotations_where", wire_text(WHEN)) == text
    assert value_from_wire("annotations_where", wire_text(Range(below=WHEN))) == Range(below=text)
    assert value_from_wire("annotations_where", wire_text(OneOf(WHEN))) == OneOf(text)


@pytest.mark.parametrize(
    "text", ["", "good", "{}", '{"one_of": 7}', '{"above": 1}', '{"prefix": "a", "below": "b"}', "[" * 9_999]
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidFilterError, match="annotations_where"):
        value_from_wire("annotations_where", text)


@pytest.mark.parametrize(
    "text", ["null", "[1]", "1e999", '{"one_of": []}', '{"one_of": [[1]]}', '{"prefix": 1}']
)
def test_values_that_are_sent_are_checked_with_the_filter(text: str) -> None:
    with pytest.raises(InvalidFilterError, match="annotations"):
        run_filter("n", {"annotations": {"a": value_from_wire("annotations", text)}}, "runs")


def test_waiting_asks_for_running_runs_only() -> None:
    for status in (None, "running", ["running", "paused"]):
        which = run_filter("n", {"waiting": True, "status": status}, "runs")
        assert which == RunFilter(
            namespace="n", statuses=frozenset({RunStatus.RUNNING}), waiting=True, newest=True
        )
    assert not run_filter("n", {"waiting": False}, "runs").waiting


@pytest.mark.parametrize("options", [{"waiting": True, "status": "failed"}, {"waiting": "yes"}])
def test_waiting_with_other_statuses_or_of_another_kind_is_refused(options: Any) -> None:
    with pytest.raises(InvalidFilterError, match="waiting"):
        run_filter("n", options, "runs")


def test_a_span_of_no_time_is_refused() -> None:
    for until in (WHEN, WHEN - timedelta(days=1)):
        with pytest.raises(InvalidFilterError, match="until is not after `since`"):
            run_filter("n", {"since": WHEN, "until": until}, "count")


@pytest.mark.parametrize("status", [None, "running", ["running", "failed"]])
def test_only_running_runs_wait(status: str | list[str] | None) -> None:
    wanted = run_filter("n", {"waiting": True, "status": status}, "count")
    assert wanted == RunFilter(
        namespace="n", statuses=frozenset({RunStatus.RUNNING}), waiting=True, newest=True
    )


def test_runs_of_another_status_do_not_wait() -> None:
    with pytest.raises(InvalidFilterError, match="can only be combined with the status `running`"):
        run_filter("n", {"waiting": True, "status": ["failed", "paused"]}, "count")
    paused = run_filter("n", {"waiting": False, "status": "paused"}, "count")
    assert paused.statuses == {RunStatus.PAUSED}


def test_an_option_that_there_is_not_is_a_type_error() -> None:
    unknown: Any = {"atributes": {}}
    with pytest.raises(TypeError, match=r"runs has no option 'atributes'.*did you mean 'attributes'"):
        run_list_query("n", unknown, "runs")
    paged: Any = {"limit": 3}
    with pytest.raises(TypeError, match="count has no option 'limit'"):
        run_filter("n", paged, "count")
