"""The random workload of runs that update each other, while they are cancelled, paused, run again and continued."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, cast

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.conditions import updates_done, wait_until
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.sent_messages import cancel_run, update_run
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.history import events
from holdfast.ports.errors import (
    RunNotFoundError,
    UpdateFailedError,
    UpdateLostError,
    UpdateRefusedError,
    UpdateRejectedError,
)
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.players import clients_of, draw_sizes, operate, player_id
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.step_behaviour import PATIENT

_SECOND: Final = 1_000_000
_QUIET_SECONDS: Final = 6
_REJECTED: Final = 7
_FAILED: Final = 5
_SLOW: Final = 3

_Part: TypeAlias = tuple[str, str, float]
"""A part of a script: what to do, with which run, and a number or a duration."""


@step(retry=PATIENT)
async def _think(number: int) -> int:
    return number


class Box:
    """What the runs expose. The number of an update decides its fate."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    @update
    async def put(self, number: int) -> int:
        """Take a number and return its double, some of them after a step; others raise an error."""
        if number % _FAILED == 0:
            raise LookupError(number)
        if number % _SLOW == 0:
            await _think(number)
        self.taken.append(number)
        return 2 * number

    @put.validator
    def may_put(self, number: int) -> None:
        """Reject every seventh number."""
        if number % _REJECTED == 0:
            raise ValueError(number)


def _script(random: Random, player: int, players: int) -> Sequence[_Part]:
    """Draw what a run does. Each update of a run has a number of its own; some are for unknown runs."""
    parts: list[_Part] = []
    for turn in range(random.choice((3, 6, 10))):
        other = player_id(random.randrange(players + random.choice((0, 0, 0, 1))))
        what = random.choice(("update", "update", "update", "hurry", "burst", "think", "sleep"))
        if random.random() < 0.03:
            what = "cancel"
        number = float(100 * (player + 1) + 3 * turn)
        is_update = what in {"update", "hurry", "burst"}
        parts.append((what, other, number if is_update else random.choice((0.2, 1.0, 3.0))))
    return parts


def _player(
    player: int, script: Sequence[_Part], *, waits: bool, again: int
) -> Workflow[[int], dict[str, Any]]:
    @workflow(name=f"player{player}")
    async def play(generation: int) -> dict[str, Any]:
        box = expose(Box())
        replies: list[list[object]] = []

        async def put(other: str, number: int, limit: float | None = None) -> None:
            outcome = "completed"
            try:
                doubled = await update_run(other, Box.put(number), timeout=limit)
                outcome = "completed" if doubled == 2 * number else f"{doubled}"
            except UpdateFailedError:
                outcome = "failed"
            except UpdateRejectedError:
                outcome = "rejected"
            except UpdateLostError:
                outcome = "lost"
            except TimeoutError:
                outcome = "late"
            except (RunNotFoundError, UpdateRefusedError):
                return
            replies.append([other, outcome])

        for turn, (what, other, amount) in enumerate(script):
            is_other = other != player_id(player)
            match what:
                case "update" if is_other:
                    await put(other, int(amount))
                case "hurry" if is_other:
                    await put(other, int(amount), 0.5)
                case "burst" if is_other:
                    await asyncio.gather(*(put(other, int(amount) + more) for more in range(3)))
                case "think":
                    await _think(turn)
                case "cancel" if is_other:
                    await cancel_run(other, reason="enough")
                case _:
                    await sleep(timedelta(seconds=1.0))
            if generation < again and turn == len(script) // 2:
                return await continue_as_new(play(generation + 1))
        await sleep(timedelta(seconds=_QUIET_SECONDS))
        if waits:
            await wait_until(updates_done)
        return {"replies": replies, "taken": box.taken}

    return cast("Workflow[[int], dict[str, Any]]", play)


