"""Functions that end while messages still arrive: each message is received, passed on, or listed as unread."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, Literal, TypeAlias, cast

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.history import events
from holdfast.ports.errors import UnreadMessagesError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.programs import Program
from holdfast.testing.simulation.step_behaviour import PATIENT

_SECOND: Final = 1_000_000
_LETTERS: Final = Channel("letters", int)
_BILLS: Final = Channel("bills", int)
_ID: Final = "box"
Ends: TypeAlias = Literal["returns", "one", "fails", "closes", "goes on"]
_ENDS: Final[tuple[Ends, ...]] = ("returns", "one", "fails", "closes", "closes", "closes", "goes on")


@step(retry=PATIENT)
async def _file(numbers: list[int]) -> int:
    return len(numbers)


def draw_box(draw: Random) -> tuple[Program, list[ClientAction]]:
    """Draw a function that receives until no message comes and then ends in one of several ways, and its clients."""
    ends, wait = draw.choice(_ENDS), draw.choice((0, 0.3, 2, 2, 5))
    box = _box(ends, wait, polls=draw.random() < 0.5)
    times = sorted(draw.randrange(30 * _SECOND) for _ in range(draw.choice((4, 7, 10))))
    bursts = [at + draw.randrange(_SECOND) for at in times if draw.random() < 0.3]
    # A burst as fast as a client can send: messages arrive while the function closes its channels.
    begins = draw.choice(times)
    bursts += [begins + number * _SECOND // 50 for number in range(20 if ends == "closes" else 3)]
    deeds = [
        ClientAction(at=at, what=f"letter {number}", do=partial(_sent, box=box, number=number), is_keyed=True)
        for number, at in enumerate(sorted((*times, *bursts)))
    ]
    for number in range(draw.choice((0, 2, 4)) + (8 if ends == "closes" else 0)):
        at = draw.randrange(35 * _SECOND) if number % 2 else begins + draw.randrange(4 * _SECOND)
        deeds.append(
            ClientAction(at=at, what=f"bill {number} at {at}", do=partial(_billed, box=box, number=number))
        )
    if draw.random() < 0.5:
        verb, at = (
            draw.choice(("cancel", "terminate", "fork", "again", "pause")),
            draw.randrange(30 * _SECOND),
        )
        deeds.append(ClientAction(at=at, what=f"{verb} box at {at}", do=partial(_VERBS[verb], box)))
        deeds.append(ClientAction(at=at + _SECOND, what=f"resume box at {at}", do=partial(_resumed, box)))
    return Program(workflow=cast("Workflow[[int], int]", box), model=lambda _: None, nodes=()), deeds


def _box(ends: Ends, wait: float, *, polls: bool) -> Workflow[[int], list[int]]:
    @workflow(name="box")
    async def box(number: int) -> list[int]:
        got: list[int] = []
        while True:
            await _all(got, 1 if ends == "one" else 1_000, 0 if polls and not got else wait)
            await _file(got)
            if ends == "fails":
                raise ValueError(got)
            if ends == "goes on" and got and number < 3:
                return await continue_as_new(box(number + 1))
            if ends != "closes":
                return got
            with suppress(UnreadMessagesError):
                await _BILLS.close()
                await _LETTERS.close()
                await sleep(wait)
                await _file(got)
                return got

    return box


async def _all(got: list[int], most: int, wait: float) -> None:
    receive: Callable[[], Awaitable[int]] = partial(select, _LETTERS, _BILLS, timeout=wait)
    with suppress(TimeoutError):
        while len(got) < most:
            got.append(await receive())


def _sent(engine: SyncEngine, *, box: Workflow[[int], list[int]], number: int) -> object:
    return engine.start(
        box(0),
        id=_ID,
        if_active="return",
        if_ended="rerun",
        signals=[_LETTERS(number)],
        idempotency_key=f"letter/{number}",
    ).id


def _billed(engine: SyncEngine, *, box: Workflow[[int], list[int]], number: int) -> object:
    return engine.handle(box, _ID).signal(_BILLS(1_000 + number), idempotency_key=f"bill/{number}").number


_VERBS: Final[dict[str, Callable[[Workflow[[int], list[int]], SyncEngine], object]]] = {
    "cancel": lambda box, engine: engine.handle(box, _ID).cancel(reason="enough").status,
    "terminate": lambda box, engine: engine.handle(box, _ID).terminate(reason="enough").status,
    "fork": lambda box, engine: engine.handle(box, _ID).rerun_from(reason="again").generation,
    "pause": lambda box, engine: engine.handle(box, _ID).pause().status,
    "again": lambda box, engine: (
        engine.start(box(0), id=_ID, if_active="terminate", if_ended="rerun", idempotency_key="again").id
    ),
}


def _resumed(box: Workflow[[int], list[int]], engine: SyncEngine) -> object:
    return engine.handle(box, _ID).resume().status


def unread_message_violations(tables: Tables) -> Iterator[str]:
    """Yield functions whose result differs from the messages that the store counts as received (M1)."""
    for key, run in tables.runs.items():
        if run.workflow != "box" or run.status is not RunStatus.COMPLETED or run.is_continued:
            continue
        unread = mailbox_from(run.mailbox).unread
        rows = tables.whole_history(run)
        received = [
            _number(row)
            for row in rows
            if row.type == events.SignalReceived.type and row.number not in unread
        ]
        returned = _returned(run, rows)
        if returned is not None and sorted(returned) != sorted(received):
            yield f"run {key}: it returned the letters {returned}, but received {received}"


def _returned(run: Run, rows: list[HistoryRow]) -> list[int] | None:
    ended = next((row for row in rows if row.run == run.key and row.type == events.StageCompleted.type), None)
    if ended is None or ended.payload is None or ended.payload.inline is None:
        return None
    return cast("list[int]", parse(ended.payload.inline))


def _number(row: HistoryRow) -> int:
    assert row.payload is not None
    return cast("int", parse(row.payload.inline or "0"))
