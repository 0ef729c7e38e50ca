"""Completion policies of maps: how many items must succeed, and the result type."""

from typing import Any

import pytest

from holdfast.kernel.authoring import (
    AtLeast,
    ItemFailure,
    PartialResults,
    Pipeline,
    TolerateFailures,
    each,
    stage,
)
from holdfast.kernel.pipelines.plan import Enough, MapPlan, StagePlan, plan_from_json
from holdfast.kernel.values import decode, encode
from holdfast.ports.errors import DefinitionError


@stage
def listed(text: str) -> list[str]:
    return text.split()


@stage
def size(word: str) -> int:
    return len(word)


@stage
def total(sizes: PartialResults[int]) -> int:
    return sum(sizes.results)


words = Pipeline("p", input=str).pipe(listed)


@pytest.mark.parametrize(
    ("policy", "enough"),
    [
        (AtLeast(3), Enough(at_least=3)),
        (TolerateFailures(), Enough()),
        (TolerateFailures(count=2), Enough(tolerated=2)),
        (TolerateFailures(share=0.25), Enough(share=0.25)),
        (TolerateFailures(count=2, share=1), Enough(tolerated=2, share=1.0)),
    ],
)
def test_the_plan_says_what_is_enough(policy: AtLeast | TolerateFailures, enough: Enough) -> None:
    plan = words.map(size, limit=4, enough=policy).plan()

    assert plan.nodes["size"] == MapPlan(stage=StagePlan(name="size"), limit=4, enough=enough)
    assert plan_from_json(plan.to_json()) == plan
    assert plan.fingerprint != words.map(size, limit=4).plan().fingerprint


def test_what_goes_on_is_partial() -> None:
    assert words.map(size, enough=AtLeast(1)).output_type == PartialResults[int]
    assert words.pipe(each(size, over=listed, enough=AtLeast(1))).pipe(total).output_type is int


def test_it_is_not_the_list_that_a_map_without_losses_gives() -> None:
    with pytest.raises(DefinitionError, match="stage 'total' takes"):
        words.map(size).pipe(total)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_it_can_be_stored() -> None:
    part = PartialResults(results=(1, 2), failures=(ItemFailure(1, "no"),))

    assert decode(encode(part, PartialResults[int]), PartialResults[int]) == part


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "1", None])
def test_at_least_takes_a_number_of_items(count: Any) -> None:
    with pytest.raises(DefinitionError, match=r"AtLeast: count is .* at least 1"):
        AtLeast(count)


@pytest.mark.parametrize("count", [-1, 1.0, True, "1", None])
def test_tolerate_takes_a_number_of_items(count: Any) -> None:
    with pytest.raises(DefinitionError, match=r"TolerateFailures: count is .* at least 0"):
        TolerateFailures(count=count)


@pytest.mark.parametrize("share", [-0.1, 1.1, True, "1", None, float("nan"), float("inf")])
def test_tolerate_takes_a_share(share: Any) -> None:
    with pytest.raises(DefinitionError, match=r"TolerateFailures: share is .* from 0 to 1"):
        TolerateFailures(share=share)


@pytest.mark.parametrize("wrong", [3, 0, "all", AtLeast, False])
def test_what_is_no_policy_is_refused(wrong: Any) -> None:
    with pytest.raises(
        DefinitionError, match=r"each\(size\): enough is .*AtLeast\(\.\.\.\) or TolerateFailures"
    ):
        each(size, enough=wrong)
