"""Reading JSON, query parameters and headers of requests, strictly: what is not understood is refused.

The forms are those of `holdfast.hosts.inspection.json_form`: an instant is text of RFC 3339, a duration is a number of
seconds under a name that ends in `_seconds`.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin
from unicodedata import category
from urllib.parse import parse_qsl

import attrs
import cattrs
from cattrs import gen

from holdfast.hosts.http.problems import HttpError, ProblemDetail
from holdfast.hosts.inspection.json_form import keys_of
from holdfast.kernel.authoring.attempt_context import BlobRef
from holdfast.kernel.converters import strict_converter
from holdfast.ports.blobs import is_blob_key

T = TypeVar("T")

DEPTH_MAX: Final = 64
"""How deep the JSON of a request may be nested."""
FIELDS_MAX: Final = 100
"""How many fields a form may have."""
INTEGER_MAX: Final = 2**53
"""The largest integer that a field of a request may have. Integers in values of users have no bound."""
MISSING: Final = "missing"
"""Under this key the metadata of a field have what to do if a body lacks it."""
_REQUIRED: Final = "it is required"
_SECONDS_MAX: Final = 100 * 366 * 86_400
_REFERENCE: Final = frozenset(field.name for field in attrs.fields(BlobRef))
_UNFIT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


def invalid(path: str, message: str) -> HttpError:
    """Return the error for one fault of a request."""
    return HttpError(
        "invalid_request", f"{path}: {message}", errors=(ProblemDetail(path=path, message=message),)
    )


def parse_body(data: bytes) -> object:
    """Return the value of a JSON body. HttpError if it is not strict JSON in UTF-8, or nested too deep.

    Duplicate keys, NaN, numbers that no float can hold, and lone surrogates are refused.
    """
    try:
        value = _DECODER.decode(data.decode("utf-8"))
        _check_depth(value)
    except RecursionError:
        raise invalid("$", f"it is nested deeper than {DEPTH_MAX} levels") from None
    except UnicodeDecodeError:
        raise invalid("$", "the body is not UTF-8") from None
    except ValueError as error:
        raise invalid("$", f"the body is not JSON: {error}") from None
    return value


def _object(fields: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(fields)
    if len(found) < len(fields):
        raise ValueError("an object has a key more than once")
    return found


def _refused(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > 1_000:
        raise ValueError("a number is too large")
    return int(text)


def parse_form(data: bytes) -> dict[str, str]:
    """Return the fields of a form. HttpError if it is malformed, not UTF-8, or a field is given more than once."""
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:  # also for text that is not ASCII or not UTF-8
        raise invalid("$", "the body is not a form in UTF-8") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise invalid("$", "a field is given more than once")
    return found


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refused, parse_float=_finite, parse_int=_integer
)


def _check_depth(value: object) -> None:
    """Raise HttpError for nesting that is too deep, ValueError for half a surrogate pair in a text."""
    level: list[object] = [value]
    for _ in range(DEPTH_MAX + 1):
        below: list[object] = []
        for one in level:
            if isinstance(one, str):
                _check_text(one)
            elif isinstance(one, dict):
                fields = cast("dict[str, object]", one)
                for key in fields:
                    _check_text(key)
                below.extend(fields.values())
            elif isinstance(one, list):
                below.extend(cast("list[object]", one))
        if not below:
            return
        level = below
    raise invalid("$", f"it is nested deeper than {DEPTH_MAX} levels")


def refuse_blob_references(value: object, path: str = "$") -> None:
    """Raise HttpError for a reference to a blob at any depth: with it, a body could be made to read any blob."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if fields.keys() == _REFERENCE and is_blob_key(str(fields["key"])):
            raise invalid(path, "it refers to a blob: a client can't")
        for name, one in fields.items():
            refuse_blob_references(one, f"{path}.{name}")
    elif isinstance(value, list):
        for index, one in enumerate(cast("list[object]", value)):
            refuse_blob_references(one, f"{path}[{index}]")


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("a text has half a surrogate pair")