def draw_updates(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    count = random.choice((2, 3, 4))
    players = [
        _player(
            number,
            _script(random, number, count),
            waits=random.random() < 0.7,
            again=random.choice((0, 0, 0, 1)),
        )
        for number in range(count)
    ]
    actions = [
        ClientAction(
            at=random.randrange(_SECOND),
            what=f"start {number}",
            do=partial(_started, player=player, number=number),
            is_keyed=True,
        )
        for number, player in enumerate(players)
    ]
    for _ in range(random.choice((0, 2, 4))):
        number = random.randrange(count)
        what = random.choice(("cancel", "terminate", "pause", "rerun", "rerun", "fork", "fork", "look"))
        at = random.randrange(_SECOND, 15 * _SECOND)
        act: Callable[[SyncEngine], object] = partial(_act, player=players[number], number=number, what=what)
        actions.append(ClientAction(at=at, what=f"{what} {number} at {at}", do=act))
    scenario = Scenario(
        workflows=players, clients=clients_of(actions), at_end=lambda tables: list(update_violations(tables))
    )
    return scenario, draw_sizes(random)


def _started(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int) -> object:
    return engine.start(player(0), id=player_id(number), idempotency_key=f"start {number}").id


def _act(engine: SyncEngine, *, player: Workflow[[int], dict[str, Any]], number: int, what: str) -> object:
    return operate(engine.handle(player, player_id(number)), what)


def update_violations(tables: Tables) -> Iterator[str]:
    """Yield what is wrong (M4).

    Each update that a function sent is in the history of its run once, and its reply at most once in that of the
    sender. A function received the replies that its history has, and took the numbers of the updates that completed.
    """
    sent: Counter[tuple[str, str, str]] = Counter()
    received: Counter[tuple[str, str, str]] = Counter()
    for run in tables.runs.values():
        for row in tables.history[run.key]:
            if row.type == events.UpdateSent.type:
                event = events.UpdateSent.from_row(row)
                sent[run.id, event.run, f"{run.key}/{event.call}"] += event.code is None
            elif row.type == events.UpdateReceived.type:
                arrived = events.UpdateReceived.from_row(row)
                if arrived.again is None:
                    received[arrived.sender or "", run.id, arrived.key or ""] += 1
    for one in sorted(sent.keys() | received.keys()):
        if sent[one] != received[one]:
            yield f"M4: {one[0]} sent update {one[2]} {sent[one]} times to {one[1]}, which has it {received[one]} times"
    for run in tables.runs.values():
        yield from _violations_of(tables, run)


def _violations_of(tables: Tables, run: Run) -> Iterator[str]:
    rows = tables.whole_history(run)
    replies = [events.UpdateReplied.from_row(row) for row in rows if row.type == events.UpdateReplied.type]
    if twice := [call for call, times in Counter(one.call for one in replies).items() if times > 1]:
        yield f"M4: run {run.key} has several replies to the calls {twice}"
    if run.status is not RunStatus.COMPLETED or run.is_continued:
        return
    result = _result(run, rows)
    if result is None:
        return
    got = Counter((str(other), str(outcome)) for other, outcome in result["replies"])
    late = sum(times for (_, outcome), times in got.items() if outcome == "late")
    stored = Counter((one.run, one.outcome) for one in replies)
    extra = stored - got
    if lacking := (got - stored).keys() - {(other, "late") for other, _ in got}:
        yield f"M4: run {run.key} received {sorted(lacking)}, which its history does not have"
    if extra.total() > late:
        yield f"M4: the history of run {run.key} has {sorted(extra.elements())}, which it did not receive"
    done = _completed(rows)
    if sorted(result["taken"]) != sorted(done):
        yield f"M4: run {run.key} took {result['taken']}, and its history completes {sorted(done)}"


def _completed(rows: Sequence[HistoryRow]) -> list[int]:
    """Return the numbers of the updates that completed."""
    numbers = {row.number: _number(row) for row in rows if row.type == events.UpdateReceived.type}
    calls = (
        events.UpdateCompleted.from_row(row).call for row in rows if row.type == events.UpdateCompleted.type
    )
    return [numbers[int(call.removeprefix("update"))] for call in calls]


def _result(run: Run, rows: Sequence[HistoryRow]) -> dict[str, Any] | None:
    ended = next((row for row in rows if row.run == run.key and row.type == events.StageCompleted.type), None)
    if ended is None or ended.payload is None or ended.payload.inline is None:
        return None
    return cast("dict[str, Any]", parse(ended.payload.inline))


def _number(row: HistoryRow) -> int:
    assert row.payload is not None
    return int(cast("dict[str, Any]", parse(row.payload.inline or "{}"))["number"])
