"""What a form's fields become: the body of the operation."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.hosts.http.pages.links import operation_named
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.request_forms import form_body, sent_form

START = operation_named("run.start")


def body_of(fields: dict[str, str]) -> Any:
    return form_body(START, {"workflow": "report", **fields})


def refusal_of(fields: dict[str, str]) -> HttpError:
    with pytest.raises(HttpError) as refused:
        body_of(fields)
    assert refused.value.code == "invalid_request"
    return refused.value


def test_a_field_of_json_has_json_text() -> None:
    assert body_of({"input": '{"cents": [5, 1.5, null, "a"]}'}).input == {"cents": [5, 1.5, None, "a"]}


def test_parts_are_put_together() -> None:
    found = body_of(
        {
            "input/text/customer": "5",
            "input/number/order/amount": " 5 ",
            "input/boolean/order/gift": "on",
            "input/json/order/items": '["tea"]',
            "input/instant/at": "2026-01-02T03:04",
        }
    ).input
    assert found == {
        "customer": "5",
        "order": {"amount": 5, "gift": True, "items": ["tea"]},
        "at": "2026-01-02T03:04:00Z",
    }


def test_a_part_without_a_path_is_the_whole_field() -> None:
    assert body_of({"input/text/": "<b>"}).input == "<b>"
    assert body_of({"input/number": "7"}).input == 7


def test_a_slash_in_a_name_is_written_otherwise() -> None:
    assert body_of({"input/text/a~1b~0c": "x"}).input == {"a/b~c": "x"}


def test_fields_without_text_are_left_out() -> None:
    assert body_of({"input/text/a": "", "input/text/b": "x", "id": "  "}).input == {"b": "x"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"unknown": "x"}, "no field"),
        ({"unknown/text/a": "x"}, "no field"),
        ({"__class__": "x"}, "no field"),
        ({"input/script/a": "x"}, "no kind"),
        ({"input/number/a": "five"}, "input/number/a"),
        ({"input/number/a": "true"}, "not a number"),
        ({"input/number/a": '"5"'}, "not a number"),
        ({"input": "five"}, "a text stands in double quotes"),
        ({"input": "{"}, "not JSON"),
        ({"input": "[1]", "input/text/a": "x"}, "as a whole and in parts"),
        ({"input/text/a": "x", "input/text/a/b": "x"}, "as a whole and in parts"),
    ],
)
def test_a_field_that_fits_nothing_is_refused(fields: dict[str, str], reason: str) -> None:
    error = refusal_of(fields)
    assert reason in f"{error.detail} {[(one.path, one.message) for one in error.errors]}"


def test_an_instant_without_an_offset_is_in_utc() -> None:
    backfill = operation_named("schedule.backfill")
    found: Any = form_body(backfill, {"start": "2026-01-02T03:04", "end": "2026-01-02T05:04:00+01:00"})
    assert found.start == datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert found.end == datetime(2026, 1, 2, 4, 4, tzinfo=UTC)


def test_fields_of_the_request_are_not_of_the_body() -> None:
    form = sent_form(
        operation_named("run.cancel"),
        {"csrf_token": "t", "return_to": "/ui", "if_generation": '"g2"', "reason": "r"},
    )
    assert (form.csrf_token, form.return_to, form.generation) == ("t", "/ui", '"g2"')
    assert form.fields == {"reason": "r"}


@pytest.mark.parametrize("place", ["//evil.test", "https://evil.test", "/\\evil.test", "", "/é", "/a\r\nb"])
def test_a_form_leads_to_no_other_site(place: str) -> None:
    with pytest.raises(HttpError, match="not a path of this server"):
        sent_form(operation_named("run.cancel"), {"return_to": place})
