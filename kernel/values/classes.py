"""Codecs for classes with fields: attrs classes, dataclasses, NamedTuples and TypedDicts."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TypeAlias, cast

import attrs

from holdfast.kernel.values.codec import (
    Codec,
    Convert,
    Mismatch,
    Problem,
    class_name,
    described,
    mismatch,
    object_name,
    segment,
    wrong_class,
    wrong_json,
)
from holdfast.kernel.values.constructors import check_constructor, may_change_fields
from holdfast.kernel.values.type_forms import Field, Form, origin_of, show

CodecOf: TypeAlias = Callable[[Form, str], Codec]
"""A function that returns the codec of a type inside another. The text names the part in errors."""


@attrs.frozen
class _Part:
    key: str
    argument: str
    required: bool
    late: bool
    encode: Convert
    decode: Convert


def class_codec(form: Form, fields: tuple[Field, ...], codec_of: CodecOf) -> Codec:
    """Return the codec of an attrs class or a dataclass: a JSON object with all its fields.

    A subclass is refused: the fields that it adds would be lost. TypeError if the class can't be made from its fields.
    """
    cls = cast("type", origin_of(form))
    check_constructor(cls, fields)
    parts = _parts(form, fields, codec_of)
    encoders = tuple((part.key, part.encode) for part in parts)
    init_parts = tuple((part.key, part.argument) for part in parts if not part.late)
    late = tuple(part.key for part in parts if part.late)

    def encode(value: object) -> object:
        if type(value) is not cls:
            raise wrong_instance(value, cls, form)
        try:
            return {key: encode_part(getattr(value, key)) for key, encode_part in encoders}
        except (Mismatch, AttributeError):
            raise _first_problem(parts, lambda key: getattr(value, key)) from None

    def decode(data: object) -> object:
        found = _decode_object(data, parts, form)
        arguments = {argument: found[key] for key, argument in init_parts if key in found}
        try:
            made = cls(**arguments)
        except Exception as error:  # a user's validator may raise anything
            raise rejected(form, error) from error
        for key in late:
            if key in found:
                object.__setattr__(made, key, found[key])
        return made

    checks = may_change_fields(cls, fields)
    return Codec(encode, decode, frozenset({"object"}), (cls,), checks)


def typed_dict_codec(form: Form, fields: tuple[Field, ...], codec_of: CodecOf) -> Codec:
    """Return the codec of a TypedDict: a JSON object with its keys and no others."""
    parts = _parts(form, fields, codec_of)
    by_key = {part.key: part for part in parts}
    required = frozenset(part.key for part in parts if part.required)

    def encode(value: object) -> object:
        if type(value) is not dict:
            raise wrong_class(value, dict, show(form))
        items = cast("dict[str, object]", value)
        if items.keys() != required:
            _check_keys(items, parts)
        try:
            return {key: by_key[key].encode(item) for key, item in items.items()}
        except Mismatch:
            raise _first_problem((by_key[key] for key in items), items.__getitem__) from None

    def decode(data: object) -> object:
        found = _decode_object(data, parts, form)
        return {key: found[key] for key in cast("dict[str, object]", data)}

    return Codec(encode, decode, frozenset({"object"}), (dict,))


def named_tuple_codec(form: Form, fields: tuple[Field, ...], codec_of: CodecOf) -> Codec:
    """Return the codec of a NamedTuple: a JSON array."""
    cls = cast("type", origin_of(form))
    check_constructor(cls, fields)
    parts = _parts(form, fields, codec_of)

    def encode(value: object) -> object:
        if type(value) is not cls:
            raise wrong_class(value, cls, show(form))
        try:
            return [part.encode(getattr(value, part.key)) for part in parts]
        except Mismatch:
            raise _first_problem(parts, lambda key: getattr(value, key)) from None

    def decode(data: object) -> object:
        if type(data) is not list:
            raise wrong_json(data, f"list ({show(form)})")
        items = cast("list[object]", data)
        if len(items) != len(parts):
            raise mismatch(f"expected {len(parts)} items, got {len(items)}")
        found = _decode_object({part.key: item for part, item in zip(parts, items, strict=True)}, parts, form)
        try:
            return cls(**found)
        except Exception as error:  # a user's class may raise anything
            raise rejected(form, error) from error

    checks = may_change_fields(cls, fields)
    return Codec(encode, decode, frozenset({"list"}), (cls,), checks)


def wrong_instance(value: object, cls: type, form: Form) -> Mismatch:
    """Return the error for a value that is not exactly of a class with fields."""
    hint = f", a subclass of it; declare the type as {class_name(value)}" if isinstance(value, cls) else ""
    return mismatch(f"expected {show(form)}, got {described(value)}{hint}")


def rejected(form: Form, error: Exception) -> Mismatch:
    """Return the error for field values that the constructor of their class raised an error for."""
    return mismatch(f"{show(form)} rejected the value: {type(error).__name__}: {error}")


def _parts(form: Form, fields: tuple[Field, ...], codec_of: CodecOf) -> tuple[_Part, ...]:
    def part(field: Field) -> _Part:
        codec = codec_of(field.form, f"{show(form)}.{field.key}")
        return _Part(
            field.key, field.argument, field.required, field.set_after_init, codec.encode, codec.decode
        )

    return tuple(part(field) for field in fields)


def _decode_object(data: object, parts: tuple[_Part, ...], form: Form) -> dict[str, object]:
    """Return the decoded fields that are present, by key. Raises Mismatch with all problems."""
    if type(data) is not dict:
        raise wrong_json(data, object_name(show(form)))
    items = cast("dict[str, object]", data)
    found: dict[str, object] = {}
    problems: list[Problem] = []
    for part in parts:
        if part.key not in items:
            if part.required:
                problems.append(_missing(part.key))
            continue
        try:
            found[part.key] = part.decode(items[part.key])
        except Mismatch as error:
            problems.extend(error.inside(segment(part.key)))
    if len(items) > len(found):
        problems.extend(_unknown(items, parts))
    if problems:
        raise Mismatch(*problems)
    return found


def _check_keys(items: Mapping[str, object], parts: tuple[_Part, ...]) -> None:
    """Raise Mismatch with all missing required keys and all unknown keys."""
    missing = [_missing(part.key) for part in parts if part.required and part.key not in items]
    problems = [*missing, *_unknown(items, parts)]
    if problems:
        raise Mismatch(*problems)


def _missing(key: str) -> Problem:
    return Problem(segment(key), "required field is missing")


def _unknown(items: Mapping[str, object], parts: tuple[_Part, ...]) -> Iterable[Problem]:
    """Yield a problem for each unknown key. The hint names only fields that are not in the object already."""
    known = {part.key for part in parts}
    absent = [part.key for part in parts if part.key not in items]
    for key in items:
        if key not in known:
            close = get_close_matches(str(key), absent, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            yield Problem(segment(key), f"unknown field{hint}")


def _first_problem(parts: Iterable[_Part], value_of: Callable[[str], object]) -> Mismatch:
    """Return the error of the first field that can't be encoded, with the field in its path."""
    for part in parts:
        try:
            part.encode(value_of(part.key))
        except Mismatch as error:
            return Mismatch(*error.inside(segment(part.key)))
        except AttributeError:
            return Mismatch(Problem(segment(part.key), "required field is not set"))
    raise AssertionError("a value became storable while it was encoded")
