"""Functions of all shapes whose worker is lost at every point: same results and recorded calls."""

import asyncio
import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.functions.machine import in_memory
from holdfast.kernel.functions.protocol import Cancelling, FunctionEvent
from holdfast.ports.errors import RunCancelledError
from holdfast.ports.json import parse
from holdfast.ports.records.run import TERMINAL
from holdfast.testing import Effects, Stubs
from holdfast.testing.simulation.faults import WRITTEN, FaultKind, Faults, FaultSchedule, FiredFault
from holdfast.testing.simulation.fibers import START
from holdfast.testing.trials import RUN_ID, SimulatedCluster, SimulationInput, Trial
from holdfast.testing.verdicts import is_excused, problems
from tests.sizes import sized
from tests.unit.kernel.functions.corpus import CORPUS, WHEN_CANCELLED, WHEN_SENT, double, words
from tests.virtual_time import Again, tell


@workflow
async def pair(role: str = "parent") -> list[str]:
    """Tells what it has started, which is of its own kind, for a simulation has the code of the call alone."""
    if role == "hears":
        return [await words.receive() for _ in range(3)]
    if role == "sleeps":
        await sleep(timedelta(days=300))
    hearing, sleeping = await start_child(pair("hears")), await start_child(pair("sleeps"))
    await hearing.signal(words("one"))
    await asyncio.gather(hearing.signal(words("two")), sleeping.cancel(reason="enough"))
    await double(1)
    await hearing.signal(words("three"))
    with suppress(RunCancelledError):
        await sleeping.result()
    return await hearing.result()


LEASE, BOUND = 1.0, 400 * 86_400.0
ALL: list[tuple[Call[Any], Sequence[tuple[float, FunctionEvent]]]] = [
    *((call, ()) for call in CORPUS),
    (pair(), ()),
    *((call, ((5.0, Cancelling(reason="enough")),)) for call in WHEN_CANCELLED),
    *WHEN_SENT,
]


class CrashAt(Faults):
    """Ends the process that comes to one point, and nothing else goes wrong. `among` says which points count."""

    def __init__(self, at: int, *, after_commits: bool) -> None:
        super().__init__({}, FaultSchedule(), START)
        self.met = 0
        self._at = at
        self._after_commits = after_commits

    @override
    def next(
        self, process: str, point: int, random: Random, among: Sequence[FaultKind], now: int
    ) -> FaultKind | None:
        random.random()
        counts = among is WRITTEN if self._after_commits else FaultKind.CRASH in among
        self.met += counts
        if not counts or self.met != self._at:
            return None
        self.fired.append(FiredFault(process, point, FaultKind.CRASH))
        return FaultKind.CRASH


def played(
    call: Call[Any], told: Sequence[tuple[float, FunctionEvent | Again]], faults: Faults
) -> tuple[Trial, Stubs]:
    kept: list[Stubs] = []
    meanwhile = {timedelta(seconds=at): partial(_send, one) for at, one in told}
    subject = SimulationInput(calls=[call], meanwhile=meanwhile, stubs=kept.append, effects=Effects())
    trial = SimulatedCluster(1, subject, faults, lease=LEASE, bound=BOUND).run()
    return trial, kept[0]


def _send(event: FunctionEvent | Again, runs: Sequence[SyncRunHandle[Any]]) -> None:
    tell(runs[0], event)


def results(trial: Trial) -> dict[str, tuple[str, object]]:
    """What is recorded of each call in the end."""
    found: dict[str, tuple[str, object]] = {}
    generation = 0
    for row in trial.rows[RUN_ID]:
        generation += row.number == 1
        if row.type in ("step.completed", "step.failed", "timer.fired"):
            call = f"{generation}/{parse(row.data or '{}')['call']}"
            assert call not in found, f"call {call} has two ends"
            found[call] = (row.type, row.payload)
    return found


def crashed_everywhere(
    call: Call[Any],
    told: Sequence[tuple[float, FunctionEvent]],
    *,
    after_commits: bool,
    first: int = 1,
    every: int = 1,
) -> tuple[int, int]:
    """Return at how many points the worker was lost, and in how many of them it ended the same, to the last call."""
    is_of_time = call.definition.name == "clocks"
    none = CrashAt(0, after_commits=after_commits)
    usual, _ = played(call, told, none)
    assert usual.started[0].status in TERMINAL, usual.lines
    alike = 0
    points = range(first, none.met + 1, every)
    for at in points:
        trial, _ = played(call, told, CrashAt(at, after_commits=after_commits))
        # What comes from outside comes when it comes, so that who was lost meanwhile may end otherwise.
        same: Callable[[Any], object] | None = None
        if told or is_of_time:
            same = _ids if is_of_time else _nothing
        wrong = problems(trial, usual, same)
        if told:
            wrong = [one for one in wrong if "ended" not in one]
        if call.definition.name in MAY_END_OTHERWISE:
            wrong = [one for one in wrong if "did not end" not in one]
        assert not wrong, (at, wrong, trial.lines)
        if told or is_excused(trial, usual):
            continue
        is_alike = results(trial) == results(usual)
        assert is_alike or call.definition.name in MAY_END_OTHERWISE, (at, trial.lines)
        alike += is_alike
    return len(points), alike


def _nothing(_: object) -> None:
    return None


def _ids(result: list[str]) -> list[str]:
    return result[3:]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    caplog.set_level(logging.CRITICAL, "holdfast")
    before = in_memory()
    yield
    assert in_memory() <= before, "a function is left in memory"


def test_the_corpus_is_large() -> None:
    assert len(ALL) >= 50


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("number", range(len(ALL)), ids=[call.definition.name for call, _ in ALL])
def test_a_worker_that_is_lost_after_a_commit_changes_nothing(number: int) -> None:
    """Of the commits of each function, some; the slow tests do points between them, too."""
    call, told = ALL[number]
    points, alike = crashed_everywhere(
        call, told, after_commits=True, first=1 + number % 3, every=sized(9, 3)
    )
    assert points
    assert told or alike


MAY_END_OTHERWISE = {
    "cancelled_inside": "whether a step or a timer comes first depends on how late it is",
    "receiver_is_cancelled": "a message that comes while its worker is lost is taken by the first receiver",
    "saga_of_a_journey": "a step whose last try is lost may have happened, and blocks what can't do without its result",
}
"""Functions that a loss in the middle of a step may lead elsewhere, and why that is right."""
POINTS = [number for number, (call, _) in enumerate(ALL) if call.definition.name not in MAY_END_OTHERWISE]
EVERY = 1 if os.environ.get("HOLDFAST_CHAOS") == "full" else 4
"""Of the points between commits the full form, as in `make chaos`, tries all."""


@pytest.mark.slow
@pytest.mark.parametrize("number", POINTS, ids=[ALL[number][0].definition.name for number in POINTS])
def test_a_worker_that_is_lost_at_any_point_changes_nothing(number: int) -> None:
    call, told = ALL[number]
    points, alike = crashed_everywhere(call, told, after_commits=False, first=1 + number % EVERY, every=EVERY)
    assert points
    assert told or alike
