"""Forms made from JSON Schemas as `schema_of` writes them: a field for each property, or the whole value as JSON.

A form never loses a part of a value that it was filled with: what a field can't hold exactly is a field of JSON text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any, Final, cast

import attrs

from holdfast.hosts.http.json_input import is_fit
from holdfast.hosts.http.pages.components import cut, shortened
from holdfast.hosts.http.pages.forms import action_form, text_area
from holdfast.hosts.http.pages.html import Content, Html, el, join, shown_text
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.request_forms import KEY_FIELD

FIELDS_MAX: Final = 60
"""How many fields a form has for a value. What needs more is sent as JSON: a request takes 100 fields."""
PREFILL_MAX: Final = 100_000
"""How many characters of JSON a value has that a form is filled with."""
_LEVELS: Final = 2
_REFERENCES_MAX: Final = 20
_LINE_MAX: Final = 500
_EXACT_MAX: Final = 2**53
_CHOICES_MAX: Final = 200
_BOOLEANS: Final = {"true": "yes", "false": "no"}


@attrs.frozen
class Prefill:
    """A value that a form is filled with."""

    value: object
    """The value as JSON data."""


class _UnfitError(Exception):
    """Fields can't hold the value, or there would be too many."""


def schema_fields(field: str, schema: object, prefill: Prefill | None = None) -> Html | None:
    """Return the fields of a value; None if only JSON text can hold it.

    Args:
        field: The field of the body, such as `input`.
        schema: The JSON Schema of the value.
        prefill: What the fields are filled with.
    """
    writer = _Writer(field, _object(_object(schema).get("$defs")))
    try:
        return join(writer.root(_object(schema), prefill))
    except _UnfitError:
        return None


def value_forms(
    page: Page,
    operation: str,
    label: str,
    *,
    field: str,
    schema: object,
    prefill: Prefill | None = None,
    others: Sequence[Content] = (),
    path: Mapping[str, str] | None = None,
    fixed: Mapping[str, str] | None = None,
    return_to: str | None = "",
) -> Html | None:
    """Return a form with the fields of a value, and one with the whole value as JSON; None without the right.

    Args:
        page: The page.
        operation: The operation that the forms send.
        label: What their buttons say.
        field: The field of the body that holds the value.
        schema: The JSON Schema of the value; one that is not known accepts anything.
        prefill: What the forms are filled with.
        others: Further fields of both forms.
        path: The parameters in the path of the operation.
        fixed: Further fields of the body.
        return_to: Where the browser goes afterwards, as for `action_form`.
    """
    if prefill is not None and len(json_text(prefill.value)) > PREFILL_MAX:
        prefill = None

    def form(*fields: Content) -> Html | None:
        return action_form(
            page,
            operation,
            label,
            *fields,
            *others,
            once_field(),
            path=path,
            fixed=fixed,
            return_to=return_to,
            class_="value",
        )

    fields = schema_fields(field, schema, prefill)
    text = "" if prefill is None else json_text(prefill.value)
    as_json = form(text_area(field, "The whole value as JSON", text, rows=12))
    if as_json is None:
        return None
    folded = el("details", el("summary", "As JSON"), as_json, class_="action", open=fields is None)
    return join(None if fields is None else form(fields), folded)


def once_field() -> Html:
    """Return a hidden field that is random for each page: a form that is sent twice acts once."""
    return el("input", type="hidden", name=KEY_FIELD, value=token_hex(16), autocomplete="off")


