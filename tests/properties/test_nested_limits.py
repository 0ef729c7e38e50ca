"""Random starts, ends and changed limits of nested keys, against a model that goes through the line from the front."""

from typing import Final

import attrs
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.kernel.commands import (
    FollowUp,
    LimitClear,
    LimitSet,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunResume,
    RunTerminate,
)
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import ConcurrencyPlan, OuterLevel, levels_of
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from tests.sizes import sized
from tests.unit.kernel.world import World, payload, pipeline, stage

LIMITS: Final = {"all": 4, "tenant": 3, "user": 2}
PLAN = attrs.evolve(
    pipeline(stage("a")),
    concurrency=ConcurrencyPlan(
        by="user",
        limit=LIMITS["user"],
        within=(OuterLevel(key="all", limit=LIMITS["all"]), OuterLevel(by="tenant", limit=LIMITS["tenant"])),
    ),
)
_TEXT = st.sampled_from(["a", "a", "b", "b ", None])
_LEVELS = st.sampled_from(
    ["all", "all :: tenant/a", "all :: tenant/b", "all :: tenant/a :: user/a", "all :: user/b"]
)


def planned(level: str) -> int:
    """Return the limit of a level in the plan."""
    return LIMITS[level.rpartition(" :: ")[2].partition("/")[0]]


class Nested(RuleBasedStateMachine):
    """The kernel, with each follow-up carried out at once, beside the set of runs that ought to be under way."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(PLAN)
        self.number = 0
        self.changed: dict[str, int] = {}
        self.expected: set[str] = set()

    @rule(tenant=_TEXT, user=_TEXT, priority=st.integers(0, 1), batch=st.integers(1, 3))
    def start(self, tenant: str | None, user: str | None, priority: int, batch: int) -> None:
        """Start several runs in one batch."""
        self.world.wait(1)
        texts = {name: text for name, text in (("tenant", tenant), ("user", user)) if text is not None}
        commands = [
            RunCreate(
                workflow="w",
                id=f"r{self.number + place:03}",
                input=payload(0),
                priority=priority,
                attributes=canonical(texts),
            )
            for place in range(batch)
        ]
        self.number += batch
        for reply in self.world.send(*commands):
            self._admit(reply)

    @rule(which=st.integers(0, 9))
    def end(self, which: int) -> None:
        """Terminate a run."""
        self._do_with(which, RunTerminate, {*RunStatus} - TERMINAL)

    @rule(which=st.integers(0, 9))
    def pause(self, which: int) -> None:
        """Pause a run: one that waits leaves the line, and one under way keeps its slots."""
        self._do_with(which, RunPause, {RunStatus.PENDING, RunStatus.RUNNING})

    @rule(which=st.integers(0, 9))
    def resume(self, which: int) -> None:
        """Resume a paused run."""
        self._do_with(which, RunResume, {RunStatus.PAUSED})

    @rule(level=_LEVELS, slots=st.integers(0, 5))
    def change(self, level: str, slots: int) -> None:
        """Change the limit of a level."""
        self.changed[level] = slots
        self._admit(self.world.do(LimitSet(name=f"run:{level}", slots=slots)))

    @rule(level=_LEVELS)
    def clear(self, level: str) -> None:
        """Go back to the limit of the plan."""
        self.changed.pop(level, None)
        self._admit(self.world.do(LimitClear(name=f"run:{level}")))

    @invariant()
    def same(self) -> None:
        """Those are under way that the model has let in, and the store holds the same."""
        assert {run.key for run in self._runs() if run.has_slot} == self.expected

    def _do_with(
        self, which: int, command: type[RunTerminate | RunPause | RunResume], of: set[RunStatus]
    ) -> None:
        runs = [run for run in self._runs() if run.status in of]
        if runs:
            self._admit(self.world.do(command(run_id=runs[which % len(runs)].id)))

    def _admit(self, reply: object) -> None:
        """Carry out a follow-up, and let in the model's runs: whoever has room at every level, from the front on."""
        before = self.expected
        self.expected = {run.key for run in self._runs() if run.key in self.expected}
        used: dict[str, int] = {}
        for run in self._runs():
            if run.key in self.expected:
                for level in levels_of(run.concurrency_key or ""):
                    used[level] = used.get(level, 0) + 1
        waiting = [run for run in self._runs() if run.status is RunStatus.PENDING]
        for run in sorted(waiting, key=lambda run: (run.queue_position, run.key)):
            levels = levels_of(run.concurrency_key or "")
            if all(used.get(level, 0) < self.changed.get(level, planned(level)) for level in levels):
                self.expected.add(run.key)
                used.update((level, used.get(level, 0) + 1) for level in levels)
        if self.expected - before:
            event("one is let in")
        follow_up = getattr(reply, "follow_up", FollowUp())
        if follow_up.runs:
            self.world.do(RunClaimPending(keys=follow_up.runs))

    def _runs(self) -> list[Run]:
        runs = self.world.tables().runs.values()
        return sorted((run for run in runs if run.status not in TERMINAL), key=lambda run: run.key)


@pytest.mark.slow
@pytest.mark.sized
def test_those_are_under_way_that_have_room_at_every_level() -> None:
    run_state_machine_as_test(
        Nested,
        settings=settings(
            max_examples=sized(20, 100),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
