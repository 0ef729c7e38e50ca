"""Codecs of values without parts: numbers, strings, times, enums, literals."""

import base64
import binascii
import enum
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Final, TypeAlias, TypeVar, cast
from uuid import UUID

from holdfast.kernel.values.codec import (
    KINDS,
    Codec,
    Kind,
    class_name,
    listed,
    mismatch,
    quoted,
    unstorable,
    wrong_class,
    wrong_json,
    wrong_value,
)
from holdfast.kernel.values.type_forms import Form, arguments, show
from holdfast.kernel.values.zones import read_moment, write_moment

T = TypeVar("T")

_Key: TypeAlias = tuple[type, object]

_MICROSECOND: Final = timedelta(microseconds=1)


def enum_codec(cls: type[enum.Enum]) -> Codec:
    """Return the codec of an enum: members are stored by value. TypeError if a value is not a string or an integer."""
    members = tuple(cls.__members__.values())
    stored = {_class_of(_value_of(member)) for member in members} or {int}
    if not stored <= {str, int} or not (members or issubclass(cls, enum.Flag)):
        raise TypeError("the values of a stored enum must be strings or integers")
    allowed = f" ({listed(dict.fromkeys(map(_value_of, members)))})" if members else ""
    for member in members:
        if _member(cls, _value_of(member)) is not member:
            raise TypeError(f"{member} can't be looked up by its value")

    def encode(value: object) -> object:
        if not isinstance(value, cls):
            raise wrong_value(value, show(cls))
        return _value_of(value)

    def decode(data: object) -> object:
        if type(data) in stored and (member := _member(cls, data)) is not None:
            return member
        raise mismatch(f"expected {show(cls)}{allowed}, got {quoted(data)}")

    return Codec(encode, decode, frozenset(KINDS[each] for each in stored), (cls,))


def _value_of(member: enum.Enum) -> object:
    """Return the stored value of a member, even if its class overrides `value`."""
    return cast("object", member._value_)


def _member(cls: type[enum.Enum], value: object) -> enum.Enum | None:
    try:
        return cls(value)
    except Exception:  # noqa: BLE001  # a user's `_missing_` may raise anything
        return None


def literal_codec(form: Form) -> Codec:
    """Return the codec of a Literal of strings, integers, booleans, None and enum members. TypeError for any other."""
    # Keyed by type as well, because True == 1.
    stored: dict[_Key, object] = {
        (_class_of(each), each): each.value if isinstance(each, enum.Enum) else each
        for each in arguments(form)
    }
    if not {_class_of(data) for data in stored.values()} <= {str, int, bool, type(None)}:
        raise TypeError("the values of a stored Literal must be strings, integers, booleans or None")
    values: dict[_Key, object] = {(_class_of(data), data): key[1] for key, data in stored.items()}
    if len(values) < len(stored):
        raise TypeError("two of its values have the same JSON")
    allowed = listed(data for _, data in values)

    def encode(value: object) -> object:
        try:
            return stored[type(value), value]
        except (KeyError, TypeError):
            raise mismatch(f"expected {show(form)}, got another {class_name(value)}") from None

    def decode(data: object) -> object:
        try:
            return values[type(data), data]
        except (KeyError, TypeError):
            raise mismatch(f"expected one of {allowed}, got {quoted(data)}") from None

    kinds: frozenset[Kind] = frozenset(KINDS[_class_of(data)] for data in stored.values())
    return Codec(encode, decode, kinds, tuple(dict.fromkeys(key[0] for key in stored)))


def _class_of(value: object) -> type:
    return type(value)


def _primitive(cls: type) -> Codec:
    """Return the codec of a type that JSON has too."""

    def encode(value: object) -> object:
        if type(value) is cls:
            return value
        raise wrong_class(value, cls, cls.__name__)

    def decode(data: object) -> object:
        if type(data) is cls:
            return data
        raise wrong_json(data, KINDS[cls])

    return Codec(encode, decode, frozenset({KINDS[cls]}), (cls,))


