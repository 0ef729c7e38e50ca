"""JSON Schema of stored values, from the same forms as their codecs, and a check of JSON data against it.

A schema says what the codec of a type accepts, as far as JSON Schema can: shapes, types, names of fields, choices.
Where a type has rules of its own, as pydantic's models and validators of classes have, the schema accepts more, and the
process with the code decides. So what a schema refuses, the code would refuse, too.

Only the keywords that are written here are understood: a schema comes from a store, and this is the program that has
written it. Others are ignored.
"""

import enum
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import attrs

from holdfast.kernel.values.codec import KINDS, Kind, quoted, segment
from holdfast.kernel.values.codec_factory import codec_for
from holdfast.kernel.values.containers import DICTS, LISTS, SETS
from holdfast.kernel.values.converters import converter_of
from holdfast.kernel.values.plain_json import PLAIN_FORMS
from holdfast.kernel.values.type_forms import (
    Form,
    NoneType,
    arguments,
    fields_of,
    is_literal,
    is_model,
    is_named_tuple,
    is_typed_dict,
    item_of,
    members,
    origin_of,
    show,
    tuple_items,
    unwrap,
)

Schema: TypeAlias = dict[str, Any]

PROBLEMS_MAX: Final = 20
"""How many problems of a value are listed."""
CHECKS_MAX: Final = 100_000
"""How many values one check compares with schemas. What is left is accepted: the code of the workflow decodes it."""
_DEPTH_MAX: Final = 64
_SCALARS: Final[Mapping[Form, Schema]] = {
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": "integer", "description": "Microseconds."},
    Decimal: {"type": "string", "description": "A decimal number."},
    UUID: {"type": "string", "format": "uuid"},
    **{kind: {"type": "string"} for kind in (Path, PurePath, PurePosixPath, PureWindowsPath)},
}
_LISTS: Final[frozenset[Form]] = frozenset[Form](LISTS)
_SETS: Final[frozenset[Form]] = frozenset[Form](SETS)
_DICTS: Final[frozenset[Form]] = frozenset[Form](DICTS)
_TYPES: Final[Mapping[Kind, str]] = {"list": "array"}
_KINDS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "array": ("list",),
    "number": ("number", "integer"),
}


def schema_of(form: Form) -> Schema:
    """Return the schema of a type. DefinitionError if values of it can't be stored."""
    codec_for(form)
    writer = _Writer()
    schema = writer.schema(form)
    return {**schema, "$defs": writer.definitions} if writer.definitions else schema


