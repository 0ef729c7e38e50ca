"""`parallel_map()`: a durable function calls something for each item of a list, so many at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

from holdfast.kernel.authoring.completion_policies import (
    AtLeast,
    ItemFailure,
    PartialResults,
    TolerateFailures,
    enough_of,
)
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.history.exceptions import error_words
from holdfast.kernel.pipelines.plan import Enough
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import Wanted, an, check, integer

Item = TypeVar("Item")
Out = TypeVar("Out")

_CALL = Wanted("a step, a workflow or an async function that takes one item", callable)
_ITEMS = an("a list of items, or another iterable", Iterable)
_ENOUGH = an("AtLeast(...) or TolerateFailures(...)", AtLeast, TolerateFailures, type(None))
_NONE_MAY_FAIL = Enough()


@overload
async def parallel_map(
    call: Callable[[Item], Awaitable[Out]], items: Iterable[Item], /, *, limit: int | None = None
) -> list[Out]: ...
@overload
async def parallel_map(
    call: Callable[[Item], Awaitable[Out]],
    items: Iterable[Item],
    /,
    *,
    limit: int | None = None,
    enough: AtLeast | TolerateFailures,
) -> PartialResults[Out]: ...
async def parallel_map(
    call: Callable[[Item], Awaitable[Out]],
    items: Iterable[Item],
    /,
    *,
    limit: int | None = None,
    enough: AtLeast | TolerateFailures | None = None,
) -> list[Out] | PartialResults[Out]:
    """Call a step, a workflow or an async function for each item, and return the results in the order of the items.

    `await parallel_map(resize, photos, limit=10)`. Items are begun in their order. Without `enough` the first item that
    fails ends the map: the others are cancelled, and its error is raised.

    Args:
        call: Takes one item. Of a step, each call has its own retries.
        items: The items.
        limit: How many calls may be under way at once, at least 1; all if omitted.
        enough: Lets the map complete without some of its items, as that of a pipeline: `AtLeast(20)` completes with 20
            results and cancels the others, `TolerateFailures(share=0.1)` tries every item. The result is then a
            `PartialResults`.

    Raises:
        ExceptionGroup: More items have failed than `enough` allows. It has their errors.
        InvalidArgumentError: An argument is of the wrong type.
        RuntimeError: It was not called by a durable function.
    """
    loop_for("holdfast.workflows.parallel_map()")
    check("parallel_map", _CALL, call=call)
    check("parallel_map", _ITEMS, items=items)
    check("parallel_map", integer(1).or_none, limit=limit)
    check("parallel_map", _ENOUGH, enough=enough)
    policy, listed = enough_of(enough, "parallel_map"), tuple(items)
    if policy is not None and policy.is_missed(total=len(listed), failed=0):
        raise InvalidArgumentError(
            "enough", f"parallel_map: enough is {enough!r}, but the number of items is {len(listed)}"
        )
    under_way = _ItemCalls(call, listed, limit)
    try:
        await under_way.run(policy or _NONE_MAY_FAIL)
    finally:
        await under_way.stop()
    if policy is None:
        return list(under_way.results())
    return PartialResults(tuple(under_way.results()), tuple(under_way.failures()))


class _ItemCalls(Generic[Item, Out]):
    """The calls of one map."""

    def __init__(
        self, call: Callable[[Item], Awaitable[Out]], items: Sequence[Item], limit: int | None
    ) -> None:
        self._call = call
        self._items = items
        self._limit = limit or len(items)
        self._begun = 0
        self._running: dict[asyncio.Task[Out], int] = {}
        self._results: dict[int, Out] = {}
        self._errors: dict[int, Exception] = {}

    async def run(self, policy: Enough) -> None:
        """Make the calls until the policy is met. Raise if it can't be met any more."""
        total = len(self._items)
        while not policy.is_reached(total=total, done=len(self._results), failed=len(self._errors)):
            while len(self._running) < self._limit and self._begun < total:
                self._running[asyncio.create_task(self._one(self._items[self._begun]))] = self._begun
                self._begun += 1
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=self._running.__getitem__):
                self._note(task, self._running.pop(task))
            if policy.is_missed(total=total, failed=len(self._errors)):
                self._fail(policy)

    async def stop(self) -> None:
        """Cancel the calls that are under way, and wait until they have ended."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for task in running:
            if not task.cancelled():
                task.exception()  # retrieved: the map has ended without it

    def results(self) -> Iterator[Out]:
        """Yield the results, in the order of the items."""
        return (self._results[index] for index in sorted(self._results))

    def failures(self) -> Iterator[ItemFailure]:
        """Yield the failed items, in their order."""
        return (
            ItemFailure(index, error_words(error).splitlines()[0])
            for index, error in sorted(self._errors.items())
        )

    async def _one(self, item: Item) -> Out:
        return await self._call(item)

    def _note(self, task: asyncio.Task[Out], index: int) -> None:
        try:
            self._results[index] = task.result()
        except Exception as error:  # noqa: BLE001  # the policy decides about it
            self._errors[index] = error

    def _fail(self, policy: Enough) -> None:
        errors = [error for _, error in sorted(self._errors.items())]
        if policy is _NONE_MAY_FAIL:
            raise errors[0]
        raise ExceptionGroup(f"{len(errors)} of {len(self._items)} items have failed", errors)
