"""Checks of every response against the OpenAPI document, and of the headers that every response has."""

import copy
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any, cast
from urllib.parse import unquote

import httpx

from holdfast.hosts.http.answers import SECURITY_HEADERS
from holdfast.hosts.http.openapi import FORM, openapi_document
from holdfast.hosts.http.table import OPERATIONS

_jsonschema: Any = import_module("jsonschema")  # it has no types
_formats: Any = _jsonschema.FormatChecker(formats=())


def _is_instant(text: object) -> bool:
    return not isinstance(text, str) or (text.endswith("Z") and bool(datetime.fromisoformat(text)))


_formats.checks("date-time", raises=ValueError)(_is_instant)


@cache
def document() -> Mapping[str, Any]:
    return openapi_document(OPERATIONS)


@cache
def closed_components() -> Mapping[str, Any]:
    """The schemas, with every object closed: a field that the document does not have is a fault of the server."""
    components = copy.deepcopy(document()["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return cast("Mapping[str, Any]", components)


def operation_at(method: str, path: str) -> tuple[str, Mapping[str, Any] | None] | None:
    """Return the template and the operation of a path; None if there is none."""
    segments = [unquote(one) for one in path.split("/")]
    for template, methods in document()["paths"].items():
        wanted = template.split("/")
        fits = len(wanted) == len(segments) and all(
            one.startswith("{") or one == segment for one, segment in zip(wanted, segments, strict=True)
        )
        if fits:
            return template, methods.get("get" if method == "HEAD" else method.lower())
    return None


def check_response(response: httpx.Response, mount: str = "") -> None:
    """Raise AssertionError if a response is not as the document describes it."""
    for name in SECURITY_HEADERS:
        assert name in response.headers, f"{name} is missing"
    assert not [name for name in response.headers if name.startswith("access-control-")]
    request = response.request
    path = request.url.raw_path.decode().partition("?")[0].removeprefix(mount)
    if path == "/" or path.startswith("/ui"):  # pages are not in the document
        return
    found = operation_at(request.method, path)
    if found is None or found[1] is None:
        assert response.status_code in {404, 405}, response.status_code
        _check_content(response, {"schema": {"$ref": "#/components/schemas/Problem"}})
        return
    if response.status_code == 303 and request.headers.get("content-type") == FORM:
        assert not response.content
        return
    described = found[1]["responses"].get(str(response.status_code))
    assert described is not None, (
        f"{request.method} {path}: undocumented {response.status_code}: {response.text}"
    )
    if response.status_code in {204, 303, 304}:
        assert not response.content
        return
    media_type = response.headers["content-type"].partition(";")[0]
    assert media_type in described["content"], f"{path}: undocumented {media_type}"
    if request.method != "HEAD" and media_type.endswith("json"):
        _check_content(response, described["content"][media_type])
    if response.status_code >= 400 and request.method != "HEAD":
        problem = response.json()
        assert f"`{problem['code']}`" in described["description"], f"{path}: undocumented {problem['code']}"


def _check_content(response: httpx.Response, content: Mapping[str, Any]) -> None:
    schema = {**content["schema"], "components": closed_components()}
    validator = _jsonschema.Draft202012Validator(schema, format_checker=_formats)
    faults = [f"{one.json_path}: {one.message}" for one in validator.iter_errors(response.json())]
    assert not faults, f"{response.request.url}: {faults}"
