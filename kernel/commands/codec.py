"""The JSON form of commands, replies and decisions. That of commands and replies is part of the public contract."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast, get_origin

import attrs
import cattrs
from cattrs.strategies import configure_tagged_union

from holdfast.kernel.commands import Command, Outcome
from holdfast.ports.changes import Change
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.transport import Hint

T = TypeVar("T")
R = TypeVar("R")


@cache
def _converter() -> cattrs.Converter:
    """Made when it is first needed: it takes as long to make as all of our classes together."""
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    tuple_of_anything = converter.get_structure_hook(tuple[object, ...])

    def structure_list(value: object, wanted: type) -> object:
        """Take a JSON list, and not what Python can iterate over besides: a text's letters, an object's keys."""
        if not isinstance(value, list | tuple):
            raise TypeError(f"expected a list, got {value!r:.80}")
        return tuple_of_anything(value, wanted)

    converter.register_structure_hook_func(_is_tuple, structure_list)
    for union, tag in ((Outcome, "kind"), (Change, "change"), (Hint, "hint")):
        configure_tagged_union(union, converter, tag_name=tag, tag_generator=_tag_of)
    return converter


def _exactly(kind: type) -> Callable[[object, type], object]:
    """Take values of this type as they are, and no others: `5` is no name, and `true` no number."""

    def structure(value: object, wanted: type) -> object:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
        return value if wanted is kind else wanted(value)  # the string enums are strings too

    return structure


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _tag_of(kind: Any) -> str:
    """Return the tag that a class has in JSON. It outlives the name of the class."""
    return cast("str", kind.tag)


def to_data(value: object, kind: Any = None) -> Any:  # JSON is any of its types
    """Return the JSON data of a command, a reply, or another frozen class of Holdfast's."""
    return _converter().unstructure(value, unstructure_as=kind)


def from_data(data: object, kind: type[T]) -> T:
    """Return what `to_data` gave these data for. InvalidCommandError listing every fault, each with its path."""
    try:
        return _converter().structure(data, kind)
    except Exception as error:  # noqa: BLE001  # cattrs raises groups of whatever its hooks raise
        problems = "; ".join(cattrs.transform_error(error, path="$"))
        raise InvalidCommandError(f"not a valid {getattr(kind, '__name__', kind)}: {problems}") from None


def command_data(command: Command[R]) -> dict[str, object]:
    """Return a command's JSON data: its fields, and its `type`."""
    return {"type": command.type, **to_data(command)}


def command_json(command: Command[R]) -> str:
    """Return a command's canonical JSON text."""
    return canonical(command_data(command))


def fingerprint_text(command: Command[R]) -> str:
    """Return what makes a command this command: its canonical JSON text without the idempotency key.

    Fields that have their defaults are left out: a command stays the same when its class gets another field. The order
    of keys in a value does not matter either, unless it is in a blob, which is called by the hash of its text.
    What was given counts without the defaults that are stored with it: it stays the same when one of these is changed.
    """
    given_fields = {
        field.name
        for field in attrs.fields(type(command))
        if getattr(command, field.name) != field.default or field.default is attrs.NOTHING
    }
    data: dict[str, Any] = {
        name: value for name, value in command_data(command).items() if name in given_fields or name == "type"
    }
    data.pop("idempotency_key", None)
    for one in (data, data.get("signal"), *data.get("signals", ())):
        if isinstance(one, dict):
            _as_given(cast("dict[str, object]", one))
    return canonical(_without_order(data))


_PAYLOAD: Final = frozenset({"inline", "blob"})
_NAMED: Final = frozenset({"name", "value"})


def _without_order(data: object) -> object:
    """Return JSON data in which the texts of values are canonical, so that the order of keys does not matter."""
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
    except (ValueError, RecursionError):  # no value of ours: it is compared as it is
        return text


def _as_given(data: dict[str, object]) -> None:
    """Have what was given count in place of what is stored, whoever has checked it."""
    data.pop("checked", None)
    if (given := data.pop("given", None)) is not None:
        name = next(name for name in ("input", "arguments", "payload") if name in data)
        data[name] = {"inline": given, "blob": None}


def reply_json(reply: object) -> str:
    """Return a reply's canonical JSON text."""
    return canonical(to_data(reply))


def reply_from(text: str, kind: type[T]) -> T:
    """Return the reply that was stored as this text."""
    return from_data(parse(text), kind)
