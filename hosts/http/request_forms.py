"""Forms of pages: how a browser sends an operation without a script.

A form of an operation has the fields of its body, or of its query if it has no body, and a few for the request itself.
A field of JSON has JSON text. Or its parts are fields of their own, named `<field>/<kind>/<path>`:
`input/text/customer`, `input/number/order/amount`, `scopes/list`.
A field without text is left out. The query parameter `_method` names the method of an operation that is no POST.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast, get_args

import attrs
from starlette.requests import Request

from holdfast.hosts.http.json_input import invalid, is_fit, parse_body, query_object, shape_of, structured
from holdfast.hosts.http.openapi import FORM
from holdfast.hosts.http.operations import Operation
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.return_paths import is_return_path
from holdfast.hosts.inspection.json_form import keys_of

T = TypeVar("T")

CSRF_FIELD: Final = "csrf_token"
"""The field with the token of the browser session."""
RETURN_FIELD: Final = "return_to"
"""The field with the path, below the mount, to which the browser goes afterwards."""
KEY_FIELD: Final = "idempotency_key"
"""The field with what other requests send as `Idempotency-Key`."""
GENERATION_FIELD: Final = "if_generation"
"""The field with the generation that is meant, which other requests send as `If-Match`."""
METHOD_PARAMETER: Final = "_method"
"""The query parameter with the method of an operation that is no POST."""
PAGES: Final = "/ui"
"""The path below which the pages are."""


@attrs.define
class SentForm:
    """A form that a browser has sent."""

    fields: dict[str, str]
    """The fields of the body."""
    csrf_token: str | None
    return_to: str | None
    idempotency_key: str | None
    generation: str | None


def is_form(request: Request) -> bool:
    """Return whether a request sends a form."""
    media_type = request.headers.get("content-type", "").lower().partition(";")[0]
    return media_type.strip() == FORM


def method_of(request: Request) -> str:
    """Return the method that is meant: forms can only send POST."""
    if request.method == "POST" and is_form(request):
        meant = request.query_params.get(METHOD_PARAMETER, "POST")
        return meant if meant in {"PUT", "DELETE"} else "POST"
    return "GET" if request.method == "HEAD" else request.method


def sent_form(operation: Operation, fields: dict[str, str]) -> SentForm:
    """Return a form without the fields for the request. HttpError for a path of another site.

    An operation with a `form` of its own has its own field for the path.
    """
    own = operation.form is not None
    found = SentForm(
        csrf_token=fields.pop(CSRF_FIELD, None),
        return_to=None if own else fields.pop(RETURN_FIELD, None),
        idempotency_key=(fields.pop(KEY_FIELD, None) or None) if operation.idempotent else None,
        generation=(fields.pop(GENERATION_FIELD, None) or None) if operation.if_match else None,
        fields=fields,
    )
    if found.return_to is not None and not is_return_path(found.return_to):
        raise invalid(RETURN_FIELD, "it is not a path of this server, such as /ui")
    return found


def form_body(operation: Operation, fields: Mapping[str, str]) -> Any:
    """Return the body that a form describes. HttpError, with every fault."""
    kind = operation.body
    if operation.form is not None:
        return query_object(fields.items(), kind)
    return structured(_data_of(fields, kind), kind)


def _data_of(fields: Mapping[str, str], kind: Any) -> dict[str, object]:
    known = {keys_of(kind)[one.name]: one for one in attrs.fields(kind)}
    found: dict[str, object] = {}
    for name, text in fields.items():
        base, slash, part = name.partition("/")
        if base not in known or not is_fit(name):
            raise invalid("$", f"there is no field {name!r:.80}")
        if not text.strip():
            continue
        if not slash:
            found[base] = _field_value(base, text, known[base].type)
            continue
        part_kind, _, path = part.partition("/")
        _set_part(found, base, path, _part_value(name, text, part_kind))
    return found


def _field_value(name: str, text: str, kind: Any) -> object:
    shape = shape_of(kind) if get_args(kind) and type(None) in get_args(kind) else kind
    if shape is str or (isinstance(shape, type) and issubclass(shape, str)):
        return text
    if shape is datetime:
        return _instant_text(text)
    if shape is timedelta or shape is float:
        return _number(name, text)
    if shape is bool:
        return text in {"true", "on"}
    return _json(name, text, is_text_possible=_is_literal_text(shape))


def _is_literal_text(shape: Any) -> bool:
    return all(isinstance(one, str) for one in get_args(shape)) and bool(get_args(shape))


def _part_value(name: str, text: str, kind: str) -> object:
    match kind:
        case "text":
            return text
        case "number":
            return _number(name, text)
        case "boolean":
            return text in {"true", "on"}
        case "instant":
            return _instant_text(text)
        case "list":
            return text.replace(",", " ").split()
        case "json":
            return _json(name, text, is_text_possible=False)
        case _:
            raise invalid(name, f"there is no kind {kind!r:.20} of fields")


def _set_part(found: dict[str, object], base: str, path: str, value: object) -> None:
    """Set a part of a field, whose path has names between slashes; a slash in a name is written `~1`."""
    if not path:
        found[base] = value
        return
    inside = found.setdefault(base, {})
    *outer, last = [one.replace("~1", "/").replace("~0", "~") for one in path.split("/")]
    for one in outer:
        if not isinstance(inside, dict):
            break
        inside = cast("dict[str, object]", inside).setdefault(one, {})
    if not isinstance(inside, dict):
        raise invalid(base, "it is given as a whole and in parts")
    cast("dict[str, object]", inside)[last] = value


def _json(name: str, text: str, *, is_text_possible: bool) -> object:
    if is_text_possible:
        return text
    try:
        return parse_body(text.encode())
    except HttpError as error:
        raise invalid(name, f"it is not JSON: {error.detail}; a text stands in double quotes") from None


def _number(name: str, text: str) -> object:
    value = _json(name, text.strip(), is_text_possible=False)
    if type(value) not in {int, float}:
        raise invalid(name, f"{text!r:.80} is not a number")
    return value


def _instant_text(text: str) -> str:
    """Return an instant with its offset: what browsers send from a field of date and time is in UTC on the pages."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return text.strip() if found.utcoffset() is not None else f"{found.isoformat()}Z"
