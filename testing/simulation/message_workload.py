"""The random workload of runs that signal and cancel each other, while they are cancelled, paused and run again."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, cast

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.sent_messages import cancel_run, signal_run
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.history import events
from holdfast.ports.errors import SignalRefusedError, UnreadMessagesError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.players import clients_of, draw_sizes, operate, player_id
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.step_behaviour import PATIENT

_SECOND: Final = 1_000_000
_BALLS: Final = Channel("balls", int)
_QUIET_SECONDS: Final = 4
_CLOSED_SECONDS: Final = 8

_Part: TypeAlias = tuple[str, str, float]
"""A part of a script: what to do, with which run, and a number or a duration."""


@step(retry=PATIENT)
async def _think(number: int) -> int:
    return number


def _script(random: Random, player: int, players: int) -> Sequence[_Part]:
    """Draw what a run does. Each ball has a number of its own; a run also sends to itself and to unknown runs."""
    parts: list[_Part] = []
    for turn in range(random.choice((4, 8, 16))):
        other = player_id(random.randrange(players + random.choice((0, 0, 0, 1))))
        what = random.choice(("send", "send", "send", "receive", "receive", "think", "sleep"))
        if random.random() < 0.03:
            what = "cancel"
        if what == "send" and random.random() < 0.3:
            what = "burst"
        number = float(100 * player + 3 * turn)
        parts.append((what, other, number if what in {"send", "burst"} else random.choice((0.2, 1.0, 3.0))))
    return parts


def _player(player: int, script: Sequence[_Part], *, closes: bool) -> Workflow[[int], dict[str, Any]]:
    @workflow(name=f"player{player}")
    async def play(number: int) -> dict[str, Any]:
        got: list[list[object]] = []
        sent: list[list[object]] = []

        async def receive(seconds: float) -> bool:
            try:
                message = await _BALLS.receive_message(timeout=seconds)
            except TimeoutError:
                return False
            got.append([message.sender, message.value])
            return True

        async def send(other: str, ball: int) -> None:
            with suppress(SignalRefusedError):
                await signal_run(other, _BALLS(ball))
                sent.append([other, ball])

        for what, other, amount in script:
            match what:
                case "send" | "burst":
                    balls = range(int(amount), int(amount) + (3 if what == "burst" else 1))
                    await asyncio.gather(*(send(other, ball) for ball in balls))
                case "receive":
                    await receive(amount)
                case "think":
                    number = await _think(number)
                case "cancel" if other != player_id(player):
                    await cancel_run(other, reason="enough")
                case _:
                    await sleep(timedelta(seconds=amount))
        while True:
            while await receive(_QUIET_SECONDS):
                pass
            if not closes:
                return {"got": got, "sent": sent}
            with suppress(UnreadMessagesError):
                await _BALLS.close()
                await sleep(timedelta(seconds=_CLOSED_SECONDS))  # other runs still send
                return {"got": got, "sent": sent}

    return cast("Workflow[[int], dict[str, Any]]", play)


def draw_messages(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    count = random.choice((2, 3, 5))
    players = [
        _player(number, _script(random, number, count), closes=random.random() < 0.4)
        for number in range(count)
    ]
    actions = [
        ClientAction(
            at=random.randrange(5 * _SECOND),
            what=f"start {number}",
            do=partial(_started, player=player, number=number),
            is_keyed=True,
        )
        for number, player in enumerate(players)
    ]
    for _ in range(random.choice((0, 1, 3))):
        number, what = random.randrange(count), random.choice(("cancel", "pause", "rerun", "look"))
        at = random.randrange(_SECOND, 30 * _SECOND)
        act: Callable[[SyncEngine], object] = partial(_act, player=players[number], number=number, what=what)
        actions.append(ClientAction(at=at, what=f"{what} {number} at {at}", do=act))
    scenario = Scenario(
        workflows=players, clients=clients_of(actions), at_end=lambda tables: list(message_violations(tables))
    )
    return scenario, draw_sizes(random)


def _started(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int) -> object:
    return engine.start(player(number), id=player_id(number), idempotency_key=f"start {number}").id


def _act(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int, what: str) -> object:
    return operate(engine.handle(player, player_id(number)), what)


def message_violations(tables: Tables) -> Iterator[str]:
    """Yield what is wrong: each message that a function sent is in the history of its run once (M2).

    A function received what the store counts as received, each message with its sender.
    """
    sent: Counter[tuple[str, str]] = Counter()
    received: Counter[tuple[str, str]] = Counter()
    for run in tables.runs.values():
        for row in tables.history[run.key]:
            if row.type == events.SignalSent.type:
                event = events.SignalSent.from_row(row)
                sent[run.id, event.run] += event.message is None and event.channel is not None
            elif row.type == events.SignalReceived.type:
                arrived = events.SignalReceived.from_row(row)
                received[arrived.sender or "", run.id] += arrived.again is None
    for pair in sorted(sent.keys() | received.keys()):
        if sent[pair] != received[pair]:
            yield f"M2: {pair[0]} sent {sent[pair]} messages to {pair[1]}, whose history has {received[pair]}"
    for run in tables.runs.values():
        yield from _violations_of(tables, run)


def _violations_of(tables: Tables, run: Run) -> Iterator[str]:
    if run.status is not RunStatus.COMPLETED or run.is_continued:
        return
    rows = tables.whole_history(run)
    result = _result(run, rows)
    if result is None:
        return
    unread = mailbox_from(run.mailbox).unread
    arrived = [row for row in rows if row.type == events.SignalReceived.type and row.number not in unread]
    stored = sorted((events.SignalReceived.from_row(row).sender or "", _number(row)) for row in arrived)
    got = sorted((str(sender), int(number)) for sender, number in result["got"])
    if got != stored:
        yield f"M2: run {run.key} received {got}, and its history has {stored}"
    accepted = Counter(
        event.run
        for event in (events.SignalSent.from_row(row) for row in rows if row.type == events.SignalSent.type)
        if event.message is None and event.channel is not None
    )
    if Counter(str(other) for other, _ in result["sent"]) != accepted:
        yield f"M2: run {run.key} sent {result['sent']}, and its history has {dict(accepted)}"


def _result(run: Run, rows: Sequence[HistoryRow]) -> dict[str, Any] | None:
    ended = next((row for row in rows if row.run == run.key and row.type == events.StageCompleted.type), None)
    if ended is None or ended.payload is None or ended.payload.inline is None:
        return None
    return cast("dict[str, Any]", parse(ended.payload.inline))


def _number(row: HistoryRow) -> int:
    assert row.payload is not None
    return cast("int", parse(row.payload.inline or "0"))
