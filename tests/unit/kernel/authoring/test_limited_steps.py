"""Options of queued steps: priority, concurrency limit, rate limit."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import Rate, step
from holdfast.ports.errors import DefinitionError

MINUTELY = Rate(60, per=timedelta(minutes=1))


def embed(text: str) -> int:
    return len(text)


def test_a_step_of_a_queue_has_what_is_said_of_it() -> None:
    made = step(queue="gpu", priority=3, max_concurrency=2, rate_limit=MINUTELY)(embed)
    assert (made.queue, made.priority, made.max_concurrency, made.rate_limit) == ("gpu", 3, 2, MINUTELY)


def test_a_preset_says_it_of_many() -> None:
    model = step(queue="model", rate_limit=MINUTELY)
    assert model(embed).rate_limit is MINUTELY
    assert model(max_concurrency=2)(embed).max_concurrency == 2


@pytest.mark.parametrize("option", ["priority", "max_concurrency", "rate_limit"])
def test_a_step_without_a_queue_has_none_of_it(option: str) -> None:
    options: dict[str, Any] = {option: MINUTELY if option == "rate_limit" else 2}
    with pytest.raises(DefinitionError, match=rf"step 'embed' has {option} but no queue.*set queue="):
        step(**options)(embed)
    with pytest.raises(DefinitionError, match=rf"has {option} but no queue"):
        step(embed).options(**options)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: step(queue="gpu", max_concurrency=0), "max_concurrency is 0; it must be an integer from 1"),
        (lambda: step(queue="gpu", priority=1_000_000), "priority is 1000000; it must be an integer from -"),
        (lambda: step(queue="gpu", rate_limit=cast("Any", 60)), "rate_limit is 60; it must be a Rate"),
        (
            lambda: step(
                queue="gpu", max_concurrency=1, rate_limit=Rate(1, per=timedelta(seconds=1), name="n")
            )(embed),
            "step 'embed' has max_concurrency and a rate limit with name or by",
        ),
    ],
)
def test_what_can_not_be_is_refused(make: Callable[[], object], wanted: str) -> None:
    with pytest.raises(DefinitionError, match=wanted):
        make()