def is_fit(text: str) -> bool:
    """Return whether a text of a path, query or header has no control characters, line breaks or surrogates."""
    return text.isprintable() or not any(category(char) in _UNFIT for char in text)


def structured(data: object, kind: type[T]) -> T:
    """Return the object of an attrs class that JSON data describes. HttpError, with every fault and its path."""
    try:
        return document_converter().structure(data, kind)
    except Exception as error:  # noqa: BLE001  # cattrs raises groups of whatever its hooks raise
        faults = tuple(_with_hint(one, kind) for one in _faults(error))
    raise HttpError(
        "invalid_request", "; ".join(f"{one.path}: {one.message}" for one in faults), errors=faults
    )


def _faults(error: Exception) -> Iterable[ProblemDetail]:
    for text in cattrs.transform_error(error, path="$", format_exception=_fault_text):
        message, _, path = text.rpartition(" @ ")
        yield ProblemDetail(path=path or "$", message=message or text)


def _with_hint(fault: ProblemDetail, kind: type[Any]) -> ProblemDetail:
    """Return the fault of a body of this class. If a field is missing that has a hint, the message ends with it."""
    field = attrs.fields_dict(kind).get(fault.path.removeprefix("$.")) if attrs.has(kind) else None
    if field is None or MISSING not in field.metadata or fault.message != _REQUIRED:
        return fault
    return attrs.evolve(fault, message=f"{_REQUIRED}: {field.metadata[MISSING]}")


def _fault_text(error: BaseException, _: type | None) -> str:
    match error:
        case cattrs.ForbiddenExtraKeysError(extra_fields=fields):
            return f"there is no field {', '.join(sorted(map(repr, fields)))}"
        case KeyError():
            return _REQUIRED
        case _:
            return str(error) or type(error).__name__


@cache
def document_converter(*, forbid_extra_keys: bool = True) -> cattrs.Converter:
    """Return the converter of documents in their JSON forms: strict, or for a client of newer servers."""
    converter = strict_converter(forbid_extra_keys=forbid_extra_keys, detailed_validation=True)
    converter.register_structure_hook(int, _int)
    converter.register_structure_hook(float, _float)
    converter.register_structure_hook(Decimal, _decimal)
    converter.register_structure_hook(datetime, _instant)
    converter.register_structure_hook(timedelta, _length)
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    converter.register_structure_hook_func(_is_mapping, _mapping(converter))
    converter.register_structure_hook_func(_is_literal, _literal)
    converter.register_structure_hook_func(_is_scalar, _plain_scalar)

    def of_class(kind: Any) -> Callable[[object, Any], object]:
        return _of_class(converter, kind)

    converter.register_structure_hook_factory(attrs.has, of_class)
    return converter


def _of_class(converter: cattrs.Converter, kind: Any) -> Callable[[object, Any], object]:
    renamed: Any = {
        name: gen.override(rename=key, omit_if_default=False) for name, key in keys_of(kind).items()
    }
    make = gen.make_dict_structure_fn(kind, converter, **renamed)

    def structure(data: object, wanted: Any) -> object:
        if not isinstance(data, dict):
            raise TypeError(f"expected an object, got {data!r:.80}")
        return make(cast("dict[str, Any]", data), wanted)

    return structure


def _int(value: object, _: type) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, got {value!r:.80}")
    if abs(value) > INTEGER_MAX:
        raise ValueError("the number is too large")
    return value


def _float(value: object, _: type) -> float:
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"expected a number, got {value!r:.80}")
    if abs(value) > INTEGER_MAX:
        raise ValueError("the number is too large")
    return float(value)


def _length(value: object, _: type) -> timedelta:
    seconds = _float(value, float)
    if not -_SECONDS_MAX <= seconds <= _SECONDS_MAX:
        raise ValueError("a duration has at most a hundred years")
    return timedelta(seconds=seconds)


def _decimal(value: object, _: type) -> Decimal:
    if not isinstance(value, str):
        raise TypeError(f"expected a number as a string, got {value!r:.80}")
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError(f"expected a number as a string, got {value!r:.80}") from None


