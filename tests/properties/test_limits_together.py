"""Nested limits, rates, bounds, turns and gathered starts under random events: nothing is left for maintenance.

After each event, what follows is carried out as a host does, and what is due begins. Maintenance then finds nothing
that may begin, or go on to its next line. After each command, `World` checks the invariants, such as that no level is
over its limit.
"""

import random
from typing import Any, Final

import attrs
import pytest

from holdfast.kernel.commands import (
    Command,
    LimitClear,
    LimitSet,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunPause,
    RunRerunFrom,
    RunResume,
    RunTerminate,
    admissions,
    follow_up_of,
)
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import ConcurrencyPlan, OuterLevel, OverRate, RunRatePlan, WhenFull
from holdfast.ports.records.run import TERMINAL
from tests.sizes import sized
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, stage

MINUTE: Final = 60 * SECOND
WITHIN: Final = (OuterLevel(key="all", limit=4), OuterLevel(by="tenant", limit=3))
OF_USER: Final = ConcurrencyPlan(by="user", limit=2, within=WITHIN)
OF_ITEM: Final = ConcurrencyPlan(by="item", limit=1, within=WITHIN)  # all runs of a key have the same limit
RATE: Final = RunRatePlan(limit=4, period=MINUTE, by="tenant", name="r")
GATHER: Final = GatherPlan(within_us=30 * SECOND, quiet_us=10 * SECOND, most=3, keep="last", by="tenant")
LIMITS: Final = (
    "run:all",
    "run:all :: tenant/x",
    "run:all :: tenant/x :: user/u",
    "run:all :: tenant/y :: item/v",
    "run-rate:r",
    "run-rate:r/x",
)
EVENTS: Final = (
    *("start",) * 6,
    *("wait", "work") * 2,
    "stop",
    "stop",
    "pause",
    "resume",
    "rerun",
    "set",
    "clear",
)


def _plan(name: str, **options: Any) -> Plan:
    return attrs.evolve(pipeline(stage("a"), workflow=name), **options)


PLANS: Final = (
    _plan("slots", concurrency=OF_USER),
    _plan("rate", rate=RATE, fair="tenant"),
    _plan("both", concurrency=OF_USER, rate=RATE),
    _plan("newest", concurrency=attrs.evolve(OF_ITEM, full=WhenFull.REPLACE, waiting=1), rate=RATE),
    _plan(
        "refused",
        concurrency=attrs.evolve(OF_ITEM, full=WhenFull.TERMINATE),
        rate=attrs.evolve(RATE, over=OverRate.REFUSE),
    ),
    _plan("gather both", concurrency=OF_USER, rate=RATE, gather=GATHER, fair="tenant"),
    _plan("gather rate", rate=RATE, gather=attrs.evolve(GATHER, quiet_us=None, most=2, by="user")),
)


class _Events:
    """A world and its random events."""

    def __init__(self, seed: int) -> None:
        self.world = World(*PLANS)
        self._random = random.Random(seed)
        self._session = self.world.open(lease=10**6 * MINUTE)
        self._number = 0

    def happen(self) -> None:
        """Let one event happen, with all that follows from it."""
        self.world.wait(self._random.choice([0, 0.1, 1]))
        for command in self._commands(self._random.choice(EVENTS)):
            self._do(command)
        self._do(RunClaimPending(due=True))

    def _do(self, command: Command[Any]) -> None:
        (reply,) = self.world.send(command)
        if isinstance(reply, CommandError):
            return
        follow_up = follow_up_of([reply])
        while commands := admissions("default", follow_up):
            follow_up = follow_up_of([self.world.do(one) for one in commands])

    def _commands(self, event: str) -> list[Command[Any]]:
        choose = self._random.choice
        runs = sorted(self.world.tables().runs.values(), key=lambda run: run.key)
        named = [run.id for run in runs if event == "rerun" or run.status not in TERMINAL] or ["none"]
        match event:
            case "start":
                return [self._start()]
            case "wait":
                self.world.wait(choose([5, 15, 40, 61]))
                return []
            case "work":
                return [completing(one) for one in self.world.claim(self._session, limit=choose([1, 2]))]
            case "stop":
                return [choose([RunCancel, RunTerminate])(run_id=choose(named))]
            case "set":
                name = choose(LIMITS)
                if name.startswith("run-rate"):
                    return [LimitSet(name=name, rate_limit=choose([1, 2, 8]), rate_period=MINUTE)]
                return [LimitSet(name=name, slots=choose([0, 1, 2, 6]))]
            case "clear":
                return [LimitClear(name=choose(LIMITS))]
            case _:
                kind = {"pause": RunPause, "resume": RunResume, "rerun": RunRerunFrom}[event]
                return [kind(run_id=choose(named))]

    def _start(self) -> RunCreate:
        plan, chance, choose = self._random.choice(PLANS), self._random.random, self._random.choice
        texts = {"tenant": choose("xy")}
        if chance() < 0.85:
            texts |= dict.fromkeys(("user", "item"), choose("uv"))
        self._number += 1
        return RunCreate(
            workflow=plan.workflow,
            id=None if plan.gather else f"r{self._number}",
            input=payload(0),
            attributes=canonical(texts),
            units=choose([1, 2, 4]) if plan.rate and chance() < 0.4 else None,
            start_at=self.world.now + choose([5, 20]) * SECOND
            if not plan.gather and chance() < 0.15
            else None,
            priority=choose([-1, 1, 5]) if chance() < 0.3 else None,
        )


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("seed", range(sized(3, 24)))
def test_nothing_that_may_begin_is_left_for_maintenance(seed: int) -> None:
    events = _Events(seed)
    for _ in range(sized(40, 100)):
        events.happen()
        before = events.world.tables().runs
        events.world.do(RunClaimPending())
        assert events.world.tables().runs == before