class _Writer:
    """Writes schemas, with one definition for each class that contains itself or is met again.

    A class is written once, however often it is met: written out each time, a few classes that refer to each other
    would make megabytes.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._open: dict[Form, str | None] = {}
        """The types that are being written, with the name of their definition if they were met again."""
        self._written: dict[Form, Schema] = {}
        """The schemas of classes that were written."""

    def schema(self, form: Form) -> Schema:
        form = unwrap(form)
        if form in self._open:
            known = self._open[form] = self._open[form] or self._new_name(form)
            return {"$ref": f"#/$defs/{known}"}
        if (first := self._written.get(form)) is not None:
            if "$ref" not in first:  # it becomes a definition where it was written, too
                again = self._new_name(form)
                self.definitions[again] = dict(first)
                first.clear()
                first["$ref"] = f"#/$defs/{again}"
            return dict(first)
        self._open[form] = None
        schema = self._schema(form)
        name = self._open.pop(form)
        if name is not None:
            self.definitions[name] = schema
            schema = {"$ref": f"#/$defs/{name}"}
        if "properties" in schema or "$ref" in schema:
            self._written[form] = schema
        return schema

    def _new_name(self, form: Form) -> str:
        taken = {*self.definitions, *filter(None, self._open.values())}
        name = "".join(char if char.isalnum() else "_" for char in show(form))
        return name if name not in taken else f"{name}_{len(taken)}"

    def _schema(self, form: Form) -> Schema:
        origin = origin_of(form)
        if form in PLAIN_FORMS:
            return {}
        if (converter := converter_of(form)) is not None:
            return self.schema(converter.stored_as)
        if form in _SCALARS:
            return dict(_SCALARS[form])
        if is_literal(form):
            return _choice([one.value if isinstance(one, enum.Enum) else one for one in arguments(form)])
        if len(several := members(form)) > 1:
            return self._union(several)
        if origin in _LISTS:
            return {"type": "array", "items": self.schema(item_of(form))}
        if origin in _SETS:
            return {
                "type": "array",
                "items": self.schema(item_of(form)),
                "description": "Its order is ignored.",
            }
        if origin in _DICTS:
            return self._mapping(form, origin)
        if isinstance(origin, type) and issubclass(origin, enum.Enum):
            kinds = codec_for(form).kinds
            is_open = issubclass(origin, enum.Flag) or "_missing_" in vars(origin) or not len(origin)
            values = [one._value_ for one in origin]
            return (
                {"type": [_TYPES.get(kind, kind) for kind in sorted(kinds)]} if is_open else _choice(values)
            )
        if is_named_tuple(form) or origin is tuple:
            return self._tuple(form)
        return self._object(form)

    def _union(self, several: Sequence[Form]) -> Schema:
        schemas = [self.schema(one) for one in several]
        if {} in schemas:
            return {}
        simple = [one for one in schemas if one.keys() == {"type"} and isinstance(one["type"], str)]
        if len(simple) == len(schemas):
            return {"type": [one["type"] for one in simple]}
        return {"anyOf": schemas}

    def _mapping(self, form: Form, origin: Form) -> Schema:
        types = arguments(form)
        if len(types) == 2:
            return {"type": "object", "additionalProperties": self.schema(types[1])}
        is_plain = origin is dict or origin is OrderedDict or not types
        return (
            {"type": "object"}
            if is_plain
            else {"type": "object", "additionalProperties": {"type": "integer"}}
        )

    def _tuple(self, form: Form) -> Schema:
        items, is_endless = tuple_items(form)
        if is_endless:
            return {"type": "array", "items": self.schema(items[0])}
        schemas = [self.schema(item) for item in items]
        return {"type": "array", "prefixItems": schemas, "minItems": len(items), "maxItems": len(items)}

    def _object(self, form: Form) -> Schema:
        fields = fields_of(form)
        if is_model(form):
            # Pydantic has rules of its own for each type, and models may take more fields than they declare.
            return {
                "type": "object",
                "properties": {field.key: {} for field in fields},
                "required": [field.key for field in fields if field.required],
                "title": show(form),
            }
        schema: Schema = {
            "type": "object",
            "properties": {field.key: self.schema(field.form) for field in fields},
            "required": [field.key for field in fields if field.required],
            "additionalProperties": False,
        }
        return schema if is_typed_dict(form) else {**schema, "title": show(form)}


def _choice(values: Sequence[object]) -> Schema:
    return {"enum": list({(type(value), value): value for value in values}.values())}  # 1 is not True


def problems_of(data: object, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why JSON data do not fit a schema, each with its path, `$.price: expected number, got string`.

    At most 20 problems are listed. A schema that was not written by `schema_of` is followed as far as it is understood.
    """
    found: list[str] = []
    search = _Search(definitions=_object_of(schema.get("$defs")))
    for path, reason in _problems(data, schema, "", search, _DEPTH_MAX):
        found.append(f"${path}: {reason}")
        if len(found) >= PROBLEMS_MAX:
            break
    return tuple(found)


@attrs.define
class _Search:
    """One check: what is searched, and how much of it is left to do."""

    definitions: Mapping[str, Any]
    left: int = CHECKS_MAX
    """How many more values are compared with schemas: alternatives within alternatives could take for ever."""


_Problem: TypeAlias = tuple[str, str]


