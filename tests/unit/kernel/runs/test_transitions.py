"""The allowed transitions of statuses: every pair."""

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import attrs
import pytest

from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.transitions import (
    JOB_TRANSITIONS,
    RUN_TRANSITIONS,
    SESSION_TRANSITIONS,
    STREAM_TRANSITIONS,
    State,
    Transitions,
)
from holdfast.ports.records.job import JobState
from holdfast.ports.records.outbox import StreamState
from holdfast.ports.records.run import ACTIVE, TERMINAL, Run, RunStatus
from holdfast.ports.records.session import SessionState
from tests.unit.kernel.world import World, pipeline, stage

LEGAL = {
    "pending": "running paused blocked failed cancelled",
    "running": "paused blocked cancelling completed failed cancelled",
    "paused": "pending running blocked cancelling completed failed cancelled",
    "blocked": "pending running cancelling completed failed cancelled",
    "cancelling": "blocked completed failed cancelled",
    "completed": "",
    "failed": "",
    "cancelled": "",
}
PAIRS = list(product(RunStatus, RunStatus))
ILLEGAL = [(a, b) for a, b in PAIRS if a != b and b not in LEGAL[a].split()]


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in ILLEGAL])
def test_a_legal_step_is_taken(before: RunStatus, after: RunStatus) -> None:
    assert RUN_TRANSITIONS.check(before, after) is after


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_an_illegal_step_is_a_bug(before: RunStatus, after: RunStatus) -> None:
    with pytest.raises(AssertionError, match=f"from {before} to {after}"):
        RUN_TRANSITIONS.check(before, after)


def test_the_table_knows_every_status() -> None:
    assert _as_text(RUN_TRANSITIONS) == LEGAL
    assert len(ILLEGAL) == 8 * 7 - sum(len(after.split()) for after in LEGAL.values())


def test_a_status_is_active_or_terminal_and_the_terminal_ones_absorb() -> None:
    assert set(RunStatus) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL
    assert {status for status, after in RUN_TRANSITIONS.following.items() if not after} == TERMINAL


def test_every_active_run_can_be_ended() -> None:
    assert all(RunStatus.CANCELLED in RUN_TRANSITIONS.following[status] for status in ACTIVE)


def test_every_active_run_can_be_blocked() -> None:
    """`BlockRun` doesn't ask for the status before."""
    others = ACTIVE - {RunStatus.BLOCKED}
    assert all(RunStatus.BLOCKED in RUN_TRANSITIONS.following[status] for status in others)


KERNEL = Path(__file__).parents[4] / "kernel"
JOBS = {
    "queued": "leased limited paused",
    "leased": "queued sleeping limited paused",
    "sleeping": "queued limited paused",
    "limited": "queued sleeping paused",
    "paused": "queued sleeping limited",
    "pending_delivery": "",
}


def test_the_other_tables_are_these() -> None:
    assert _as_text(JOB_TRANSITIONS) == JOBS
    assert _as_text(SESSION_TRANSITIONS) == {"open": "dead", "dead": ""}
    assert _as_text(STREAM_TRANSITIONS) == {"ready": "dead_lettered", "dead_lettered": "ready"}


@pytest.mark.parametrize(("before", "after"), list(product(JobState, JobState)))
def test_a_job_takes_no_other_step(before: JobState, after: JobState) -> None:
    if before is after or after.value in JOBS[before].split():
        assert JOB_TRANSITIONS.check(before, after) is after
    else:
        with pytest.raises(AssertionError, match=f"a job went from {before} to {after}"):
            JOB_TRANSITIONS.check(before, after)


def test_a_dead_session_stays_dead() -> None:
    with pytest.raises(AssertionError, match="a session went from dead to open"):
        SESSION_TRANSITIONS.check(SessionState.DEAD, SessionState.OPEN)


def test_every_table_says_what_each_state_means() -> None:
    assert set(RUN_TRANSITIONS.states) == set(RUN_TRANSITIONS.following) == set(RunStatus)
    assert set(JOB_TRANSITIONS.states) == set(JOB_TRANSITIONS.following) == set(JobState)
    assert set(SESSION_TRANSITIONS.states) == set(SESSION_TRANSITIONS.following) == set(SessionState)
    assert set(STREAM_TRANSITIONS.states) == set(STREAM_TRANSITIONS.following) == set(StreamState)


@pytest.mark.slow
def test_no_rule_writes_a_state_without_asking_its_table() -> None:
    found = [
        f"{path.name}:{line}"
        for path in sorted(KERNEL.rglob("*.py"))
        for line in _written_unasked(ast.parse(path.read_text()))
    ]

    # New rows: a run that gathers, the next generation of a run, and a poll. And a
    # `RunDraft` stores the status that it has asked about.
    new = ["continue_as_new.py", "gathered_starts.py", "reruns.py", "builder.py"]
    assert [place.partition(":")[0] for place in found] == [*new, "builder.py"], found


def _written_unasked(tree: ast.Module) -> Iterator[int]:
    """Yield the lines in which a record gets a state that `check` has not returned."""
    asked = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_check(node.value)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _COPIES.search(ast.unparse(node.func)):
            continue
        for one in node.keywords:
            is_state = one.arg in ("state", "status")
            if is_state and not _is_check(one.value) and ast.unparse(one.value) not in asked:
                yield one.value.lineno


_COPIES: Final = re.compile(r"evolve$|\b_changed_\w+$")
"""The functions that copy a record with changes: `evolve`, and those that `changer` returns."""


def _is_check(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):  # a damaged job may be in any state
        return ast.unparse(value.test) == "is_damaged" and _is_check(value.orelse)
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("_TRANSITIONS.check")


def _as_text(table: Transitions[State]) -> dict[str, str]:
    return {before.value: " ".join(after) for before, after in table.following.items()}


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
