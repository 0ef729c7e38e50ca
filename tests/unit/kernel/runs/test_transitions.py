"""The allowed transitions of statuses: every pair."""

from itertools import product

import attrs
import pytest

from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.transitions import RUN_TRANSITIONS, check_transition
from holdfast.ports.records.run import ACTIVE, TERMINAL, Run, RunStatus
from tests.unit.kernel.world import World, pipeline, stage

LEGAL = {
    "pending": "running paused blocked cancelling failed cancelled",
    "running": "paused blocked cancelling completed failed cancelled",
    "paused": "pending running blocked cancelling completed failed cancelled",
    "blocked": "pending running paused cancelling failed cancelled",
    "cancelling": "blocked completed failed cancelled",
    "completed": "",
    "failed": "",
    "cancelled": "",
}
PAIRS = list(product(RunStatus, RunStatus))
ILLEGAL = [(a, b) for a, b in PAIRS if a != b and b not in LEGAL[a].split()]


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in ILLEGAL])
def test_a_legal_step_is_taken(before: RunStatus, after: RunStatus) -> None:
    assert check_transition(before, after) is after


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_an_illegal_step_is_a_bug(before: RunStatus, after: RunStatus) -> None:
    with pytest.raises(AssertionError, match=f"from {before} to {after}"):
        check_transition(before, after)


def test_the_table_knows_every_status() -> None:
    assert RUN_TRANSITIONS.keys() == set(RunStatus)
    assert len(ILLEGAL) == 8 * 7 - sum(len(after.split()) for after in LEGAL.values())


def test_a_status_is_active_or_terminal_and_the_terminal_ones_absorb() -> None:
    assert set(RunStatus) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL
    assert {status for status, after in RUN_TRANSITIONS.items() if not after} == TERMINAL


def test_every_active_run_can_be_ended() -> None:
    assert all(RunStatus.CANCELLED in RUN_TRANSITIONS[status] for status in ACTIVE)


def test_every_active_run_can_be_blocked() -> None:
    """`BlockRun` doesn't ask for the status before."""
    others = ACTIVE - {RunStatus.BLOCKED}
    assert all(RunStatus.BLOCKED in RUN_TRANSITIONS[status] for status in others)


def _run() -> Run:
    world = World(pipeline(stage("a")))
    world.create()
    return world.run()


@pytest.mark.parametrize(("before", "after"), [(a, b) for a, b in ILLEGAL if b in TERMINAL], ids=str)
def test_a_run_is_never_ended_against_the_table(before: RunStatus, after: RunStatus) -> None:
    draft = RunDraft(attrs.evolve(_run(), status=before), 1)
    with pytest.raises(AssertionError):
        draft.end(after, cancels={})

    assert draft.status is before