def json_text(value: object) -> str:
    """Return JSON data as a person edits them."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def flag_of(schema: object) -> str | None:
    """Return the path of the one boolean that a value consists of: "" for the value itself; None for other values."""
    whole = _object(schema)
    resolved, is_nullable = _resolved(whole, _object(whole.get("$defs")))
    if is_nullable:
        return None
    if resolved.get("type") == "boolean":
        return ""
    properties = _object(resolved.get("properties"))
    if len(properties) != 1:
        return None
    ((name, one),) = properties.items()
    inner, is_nullable = _resolved(_object(one), _object(whole.get("$defs")))
    if inner.get("type") != "boolean" or is_nullable or not _is_name(name):
        return None
    return _escaped(name)


class _Writer:
    """Writes the fields of one value."""

    def __init__(self, field: str, definitions: Mapping[str, Any]) -> None:
        self._field = field
        self._definitions = definitions
        self._left = FIELDS_MAX

    def root(self, schema: Mapping[str, Any], prefill: Prefill | None) -> Iterator[Html]:
        """Yield the fields of the whole value."""
        resolved, is_nullable = _resolved(schema, self._definitions)
        if is_nullable:
            raise _UnfitError
        if "properties" in resolved:
            yield self._base((), {})
            if not resolved["properties"]:
                yield el("p", "It takes no values.", class_="empty")
            yield from self._properties(resolved, (), prefill, 1, is_given=True)
        elif _widget(resolved) is not None:
            yield self._scalar("Value", resolved, (), prefill, required=True)
        else:
            raise _UnfitError

    def _properties(
        self,
        schema: Mapping[str, Any],
        path: tuple[str, ...],
        prefill: Prefill | None,
        level: int,
        *,
        is_given: bool,
    ) -> Iterator[Html]:
        """Yield the fields of the properties. `is_given`: the object is sent even if they are all left out."""
        properties = _object(schema.get("properties"))
        known: Mapping[str, Any] = {}
        if prefill is not None:
            given = prefill.value
            if not isinstance(given, dict):
                raise _UnfitError
            known = cast("dict[str, Any]", given)
            if not known.keys() <= properties.keys():
                raise _UnfitError  # a field that is not shown would be lost
        required = schema.get("required")
        wanted = cast("list[object]", required) if isinstance(required, list) else []
        for name, one in properties.items():
            if not _is_name(name):
                raise _UnfitError
            value = Prefill(known[name]) if name in known else None
            yield self._property(
                name, _object(one), (*path, name), value, level, required=is_given and name in wanted
            )

    def _property(
        self,
        name: str,
        schema: Mapping[str, Any],
        path: tuple[str, ...],
        prefill: Prefill | None,
        level: int,
        *,
        required: bool,
    ) -> Html:
        resolved, is_nullable = _resolved(schema, self._definitions)
        is_object = bool(_object(resolved.get("properties"))) and level < _LEVELS
        is_null = prefill is not None and prefill.value is None
        if is_object and not (is_nullable and (required or is_null)):
            is_given = (required and not is_nullable) or prefill is not None
            fields = self._properties(resolved, path, prefill, level + 1, is_given=is_given)
            legend = el("legend", shortened(name), _mark(required=required))
            return el("fieldset", legend, self._base(path, {}) if is_given else None, fields)
        if is_nullable and (required or is_null) and _widget(resolved) is not None:
            # Sent first, so that a field that is filled in replaces it.
            value = None if is_null else prefill
            return join(self._base(path, None), self._scalar(name, resolved, path, value, required=False))
        return self._scalar(
            name, {} if is_nullable and is_object else resolved, path, prefill, required=required
        )

    def _scalar(
        self,
        label: str,
        schema: Mapping[str, Any],
        path: tuple[str, ...],
        prefill: Prefill | None,
        *,
        required: bool,
    ) -> Html:
        widget = _widget(schema)
        entered = None if widget is None else _entered(widget, schema, prefill)
        hint = schema.get("description")
        if widget is None or entered is None:
            kind = schema.get("type")
            hint = hint or (f"JSON, {kind}" if isinstance(kind, str) else "JSON")
            text = "" if prefill is None else json_text(prefill.value)
            name = self._name("json", path)
            rows = min(text.count("\n") + 2, 12)
            field = el("textarea", f"\n{text}", name=name, rows=rows, required=required, spellcheck="false")
        elif widget in {"choice", "boolean"}:
            name = self._name("boolean" if widget == "boolean" else "json", path)
            field = _select(name, _options(widget, schema), entered, required=required)
        else:
            kind, step = _inputs(widget, entered)
            field = el(
                "input",
                type=kind,
                step=step,
                name=self._name(
                    {"integer": "number", "date-time": "instant"}.get(widget, _kind(widget)), path
                ),
                value=entered or None,
                required=required,
                autocomplete="off",
            )
            hint = hint or ("UTC" if widget == "date-time" else None)
        return el(
            "label",
            el("span", shortened(label), _mark(required=required)),
            field,
            el("small", shortened(hint)) if isinstance(hint, str) else None,
        )

    def _base(self, path: tuple[str, ...], value: object) -> Html:
        return el("input", type="hidden", name=self._name("json", path), value=json.dumps(value))

    def _name(self, kind: str, path: tuple[str, ...]) -> str:
        self._left -= 1
        if self._left < 0:
            raise _UnfitError
        return "/".join((self._field, kind, *map(_escaped, path)))


def _mark(*, required: bool) -> str | None:
    return " (required)" if required else None


def _select(name: str, options: Mapping[str, str], chosen: str, *, required: bool) -> Html:
    # Without an entry that sends nothing, the first one would be sent by everyone who does not look.
    first = el("option", "choose…" if required else "not given", value="")
    found = [
        el("option", cut(text, 100), value=value, selected=value == chosen) for value, text in options.items()
    ]
    return el("select", first, found, name=name, required=required)


def _options(widget: str, schema: Mapping[str, Any]) -> Mapping[str, str]:
    if widget == "boolean":
        return _BOOLEANS
    return {json.dumps(one): one if isinstance(one, str) else json.dumps(one) for one in schema["enum"]}


def _widget(schema: Mapping[str, Any]) -> str | None:
    """Return what a value is entered with; None for JSON text."""
    choices = schema.get("enum")
    if isinstance(choices, list):
        return "choice" if 0 < len(cast("list[object]", choices)) <= _CHOICES_MAX else None
    kind, form = schema.get("type"), schema.get("format")
    if kind == "string":
        return form if form in {"date-time", "date", "time"} else "text"
    return kind if kind in {"integer", "number", "boolean"} else None


def _kind(widget: str) -> str:
    return "number" if widget == "number" else "text"


def _inputs(widget: str, entered: str) -> tuple[str, str | None]:
    match widget:
        case "integer":
            return "number", "1"
        case "number":
            return "number", "any"
        case "date-time":
            return "datetime-local", "0.001" if "." in entered else "1"
        case "date":
            return "date", None
        case _:
            return "text", None


def _entered(widget: str, schema: Mapping[str, Any], prefill: Prefill | None) -> str | None:
    """Return the text that a field is filled with; None if it can't hold the value exactly."""
    if prefill is None:
        return ""
    value = prefill.value
    match widget:
        case "choice":
            text = json.dumps(value)
            return text if text in _options(widget, schema) else None
        case "boolean":
            return json.dumps(value) if isinstance(value, bool) else None
        case "integer" | "number":
            is_number = type(value) is int or (type(value) is float and widget == "number")
            return json.dumps(value) if is_number and abs(cast("float", value)) <= _EXACT_MAX else None
        case _:
            return _text_of(widget, value)


