"""JSON form of the values that exceptions hold: plain JSON where possible, else tagged with the type.

Stored names are never imported, and no code of user classes is called: enum members are looked up, and objects with
named fields are created without their constructor. A value that can't be stored comes back as `NotKept`.
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
"""Maximum nesting of an error's values. Deeper values are stored as text."""

_MARK: Final = "$"
_MAIN: Final = "__main__"
_SCALARS: Final[dict[str, type]] = {
    one.__name__: one for one in (datetime, date, time, timedelta, Decimal, UUID, bytes, Path)
}
_PATH: Final = type(Path())
_SEVERAL: Final[dict[str, type]] = {one.__name__: one for one in (tuple, set, frozenset)}
_FLAGS_MISSING: Final = cast("Any", enum.Flag._missing_).__func__
_BITS_MAX: Final = 8_000
"""Maximum size of an integer in bits. Larger ones are stored as hex text: Python refuses to print them in decimal."""
_PLAIN: Final = frozenset({type(None), bool, int})


class NotKept:
    """Placeholder for a value of an error that could not be stored, such as a connection. It has the value's repr."""

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


class ErrorValueEncoder:
    """Converts the values of an error to JSON data.

    Args:
        text_max: Maximum length of a text; longer texts are cut.
        error_data: Converts an error among the values, given its nesting depth.
    """

    def __init__(self, text_max: int, error_data: Callable[[BaseException, int], object]) -> None:
        self._text_max = text_max
        self._error_data = error_data

    def data(self, value: Any, depth: int = 0) -> object:
        """Return the data of a value. The value's own code may raise anything."""
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
        """Return the data of a value that is stored as its repr only."""
        return _marked("printed", {"class": type(value).__name__, "text": self._cut(repr(value))})

    def _each(self, values: Iterable[object], depth: int) -> list[object]:
        return [self.data(one, depth + 1) for one in values]

    def _scalar(self, value: object, name: str) -> object:
        try:
            text = encode(value, _SCALARS[name])
        except HoldfastError:  # for example, a time zone without a name
            return self.printed(value)
        return self.printed(value) if len(text) > self._text_max else _marked(name, parse(text))

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._text_max else f"{text[: self._text_max]}..."


def value_from(data: Any, error_from: Callable[[Mapping[str, Any]], BaseException]) -> Any:
    """Return the value for stored data. `error_from` creates the errors within it."""
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
    """Return the text of data that holds a repr only, where plain text is good enough; other data as it is."""
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return fields["of"]["text"] if fields.get(_MARK) == "printed" else cast("Any", data)


def class_named(name: str, root: type) -> type | None:
    """Return the subclass of `root` with this name, or None.

    A class of the main program may be known by its module's name in another process.
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
    """Return the name of a class in the history: its module and qualified name."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def put_field(made: object, name: str, value: object) -> None:
    """Set a field without calling user code. AttributeError or TypeError if that is impossible."""
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
    """Return the field names of a class with declared fields (dataclass, attrs, named tuple, model); else None."""
    if is_model(kind):
        return model_fields(kind)
    if is_named_tuple(kind):
        return cast("tuple[str, ...]", getattr(kind, "_fields", ()))
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind)]
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else None


def _member(of: Mapping[str, Any]) -> object:
    """Return an enum member by name, or flags by value; `NotKept` if unknown."""
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
    """Return the class with this name in a loaded module, or None. Nothing is imported."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None
