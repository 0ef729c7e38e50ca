"""The random workload of functions that return after a step, while messages arrive that they have or have not received.

The drivers guess at random which steps are the last ones (`guessed_last_steps.py`). The result of a function shows
which messages it had received when it returned, so a replay returns otherwise if it received them in another order.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import Workflow, now, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.testing.simulation.players import clients_of, draw_sizes, operate, player_id
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.step_behaviour import PATIENT

_SECOND: Final = 1_000_000
_BALLS: Final = Channel("balls", int)
_LISTENS: Final = "listens"
_RECEIVES: Final = "receives"
_DATES: Final = "dates"
_LAST_AT: Final = 60 * _SECOND
"""When each run gets a message for which it may still wait, after the faults."""
_ENDS: Final = (_LISTENS, _LISTENS, _RECEIVES, _RECEIVES, _DATES, "")


@step(retry=PATIENT)
async def _think(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def _player(player: int, pauses: Sequence[float], end: str) -> Workflow[[int], dict[str, Any]]:
    @workflow(name=f"player{player}")
    async def play(number: int) -> dict[str, Any]:
        got: list[int] = []

        async def listen() -> None:
            while True:
                got.append(await _BALLS.receive())

        listening = asyncio.create_task(listen()) if end == _LISTENS else None
        for seconds in pauses:
            await _think(seconds)
        if end == _RECEIVES:  # a message that has arrived is received at once
            got.append(await _BALLS.receive())
        if listening is not None:
            listening.cancel()
        return {"number": number, "got": list(got), "at": str(now()) if end == _DATES else None}

    return cast("Workflow[[int], dict[str, Any]]", play)


def draw_last_steps(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    count = random.choice((2, 4, 6))
    players = [
        _player(
            number, random.choices((0.0, 0.0, 0.2, 1.0), k=random.choice((1, 1, 2, 3))), random.choice(_ENDS)
        )
        for number in range(count)
    ]
    actions: list[ClientAction] = []
    for number, player in enumerate(players):
        at = random.randrange(5 * _SECOND)
        start = partial(_started, player=player, number=number)
        actions.append(ClientAction(at=at, what=f"start {number}", do=start, is_keyed=True))
        times = [at + random.randrange(3 * _SECOND) for _ in range(random.choice((1, 2, 6)))]
        for ball, when in enumerate((*sorted(times), _LAST_AT)):
            sent = _sent if when < _LAST_AT else _started_and_sent
            send = partial(sent, player=player, number=number, ball=ball)
            actions.append(ClientAction(at=when, what=f"send {ball} to {number}", do=send))
    for _ in range(random.choice((0, 1, 2))):
        number, what = random.randrange(count), random.choice(("cancel", "pause", "look"))
        at = random.randrange(_SECOND, 10 * _SECOND)
        act = partial(_act, player=players[number], number=number, what=what)
        actions.append(ClientAction(at=at, what=f"{what} {number} at {at}", do=act))
    return Scenario(workflows=players, clients=clients_of(actions)), draw_sizes(random)


def _started(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int) -> object:
    return engine.start(player(number), id=player_id(number), idempotency_key=f"start {number}").id


def _sent(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int, ball: int) -> object:
    handle = engine.handle(player, player_id(number))
    return handle.signal(_BALLS(ball), idempotency_key=f"send {ball} to {number}").number


def _started_and_sent(
    engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int, ball: int
) -> object:
    """Send a message, and start the run if the client that starts it has been down until now."""
    _started(engine, player=player, number=number)
    return _sent(engine, player=player, number=number, ball=ball)


def _act(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int, what: str) -> object:
    return operate(engine.handle(player, player_id(number)), what)
