"""The random workload of runs under limits within each other and rates of starts, with operators who change limits."""

from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

import attrs

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import Rate, StartOptions
from holdfast.kernel.pipelines.plan import stage_of
from holdfast.ports.clock import instant
from holdfast.testing.simulation.fibers import START
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.workload import draw_workload

_SECOND: Final = 1_000_000
_CHANGED_UNTIL: Final = 30
"""Seconds after the start until which operators change limits."""
_CLEARED_AT: Final = (35, 38)
"""When everything is cleared: nothing must wait after that."""

_TEAMS: Final = ("a", "b")


def draw_changed_limits(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    scenario, sizes = draw_workload(random)
    actions = [_action(random, number) for number in range(random.choice((4, 8, 16)))]
    actions.sort(key=lambda action: action.at)
    actions += [
        ClientAction(at=at * _SECOND, what=f"clear all limits at {at}", do=_clear_all) for at in _CLEARED_AT
    ]
    nested = [_nested_start(random, number, scenario) for number in range(random.choice((0, 3, 6)))]
    nested.sort(key=lambda action: action.at)
    rated = _rated_starts(random, scenario.workflows)
    clients = [*scenario.clients, actions, nested, rated]
    return attrs.evolve(scenario, clients=[client for client in clients if client]), sizes


def _nested_start(random: Random, number: int, scenario: Scenario) -> ClientAction:
    """Draw a start under two or three limits. The outermost key is also that of other runs."""
    outer = Concurrency(random.choice(("red", "blue")), limit=random.choice((1, 2, 3)))
    if random.random() < 0.7:
        outer = Concurrency(by="team", limit=random.choice((1, 2)), within=outer)
    attributes = {"team": random.choice(_TEAMS), "user": random.choice(("x", "y"))}
    do = partial(
        _start_nested,
        call=cast("Any", random.choice(scenario.workflows[:3]))(random.randrange(1_000)),
        id=f"nested-{number}",
        limit=Concurrency(by="user", limit=random.choice((1, 1, 2)), within=outer),
        attributes={name: text for name, text in attributes.items() if random.random() < 0.9},
    )
    return ClientAction(at=random.randrange(20) * _SECOND, what=f"nested start {number}", do=do)


def _start_nested(
    engine: SyncEngine, call: Call[object], id: str, limit: Concurrency, attributes: dict[str, str]
) -> str:
    started = engine.start(call, id=id, if_exists="return", concurrency=limit, attributes=attributes)
    return started.id


_RATES: Final = ("fixed", "changed")
"""The names of rates of starts: operators change only the second one, so that the first is held to its numbers."""


def _rated_starts(random: Random, workflows: Sequence[WorkflowDefinition[object]]) -> list[ClientAction]:
    """Draw starts under rates of starts: of different costs, some with a key, a later start or a refusal."""
    programs = [one for one in workflows if not isinstance(one, Workflow)]
    per = random.choice((1, 3, 6))
    actions: list[ClientAction] = []
    for number in range(random.choice((0, 6, 12, 24)) if programs else 0):
        at = random.randrange(5) * _SECOND
        name = random.choice(_RATES)
        rate = Rate(
            4,
            per=per,
            name=name,
            by="colour" if name == "changed" else None,
            over=random.choice(("wait", "wait", "wait", "refuse")),
        )
        options: StartOptions = {"id": f"rated-{number}", "if_exists": "return", "rate": rate}
        options["units"] = random.choice((1, 1, 2, 4))
        options["attributes"] = {"colour": random.choice(("red", "blue"))}
        options["priority"] = random.choice((0, 0, 1, -1))
        if random.random() < 0.3:
            options["concurrency"] = Concurrency("rated", limit=random.choice((1, 2)))
        if random.random() < 0.2:
            options["start_at"] = instant(START + at + 2 * _SECOND)
        workflow = random.choice(programs)
        do = partial(_start, workflow=workflow, options=options)
        actions.append(ClientAction(at=at, what=f"rated start {number}", do=do))
        if random.random() < 0.2:
            stop = partial(_stop, workflow=workflow, run=f"rated-{number}", seed=number)
            later = at + random.randrange(6) * _SECOND
            actions.append(ClientAction(at=later, what=f"stop rated {number}", do=stop))
    return sorted(actions, key=lambda action: action.at)


def _start(engine: SyncEngine, workflow: WorkflowDefinition[object], options: StartOptions) -> object:
    return engine.start(cast("Any", workflow)(0), **options).id


def _stop(engine: SyncEngine, workflow: WorkflowDefinition[object], run: str, seed: int) -> object:
    """Cancel a run, wherever it waits, or run it again."""
    handle = engine.handle(cast("Any", workflow), run)
    return handle.cancel(reason="on purpose").status if seed % 2 else handle.rerun_from().generation


def _action(random: Random, number: int) -> ClientAction:
    do = partial(_change, seed=random.randrange(1_000_000))
    return ClientAction(at=random.randrange(_CHANGED_UNTIL) * _SECOND, what=f"limit {number}", do=do)


def _change(engine: SyncEngine, seed: int) -> object:
    """Set or clear one limit of those that there are, or pause or unpause a queue."""
    random = Random(seed)  # a simulation is a function of its seed
    limits = engine.limits
    name = random.choice([*_names(engine)])
    if random.random() < 0.2:
        return limits.clear(name).is_set
    kind = name.partition(":")[0]
    if kind == "queue":
        return limits.set(name, paused=random.random() < 0.6, reason="on purpose").is_set
    if kind in ("rate", "run-rate"):
        return limits.set(name, rate=Rate(random.choice((1, 3, 20)), per=random.choice((1, 5)))).is_set
    return limits.set(name, slots=random.choice((0, 1, 1, 2, 5))).is_set


def _names(engine: SyncEngine) -> Iterator[str]:
    yield from ("queue:default", "queue:default", "queue:slow", "run:red", "run:blue")
    yield from (f"run:{key} :: team/{team}" for key in ("red", "blue") for team in _TEAMS)
    yield "run:red :: team/a :: user/x"
    yield from ("run-rate:changed", "run:rated")
    for plan in engine.core.registry.plans:
        for name, node in sorted(plan.nodes.items()):
            stage = stage_of(node)
            if stage.max_concurrency is not None:
                yield f"stage:{plan.workflow}/{name}"
            if stage.rate is not None and stage.rate.name is not None:
                yield f"rate:{stage.rate.name}"


def _clear_all(engine: SyncEngine) -> object:
    limits = engine.limits
    return [limits.clear(one.name).name for one in limits.list() if one.is_set]
