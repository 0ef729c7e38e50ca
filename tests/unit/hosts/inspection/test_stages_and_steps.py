"""Stages and steps, as they are derived from history rows."""

from datetime import timedelta

import attrs

from holdfast.hosts.inspection import stages, steps
from holdfast.hosts.inspection.bounds import PREVIEW_MAX
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.steps import StepDetails, add_step
from holdfast.ports.clock import instant
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload

SECOND = 1_000_000


def row(number: int, type: str, value: object = None, **facts: object) -> HistoryRow:
    payload = None if value is None else Payload(inline=canonical(value))
    return HistoryRow(
        run="r",
        number=number,
        type=type,
        at=number * SECOND,
        node="bill",
        payload=payload,
        data=canonical(facts),
    )


def test_steps_are_in_the_order_of_their_latest_changes() -> None:
    found: dict[str, StepDetails] = {}
    error = {"type": "E", "message": "", "code": "body_error"}
    add_step(
        found, row(3, "step.retrying", call="1", step="x", attempt=1, started_at=1, retry_at=9, error=error)
    )
    add_step(found, row(4, "timer.fired", call="2"))
    add_step(found, row(5, "step.completed", 7, call="3", step="y", attempt=1, started_at=4 * SECOND))
    assert [(one.call, one.state, one.retry_at, one.error) for one in found.values()] == [
        ("1", "retrying", instant(9), "E"),
        ("3", "done", None, None),
    ]
    add_step(found, row(9, "step.completed", 8, call="1", step="x", attempt=2, started_at=8 * SECOND))
    timed = [steps.timed(one, instant(99 * SECOND)) for one in found.values()]
    assert [(one.call, one.state, one.attempts, one.duration) for one in timed] == [
        ("3", "done", 1, timedelta(seconds=1)),
        ("1", "done", 2, timedelta(seconds=9, microseconds=-1)),
    ]
    assert [(one.ended_at, one.first_row, one.row, one.retry_at) for one in timed] == [
        (instant(5 * SECOND), 5, 5, None),
        (instant(9 * SECOND), 3, 9, None),
    ]
    assert [one.result and one.result.value for one in timed] == [7, 8]


def test_the_arguments_of_a_step_in_a_queue_stay_with_it() -> None:
    found: dict[str, StepDetails] = {}
    queued = {"call": "1", "step": "x", "queue": "q", "job": 2, "attempt": 1, "max_attempts": 3}
    add_step(found, row(3, "step.queued", {"order": 7}, **queued))
    add_step(found, row(4, "step.completed", "done", call="1", step="x", attempt=1, started_at=4 * SECOND))
    add_step(found, row(5, "step.completed", 8, call="2", step="inline", attempt=1, started_at=5 * SECOND))
    assert [one.arguments and one.arguments.value for one in found.values()] == [{"order": 7}, None]


def test_an_open_step_lasts_until_now() -> None:
    found: dict[str, StepDetails] = {}
    add_step(found, row(3, "step.queued", call="1", step="x", queue="q", job=2, attempt=1, max_attempts=3))
    (step,) = (steps.timed(one, instant(10 * SECOND)) for one in found.values())
    assert (step.attempts, step.duration, step.ended_at) == (0, timedelta(seconds=7), None)


def test_a_long_result_is_shortened_and_gives_its_size() -> None:
    found: dict[str, StepDetails] = {}
    add_step(found, row(3, "step.completed", "x" * PREVIEW_MAX, call="1", step="x", attempt=1))
    result = found["1"].result
    assert result is not None
    assert (result.value, result.size, result.text) == (None, PREVIEW_MAX + 2, '"' + "x" * (PREVIEW_MAX - 1))


def test_a_stage_that_is_a_pipeline_takes_the_time_of_its_run() -> None:
    stage = StageDetails(name="child", mapped=False, state="sleeping")
    stage = stages.add_event(stage, row(10, "stage.started", run="child-1"))
    assert stages.timed(stage, instant(25 * SECOND)).duration == timedelta(seconds=15)

    stage = stages.add_event(stage, row(30, "stage.completed", "out", attempt=1, job=2, run="child-1"))
    stage = attrs.evolve(stage, state="done")
    assert stages.timed(stage, instant(99 * SECOND)).duration == timedelta(seconds=20)
    assert (stage.attempts, stage.result and stage.result.value) == (1, "out")
