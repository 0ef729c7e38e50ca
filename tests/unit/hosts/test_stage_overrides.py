"""Stage overrides for one run: valid ones are part of the start, others are refused there."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.options import Rate, Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import StageOverride
from holdfast.kernel.pipelines.plan import RetryPolicy
from holdfast.ports.errors import InvalidOverrideError
from tests.unit.hosts.attempt_harness import Bench, value


@attrs.frozen
class Depth:
    levels: int = 3


class BusyError(Exception):
    pass


@stage(retry=Retry(attempts=4, by_error={BusyError: Retry(attempts=9)}))
def dig(ctx: StageContext[Depth], x: int) -> int:
    return x + ctx.config.levels


@stage
def fill(x: int) -> int:
    return x


@stage(name="fill")
def other_fill(x: int) -> int:
    return x


PIPELINE = Pipeline("w", input=int, timeout=timedelta(minutes=1), queue="main").pipe(dig).pipe(fill)


def overrides(*stages: Any) -> tuple[StageOverride, ...]:
    return Bench(PIPELINE).client.create(PIPELINE(1), {"overrides": stages}).overrides


@pytest.mark.anyio
async def test_the_config_of_one_run_is_what_its_bodies_get() -> None:
    bench = Bench(PIPELINE)
    bench.engine.sync.start(PIPELINE(1), id="x", overrides=[dig.configure(Depth(40))])
    bench.engine.sync.start(PIPELINE(1), id="y")
    gave = {body.work.run.id: value(await bench.run(body)) for body in bench.prepare()}

    assert gave == {"x": 41, "y": 4}


def test_only_what_differs_is_said() -> None:
    assert overrides() == ()
    assert overrides(dig, fill) == ()
    assert overrides(fill.options(queue="main", timeout=timedelta(minutes=1))) == ()
    assert overrides(dig.configure(Depth(3))) == ()
    assert overrides(fill.options(queue="gpu", priority=2), dig.configure(Depth(1))) == (
        StageOverride(stage="fill", queue="gpu", priority=2),
        StageOverride(stage="dig", config='{"levels":1}'),
    )
    assert overrides(
        fill.options(timeout_total=timedelta(seconds=9), heartbeat_timeout=timedelta(seconds=5))
    ) == (StageOverride(stage="fill", timeout_total_us=9_000_000, heartbeat_timeout_us=5_000_000),)


def test_what_a_stage_does_not_say_is_as_the_pipeline_has_it() -> None:
    gpu = Pipeline("w", input=int).pipe(dig.configure(Depth(7)).options(queue="gpu"))
    command = Bench(gpu).client.create(gpu(1), {"overrides": [dig.options(priority=1)]})

    assert command.overrides == (StageOverride(stage="dig", priority=1),)


def test_how_patient_a_run_is_can_be_said() -> None:
    patient = Retry(attempts=50, by_error={BusyError: Retry(attempts=60)})
    (said,) = overrides(dig.options(retry=patient))

    assert said.retry == RetryPolicy(attempts=50)
    assert [(rule.error, rule.policy.attempts) for rule in said.retry_rules or ()] == [("BusyError", 60)]
    (plain,) = overrides(dig.options(retry=Retry(attempts=50)))
    assert (plain.retry, plain.retry_rules) == (RetryPolicy(attempts=50), ())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (other_fill, "differs from the stage of this name"),
        (fill.options(name="pour"), "'pour' is not in 'w'; it has dig, fill"),
        (dig.options(max_concurrency=3), "can't change max_concurrency for one run: all runs share it"),
        (dig.options(rate_limit=Rate(1, per=60)), "can't change rate_limit for one run: all runs share it"),
        (dig.options(retry=Retry(give_up_on=(KeyError,))), "can't change give_up_on for one run"),
        (
            dig.options(retry=Retry(by_error={KeyError: Retry()})),
            "has rules for KeyError in by_error that it lacks",
        ),
    ],
)
def test_what_can_not_be_said_of_one_run_is_refused(changed: Any, reason: str) -> None:
    with pytest.raises(InvalidOverrideError, match=reason):
        overrides(changed)


def test_a_stage_is_given_once() -> None:
    with pytest.raises(InvalidOverrideError, match="is repeated"):
        overrides(fill.options(queue="a"), fill.options(priority=1))


@pytest.mark.parametrize("thing", [each(fill), "fill", None])
def test_only_stages_are_overrides(thing: Any) -> None:
    with pytest.raises(TypeError, match="overrides are stages"):
        overrides(thing)


@pytest.mark.slow
def test_a_host_keeps_no_plan_of_every_run() -> None:
    bench = Bench(PIPELINE)
    for number in range(600):
        bench.engine.sync.start(PIPELINE(1), overrides=[dig.configure(Depth(number))])
    for attempt in bench.claim():
        bench.prepare([attempt])

    assert len(bench.core.inputs._plans) <= 512  # pyright: ignore[reportPrivateUsage]
