"""Events of histories: each round-trips through its row, stored rows keep their bytes, and damaged ones are named."""

import inspect
import json
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.history import events
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.history import HistoryRow

GOLDEN = Path(__file__).parents[3] / "golden"
HAND_MADE = "job.record-fenced-1.json row 3"
"""A golden row whose error has no code, which no version of Holdfast has ever written."""
CLASSES = sorted(events.EVENTS.values(), key=lambda kind: kind.type)
EACH = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.type)

JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


def hints_of(kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a class with their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in attrs.fields(kind)}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of the type of a field."""
    if hint in (str, int, bool, type(None)):
        return {str: st.text(), int: st.integers(), bool: st.booleans()}.get(hint, st.none())
    if hint is events.RecordedError:
        return made_of(events.RecordedError)
    if get_origin(hint) is Mapping:
        return JSON_OBJECTS
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    return st.one_of(*map(values_of, get_args(hint)))


def made_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return instances of a class, with and without the fields that have defaults."""
    fields = attrs.fields_dict(kind)
    required = {
        name: values_of(hint)
        for name, hint in hints_of(kind).items()
        if fields[name].default is attrs.NOTHING
    }
    optional = {name: values_of(hint) for name, hint in hints_of(kind).items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: kind(**values))


def smallest(kind: type[events.HistoryEvent]) -> events.HistoryEvent:
    """Return an event of which only the required fields are set."""
    error = events.RecordedError(type="", message="", code="c")
    samples: dict[Any, object] = {str: "x", int: 3, bool: True, events.RecordedError: error}
    required = (field for field in attrs.fields(kind) if field.default is attrs.NOTHING)
    hints = hints_of(kind)
    return kind(**{field.name: _sample(hints[field.name], samples) for field in required})


def _sample(hint: Any, samples: Mapping[Any, object]) -> object:
    if get_origin(hint) is Mapping:
        return {"a": 1}
    return samples[hint] if hint in samples else samples[get_args(hint)[0]]


def row_of(event: events.HistoryEvent) -> HistoryRow:
    return row(event.type, event.data)


def row(type_: str, data: str | None) -> HistoryRow:
    return HistoryRow(run="r", number=7, type=type_, at=0, data=data)


def name_in_row(kind: type[events.HistoryEvent], field: str) -> str:
    return kind.json_names.get(field, field)


# Round trips ------------------------------------------------------------------------------------------------------


@EACH
@given(data=st.data())
def test_each_event_comes_back_from_its_row(kind: type[events.HistoryEvent], data: st.DataObject) -> None:
    event: events.HistoryEvent = data.draw(made_of(kind))
    again = events.event_of(row_of(event))

    assert type(again) is kind
    assert again == event
    assert kind.from_row(row_of(event)) == event
    assert kind.from_facts(event.facts) == event
    assert again.data == event.data
    assert event.data is None or canonical(parse(event.data)) == event.data


@EACH
def test_a_field_that_has_its_default_is_not_stored(kind: type[events.HistoryEvent]) -> None:
    event = smallest(kind)
    stored = {name_in_row(kind, field.name) for field in attrs.fields(kind) if field.default is attrs.NOTHING}

    assert event.facts.keys() == stored
    assert (event.data is None) is (not stored)
    assert events.event_of(row_of(event)) == event


def test_a_rerun_from_the_start_says_so() -> None:
    """The only field that is stored although it has its default."""
    event = events.RunCreated(definition="w@1", rerun_of=2)

    assert event.data == '{"definition":"w@1","from":null,"rerun_of":2}'
    assert events.event_of(row_of(event)) == event


@EACH
def test_a_field_of_a_newer_version_is_ignored(kind: type[events.HistoryEvent]) -> None:
    event = smallest(kind)
    newer = row(kind.type, canonical({**event.facts, "of_a_newer_version": [1]}))

    assert events.event_of(newer) == event


def test_a_recorded_error_is_stored_without_what_it_lacks() -> None:
    error = events.RecordedError(type="OSError", message="no", code="body_error")

    assert error.text == '{"code":"body_error","message":"no","type":"OSError"}'
    assert events.RecordedError.from_text(error.text) == error


# Stored rows ------------------------------------------------------------------------------------------------------


def golden_rows() -> Iterator[tuple[str, HistoryRow]]:
    """Yield all golden rows, each with its place: those of histories and those in decisions."""
    for path in sorted((GOLDEN / "histories").glob("*.json")):
        for one in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            data = canonical(one["data"]) if "data" in one else None
            yield f"{path.name} row {one['number']}", row(one["type"], data)
    for path in sorted((GOLDEN / "decisions").glob("*.json")):
        for one in rows_in(json.loads(path.read_text(encoding="utf-8"))):
            yield f"{path.name} row {one['number']}", row(one["type"], one["data"])


