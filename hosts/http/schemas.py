"""JSON Schema of attrs classes, in the forms that `json_form` writes and `json_input` reads."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from textwrap import dedent
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin

import attrs

from holdfast.hosts.http.user_values import hidden_fields
from holdfast.hosts.inspection.json_form import json_form, keys_of

Schema: TypeAlias = dict[str, Any]

_SIMPLE: Final[Mapping[object, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    timedelta: {"type": "number", "description": "Seconds."},
    Decimal: {"type": "string"},
    object: {},
}
_HIDDEN: Final = "Left empty without the scope `payloads`."


class SchemaWriter:
    """Collects the schemas of classes, by name, while it writes references to them."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        """Schemas by the name of their class."""
        self._classes: dict[str, type] = {}

    def reference(self, cls: type, *, is_input: bool = False) -> Schema:
        """Return a reference to the schema of an attrs class. ValueError if two classes have one name."""
        name = cls.__name__
        known = self._classes.setdefault(name, cls)
        if known is not cls:
            raise ValueError(f"two classes are named {name}: {known.__module__} and {cls.__module__}")
        if name not in self.schemas:
            self.schemas[name] = {}  # a class may refer to itself
            self.schemas[name] = self._object(cls, is_input=is_input)
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(self, cls: Any, *, is_input: bool) -> Schema:
        found: Schema = {
            "type": "object",
            "description": summary_of(cls),
            "properties": self.properties(cls, is_input=is_input),
        }
        keys = keys_of(cls)
        # An answer has all of its fields, a request those without a default.
        required = [
            keys[field.name] for field in attrs.fields(cls) if not is_input or field.default is attrs.NOTHING
        ]
        if required:
            found["required"] = required
        if is_input:
            found["additionalProperties"] = False
        return found

    def properties(self, cls: Any, *, is_input: bool) -> dict[str, Schema]:
        """Return the schemas of the fields of an attrs class, by their keys."""
        meanings, keys, hidden = meanings_of(cls), keys_of(cls), hidden_fields(cls)
        found: dict[str, Schema] = {}
        for field in attrs.fields(attrs.resolve_types(cls)):
            schema = {
                **self.schema(field.type, is_input=is_input),
                **cast("Schema", json_form(_bounds(field))),
            }
            texts = (meanings.get(field.name, ""), _HIDDEN if field.name in hidden else "")
            if text := " ".join(filter(None, texts)):
                schema["description"] = text.replace("; None ", "; null ")  # as JSON has it
            if is_input and _is_plain(field.default):
                schema["default"] = json_form(field.default)
            found[keys[field.name]] = schema
        return found

    def schema(self, kind: Any, *, is_input: bool = False) -> Schema:
        """Return the schema of a type."""
        parts = get_args(kind)
        origin = get_origin(kind) or kind
        if origin in {Union, UnionType}:
            return self._union(parts, is_input=is_input)
        if kind in _SIMPLE:
            return dict(_SIMPLE[kind])
        if origin is Literal:
            return self._texts([str(one) for one in parts], is_input=is_input)
        if origin is tuple:
            return {"type": "array", "items": self.schema(parts[0], is_input=is_input)}
        if attrs.has(origin):
            return self.reference(origin, is_input=is_input)
        if isinstance(origin, type) and issubclass(origin, Enum):
            return self._texts([str(one.value) for one in origin], is_input=is_input)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            element = parts[1] if parts else object
            return {"type": "object", "additionalProperties": self.schema(element, is_input=is_input)}
        raise TypeError(f"{kind!r} has no JSON schema")

    def _texts(self, texts: list[str], *, is_input: bool) -> Schema:
        """Return the schema of a choice. Answers may get new members, so clients must accept unknown ones there."""
        return {"type": "string", "enum" if is_input else "examples": texts}

    def _union(self, parts: tuple[Any, ...], *, is_input: bool) -> Schema:
        schemas = [self.schema(part, is_input=is_input) for part in parts if part is not NoneType]
        if NoneType not in parts:
            return {"anyOf": schemas}
        (schema, *more) = schemas
        if more or "type" not in schema:
            return {} if {} in schemas else {"anyOf": [*schemas, {"type": "null"}]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        return {**schema, "type": [schema["type"], "null"]}


def _is_plain(default: object) -> bool:
    """Return whether a default is shown: a text, number, boolean or duration."""
    return isinstance(default, str | int | float | timedelta) and not isinstance(default, Enum)


def _bounds(field: "attrs.Attribute[Any]") -> Schema:
    """Return the bounds of a number or an array, as its validators state them."""
    bounds: Schema = {}
    for one in _validators(field.validator):
        name = type(one).__name__
        if name == "_NumberValidator":
            bounds["minimum" if one.compare_op == ">=" else "maximum"] = one.bound
        elif name == "_MaxLengthValidator":
            bounds["maxItems"] = one.max_length
        elif name == "_MinLengthValidator":
            bounds["minItems"] = one.min_length
    return bounds


def _validators(validator: Any) -> Iterator[Any]:
    if validator is None:
        return
    inner: Any = getattr(validator, "_validators", None) or getattr(validator, "validator", None)
    if inner is None:
        yield validator
        return
    several = cast("Iterable[Any]", inner if isinstance(inner, tuple) else (inner,))
    for one in several:
        yield from _validators(one)


def summary_of(described: Any) -> str:
    """Return the first paragraph of a docstring in one line."""
    return flowed((inspect.getdoc(described) or "").partition("\n\n")[0])


def description_of(described: Any) -> str:
    """Return the paragraphs of a docstring after the first, without its sections."""
    text = (inspect.getdoc(described) or "").partition("\n\n")[2]
    paragraphs = re.split(r"\n*^(?:Args|Returns|Raises|Attributes):\n", text, flags=re.MULTILINE)[0]
    return "\n\n".join(flowed(one) for one in paragraphs.split("\n\n") if one.strip())


@cache
def meanings_of(cls: Any) -> Mapping[str, str]:
    """Return the descriptions of the fields of a class and its bases, by name. Empty where there is no source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if attrs.has(base):
            found.update(own_meanings(base))
    return found


def own_meanings(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the descriptions of the fields that a class itself defines, by name, as far as it has any."""
    yield from _listed(inspect.getdoc(cls) or "")
    try:
        (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    except OSError:  # a program that is shipped without its source
        return
    body = cast("ast.ClassDef", definition).body
    names: list[str] = []
    for node in body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
            case ast.Expr(value=ast.Constant(value=str(text))) if names:
                yield names[-1], flowed(text)
            case _:
                names = []


def _listed(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that the section `Attributes` of a docstring describes."""
    _, _, section = docstring.partition("\nAttributes:\n")
    for names, text in re.findall(r"^ {4}(\w+(?:, \w+)*): ((?:.*\n?(?: {8}.*\n?)*))", section, re.MULTILINE):
        for name in names.split(", "):
            yield name, flowed(text)


def flowed(text: str) -> str:
    """Return a text with each run of white space as one space."""
    return re.sub(r"\s+", " ", text).strip()