def _constant_none() -> Codec:
    def encode(value: object) -> object:
        if value is not None:
            raise wrong_value(value, "None")
        return None

    def decode(data: object) -> object:
        if data is not None:
            raise wrong_json(data, "null")
        return None

    return Codec(encode, decode, frozenset({"null"}), (type(None),))


def _encode_float(value: object) -> object:
    if type(value) is float or type(value) is int:  # an int is accepted for a float, and stays an int
        return value
    raise wrong_class(value, float, "float")


def _decode_float(data: object) -> object:
    if type(data) is float or type(data) is int:
        return data
    raise wrong_json(data, "number")


def _text_codec(cls: type[T], write: Callable[[T], str], read: Callable[[str], T], what: str) -> Codec:
    """Return the codec of a class that is stored as a string. `what` describes the string in errors.

    `Path` makes an instance of the platform's subclass, so that class is accepted for it.
    """
    exact: type = type(cls()) if issubclass(cls, PurePath) else cls

    def encode(value: object) -> object:
        if type(value) is not exact:
            raise wrong_class(value, cls, cls.__name__)
        return write(cast("T", value))

    def decode(data: object) -> object:
        if type(data) is not str:
            raise wrong_json(data, what)
        try:
            return read(data)
        except (ValueError, InvalidOperation, binascii.Error):
            raise mismatch(f"expected {what}, got {quoted(data)}") from None

    return Codec(encode, decode, frozenset({"string"}), (cls,))


def _read_datetime(text: str) -> datetime:
    if "T" not in text:  # fromisoformat would accept a date, as midnight
        raise ValueError(text)
    return datetime.fromisoformat(text) if text[-1] != "]" else read_moment(text, datetime.fromisoformat)


def _write_time(value: time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise unstorable("the offset of a time in this time zone depends on the date; use a datetime")
    return write_moment(value)


def _read_time(text: str) -> time:
    return time.fromisoformat(text) if text[-1:] != "]" else read_moment(text, time.fromisoformat)


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise unstorable(f"expected a finite number, got {value}")
    return str(value)


def _read_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError(text)
    return value


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _encode_timedelta(value: object) -> object:
    if type(value) is not timedelta:
        raise wrong_class(value, timedelta, "timedelta")
    return value // _MICROSECOND


def _decode_timedelta(data: object) -> object:
    if type(data) is not int:
        raise wrong_json(data, "integer (microseconds)")
    try:
        return timedelta(microseconds=data)
    except OverflowError:
        raise mismatch(f"expected microseconds within the range of timedelta, got {quoted(data)}") from None


SCALARS: Final[dict[Form, Codec]] = {
    type(None): _constant_none(),
    bool: _primitive(bool),
    int: _primitive(int),
    str: _primitive(str),
    float: Codec(_encode_float, _decode_float, frozenset({"number"}), (float,)),
    bytes: _text_codec(bytes, _write_bytes, _read_bytes, "string (base64)"),
    datetime: _text_codec(datetime, write_moment, _read_datetime, "string (ISO 8601 date and time)"),
    date: _text_codec(date, date.isoformat, date.fromisoformat, "string (ISO 8601 date)"),
    time: _text_codec(time, _write_time, _read_time, "string (ISO 8601 time)"),
    timedelta: Codec(_encode_timedelta, _decode_timedelta, frozenset({"integer"}), (timedelta,)),
    Decimal: _text_codec(Decimal, _write_decimal, _read_decimal, "string (decimal number)"),
    UUID: _text_codec(UUID, str, UUID, "string (UUID)"),
    Path: _text_codec(Path, str, Path, "string (path)"),
    PurePath: _text_codec(PurePath, str, PurePath, "string (path)"),
    PurePosixPath: _text_codec(PurePosixPath, str, PurePosixPath, "string (path)"),
    PureWindowsPath: _text_codec(PureWindowsPath, str, PureWindowsPath, "string (path)"),
}
"""Codecs of types without arguments."""
