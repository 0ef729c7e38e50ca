"""`Concurrency`: its defaults, and what it refuses."""

from typing import Any

import pytest

from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.calendars.specs import Every
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.records.limits import ConcurrencyPlan, OuterLevel, WhenFull


@stage
def one(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("full", "waiting"),
    [("wait", None), ("refuse", 0), ("return", 0), ("replace", 1), ("cancel", 0), ("terminate", 0)],
)
def test_how_many_may_wait_by_default(full: Any, waiting: int | None) -> None:
    assert Concurrency("k", full=full).plan.waiting == waiting
    if waiting is not None:
        assert Concurrency("k", full=full, waiting=7).plan.waiting == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either a key"),
        ({"key": "k", "by": "tenant"}, "either a key"),
        ({"key": ""}, "key is ''; it must be a string of 1 to 256 characters"),
        ({"key": "k" * 257}, "1 to 256 characters"),
        ({"key": 5}, "key is 5"),
        ({"by": ""}, "by is ''; it must be the name of an attribute"),
        ({"key": "k", "limit": 0}, "limit is 0; it must be an integer from 1"),
        ({"key": "k", "limit": True}, "limit is True"),
        ({"key": "k", "waiting": -1, "full": "refuse"}, "waiting is -1"),
        ({"key": "k", "waiting": 3}, "any number of runs may wait; leave it out"),
        ({"key": "k", "waiting": 0, "full": "replace"}, "write waiting=1"),
        ({"key": "k", "full": "skip"}, "full is 'skip'; it must be 'wait', 'refuse'"),
        ({"key": "k", "full": []}, "full is"),
        ({"key": "a :: b"}, "contains ' :: ', which separates limits within each other"),
        ({"key": "k", "within": 5}, r"within is 5; it must be a Concurrency\(\.\.\.\)"),
        ({"key": "k", "within": Concurrency("o", full="refuse")}, "'refuse' in a limit around another one"),
        ({"key": "k", "within": Concurrency("k", limit=2)}, "have the same key or attribute"),
        ({"by": "b", "within": Concurrency(by="b", limit=2)}, "have the same key or attribute"),
        (
            {"key": "k" * 129, "within": Concurrency("o")},
            "within another one has 1 to 128 characters, not 129",
        ),
        (
            {"key": "k", "within": Concurrency("a", within=Concurrency("b", within=Concurrency("c")))},
            "4 limits are within each other; at most 3",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Concurrency(**given)


def test_functions_and_pipelines_have_it_in_their_plans() -> None:
    limit = Concurrency(by="tenant", limit=2, full="cancel")

    @workflow(concurrency=limit)
    async def export() -> None: ...

    expected = ConcurrencyPlan(by="tenant", limit=2, waiting=0, full=WhenFull.CANCEL)
    assert export.plan().concurrency == expected
    assert Pipeline("p", input=int, concurrency=limit).pipe(one).plan().concurrency == expected
    assert Pipeline("p", input=int).pipe(one).plan().concurrency is None


def test_limits_around_it_are_in_the_plan_from_the_outermost_on() -> None:
    tenant = Concurrency(by="tenant", limit=10, within=Concurrency("all", limit=100))
    plan = Concurrency(by="user", limit=2, within=tenant, full="refuse").plan
    assert plan.within == (OuterLevel(key="all", limit=100), OuterLevel(by="tenant", limit=10))
    assert (plan.by, plan.limit, plan.waiting, plan.full) == ("user", 2, 0, WhenFull.REFUSE)


@pytest.mark.parametrize("given", [5, "k"])
def test_other_values_are_refused_as_options(given: Any) -> None:
    with pytest.raises(DefinitionError, match=r"concurrency is .*; it must be a Concurrency\(\.\.\.\)"):
        Pipeline("p", input=int, concurrency=given)
    call = Pipeline("p", input=int).pipe(one)(1)
    with pytest.raises(InvalidArgumentError, match=r"concurrency is .*; it must be a Concurrency\(\.\.\.\)"):
        Schedule("s", call, when=Every(60), concurrency=given)
