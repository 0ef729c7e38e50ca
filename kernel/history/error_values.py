"""What an error holds, on its way to the history and back: plain JSON as it is, all else with a mark of what it is.

A stored name is never imported, and nothing of a class of the user's is called: an enum's member is looked up, an
object of named fields is made without its constructor. What can't be kept comes back as a `NotKept`.
"""

import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import MemberDescriptorType
from typing import Any, Final, cast
from uuid import UUID

import attrs
from typing_extensions import override

from holdfast.kernel.values import decode, encode
from holdfast.kernel.values.type_forms import is_model, is_named_tuple, model_fields
from holdfast.ports.errors import HoldfastError
from holdfast.ports.json import compact, parse

DEPTH_MAX: Final = 12
"""How deep what an error holds may be. What is deeper is not kept."""

_MARK: Final = "$"
_MAIN: Final = "__main__"
_SCALARS: Final[dict[str, type]] = {
    one.__name__: one for one in (datetime, date, time, timedelta, Decimal, UUID, bytes, Path)
}
_PATH: Final = type(Path())
_SEVERAL: Final[dict[str, type]] = {one.__name__: one for one in (tuple, set, frozenset)}
_FLAGS_MISSING: Final = cast("Any", enum.Flag._missing_).__func__
_BITS_MAX: Final = 8_000
"""How many bits an integer may have: Python prints larger ones in no other base."""
_PLAIN: Final = frozenset({type(None), bool, int})


class NotKept:
    """Stands for what an error held and that can't be kept, such as a connection. It is printed as that was."""

    __slots__ = ("_kind", "_text")

    def __init__(self, kind: str, text: str) -> None:
        self._kind = kind
        self._text = text

    @override
    def __repr__(self) -> str:
        return self._text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{name!r} of the {self._kind} that the error held can't be read: it was not kept; read it in the step, and"
            " give it to the error that the step raises"
        )


class Keeper:
    """Turns what an error holds into JSON data. `text_max` is how long a text in it may be: a longer one is cut.

    `error_data` gives the data of an error among it, by how deep it is.
    """

    def __init__(self, text_max: int, error_data: Callable[[BaseException, int], object]) -> None:
        self._text_max = text_max
        self._error_data = error_data

    def data(self, value: Any, depth: int = 0) -> object:
        """Return the data of a value. What it is made of may raise anything."""
        kind: type = type(cast("object", value))
        if kind is int and value.bit_length() > _BITS_MAX:
            return _marked("printed", {"class": "int", "text": f"{value:#x}"[: self._text_max]})
        if kind in _PLAIN or (kind is float and value - value == 0):
            return value
        if kind is float:
            return _marked("float", repr(value))
        if kind is str:
            return self._cut(value)
        if isinstance(value, enum.Enum):
            known = value._value_ if isinstance(value, enum.Flag) else value._name_
            return _marked("enum", {"class": _names(kind), "of": known})
        if depth == DEPTH_MAX:
            return self.printed(value)
        if kind is list:
            return self._each(value, depth)
        if kind is dict:
            if all(type(key) is str for key in value) and _MARK not in value:
                return {self._cut(key): self.data(one, depth + 1) for key, one in value.items()}
            return _marked("dict", [[self.data(one, depth + 1) for one in pair] for pair in value.items()])
        if kind.__name__ in _SEVERAL and kind is _SEVERAL[kind.__name__]:
            items = self._each(value, depth)
            return _marked(kind.__name__, items if kind is tuple else sorted(items, key=compact))
        name = "Path" if kind is _PATH else kind.__name__
        if kind is _PATH or kind is _SCALARS.get(name):
            return self._scalar(value, name)
        if isinstance(value, BaseException):
            return _marked("error", self._error_data(value, depth + 1))
        if (names := _fields(kind)) is not None:
            fields = {name: self.data(getattr(value, name), depth + 1) for name in names}
            return _marked("object", {"class": _names(kind), "fields": fields})
        return self.printed(value)

    def printed(self, value: object) -> object:
        """Return the data of what is not kept."""
        return _marked("printed", {"class": type(value).__name__, "text": self._cut(repr(value))})

    def _each(self, values: Iterable[object], depth: int) -> list[object]:
        return [self.data(one, depth + 1) for one in values]

    def _scalar(self, value: object, name: str) -> object:
        try:
            text = encode(value, _SCALARS[name])
        except HoldfastError:  # it is in a zone that can't be found again, say
            return self.printed(value)
        return self.printed(value) if len(text) > self._text_max else _marked(name, parse(text))

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._text_max else f"{text[: self._text_max]}..."


