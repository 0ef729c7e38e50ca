"""Workflows for the tests of the server."""

from datetime import timedelta

import attrs

from holdfast import (
    Channel,
    Pipeline,
    Retry,
    StageContext,
    expose,
    publish,
    query,
    stage,
    step,
    update,
    workflow,
)

CANARY = "user-value-7f3a"
"""What user code writes everywhere, and nobody without the scope `payloads` may see."""


@attrs.frozen
class Order:
    """An input."""

    number: int
    note: str = ""


approval = Channel("approval", bool)


class Board:
    """An object that a durable function exposes."""

    def __init__(self) -> None:
        self.moves: list[str] = []

    @query
    def all(self) -> list[str]:
        return self.moves

    @update
    async def move(self, to: str) -> int:
        if to == "nowhere":
            raise ValueError(CANARY)
        self.moves.append(to)
        return len(self.moves)


@step
def charge(number: int) -> str:
    return f"{CANARY} {number}"


@workflow
async def order(order: Order) -> str:
    return await charge(order.number)


@workflow
async def approved(order: Order) -> str:
    """Wait for an approval."""
    publish("state", CANARY)
    said = await approval.receive()
    return f"{order.number} {said}"


@workflow
async def game() -> list[str]:
    board = Board()
    expose(board)
    await approval.receive()
    return board.moves


@step(retry=Retry(attempts=1))
def broken_step(text: str) -> str:
    raise ValueError(CANARY)


@workflow
async def broken(text: str) -> str:
    return await broken_step(text)


@stage
def reported(ctx: StageContext, number: int) -> int:
    ctx.log(CANARY, amount=CANARY)
    ctx.annotate("verdict", CANARY)
    ctx.progress(1, of=2, message=CANARY)
    return number


@stage(retry=Retry(attempts=3, wait=timedelta(hours=1)))
def flaky(number: int) -> int:
    raise ValueError(CANARY)


report = Pipeline("report", input=int).pipe(reported)
retried = Pipeline("retried", input=int).pipe(reported).pipe(flaky)

WORKFLOWS = (order, approved, game, broken, report, retried)
