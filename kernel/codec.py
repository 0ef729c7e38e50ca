"""The JSON form of commands, replies and decisions. That of commands and replies is part of the public contract."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_origin

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
        configure_tagged_union(union, converter, tag_name=tag, tag_generator=_class_name)
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


def _class_name(kind: type) -> str:
    return kind.__name__


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

    Fields that have their defaults are left out: a command stays the same when its class gets another field.
    """
    said = {
        field.name
        for field in attrs.fields(type(command))
        if getattr(command, field.name) != field.default or field.default is attrs.NOTHING
    }
    data = {name: value for name, value in command_data(command).items() if name in said or name == "type"}
    data.pop("idempotency_key", None)
    return canonical(data)


def reply_json(reply: object) -> str:
    """Return a reply's canonical JSON text."""
    return canonical(to_data(reply))


def reply_from(text: str, kind: type[T]) -> T:
    """Return the reply that was stored as this text."""
    return from_data(parse(text), kind)
