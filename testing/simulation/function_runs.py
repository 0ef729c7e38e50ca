"""Random durable functions of a seed, the runs that clients start of them, and the messages that they send."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Final, cast

import attrs

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.history import events
from holdfast.ports.errors import GiveUp, StepResultError
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.run import ACTIVE, Run, RunStatus
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.client_calls import update_deeds
from holdfast.testing.simulation.functions import GO, draw_function
from holdfast.testing.simulation.late_messages import draw_box
from holdfast.testing.simulation.poison import draw_poison
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.programs import Program, mixed
from holdfast.testing.simulation.side_effects import SideEffects
from holdfast.testing.simulation.step_behaviour import PATIENT

_SECOND: Final = 1_000_000
_YEARS: Final = timedelta(days=900)
_SHARE: Final = 0.5
"""The share of seeds that have durable functions."""
_POISONED: Final = 0.4
"""The share of those seeds that have a function with a poison step."""
_BOXES: Final = 0.5
"""The share of those seeds that have a function which receives late messages."""


@attrs.frozen(kw_only=True)
class PlannedRun:
    """A run that a client starts, `at` microseconds after the beginning."""

    id: str
    program: Program
    number: int
    at: int


@attrs.frozen(kw_only=True)
class FunctionWorkload:
    """The durable functions of a seed and the actions of their clients.

    Attributes:
        programs: The functions that end without intervention, with their expected results.
        runs: The runs that clients start.
        deeds: Other actions of clients: they send messages, and start and end a function that sleeps for years.
        workflows: The definitions of all functions.
        tally: The side effects of the functions.
    """

    programs: Sequence[Program] = ()
    runs: Sequence[PlannedRun] = ()
    deeds: Sequence[ClientAction] = ()
    workflows: Sequence[WorkflowDefinition[object]] = ()
    tally: SideEffects = attrs.field(factory=SideEffects)

    def missing(self, tables: Tables) -> list[Callable[[SyncEngine], object]]:
        """Return calls that send the messages for which runs still wait, one for each run.

        Only sleeping functions get one: otherwise no function would ever be woken by a message.
        """
        programs = {one.workflow.name: one for one in self.programs if one.receives}
        return [
            partial(_sent, program=programs[run.workflow], run=run)
            for run in tables.runs.values()
            if run.status in ACTIVE
            and run.status is not RunStatus.PENDING
            and run.workflow in programs
            and _messages(tables, run) < programs[run.workflow].receives
            and _is_sleeping(tables, run)
        ]


def draw_functions(random: Random) -> FunctionWorkload:
    """Draw the durable functions of a seed and the actions of their clients; half of the seeds have none."""
    if random.random() >= _SHARE:
        return FunctionWorkload()
    tally = SideEffects()
    beside = Random()  # a second stream: draws that were added later do not change those of old seeds
    beside.setstate(random.getstate())
    errand = _draw_errand(beside, "errand")
    box = draw_box(Random(beside.random())) if beside.random() < _BOXES else None
    programs = [draw_function(random, name, tally, errand) for name in ("first", "second")]
    sleeper = _draw_sleeper(random, "sleeper")
    runs = [
        PlannedRun(
            id=f"function-{number}",
            program=random.choice(programs),
            number=random.randrange(1_000),
            at=random.randrange(15 * _SECOND),
        )
        for number in range(random.choice((1, 2, 3)))
    ]
    deeds = [deed for run in runs for deed in _sending(random, run)]
    if beside.random() < _POISONED:
        programs.append(draw_poison(beside, "poisoned"))
        runs += [
            PlannedRun(
                id=f"poisoned-{number}",
                program=programs[-1],
                number=beside.randrange(1_000),
                at=beside.randrange(8 * _SECOND),
            )
            for number in range(beside.choice((1, 1, 2)))
        ]
    for run in runs:
        if run.program.takes_updates:
            deeds += update_deeds(cast("Workflow[[int], int]", run.program.workflow), run.id, run.at)
    if random.random() < 0.3:
        deeds += _sleeping(random, sleeper)
    workflows: list[WorkflowDefinition[object]] = [
        *(one.workflow for one in programs),
        sleeper,
        errand.workflow,
    ]
    programs.append(errand)
    if box is not None:
        programs.append(box[0])
        workflows.append(box[0].workflow)
        deeds += box[1]
    return FunctionWorkload(programs=programs, runs=runs, deeds=deeds, workflows=workflows, tally=tally)


def _draw_errand(draw: Random, name: str) -> Program:
    """Draw the function that others start as a child run. It sleeps, for some draws long enough to leave its slot."""
    seconds, salt = draw.choice((0.0, 0.5, 3.0, 9.0)), draw.randrange(1_000)

    @workflow(name=name)
    async def errand(number: int) -> int:
        before = await _nothing(number)
        await sleep(seconds)
        return mixed(salt, await _nothing(before))

    return Program(workflow=errand, model=lambda number: mixed(salt, number), nodes=())


def _sending(random: Random, run: PlannedRun) -> list[ClientAction]:
    """Draw the times at which messages are sent to a run: some before its start, some more than it receives."""
    workflow = run.program.workflow
    times = sorted(
        run.at + random.randrange(-_SECOND, 30 * _SECOND) for _ in range(random.choice((0, 1, 2, 3)))
    )
    if times and random.random() < 0.5:  # a burst: the next message arrives while the function goes to sleep
        times += [times[-1] + random.randrange(_SECOND // 5) for _ in range(random.randrange(1, 5))]
    return [
        ClientAction(
            at=max(0, at),
            what=f"send {run.id} {number}",
            do=lambda engine, number=number: (  # type: ignore[misc]
                engine.handle(workflow, run.id)
                .signal(GO(number), idempotency_key=f"{run.id}/{number}")
                .number
            ),
            is_keyed=True,
        )
        for number, at in enumerate(times)
    ]


def _sleeping(random: Random, sleeper: Workflow[[int], int]) -> list[ClientAction]:
    """Return the start of a run that sleeps for years, and its cancel or terminate."""
    at, ends = random.randrange(10 * _SECOND), random.choice(("cancel", "terminate"))
    wait = random.randrange(20 * _SECOND)
    if wait % 3 == 0:  # while the function goes to sleep
        wait %= _SECOND // 2

    def end(engine: SyncEngine) -> object:
        handle = engine.handle(sleeper, "sleeping")
        return (handle.cancel(reason="enough") if ends == "cancel" else handle.terminate()).status

    return [
        ClientAction(
            at=at,
            what="start sleeping",
            do=lambda engine: engine.start(sleeper(1), id="sleeping", if_exists="return").id,
        ),
        ClientAction(at=at + wait, what=f"{ends} sleeping", do=end),
    ]


def _draw_sleeper(draw: Random, name: str) -> Workflow[[int], int]:
    """Draw a function that sleeps for years."""
    early = draw.random() < 0.5

    @workflow(name=name)
    async def sleeper(number: int) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleep(_YEARS))
            if early:
                group.create_task(_in_vain(number))
        return number

    return sleeper


async def _in_vain(number: int) -> None:
    """Call a step and ignore a refused result: a run that failed could be rerun, and sleep for years again."""
    with suppress(StepResultError):
        await _nothing(number)


@step(retry=PATIENT)
async def _nothing(number: int) -> int:
    if number < 0:
        raise GiveUp("it is negative")
    return number


def _sent(engine: SyncEngine, *, program: Program, run: Run) -> object:
    return (
        engine.handle(program.workflow, run.id)
        .signal(GO(0), idempotency_key=f"{run.key}/{run.last_row}")
        .number
    )


def _is_sleeping(tables: Tables, run: Run) -> bool:
    jobs = tables.jobs.get(run.key, {}).values()
    return any(job.kind is JobKind.WORKFLOW and job.state is JobState.SLEEPING for job in jobs)


def _messages(tables: Tables, run: Run) -> int:
    return sum(row.type == events.SignalReceived.type for row in tables.whole_history(run))