def _problems(data: object, schema: object, path: str, search: _Search, depth: int) -> Iterator[_Problem]:
    fields = _object_of(schema)
    search.left -= 1
    if depth <= 0 or search.left < 0:
        return
    reference = fields.get("$ref")
    if isinstance(reference, str):
        yield from _problems(
            data, search.definitions.get(reference.removeprefix("#/$defs/")), path, search, depth - 1
        )
        return

    def inside(one: object, part: object, key: object) -> Iterator[_Problem]:
        return _problems(one, part, path + segment(key), search, depth - 1)

    alternatives = _list_of(fields.get("anyOf"))
    if alternatives:
        yield from _of_none(data, alternatives, path, search, depth)
        return
    choices = _list_of(fields.get("enum"))
    if choices and not any(type(one) is type(data) and one == data for one in choices):
        yield path, f"expected one of {', '.join(map(quoted, choices[:10]))}, got {quoted(data)}"
        return
    types = fields.get("type")
    wanted = _list_of(types) or ([types] if isinstance(types, str) else [])
    if wanted and not any(_is_of(data, one) for one in wanted):
        yield path, f"expected {' or '.join(map(str, wanted))}, got {_name_of(data)}"
    elif isinstance(data, dict):
        yield from _of_object(cast("dict[str, object]", data), fields, path, inside)
    elif isinstance(data, list):
        yield from _of_array(cast("list[object]", data), fields, path, inside)


_Inside: TypeAlias = Callable[[object, object, object], Iterator[_Problem]]


def _of_object(
    data: Mapping[str, object], schema: Mapping[str, Any], path: str, inside: _Inside
) -> Iterator[_Problem]:
    properties, others = _object_of(schema.get("properties")), schema.get("additionalProperties")
    for key in _list_of(schema.get("required")):
        if key not in data:
            yield path + segment(key), "required field is missing"
    for key, one in data.items():
        if key in properties:
            yield from inside(one, properties[key], key)
        elif others is False:
            yield path + segment(key), "unknown field"
        else:
            yield from inside(one, others, key)


def _of_array(
    data: Sequence[object], schema: Mapping[str, Any], path: str, inside: _Inside
) -> Iterator[_Problem]:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if (isinstance(least, int) and len(data) < least) or (isinstance(most, int) and len(data) > most):
        yield path, f"expected {least} items, got {len(data)}"
        return
    first = _list_of(schema.get("prefixItems"))
    for index, one in enumerate(data):
        yield from inside(one, first[index] if index < len(first) else schema.get("items"), index)


def _of_none(
    data: object, alternatives: Sequence[object], path: str, search: _Search, depth: int
) -> Iterator[_Problem]:
    """Yield the problems of data that fit no alternative: those of the one that they come nearest to."""
    nearest: list[_Problem] | None = None
    for one in alternatives:
        tagged = _wrong_tag(data, one, path, search)
        problems = (
            [tagged] if tagged else list(islice(_problems(data, one, path, search, depth - 1), PROBLEMS_MAX))
        )
        if not problems:
            return
        # Problems further inside are of an alternative whose shape fits.
        if nearest is None or len(problems[0][0]) > len(nearest[0][0]):
            nearest = problems
    yield from nearest or ()


def _wrong_tag(data: object, schema: object, path: str, search: _Search) -> _Problem | None:
    """Return why data are not of an alternative if a field with fixed values shows it: other fields don't matter."""
    fields = _object_of(schema)
    reference = fields.get("$ref")
    if isinstance(reference, str):
        fields = _object_of(search.definitions.get(reference.removeprefix("#/$defs/")))
    for key, one in _object_of(fields.get("properties")).items():
        choices = _list_of(_object_of(one).get("enum"))
        if choices and key in _object_of(data):
            problem = next(_problems(_object_of(data)[key], one, path + segment(key), search, 1), None)
            if problem is not None:
                return problem
    return None


def _is_of(data: object, wanted: object) -> bool:
    kind = KINDS.get(type(data))
    return kind == wanted or kind in _KINDS.get(str(wanted), ())


def _name_of(data: object) -> str:
    kind = KINDS.get(type(data))
    return type(data).__name__ if kind is None else _TYPES.get(kind, kind)


def _object_of(value: object) -> Mapping[str, Any]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _list_of(value: object) -> list[Any]:
    return cast("list[object]", value) if isinstance(value, list) else []
