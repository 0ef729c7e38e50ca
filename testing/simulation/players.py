"""What the workloads share whose durable functions act on each other: ids, operations on their runs, and sizes."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Sizes

_RESUMED_AT: Final = 40_000_000


def player_id(number: int) -> str:
    """Return the id of a player's run."""
    return f"player-{number}"


def operate(handle: SyncRunHandle[Any], what: str) -> object:
    """Carry out an operation on a run, by its name; any other name reads why the run waits."""
    match what:
        case "cancel":
            return handle.cancel(reason="on purpose").status
        case "terminate":
            return handle.terminate(reason="on purpose").status
        case "pause":
            return handle.pause().status
        case "rerun":
            return handle.rerun_from(reason="again").generation
        case "fork":
            return handle.rerun_from(row=max(1, len(handle.history()) // 2), reason="again").generation
        case _:
            return [reason.code for reason in handle.why()]


def clients_of(actions: Sequence[ClientAction]) -> list[list[ClientAction]]:
    """Return the actions of two clients, in the order of their times. In the end, both resume every run."""
    ordered = sorted(actions, key=lambda action: action.at)
    return [
        [*ordered[index::2], ClientAction(at=_RESUMED_AT, what=f"resume {index}", do=_resume)]
        for index in range(2)
    ]


def draw_sizes(random: Random) -> Sizes:
    """Draw the sizes of the world."""
    return Sizes(
        workers=random.choice((1, 2, 3)),
        functions=random.choice((0, 0, 1)),
        concurrency=random.choice((1, 4)),
        lease=random.choice((10.0, 15.0)),
        poll_interval=random.choice((1.0, 2.0)),
        tick_interval=10.0,
        faults_for=random.choice((20.0, 40.0)),
        function_cache=random.choice((0, 2, 100)),
    )


def _resume(engine: SyncEngine) -> object:
    return engine.resume_all().changed