def rows_in(value: object) -> Iterator[dict[str, Any]]:
    """Yield the history rows at any depth of a JSON value, and of the JSON texts in it."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            yield from rows_in(json.loads(value))
        except ValueError:
            return
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from rows_in(one)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if {"run", "number", "type", "at", "epoch", "payload", "data"} <= fields.keys():
            yield fields
        for one in fields.values():
            yield from rows_in(one)


def test_golden_rows_keep_their_bytes() -> None:
    found = list(golden_rows())
    assert {one.type for _, one in found} >= {
        "run.created",
        "stage.completed",
        "step.completed",
        "step.failed",
    }
    changed = [
        (where, one.data, again)
        for where, one in found
        if where != HAND_MADE and (again := events.event_of(one).data) != one.data
    ]
    assert changed == []


# The registry -----------------------------------------------------------------------------------------------------


def defined() -> list[type[events.HistoryEvent]]:
    """Return the classes of events that the modules of the package define."""
    return [
        kind
        for module in pkgutil.iter_modules(events.__path__, f"{events.__name__}.")
        for _, kind in inspect.getmembers(import_module(module.name), inspect.isclass)
        if issubclass(kind, events.HistoryEvent) and kind.__module__ == module.name and "type" in vars(kind)
    ]


def test_each_class_is_registered_once() -> None:
    classes = defined()

    assert len({kind.type for kind in classes}) == len(classes)
    assert set(classes) == set(events.EVENTS.values())
    assert all(kind.type == type_ for type_, kind in events.EVENTS.items())
    assert all(getattr(events, kind.__name__) is kind for kind in classes)
    assert {kind.__name__ for kind in classes} <= set(events.__all__)


@EACH
def test_each_class_says_what_happened(kind: type[events.HistoryEvent]) -> None:
    assert (vars(kind).get("__doc__") or "").strip()


@EACH
def test_class_attributes_agree(kind: type[events.HistoryEvent]) -> None:
    assert kind.ends_run <= (kind.type in events.RUN_ENDS)
    assert not (kind.ends_run and kind.may_precede_code)
    assert (kind.call_kind is not None) <= ("call" in hints_of(kind))
    assert kind.json_names.keys() <= hints_of(kind).keys()


def test_the_sets_of_types_are_these() -> None:
    assert {
        "run.completed",
        "run.continued",
        "run.failed",
        "run.cancelled",
        "run.terminated",
    } == events.RUN_ENDS
    assert {"update.completed", "update.failed", "update.rejected"} == events.UPDATE_ANSWERS
    assert {"stage.cancelled", "stage.cancel_failed"} == events.CANCELLATION_OUTCOMES
    assert {"step.completed", "step.failed", "step.cancelled"} == events.STEP_ENDS
    assert {
        "stage.completed",
        "stage.expanded",
        "stage.tested",
        "stage.suspended",
        "stage.retrying",
        "stage.failed",
        "stage.lost",
    } == events.ATTEMPT_ENDS


def test_the_kinds_of_calls_are_these() -> None:
    kinds = {kind.type: kind.call_kind for kind in CLASSES if kind.call_kind is not None}

    assert kinds == {
        "step.queued": "step",
        "step.completed": "step",
        "step.failed": "step",
        "step.retrying": "step",
        "timer.fired": "timer",
        "child.started": "run",
        "child.failed": "run",
        "signal.sent": "message",
        "cancel.sent": "message",
        "update.sent": "message",
        "channel.closed": "channel",
        "message.published": "topic",
        "topic.subscribed": "topic",
        "topic.unsubscribed": "topic",
    }


def test_what_may_precede_code_is_this() -> None:
    assert events.types_where(lambda kind: kind.may_precede_code) == {
        "run.created",
        "run.gathered",
        "run.admitted",
        "run.paused",
        "run.resumed",
        "update.received",
        "start.received",
        "signal.received",
    }


# Rows of other versions, and damaged rows -------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, '{"a":[1]}'])
def test_a_row_of_an_unknown_type_is_an_unknown_event(data: str | None) -> None:
    assert events.event_of(row("stage.hatched", data)) == events.UnknownEvent()


def test_a_row_of_a_published_event_is_a_user_event() -> None:
    assert events.event_of(row("user.paid", None)) == events.UserEvent()
    assert events.class_of("user.run.created") is events.UserEvent


def refused(one: HistoryRow) -> UnreadableRowError:
    """Return the error of a damaged row, which names the run and the row."""
    with pytest.raises(UnreadableRowError, match=f"row 7 is not a valid {one.type}") as caught:
        events.event_of(one)
    assert (caught.value.table, caught.value.run, caught.value.column) == ("holdfast_history", "r", "data")
    return caught.value


@EACH
def test_data_that_is_no_json_object_is_refused(kind: type[events.HistoryEvent]) -> None:
    for data in ("{", '{"a"', "no", "5", "[]", '"x"', "null", "true", "[" * 100_000):
        refused(row(kind.type, data))


@EACH
def test_a_row_without_a_required_field_is_refused(kind: type[events.HistoryEvent]) -> None:
    facts = smallest(kind).facts
    for name in facts:
        left = {one: value for one, value in facts.items() if one != name}
        assert name in str(refused(row(kind.type, canonical(left))))


@EACH
def test_a_field_of_the_wrong_type_is_refused(kind: type[events.HistoryEvent]) -> None:
    facts = smallest(kind).facts
    for name in hints_of(kind):
        refused(row(kind.type, canonical({**facts, name_in_row(kind, name): [[1.5]]})))


def test_a_number_is_not_taken_for_a_flag_nor_for_a_text() -> None:
    for data in ('{"channel":5}', '{"channel":"c","checked":1}', '{"channel":"c","start":true}'):
        refused(row("signal.received", data))


def test_an_error_in_a_row_is_checked_as_well() -> None:
    refused(row("step.failed", '{"attempt":1,"call":"1","error":{"type":"E"},"step":"s"}'))
