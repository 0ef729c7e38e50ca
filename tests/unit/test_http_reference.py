"""The OpenAPI document and the reference page of the server are what its table of operations says."""

from typing import Any, cast

import attrs
import pytest
from openapi_spec_validator import validate

from holdfast.hosts.http.openapi import openapi_document
from holdfast.hosts.http.operations import Access, Hint, Invocation, Nothing, Operation, Reach
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.routes import routes_of
from holdfast.hosts.http.schemas import SchemaWriter
from holdfast.hosts.http.table import OPERATIONS
from holdfast.hosts.http.user_values import HIDDEN
from tools.http_operations import DOCUMENT, PAGE, START, document_text, page


def test_the_page_and_the_document_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    wanted = "`python -m tools.http_operations` writes it anew"
    assert text == page(text), wanted
    assert DOCUMENT.read_text(encoding="utf-8") == document_text(), wanted


def test_a_page_without_the_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="no heading '## Operations'"):
        page("# HTTP\n")
    assert page(f"# HTTP\n\n{START}\nold\n").startswith("# HTTP\n\n## Operations\n")


@pytest.mark.slow
def test_the_document_is_openapi() -> None:
    validate(openapi_document(OPERATIONS))


def test_every_operation_of_a_namespace_has_a_scope_and_says_what_it_does() -> None:
    document = openapi_document(OPERATIONS)
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            assert one["summary"], path
            # These reads have a body. Reading a sink on acknowledges what was read (docs/decisions/0099).
            is_exception = one["operationId"] in {"run.query", "run.preview_bulk", "sink.read"}
            assert (method == "get") == (one["x-holdfast-hint"] == "reads") or is_exception
            if "{namespace}" in path:
                assert one["x-holdfast-scope"] != Access.ANYONE.value
            for parameter in one.get("parameters", ()):
                assert parameter["description"], (path, parameter["name"])
    for name, schema in document["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            assert "description" in one or "$ref" in one, f"{name}.{field}"


def test_fields_of_user_values_exist() -> None:
    for cls, names in HIDDEN.items():
        assert set(names) <= {field.name for field in attrs.fields(cls)}, cls


def _nothing(_: Invocation[Nothing, Nothing]) -> None:
    """Do nothing."""


def operation(**fields: Any) -> Operation:
    given: dict[str, Any] = {
        "name": "x.y",
        "method": "GET",
        "path": "/v1/namespaces/{namespace}/x",
        "scope": Scope.READ,
        "handler": _nothing,
        "reply": type(None),
    }
    return Operation(**{**given, **fields})


def test_an_operation_without_a_scope_or_that_contradicts_itself_is_not_built() -> None:
    with pytest.raises(TypeError, match="scope"):
        cast("Any", Operation)(name="x.y", method="GET", path="/x", handler=_nothing, reply=type(None))
    with pytest.raises(ValueError, match="open to anyone"):
        operation(path="/v1/namespaces/{namespace}/x", scope=Access.ANYONE)
    with pytest.raises(ValueError, match="only a GET"):
        operation(method="POST", stream=_nothing, hint=Hint.CHANGES)
    with pytest.raises(ValueError, match="names no namespace"):
        operation(path="/x")
    assert operation(path="/x", reach=Reach.ALL).reach is Reach.ALL
    with pytest.raises(ValueError, match="begins with a slash"):
        operation(path="x")


def test_two_operations_have_neither_a_name_nor_a_request_in_common() -> None:
    async def answer(*_: object) -> None:
        """Answer nothing."""

    for other in (operation(path="/v1/namespaces/{namespace}/z"), operation(name="x.z")):
        with pytest.raises(ValueError, match="another operation"):
            routes_of((operation(), other), answer)


def test_two_classes_of_one_name_are_refused() -> None:
    writer = SchemaWriter()
    writer.reference(Nothing)

    @attrs.frozen
    class Other:
        """Another class."""

    Other.__name__ = "Nothing"
    with pytest.raises(ValueError, match="two classes are named Nothing"):
        writer.reference(Other)
