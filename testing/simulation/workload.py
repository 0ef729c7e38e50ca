"""The random workload of a seed: workflows, actions of clients, sinks, and the sizes of the world."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, cast

import attrs

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.concurrency import Concurrency, FullName
from holdfast.kernel.authoring.options import Retry, StartOptions
from holdfast.kernel.history import events
from holdfast.ports.clock import instant
from holdfast.ports.records.run import Run, RunStatus
from holdfast.testing.simulation import client_calls, late_messages
from holdfast.testing.simulation.external_service import ExternalService
from holdfast.testing.simulation.fibers import START
from holdfast.testing.simulation.function_runs import FunctionWorkload, PlannedRun, draw_functions
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.programs import Program, draw_program
from holdfast.testing.simulation.scenarios import Scenario, Sizes

_SECOND: Final = 1_000_000
_RUNS: Final = (2, 3, 4, 5, 6)


def draw_workload(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    outside = ExternalService()
    leaf = draw_program(random, "leaf", outside, parts=2)
    programs = [
        draw_program(random, "one", outside, children=(leaf,)),
        draw_program(random, "two", outside, children=(leaf,)),
        draw_program(random, "two", outside, version="2", children=(leaf,)),
    ]
    known = {(one.workflow.name, one.workflow.version): one for one in (leaf, *programs)}
    workflows: list[WorkflowDefinition[object]] = [one.workflow for one in (leaf, *programs)]
    sinks = random.choice(((), ("audit",), ("audit", "mail")))
    deeds = [
        ClientAction(
            at=random.randrange(10) * _SECOND, what=f"register {name}", do=partial(_register, name=name)
        )
        for name in sinks
    ]
    keys = random.sample(("red", "blue"), random.randrange(3))
    of_children: list[ClientAction] = []
    for number in range(random.choice(_RUNS)):
        run = PlannedRun(
            id=f"run-{number if random.random() < 0.9 else 0}",
            program=random.choice(programs),
            number=random.randrange(1_000),
            at=random.randrange(15 * _SECOND),
        )
        deeds.append(_start(random, run, f"start {number}", keys))
        deeds += _later(random, run, f"run {number}")
        of_children += _to_children(run, leaf)
    deeds += _bulk(random)
    deeds.sort(key=lambda deed: deed.at)
    of_children.sort(key=lambda deed: deed.at)
    sizes = _draw_sizes(random)
    functions = draw_functions(random)  # last: so that it did not change the draws of old seeds
    sizes = attrs.evolve(sizes, function_cache=random.choice((0, 1, 2, 1_000)))
    known |= {(one.workflow.name, one.workflow.version): one for one in functions.programs}
    driven = functions.workflows
    clients = [deeds[::2], deeds[1::2], of_children, _to_functions(functions, keys)]
    scenario = Scenario(
        workflows=[*workflows, *driven],
        deploys=(
            [*workflows, *driven],
            [*workflows[:3], *driven],
            [workflows[0], *workflows[2:], *driven],
            workflows[:2],
            [*workflows[1:], *driven],
        ),
        clients=[client for client in clients if client],
        sinks=sinks,
        expected=partial(_wrong, known),
        missing=functions.missing,
        at_end=lambda tables: [
            *outside.wrong(tables),
            *functions.tally.wrong(tables),
            *client_calls.update_violations(tables),
            *late_messages.unread_message_violations(tables),
        ],
    )
    return scenario, sizes


def _draw_sizes(random: Random) -> Sizes:
    functions = random.choice((0, 0, 1, 2))
    return Sizes(
        workers=random.choice((1, 2, 3) if functions else (1, 2, 2, 3)),
        functions=functions,
        concurrency=random.choice((1, 2, 4, 10)),
        lease=random.choice((10.0, 15.0, 30.0)),
        poll_interval=random.choice((2.0, 5.0)),
        drain_grace=random.choice((1.0, 10.0)),
        tick_interval=random.choice((10.0, 20.0)),
        faults_for=random.choice((20.0, 40.0)),
        queues=random.choice(({"slow": 10}, {"slow": 1})),
    )


# What clients do ----------------------------------------------------------------------------------------------------


def _start(random: Random, run: PlannedRun, what: str, keys: Sequence[str]) -> ClientAction:
    options: StartOptions = {"id": run.id}
    chance = random.random
    if chance() < 0.7:
        options["idempotency_key"] = what
    else:
        options["if_exists"] = "return"
    if chance() < 0.25:
        options.pop("if_exists", None)
        options["if_active"] = random.choice(("error", "return", "terminate"))
        options["if_ended"] = random.choice(("error", "return", "rerun", "rerun_failed"))
    if keys and chance() < 0.5:
        key, limit = random.choice(keys), random.choice((1, 2))
        options["concurrency"] = _bounded(run, what, limit) or Concurrency(key, limit=limit)
    if chance() < 0.2:
        options["start_at"] = instant(START + run.at + random.randrange(-5, 15) * _SECOND)
    if chance() < 0.15:
        options["deadline"] = timedelta(seconds=random.choice((5, 20, 60)))
    if chance() < 0.2:
        options["priority"] = random.randrange(-3, 4)
    if chance() < 0.1:
        options["queue"] = "slow"
    if chance() < 0.2:
        options["annotations"] = {"by": "client"}
    if chance() < 0.2:
        options["attributes"] = {"colour": random.choice(("red", "blue"))}
    if chance() < 0.1 and run.program.nodes:
        node = run.program.workflow.bodies[run.program.nodes[0]]
        options["overrides"] = [cast("Any", node).options(retry=Retry(attempts=8))]
    return ClientAction(
        at=run.at,
        what=what,
        do=partial(_started, run=run, options=options),
        is_keyed="idempotency_key" in options,
    )


def _bounded(run: PlannedRun, what: str, limit: int) -> Concurrency | None:
    """Return a bounded limit for some of the starts with a key, drawn apart: old seeds keep their other draws."""
    random = Random(f"{what} {run.number}")
    if random.random() < 0.4:
        return None
    full: FullName = random.choice(("refuse", "return", "replace", "cancel", "terminate"))
    return Concurrency("bounded", limit=limit, waiting=random.choice((None, 1)), full=full)


def _started(engine: SyncEngine, run: PlannedRun, options: StartOptions) -> str:
    return engine.start(run.program.workflow(run.number), **options).id


def _later(random: Random, run: PlannedRun, what: str) -> list[ClientAction]:
    """Draw what clients do with a run after its start."""
    deeds: list[ClientAction] = []
    workflow = run.program.workflow
    nodes = (None, *run.program.nodes)
    verbs: Mapping[str, Callable[[SyncEngine], object]] = {
        "cancel": lambda engine: engine.handle(workflow, run.id).cancel(reason="on purpose").status,
        "terminate": lambda engine: engine.handle(workflow, run.id).terminate(reason="on purpose").status,
        "pause": lambda engine: engine.handle(workflow, run.id).pause().status,
        "resume": lambda engine: engine.handle(workflow, run.id).resume().status,
        "annotate": lambda engine: engine.handle(workflow, run.id).annotate({"at": "a time"}, key="k"),
        "look": lambda engine: engine.handle(workflow, run.id).why(),
    }
    for name in random.choices(tuple(verbs), weights=(2, 1, 3, 3, 2, 1), k=random.choice((0, 0, 1, 2, 3))):
        at = run.at + random.randrange(20 * _SECOND)
        deeds.append(ClientAction(at=at, what=f"{name} {what} at {at}", do=verbs[name]))
    if random.random() < 0.3:
        stage, at = random.choice(nodes), run.at + random.randrange(3, 30) * _SECOND
        deeds.append(
            ClientAction(at=at, what=f"rerun {what} at {at}", do=partial(_rerun, run=run, stage=stage))
        )
    if run.program.externals:
        at = run.at + random.randrange(15 * _SECOND)
        deeds.append(
            ClientAction(at=at, what=f"wake {what}", do=lambda engine: engine.wake(f"{run.id}/key").woken)
        )
        stage = random.choice(run.program.externals)
        deeds.append(
            ClientAction(
                at=at + 5 * _SECOND,
                what=f"wake stage of {what}",
                do=lambda engine: engine.handle(workflow, run.id).wake(stage).woken,
            )
        )
    return deeds


def _to_functions(functions: FunctionWorkload, keys: Sequence[str]) -> list[ClientAction]:
    """Draw what clients do with runs of durable functions: start, control, fork, and send messages."""
    deeds = list(functions.deeds)
    for number, run in enumerate(functions.runs):
        random = Random(f"{run.id}/{run.number}/{run.at}")
        deeds.append(_start(random, run, f"start function {number}", keys))
        deeds += _later(random, run, f"function {number}")
        deeds += _forking(run, f"function {number}")
        deeds += _cancelling_paused(run, f"function {number}")
    return sorted(deeds, key=lambda deed: deed.at)


_LAST_FORKS: Final = 0.4


def _forking(run: PlannedRun, what: str) -> list[ClientAction]:
    """Draw forks of a durable function from random history rows, while it runs and after its end."""
    random = Random(f"{run.id}/{run.number}/{run.at}/forks")  # a stream of its own, for old seeds
    deeds: list[ClientAction] = []
    for _ in range(random.choice((0, 1, 2, 4))):
        at, part = run.at + random.randrange(40 * _SECOND), random.choice((random.random(), None))
        deeds.append(ClientAction(at=at, what=f"fork {what} at {at}", do=partial(_fork, run=run, part=part)))
    later = Random(f"{run.id}/{run.number}/{run.at}/last fork")
    if later.random() < _LAST_FORKS:
        # Mostly the last action on the run, so that the function continues with what the fork kept.
        at = run.at + later.randrange(5 * _SECOND, 60 * _SECOND)
        deeds = [one for one in deeds if one.at < at]
        deeds.append(
            ClientAction(at=at, what=f"last fork {what} at {at}", do=partial(_fork, run=run, part=None))
        )
    return deeds


def _cancelling_paused(run: PlannedRun, what: str) -> list[ClientAction]:
    """Draw a pause of a function, and a cancel while it is paused."""
    random = Random(f"{run.id}/{run.number}/{run.at}/paused")  # a stream of its own, for old seeds
    if random.random() >= 0.25:
        return []
    at, workflow = run.at + random.randrange(2, 20) * _SECOND, run.program.workflow
    then = at + random.randrange(1, 4) * _SECOND
    return [
        ClientAction(
            at=at,
            what=f"pause {what} at {at}, to cancel it",
            do=lambda engine: engine.handle(workflow, run.id).pause().status,
        ),
        ClientAction(
            at=then,
            what=f"cancel {what} at {then}, paused",
            do=lambda engine: engine.handle(workflow, run.id).cancel(reason="on purpose").status,
        ),
    ]


def _fork(engine: SyncEngine, *, run: PlannedRun, part: float | None) -> object:
    """Fork a function at a fraction `part` of its history; None: after the start of its last child run, if any."""
    handle = engine.handle(run.program.workflow, run.id)
    started = (
        [] if part is not None else [row for row in handle.history() if row.type == events.ChildStarted.type]
    )
    last = handle.row().last_row
    row = min(started[-1].number + 1, last) if started else 1 + int((part or 0.0) * last)
    assert handle.preview_rerun(row=row).row == row
    return handle.rerun_from(row=row, reason="again").generation


def _to_children(run: PlannedRun, leaf: Program) -> list[ClientAction]:
    """Draw what clients do with the child runs of a run."""
    random = Random(f"{run.id}/{run.number}/{run.at}")  # a stream of its own, for old seeds
    verbs: Mapping[str, Callable[[SyncEngine, str], object]] = {
        "rerun": lambda engine, child: (
            engine.handle(leaf.workflow, child).rerun_from(reason="again").generation
        ),
        "cancel": lambda engine, child: (
            engine.handle(leaf.workflow, child).cancel(reason="on purpose").status
        ),
        "pause": lambda engine, child: engine.handle(leaf.workflow, child).pause().status,
    }
    deeds: list[ClientAction] = []
    for node in run.program.children:
        for name in random.choices(tuple(verbs), weights=(3, 1, 1), k=random.choice((0, 1, 2))):
            child = f"{run.id}/{node}" if random.random() < 0.5 else f"{run.id}/{node}/0"
            at = run.at + random.randrange(30 * _SECOND)
            deeds.append(
                ClientAction(
                    at=at, what=f"{name} {child} at {at}", do=partial(_of_child, do=verbs[name], child=child)
                )
            )
    return deeds


def _of_child(engine: SyncEngine, *, do: Callable[[SyncEngine, str], object], child: str) -> object:
    return do(engine, child)


def _rerun(engine: SyncEngine, run: PlannedRun, stage: str | None) -> object:
    return engine.handle(run.program.workflow, run.id).rerun_from(stage, reason="again").generation


def _bulk(random: Random) -> list[ClientAction]:
    deeds: list[ClientAction] = []
    verbs: Mapping[str, Callable[[SyncEngine], object]] = {
        "pause all": lambda engine: engine.pause_all(attributes={"colour": "red"}).changed,
        "resume all": lambda engine: engine.resume_all().changed,
        "cancel all": lambda engine: engine.cancel_all(attributes={"colour": "blue"}).changed,
        "rerun all": lambda engine: engine.rerun_all(limit=3).changed,
        "replay": lambda engine: engine.replay_dead_letters(
            sink="audit", skip=True, reason="it is of no use"
        ),
        "count": lambda engine: engine.count(),
        "list": lambda engine: [one.status for one in engine.runs()],
    }
    for name in random.sample(tuple(verbs), random.randrange(4)):
        at = random.randrange(5, 40) * _SECOND
        deeds.append(ClientAction(at=at, what=f"{name} at {at}", do=verbs[name]))
    return deeds


def _register(engine: SyncEngine, name: str) -> str:
    return engine.register_sink(name).name


# What must come of it -----------------------------------------------------------------------------------------------


def _wrong(
    known: Mapping[tuple[str, str], Program], run: Run, input_value: object, output: object
) -> str | None:
    """Return what is wrong with a run's output for this input; None if nothing is."""
    assert run.status is RunStatus.COMPLETED
    program = known[run.workflow, run.version]
    named = (
        cast("dict[str, object]", input_value) if isinstance(input_value, dict) else {"number": input_value}
    )
    number = named.get("number")  # the input of a durable function holds its arguments by name
    if not isinstance(number, int):
        return f"expected an integer as input, got {input_value!r}"
    expected = program.model(number)
    return (
        None
        if expected in (None, output)
        else f"for input {input_value} the expected result is {expected}, got {output}"
    )