def _instant(value: object, _: type) -> datetime:
    if not isinstance(value, str):
        raise TypeError(f"expected an instant such as 2026-11-26T09:00:00Z, got {value!r:.80}")
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None or "T" not in value.upper():
        raise ValueError(f"{value!r:.80} is not an instant with an offset, such as 2026-11-26T09:00:00Z")
    if not 1970 <= found.year <= 9998:
        raise ValueError("the year of an instant is 1970 to 9998")
    return found


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _mapping(converter: cattrs.Converter) -> Callable[[object, Any], dict[str, object]]:
    def structure(value: object, kind: Any) -> dict[str, object]:
        if not isinstance(value, dict):
            raise TypeError(f"expected an object, got {value!r:.80}")
        name, element = get_args(kind)
        items = cast("dict[str, object]", value).items()
        return {converter.structure(key, name): converter.structure(one, element) for key, one in items}

    return structure


def _is_scalar(kind: Any) -> bool:
    """Return whether a type is a union of JSON's own."""
    return get_origin(kind) in {Union, UnionType} and set(get_args(kind)) <= {str, int, float, bool}


def _plain_scalar(value: object, kind: Any) -> object:
    if type(value) not in {*get_args(kind), int}:
        raise TypeError(f"expected a text, a number or a truth value, got {value!r:.80}")
    return value


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _literal(value: object, kind: Any) -> object:
    if value not in get_args(kind) or not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not one of {', '.join(map(repr, get_args(kind)))}")
    return value


def query_object(pairs: Iterable[tuple[str, str]], kind: type[T]) -> T:
    """Return the object of an attrs class that query parameters describe.

    A field that is a tuple may be repeated; a field that is a mapping is written `name[key]=text`. Unknown and
    repeated parameters are refused. HttpError, with every fault.
    """
    fields: dict[str, attrs.Attribute[Any]] = {
        keys_of(cast("Any", kind))[one.name]: one for one in attrs.fields(cast("Any", kind))
    }
    found: dict[str, Any] = {}
    for name, text in pairs:
        if not is_fit(name) or not is_fit(text):
            raise invalid(name if is_fit(name) else "$", "it has a control character")
        base, bracket, key = name.partition("[")
        field = fields.get(base if bracket else name)
        if field is None:
            known = ", ".join(sorted(fields)) or "none"
            raise invalid(name, f"there is no query parameter {name!r}; there are: {known}")
        shape = shape_of(field.type)
        if bracket:
            if not _is_mapping(shape) or not key.endswith("]") or len(key) < 2:
                raise invalid(name, f"there is no query parameter {name!r}")
            texts: dict[str, str] = found.setdefault(base, {})
            if key[:-1] in texts:
                raise invalid(name, "it is given more than once")
            texts[key[:-1]] = text
        elif _is_mapping(shape):
            raise invalid(name, f"write {name}[<name>]=<text>")
        elif get_origin(shape) is tuple:
            found.setdefault(name, []).append(_scalar(name, text, get_args(shape)[0]))
        elif name in found:
            raise invalid(name, "it is given more than once")
        else:
            found[name] = _scalar(name, text, shape)
    return structured(found, kind)


def shape_of(kind: Any) -> Any:
    """Return a type without None."""
    if get_origin(kind) in {Union, UnionType}:
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    return kind


_TRUTH: Final = {"true": True, "false": False}


def _scalar(name: str, text: str, kind: Any) -> object:
    if kind is bool:
        if text not in _TRUTH:
            raise invalid(name, f"{text!r:.80} is not true or false")
        return _TRUTH[text]
    if kind is int:
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 18):
            raise invalid(name, f"{text!r:.80} is not an integer")
        return int(text)
    if isinstance(kind, type) and issubclass(kind, Enum) and text not in {one.value for one in kind}:
        raise invalid(name, f"{text!r:.80} is not one of {', '.join(str(one.value) for one in kind)}")
    return text
