"""Rates of starts under random events: never exceeded, in order, and every run begins.

After each command, `World` checks that no period has more units than the limit (F8), and the order of a line (F9).
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Command,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunRerunFrom,
    RunResume,
    admissions,
    follow_up_of,
)
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import OverRate, RunRatePlan
from holdfast.ports.records.run import TERMINAL, RunStatus
from tests.sizes import sized
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, stage

_VERBS = (
    "start",
    "start",
    "start",
    "start",
    "wait",
    "wait",
    "due",
    "all",
    "end",
    "cancel",
    "pause",
    "resume",
    "rerun",
)
_STEPS = st.lists(st.tuples(st.sampled_from(_VERBS), st.integers(0, 10**6)), min_size=10, max_size=50)


class _Rated:
    """A world with one workflow, whose starts have rates of different costs, keys and refusals."""

    def __init__(self, limit: int, period: int, follows: bool) -> None:
        self.world = World(pipeline(stage("a")))
        self.limit, self.period, self.follows = limit, period, follows
        self.session = self.world.open(lease=10**6 * SECOND)
        self.runs = 0

    def do(self, verb: str, number: int) -> None:
        run = f"r{number % max(1, self.runs)}"
        match verb:
            case "start":
                self._start(number)
            case "wait":
                self.world.wait(number % 17 * self.period / SECOND / 16)
            case "due":
                self._send(RunClaimPending(due=True))
            case "all":
                self._send(RunClaimPending())
            case "end":
                self._send(*(completing(one) for one in self.world.claim(self.session, limit=1 + number % 3)))
            case "cancel" | "pause" | "resume" | "rerun":
                kind = {"cancel": RunCancel, "pause": RunPause, "resume": RunResume, "rerun": RunRerunFrom}
                self._send(kind[verb](run_id=run))
            case _:
                raise AssertionError(verb)

    def _start(self, number: int) -> None:
        rate = RunRatePlan(
            limit=self.limit,
            period=self.period,
            by="tenant",
            over=OverRate.REFUSE if number % 5 == 0 else OverRate.WAIT,
        )
        command = RunCreate(
            workflow="w",
            id=f"r{self.runs}",
            input=payload(0),
            attributes=canonical({"tenant": "ab"[number % 2]}),
            priority=number % 3,
            rate=rate,
            units=1 + number % min(self.limit, 4),
            concurrency_key="k" if number % 7 == 0 else None,
            start_at=self.world.now + self.period // 2 if number % 11 == 0 else None,
        )
        self.runs += 1
        self._send(command)

    def _send(self, *commands: Command[Any]) -> None:
        answers: list[object] = list(self.world.send(*commands))
        while self.follows and (more := admissions("default", follow_up_of(answers))):
            answers = list(self.world.send(*more))

    def drain(self) -> None:
        """Do what maintenance and a worker do, until nothing waits."""
        for number in range(self.runs):
            self.world.send(RunResume(run_id=f"r{number}"))
        for _ in range(40 * (self.runs + 1)):
            self._send(RunClaimPending())
            self._send(*(completing(one) for one in self.world.claim(self.session)))
            if all(run.status in TERMINAL for run in self.world.tables().runs.values()):
                return
            self.world.wait(self.period / SECOND / 2)


@pytest.mark.slow
@pytest.mark.sized
@settings(max_examples=sized(15, 150), deadline=None)
@given(
    limit=st.sampled_from([1, 2, 4, 101]),
    period=st.sampled_from([SECOND, 60 * SECOND]),
    follows=st.booleans(),
    steps=_STEPS,
)
def test_no_period_has_more_units_than_the_limit_and_all_runs_begin(
    limit: int, period: int, follows: bool, steps: list[tuple[str, int]]
) -> None:
    rated = _Rated(limit, period, follows)
    for verb, number in steps:
        rated.do(verb, number)
    rated.drain()
    # The instant for a run that was cancelled meanwhile stays until it passes: it is at most a period ahead.
    rated.world.wait(period / SECOND)
    tables = rated.world.tables()
    assert {run.status for run in tables.runs.values()} <= {RunStatus.COMPLETED, RunStatus.CANCELLED}
    assert all(
        window.admits_at is None or window.admits_at <= rated.world.now for window in tables.rates.values()
    )
