"""Write the OpenAPI document and the reference page of the HTTP server: `python -m tools.http_operations`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from holdfast.hosts.http.downloads import BYTES
from holdfast.hosts.http.openapi import openapi_document
from holdfast.hosts.http.operations import Reach
from holdfast.hosts.http.problems import REQUEST_CODES, errors_by_code, status_of
from holdfast.hosts.http.table import OPERATIONS
from tools.documents import DOCUMENTS

REFERENCE: Final = Path(__file__).resolve().parent.parent / "docs/reference"
PAGE: Final = REFERENCE / "http.md"
DOCUMENT: Final = REFERENCE / "openapi.json"
START: Final = "## Operations\n"
"""Where the generated part of the page begins. It ends with the page."""

_ELSEWHERE: Final = frozenset(cls.__name__ for cls in DOCUMENTS)
"""The classes that the page of documents describes."""


def document_text() -> str:
    """Return the text of the OpenAPI document."""
    return json.dumps(openapi_document(OPERATIONS), indent=1) + "\n"


def page(text: str) -> str:
    """Return the page with its generated part written anew. ValueError if it lacks the heading."""
    head, start, _ = text.partition(START)
    if not start:
        raise ValueError(f"the page has no heading {START.strip()!r}")
    return "\n".join([head + start, *_generated(openapi_document(OPERATIONS)), ""])


def _generated(document: Mapping[str, Any]) -> Iterator[str]:
    operations = [
        (path, method.upper(), one)
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    ]
    operations.sort(key=lambda one: one[2]["operationId"])
    yield "| operation | request | needs | long polling, stream |"
    yield "|---|---|---|---|"
    for path, method, one in operations:
        name = one["operationId"]
        yield f"| [{name}](#{_anchor(name)}) | `{method} {path}` | {_needs(one)} | {_later(one)} |"
    schemas = document["components"]["schemas"]
    for path, method, one in operations:
        yield from _operation(path, method, one, schemas)
    yield from ("", "## Bodies and answers", "")
    yield "Those that are not here are [documents of the command line too](documents.md#documents)."
    for name, schema in schemas.items():
        if name not in _ELSEWHERE and schema.get("properties"):
            yield from ("", f"### {name}", "", _wrapped(schema["description"]), "")
            yield from _fields(schema)
    yield from ("", "## Codes of problems", "")
    yield "The codes of the server. All others are those of [errors](errors.md)."
    yield from ("", "| code | status | meaning |", "|---|---|---|")
    for code, (status, title) in REQUEST_CODES.items():
        yield f"| `{code}` | {status} | {title} |"
    yield from ("", "| code | status |", "|---|---|")
    for code, error in sorted(errors_by_code().items()):
        yield f"| [`{code}`](errors.md) | {status_of(error)} |"


def _operation(path: str, method: str, one: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"### {one['operationId']}", "", f"`{method} {path}`", "")
    yield _wrapped(f"{one['summary']}.\n\n{one['description']}")
    if query := [parameter for parameter in one.get("parameters", ()) if parameter["in"] == "query"]:
        yield from ("", "| query parameter | type | meaning |", "|---|---|---|")
        for parameter in query:
            name = parameter["name"] + ("[...]" if parameter.get("style") == "deepObject" else "")
            yield f"| `{name}` | {_type(parameter['schema'])} | {_cell(parameter['description'])} |"
    headers = [parameter["name"] for parameter in one.get("parameters", ()) if parameter["in"] == "header"]
    if headers:
        yield from ("", f"Headers: {', '.join(f'`{name}`' for name in headers)}.")
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None and schemas[_name(body)].get("properties"):
        yield from ("", f"Body: {_type(body)}.")
    answer = one["responses"].get("200", {}).get("content", {})
    content = answer.get("application/json", {}).get("schema")
    if BYTES in answer:
        yield from ("", "Answer: bytes.")
    elif content is not None:
        yield from ("", f"Answer: {_type(content)}.")


def _wrapped(text: str) -> str:
    return "\n\n".join(fill(one, 118, break_on_hyphens=False) for one in text.split("\n\n"))


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    needed = schema.get("required", ()) if "additionalProperties" in schema else ()
    for name, one in schema["properties"].items():
        required = " Required." if name in needed else ""
        yield f"| `{name}` | {_type(one)} | {_cell(one.get('description', ''))}{required} |"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _link(_name(schema))
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kinds = schema.get("type", "any JSON")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one is not None)
    if "array" in kinds:
        shown = f"array of {_type(schema['items'])}"
    elif schema.get("format") == "date-time":
        shown = "instant"
    elif isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
        shown = f"object of {_type(schema['additionalProperties'])}"
    else:
        shown = kinds[0]
    return f"{shown} or null" if "null" in kinds and shown != "null" else shown


def _name(schema: Mapping[str, Any]) -> str:
    name: str = schema["$ref"].rpartition("/")[2]
    return name


def _link(name: str) -> str:
    return f"[{name}]({'documents.md' if name in _ELSEWHERE else ''}#{name.lower()})"


def _needs(one: Mapping[str, Any]) -> str:
    scope: str = one["x-holdfast-scope"]
    if " " in scope or scope == "anyone":
        return scope
    reach: str = one["x-holdfast-reach"]
    return f"`{scope}`" if reach == Reach.NAMED.value else f"`{scope}` on {reach}"


def _later(one: Mapping[str, Any]) -> str:
    names = [parameter["name"] for parameter in one.get("parameters", ())]
    return ", ".join(
        word for word, header in (("wait", "Prefer"), ("stream", "Last-Event-ID")) if header in names
    )


def _anchor(name: str) -> str:
    return name.replace(".", "").lower()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write both."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    DOCUMENT.write_text(document_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
