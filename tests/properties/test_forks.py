"""Random forks: each ends as the run did and as its preview says."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.commands import RunRerun
from holdfast.kernel.invariants import check
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.errors import HoldfastError, RerunRefusedError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from holdfast.testing import World, replay
from holdfast.testing.snapshots import snapshot_of
from tests.unit.kernel.functions.corpus import CORPUS

R = TypeVar("R")

NOT_ALIKE = {"clocks", "drawn", "cancelled_inside", "first_of", "group_fails", "rescheduled", "waited_for"}
"""Functions that tell the time, draw, or ask for timers whose time has passed when they are run again."""
CALLS = [one for one in CORPUS if one.definition.name not in NOT_ALIKE]
_POINTS = st.lists(st.floats(0, 1), min_size=1, max_size=4)


def ended(run: SyncRunHandle[Any]) -> tuple[str, object]:
    try:
        return "completed", run.result()
    except HoldfastError as error:
        return type(error).__name__, str(error)


def steps(rows: tuple[HistoryRow, ...]) -> list[str]:
    """The calls of steps that were over, in order, but for those that take others back."""
    ends = (row for row in rows if row.type in ("step.completed", "step.failed"))
    calls = (parse(row.data or "{}") for row in ends)
    return list(dict.fromkeys(one["call"] for one in calls if not one["call"].startswith("undo.")))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(call=st.sampled_from(CALLS), points=_POINTS)
def test_a_fork_of_forks_ends_as_it_did(call: Call[Any], points: list[float]) -> None:
    with World() as world:
        run = world.start(call, id="x")
        usual = ended(run)
        for point in points:
            before = run.export_history()
            row = 1 + int(point * len(before.rows))
            preview, answer = plan_or_refusal(run.preview_rerun, row), plan_or_refusal(run.rerun_from, row)
            if isinstance(answer, RerunRefusedError):
                assert str(preview) == str(answer)
                event("a fork was refused")
                continue
            assert isinstance(preview, RerunPreview)
            assert isinstance(answer, RunRerun)
            assert (preview.generation, preview.row, preview.stage, preview.terminates) == (
                answer.generation,
                answer.row,
                answer.stage,
                answer.terminated,
            )
            kept, left = steps(before.rows[: row - 1]), steps(before.rows)
            assert len(preview.keeps) == len(kept)
            assert len(preview.runs) >= len(left) - len(kept)  # some never came to anything
            assert ended(run) == usual
            after = run.export_history()
            assert after.rows[: row - 1] == before.rows[: row - 1]
            assert steps(after.rows) == steps(before.rows)
            event(f"it kept rows of {len(world.store.dump().runs[run.row().key].kept_rows)} generations")
            if run.info().status is RunStatus.COMPLETED:
                assert replay(after, call.definition).as_recorded
        assert check(snapshot_of(world.store)) == []


def plan_or_refusal(ask: Callable[..., R], row: int) -> R | RerunRefusedError:
    try:
        return ask(row=row)
    except RerunRefusedError as error:
        return error