def value_from(data: Any, error_from: Callable[[Mapping[str, Any]], BaseException]) -> Any:
    """Return the value that data stand for. `error_from` gives an error among it."""
    if isinstance(data, list):
        return [value_from(one, error_from) for one in cast("list[object]", data)]
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Any]", data)
    if _MARK not in fields:
        return {key: value_from(one, error_from) for key, one in fields.items()}
    mark, of = fields[_MARK], fields["of"]
    if mark in _SCALARS:
        return decode(compact(of), _SCALARS[mark])
    if mark == "float":
        return float(of)
    if mark == "error":
        return error_from(of)
    if mark == "enum":
        return _member(of)
    if mark == "object":
        values = {name: value_from(one, error_from) for name, one in of["fields"].items()}
        return _object(of["class"], values)
    if mark == "printed":
        return NotKept(of["class"], of["text"])
    items = [value_from(one, error_from) for one in of]
    return dict(items) if mark == "dict" else _SEVERAL[mark](items)


def text_of(data: Any) -> Any:
    """Return what is kept in place of a printed value where a text will do; other data as they are."""
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return fields["of"]["text"] if fields.get(_MARK) == "printed" else cast("Any", data)


def class_named(name: str, root: type) -> type | None:
    """Return the class below `root` that is called so.

    One of the main program may be called by its module elsewhere.
    """
    alike: type | None = None
    local = name.removeprefix(f"{_MAIN}.")
    waiting: list[type] = [root]
    while waiting:
        kind = waiting.pop()
        waiting += type.__subclasses__(kind)
        if class_name(kind) == name:
            return kind
        of_main = kind.__module__ == _MAIN and name.endswith(f".{kind.__qualname__}")
        if of_main or (local != name and kind.__qualname__ == local):
            alike = kind
    return alike


def class_name(kind: type) -> str:
    """Return how a class is called in the history."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def put_field(made: object, name: str, value: object) -> None:
    """Set a field, by no code of the user's. AttributeError, TypeError."""
    descriptor = inspect.getattr_static(type(made), name, None)
    if isinstance(descriptor, MemberDescriptorType):
        descriptor.__set__(made, value)
    else:
        cast("dict[str, object]", object.__getattribute__(made, "__dict__"))[name] = value


def _marked(mark: str, of: object) -> dict[str, object]:
    return {_MARK: mark, "of": of}


def _names(kind: type) -> list[str]:
    return [kind.__module__, kind.__qualname__]


def _fields(kind: type) -> Iterable[str] | None:
    """Return the names of what an object holds, of a class that says so."""
    if is_model(kind):
        return model_fields(kind)
    if is_named_tuple(kind):
        return cast("tuple[str, ...]", getattr(kind, "_fields", ()))
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind)]
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else None


def _member(of: Mapping[str, Any]) -> object:
    """Return the member of an enum by its name, or flags by their value."""
    module, name = of["class"]
    known = of["of"]
    found: Any = _loaded(module, name) or class_named(f"{module}.{name}", enum.Enum)
    if isinstance(found, enum.EnumMeta):
        if known in found.__members__:
            return found.__members__[known]
        if issubclass(found, enum.Flag) and getattr(found._missing_, "__func__", None) is _FLAGS_MISSING:
            return found(known)
    return NotKept(name, f"{name}.{known}")


def _object(names: list[str], values: Mapping[str, object]) -> object:
    found = _loaded(*names)
    if found is None or _fields(found) is None:
        return NotKept(
            names[1], f"{names[1]}({', '.join(f'{name}={one!r}' for name, one in values.items())})"
        )
    if is_named_tuple(found):
        return cast("Any", tuple).__new__(found, values.values())
    made: object = cast("Any", object).__new__(found)
    if is_model(found):
        whole: dict[str, object] = {"__dict__": dict(values), "__pydantic_fields_set__": set(values)}
        whole |= {"__pydantic_extra__": None, "__pydantic_private__": None}
        for name, part in whole.items():
            object.__setattr__(made, name, part)
        return made
    for name, one in values.items():
        put_field(made, name, one)
    return made


def _loaded(module: str, name: str) -> type | None:
    """Return the class that a module of the program has by this name. None is imported."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None
