"""Fields of a form made from a JSON Schema."""

from typing import Any

import pytest

from holdfast.hosts.http.pages.schema_forms import FIELDS_MAX, Prefill, flag_of, schema_fields

TEXT: Any = {"type": "string"}
FLAG: Any = {"type": "boolean"}


def object_of(required: tuple[str, ...] = (), **properties: Any) -> Any:
    return {"type": "object", "properties": properties, "required": list(required)}


def markup(schema: object, value: object = ...) -> str:
    found = schema_fields("input", schema, None if value is ... else Prefill(value))
    assert found is not None
    return found.markup


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        [],
        {"type": "array", "items": TEXT},
        {"anyOf": [TEXT, {"type": "integer"}]},
        {"type": ["string", "null"]},
        {"$ref": "#/$defs/Self", "$defs": {"Self": {"$ref": "#/$defs/Self"}}},
        object_of(**{"": TEXT}),
        object_of(**{"a\nb": TEXT}),
        object_of(**{f"field{number}": TEXT for number in range(FIELDS_MAX + 1)}),
    ],
)
def test_what_fields_cannot_hold_is_json(schema: object) -> None:
    assert schema_fields("input", schema) is None


def test_a_value_with_more_than_the_schema_knows_is_json() -> None:
    assert schema_fields("input", object_of(a=TEXT), Prefill({"a": "x", "b": "y"})) is None
    assert schema_fields("input", object_of(a=TEXT), Prefill("x")) is None


def test_a_value_that_is_one_scalar_has_one_field() -> None:
    assert 'name="input/number"' in markup({"type": "integer"})
    assert 'value="7"' in markup({"type": "integer"}, 7)


def test_names_with_slashes_are_escaped() -> None:
    assert 'name="input/text/a~1b~0c"' in markup(object_of(**{"a/b~c": TEXT}))


def test_hostile_names_and_values_are_text() -> None:
    hostile = '"><script>alert(1)</script>'
    found = markup(
        object_of(**{hostile: TEXT}, x={"enum": [hostile]}, y={**FLAG, "description": hostile}),
        {hostile: hostile, "x": hostile},
    )
    assert "<script" not in found


def test_a_value_of_another_type_than_the_field_is_json_text() -> None:
    assert 'name="input/json/a"' in markup(object_of(a={"type": "integer"}), {"a": "seven"})


def test_a_required_field_that_may_be_null_sends_null_if_it_is_empty() -> None:
    found = markup(object_of(("a",), a={"type": ["string", "null"]}))
    assert found.index('name="input/json/a" value="null"') < found.index('name="input/text/a"')


def test_an_object_in_itself_ends_in_json() -> None:
    schema = {
        "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": object_of(
                ("name",), name=TEXT, left={"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}
            )
        },
    }
    found = markup(schema)
    assert 'name="input/text/left/name"' in found
    assert 'name="input/json/left/left"' in found


def test_a_flag_is_found_in_a_value_of_one_boolean() -> None:
    assert flag_of(FLAG) == ""
    assert flag_of(object_of(approved=FLAG)) == "approved"
    assert flag_of({"$ref": "#/$defs/A", "$defs": {"A": object_of(ok=FLAG)}}) == "ok"
    assert flag_of(object_of(approved=FLAG, why=TEXT)) is None
    assert flag_of(object_of(name=TEXT)) is None
    assert flag_of(None) is None
