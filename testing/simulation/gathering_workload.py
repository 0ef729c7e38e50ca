"""The random workload of gathered starts: debounce and batches, while runs are cancelled, paused and run again."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, cast

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.gather import Gather
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.history import events
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.ports.references import leaves, located
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes

_SECOND: Final = 1_000_000
_COLOURS: Final = ("red", "blue")


@workflow(gather=Gather(by="colour", quiet=3, within=12))
async def newest(number: int) -> int:
    """Return the last number."""
    await sleep(timedelta(seconds=number % 3))
    return number


@workflow(gather=Gather(by="colour", quiet=4, within=10, keep="first"))
async def oldest(number: int) -> int:
    """Return the first number."""
    await sleep(timedelta(seconds=number % 3))
    return number


@workflow(gather=Gather(within=8, most=4, keep="all", split=True))
async def together(numbers: list[int]) -> list[int]:
    """Return all numbers."""
    await sleep(timedelta(seconds=len(numbers) % 3))
    return numbers


_WORKFLOWS: Final[Sequence[Workflow[..., Any]]] = (newest, oldest, together)


class _Accepted:
    """The accepted starts by their numbers: the workflow and the run of each reply."""

    def __init__(self) -> None:
        self.runs: dict[int, tuple[Workflow[..., Any], str]] = {}

    def start(
        self, engine: SyncEngine, started: Workflow[..., Any], number: int, options: StartOptions
    ) -> str:
        call = together([number]) if started is together else started(number)
        run = engine.start(call, **options).id
        self.runs[number] = (started, run)
        return run

    def act(self, engine: SyncEngine, which: float, what: str) -> object:
        """Do something with the run of one of the starts so far, if there is any."""
        if not self.runs:
            return None
        runs = sorted(self.runs.items())
        started, run = runs[int(which * len(runs))][1]
        handle = engine.handle(started, run)
        match what:
            case "cancel":
                return handle.cancel(reason="on purpose").status
            case "pause":
                return handle.pause().status
            case "resume":
                return engine.resume_all().changed
            case "rerun":
                return handle.rerun_from(reason="again").generation
            case _:
                return [reason.code for reason in handle.why()]

    def wrong(self, tables: Tables) -> Sequence[str]:
        """Return what is wrong: each accepted start is in exactly one run, and each run gets what it gathered."""
        found: dict[int, list[str]] = {}
        wrong: list[str] = []
        for run in tables.runs.values():
            first = next(one for one in tables.runs.values() if one.name == run.name and one.generation == 1)
            gathered = [
                number
                for row in tables.history[first.key]
                if row.type in (events.RunCreated.type, events.RunGathered.type)
                for number in _numbers(row)
            ]
            if run is first:
                for number in gathered:
                    found.setdefault(number, []).append(run.id)
            wanted = {"newest": gathered[-1:], "oldest": gathered[:1]}.get(run.workflow, gathered)
            if _input(tables, run) != wanted:
                wrong.append(f"F4: run {run.key} gets {_input(tables, run)}, and gathered {wanted}")
        for number, (_, answered) in self.runs.items():
            if found.get(number) != [answered]:
                wrong.append(f"F4: start {number} joined run {answered}, and is in {found.get(number)}")
        wrong += [f"F4: start {number} is in {runs}" for number, runs in found.items() if len(runs) > 1]
        return wrong


def _numbers(row: HistoryRow) -> list[int]:
    assert row.payload is not None
    (value,) = cast("dict[str, int | list[int]]", parse(row.payload.inline or "")).values()
    return value if isinstance(value, list) else [value]


def _input(tables: Tables, run: Run) -> list[int]:
    rows = {(row.run, row.number): row for rows in tables.history.values() for row in rows}
    places = (located(run.key, leaf) for leaf in leaves(run.input))
    return [number for key, row in places for number in _numbers(rows[key, cast("int", row)])]


def draw_gathering(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    accepted = _Accepted()
    actions: list[ClientAction] = []
    for number in range(random.choice((10, 30, 60))):
        started = random.choice(_WORKFLOWS)
        options: StartOptions = {"idempotency_key": f"start {number}"}
        if random.random() < 0.7:
            options["attributes"] = {"colour": random.choice(_COLOURS)}
        if random.random() < 0.15:
            options["concurrency"] = Concurrency(started.name)
        if random.random() < 0.1:
            options["deadline"] = timedelta(seconds=random.choice((20, 60)))
        actions.append(
            ClientAction(
                at=random.randrange(40 * _SECOND),
                what=f"start {number}",
                do=partial(accepted.start, started=started, number=number, options=options),
                is_keyed=True,
            )
        )
    for number in range(random.choice((0, 2, 6))):
        what = random.choice(("cancel", "pause", "rerun", "look"))
        at = random.randrange(2 * _SECOND, 45 * _SECOND)
        act: Callable[[SyncEngine], object] = partial(accepted.act, which=random.random(), what=what)
        actions.append(ClientAction(at=at, what=f"{what} {number}", do=act))
    resume: Callable[[SyncEngine], object] = partial(accepted.act, which=0.0, what="resume")
    actions.sort(key=lambda action: action.at)
    clients = [actions[start::3] for start in range(3)]
    # Whoever paused, all of them resume: a pause may be late.
    for index, deeds in enumerate(clients):
        deeds.append(ClientAction(at=60 * _SECOND, what=f"resume {index}", do=resume))
    scenario = Scenario(workflows=_WORKFLOWS, clients=clients, expected=_expected, at_end=accepted.wrong)
    sizes = Sizes(
        workers=random.choice((1, 2, 3)),
        functions=random.choice((0, 0, 1)),
        concurrency=random.choice((1, 4)),
        lease=random.choice((10.0, 15.0)),
        poll_interval=random.choice((1.0, 2.0)),
        tick_interval=10.0,
        faults_for=random.choice((20.0, 40.0)),
    )
    return scenario, sizes


def _expected(run: Run, given: object, output: object) -> str | None:
    (wanted,) = cast("dict[str, object]", given).values()
    return None if output == wanted else f"the input is {wanted}, and the result {output}"
