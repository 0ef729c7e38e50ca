"""Attributes that workflows take from inputs: which values can be one, and how they join those of starts."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.pipelines.input_attributes import InputAttribute, attributes_in, joined_attributes
from holdfast.kernel.pipelines.plan import plan_from_json
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.json import canonical
from tests.unit.kernel.world import child, pipeline, stage

TENANT = InputAttribute("tenant", "order.customer.tenant")


def taken(data: object) -> dict[str, str]:
    return attributes_in(canonical(data), [TENANT], "w")


def order(customer: object) -> dict[str, object]:
    return {"order": {"customer": customer}}


@pytest.mark.parametrize(
    ("value", "text"),
    [("acme", "acme"), ("", ""), (7, "7"), (1.5, "1.5"), (True, "true"), (10**30, str(10**30))],
)
def test_a_text_a_number_or_a_boolean_is_an_attribute(value: object, text: str) -> None:
    assert taken(order({"tenant": value})) == {"tenant": text}


@pytest.mark.parametrize("data", [order({"tenant": None}), order({}), order(None), {"order": {}}, {}])
def test_what_is_missing_or_null_is_no_attribute(data: object) -> None:
    assert taken(data) == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (order({"tenant": ["a"]}), "must be a text, a number or a boolean; it is a list"),
        (order({"tenant": {}}), "must be a text, a number or a boolean; it is an object"),
        (order({"tenant": "x" * 1_001}), "has 1,001 characters; at most 1,000"),
        (order({"tenant": "caf\udce9"}), "has half of a surrogate pair"),
        (order("acme"), "needs an object with the field 'tenant'; it is a text"),
        (order(5), "needs an object with the field 'tenant'; it is a number"),
        (["a"], "needs an object with the field 'order'; it is a list"),
    ],
)
def test_other_values_are_refused(data: object, why: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"w: the attribute 'tenant' comes from {TENANT.path!r}.*{why}"
    ):
        taken(data)


@pytest.mark.parametrize(
    ("inherited", "found", "given", "joined"),
    [
        (None, {}, None, None),
        ('{"p":"1"}', {}, None, None),  # the kernel gives it those of its parent
        (None, {}, {"g": "3"}, {"g": "3"}),
        ('{"p":"1"}', {}, {}, {}),
        ('{"p":"1","t":"1"}', {"t": "2"}, None, {"p": "1", "t": "2"}),
        ('{"p":"1"}', {"t": "2"}, {}, {"t": "2"}),
        ('{"p":"1"}', {"t": "2", "u": "2"}, {"t": "3"}, {"t": "3", "u": "2"}),
    ],
)
def test_those_of_the_start_come_first_and_those_of_the_parent_last(
    inherited: str | None, found: dict[str, str], given: dict[str, str] | None, joined: dict[str, str] | None
) -> None:
    assert joined_attributes(inherited, found, given) == (None if joined is None else canonical(joined))


def test_a_plan_keeps_them_and_plans_without_them_keep_their_fingerprint() -> None:
    plain = pipeline(stage("a"), child("b"))
    assert "attributes_from" not in plain.to_json()

    plan: Any = attrs.evolve(plain, attributes_from=(TENANT,))
    assert plan_from_json(plan.to_json()) == plan
    assert plan.fingerprint != plain.fingerprint
