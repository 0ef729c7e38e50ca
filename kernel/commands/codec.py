"""Conversion of commands, replies and decisions to and from JSON. The JSON of commands and replies is public."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

import attrs
import cattrs
from cattrs import gen
from cattrs.strategies import configure_tagged_union

from holdfast.kernel.commands import (
    Command,
    FunctionRecord,
    OperatorCommand,
    Outcome,
    RunClaimPending,
    RunCreate,
    RunCreated,
    SessionOpen,
    SessionRenew,
)
from holdfast.kernel.converters import strict_converter
from holdfast.kernel.history.events import EVENTS, DriverEvent, HistoryEvent
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.session import Session
from holdfast.ports.tables import JOBS, TABLE_OF, TABLES, StoredRecord
from holdfast.ports.transport import Hint

T = TypeVar("T")
R = TypeVar("R")

_OMITTED: Final[Mapping[type, Sequence[str]]] = {
    RunClaimPending: ("due",),
    RunCreate: ("items", "input_size"),
    RunCreated: ("joined", "first_item", "items"),
    Session: ("namespace", "principal", "is_registered"),
    SessionOpen: ("about", "principal"),
    SessionRenew: ("about",),
}
"""Fields that are left out of the JSON if they have their default: they were added later, for one feature."""
_TABLES: Final = {table.name: table for table in TABLES}


@cache
def _converter() -> cattrs.Converter:
    """Return the converter. Lazy: building it takes as long as defining all of our classes."""
    converter = strict_converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook_func(_is_event, _event_from)
    converter.register_unstructure_hook_func(_is_event, _event_data)
    converter.register_unstructure_hook_factory(lambda kind: bool(_omitted(kind)), _omitting)
    for change in (Insert, Update, Delete):
        converter.register_unstructure_hook(change, _row_change_data)
        converter.register_structure_hook(change, _row_change_from)
    unions = ((Outcome, "kind"), (Change, "change"), (Hint, "hint"), (FunctionRecord, "record"))
    for union, tag in unions:
        configure_tagged_union(union, converter, tag_name=tag, tag_generator=_tag_of)
    return converter


def _omitted(kind: Any) -> Sequence[str]:
    """Return the fields of a class that are left out of its JSON if they have their default."""
    own = _OMITTED.get(kind, ())
    is_of_operator = isinstance(kind, type) and issubclass(kind, OperatorCommand)
    return ("request_id", *own) if is_of_operator else own


def _omitting(kind: Any, converter: cattrs.Converter) -> Any:
    omits: Any = {name: gen.override(omit_if_default=True) for name in _omitted(kind)}
    return gen.make_dict_unstructure_fn(kind, converter, **omits)


def _is_event(kind: Any) -> bool:
    return kind is DriverEvent or (isinstance(kind, type) and issubclass(kind, HistoryEvent))


def _event_data(event: HistoryEvent) -> dict[str, object]:
    return {"type": event.type, "data": event.facts}


def _event_from(data: object, kind: Any) -> HistoryEvent:
    if not isinstance(data, dict):
        raise TypeError(f"expected an object with the type and the data of an event, got {data!r:.80}")
    event = cast("dict[str, Any]", data)
    cls = EVENTS[event["type"]]
    if isinstance(kind, type) and not issubclass(cls, kind):
        wanted = cast("type[HistoryEvent]", kind).type
        raise ValueError(f"expected an event of type {wanted}, got {cls.type}")
    return cls.from_facts(event["data"])


def _row_change_data(change: Insert | Update | Delete) -> dict[str, object]:
    if isinstance(change, Delete):
        return {"table": change.table.name, "key": to_data(change.key)}
    return {"table": TABLE_OF[type(change.record)].name, "record": to_data(change.record)}


def _row_change_from(data: dict[str, Any], kind: Any) -> Insert | Update | Delete:
    table = _TABLES[data["table"]]
    if kind is not Delete:
        record: StoredRecord = from_data(data["record"], table.record)
        return Insert(record) if kind is Insert else Update(record)
    key = data["key"]
    if table is JOBS:
        return Delete(table, JobKey(*key))
    return Delete(table, tuple(cast("list[object]", key)) if isinstance(key, list) else key)


def _tag_of(kind: Any) -> str:
    """Return the tag of a class in JSON, which stays the same if the class is renamed."""
    return cast("str", kind.tag)


def to_data(value: object, kind: Any = None) -> Any:  # JSON is any of its types
    """Return the JSON data of a command, a reply or another frozen class of Holdfast."""
    return _converter().unstructure(value, unstructure_as=kind)


def from_data(data: object, kind: type[T]) -> T:
    """Return the object that `to_data` turned into this data.

    Raises InvalidCommandError, which lists every fault with its JSON path.
    """
    try:
        return _converter().structure(data, kind)
    except Exception as error:  # noqa: BLE001  # cattrs raises groups of whatever its hooks raise
        problems = "; ".join(cattrs.transform_error(error, path="$"))
        raise InvalidCommandError(f"not a valid {getattr(kind, '__name__', kind)}: {problems}") from None


def command_data(command: Command[R]) -> dict[str, object]:
    """Return the JSON data of a command: its fields and its `type`."""
    return {"type": command.type, **to_data(command)}


def command_json(command: Command[R]) -> str:
    """Return the canonical JSON text of a command."""
    return canonical(command_data(command))


def fingerprint_text(command: Command[R]) -> str:
    """Return the text by which two commands under one idempotency key are compared.

    It is canonical JSON without the key, the actor and fields that have their default, so a new field of the class does
    not change it; and without `pass_over`, which a repeated claim has from what the first one has leased. The order of
    keys in values does not matter, except in blobs, which are named by their hash. An input counts as its caller passed
    it (`given`), so a changed default of the workflow does not change it either. Headers don't count: a caller that
    repeats a start does so under another trace.
    """
    given_fields = {
        field.name
        for field in attrs.fields(type(command))
        if getattr(command, field.name) != field.default or field.default is attrs.NOTHING
    }
    data: dict[str, Any] = {
        name: value for name, value in command_data(command).items() if name in given_fields or name == "type"
    }
    for uncompared in ("idempotency_key", "actor", "request_id", "headers", "input_size", "pass_over"):
        data.pop(uncompared, None)
    for one in (data, data.get("signal"), *data.get("signals", ())):
        if isinstance(one, dict):
            _as_given(cast("dict[str, object]", one))
    return canonical(_without_order(data))


_PAYLOAD: Final = frozenset({"inline", "blob"})
_NAMED: Final = frozenset({"name", "value"})


def _without_order(data: object) -> object:
    """Return JSON data with the texts of values made canonical, so that the order of their keys does not matter."""
    if isinstance(data, dict):
        fields = {key: _without_order(value) for key, value in cast("dict[str, object]", data).items()}
        for of, name in ((_PAYLOAD, "inline"), (_NAMED, "value")):
            if fields.keys() == of and isinstance(text := fields[name], str):
                fields[name] = _canonical_text(text)
        return fields
    if isinstance(data, list | tuple):
        return [_without_order(one) for one in cast("list[object]", data)]
    return data


def _canonical_text(text: str) -> str:
    try:
        return canonical(parse(text))
    except (ValueError, RecursionError):  # not JSON of ours: compared unchanged
        return text


def _as_given(data: dict[str, object]) -> None:
    """Replace a stored value by the value that its caller passed, in place, and drop `checked`."""
    data.pop("checked", None)
    if (given := data.pop("given", None)) is not None:
        name = next(name for name in ("input", "arguments", "payload") if name in data)
        data[name] = given


def reply_json(reply: object) -> str:
    """Return the canonical JSON text of a reply."""
    return canonical(to_data(reply))


def reply_from(text: str, kind: type[T]) -> T:
    """Return the reply of this class that was stored as this text."""
    return from_data(parse(text), kind)