def _text_of(widget: str, value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if widget == "date-time":
        return _local(value)
    if widget == "date":
        return value if len(value) == len("2026-01-01") else None
    # Browsers change line breaks, and a field without text is not sent.
    is_exact = value.strip() != "" and is_fit(value) and shown_text(value) == value
    return value if is_exact and len(value) <= _LINE_MAX else None


def _local(text: str) -> str | None:
    """Return an instant as browsers write it; None if that is less exact, or not in UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.utcoffset() != timedelta() or at.microsecond % 1_000:
        return None
    found = at.replace(tzinfo=None).isoformat(timespec="milliseconds" if at.microsecond else "seconds")
    return found if at.year >= 1_000 else None


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return a schema without references and without null, and whether null was among its alternatives."""
    is_nullable = False
    for _ in range(_REFERENCES_MAX):
        reference, several, kinds = schema.get("$ref"), schema.get("anyOf"), schema.get("type")
        if isinstance(reference, str):
            schema = _object(definitions.get(reference.removeprefix("#/$defs/")))
            continue
        if isinstance(several, list):
            alternatives = [_object(one) for one in cast("list[object]", several)]
            others = [one for one in alternatives if one.get("type") != "null"]
            if len(others) != 1 or len(alternatives) == 1:
                return {}, False
            schema, is_nullable = others[0], True
            continue
        if isinstance(kinds, list):
            named = [one for one in cast("list[object]", kinds) if one != "null"]
            if len(named) != 1 or len(cast("list[object]", kinds)) == 1:
                return {}, False
            return {**schema, "type": named[0]}, True
        return schema, is_nullable
    return {}, False


def _is_name(name: str) -> bool:
    return bool(name) and is_fit(name) and len(name) <= _LINE_MAX and shown_text(name) == name


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _object(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
