"""What both type checkers must refuse of queries, updates and published values.

As in `wrong`: a line that becomes legal is an error in itself.
"""

from holdfast import RunHandle, SyncRunHandle, expose, publish, query, update, workflow
from tests.typing.order_queries import OrderState, Slim


class Wrong:
    """Validators that take something else."""

    @update
    def grow(self, by: int) -> int:
        return by

    @grow.validator  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def may_grow(self, by: str) -> None: ...

    @query  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def alone() -> int:
        return 1


OrderState.destination(loud=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
OrderState.destination(True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
OrderState.move_to(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OrderState.move_to()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
OrderState.weigh("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@workflow
async def body() -> None:
    state = expose(OrderState("x"))
    state.destination(loud=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    state.move_to(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    state.weigh(1)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    publish(3, 3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def outside(run: RunHandle[None]) -> None:
    await run.query(OrderState.move_to("x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.update(OrderState.destination())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.query(OrderState.destination)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.update(OrderState.move_to, "x")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    await run.update(OrderState.move_to("x"), timeout="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    number: int = await run.query(OrderState.destination())  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    done: int = await run.published("progress", int)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(number, done)


def outside_of_loops(run: SyncRunHandle[None]) -> None:
    text: str = run.query(Slim.rest())  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)
