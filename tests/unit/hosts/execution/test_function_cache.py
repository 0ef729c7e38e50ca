"""The function cache: its size, the order of eviction, and who may resume an entry."""

from typing import Any, cast

import attrs
import pytest
from typing_extensions import override

from holdfast.hosts.execution.function_cache import FunctionCache, IdleFunction
from holdfast.kernel.commands import Attempt
from holdfast.ports import process_forks
from holdfast.ports.records.job import JobKind

CODE, OTHER_CODE = object(), object()


class FakeDrive:
    """A drive that records what happens to it."""

    def __init__(self) -> None:
        self.rests = False
        self.is_closed = False

    def suspend(self) -> None:
        self.rests = True

    def close(self) -> None:
        self.is_closed = True


def rested(job: str, epoch: int = 1) -> tuple[IdleFunction, FakeDrive]:
    drive = FakeDrive()
    return IdleFunction(job=job, epoch=epoch, code=CODE, drive=cast("Any", drive)), drive


def attempt(job: str, epoch: int = 2, losses: int = 0, number: int = 1) -> Attempt:
    fields: dict[str, Any] = {
        one.name: None for one in attrs.fields(Attempt) if one.default is attrs.NOTHING and one.init
    }
    fields |= {
        "job": job,
        "epoch": epoch,
        "lost_attempts": losses,
        "attempt": number,
        "kind": JobKind.WORKFLOW,
    }
    return Attempt(**fields)


def test_who_claims_it_next_goes_on_with_it() -> None:
    cache = FunctionCache(2)
    one, drive = rested("a.1")
    cache.keep(one)
    assert drive.rests
    assert cache.take(attempt("a.1"), CODE) is one.drive
    assert cache.take(attempt("a.1"), CODE) is None, "it is somebody's"
    assert not drive.is_closed


def test_a_suspect_that_has_rested_is_gone_on_with() -> None:
    """It went to sleep after the loss, waiting for the retry of a step."""
    cache = FunctionCache(2)
    one, _ = rested("a.1")
    cache.keep(one)
    assert cache.take(attempt("a.1", losses=2), CODE) is one.drive


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        (attempt("a.1", epoch=3), CODE),
        (attempt("a.1", epoch=1), CODE),
        (attempt("a.1", losses=1, number=2), CODE),
        (attempt("a.1"), OTHER_CODE),
    ],
    ids=["somebody has claimed it since", "an epoch that is over", "a worker was lost", "other code"],
)
def test_nobody_goes_on_with_what_may_be_out_of_date(claimed: Attempt, code: object) -> None:
    cache = FunctionCache(2)
    one, drive = rested("a.1")
    cache.keep(one)
    assert cache.take(claimed, code) is None
    assert drive.is_closed
    assert len(cache) == 0


def test_the_one_that_has_rested_the_longest_makes_room() -> None:
    cache = FunctionCache(2)
    a, first = rested("a.1")
    b, second = rested("b.1")
    c, third = rested("c.1")
    cache.keep(a)
    cache.keep(b)
    taken = cache.take(attempt("a.1"), CODE)
    assert taken is not None
    again, _ = rested("a.1", epoch=2)
    cache.keep(again)
    cache.keep(c)
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, True, False)
    assert len(cache) == 2


def test_none_is_kept_where_there_is_no_room() -> None:
    cache = FunctionCache(0)
    one, drive = rested("a.1")
    cache.keep(one)
    assert drive.is_closed
    assert cache.take(attempt("a.1"), CODE) is None


def test_what_was_not_accepted_is_forgotten_and_what_came_after_it_is_not() -> None:
    cache = FunctionCache(2)
    one, drive = rested("a.1", epoch=4)
    cache.keep(one)
    cache.forget("a.1", 3)
    cache.forget("b.1", 4)
    assert not drive.is_closed
    cache.forget("a.1", 4)
    assert drive.is_closed
    assert len(cache) == 0


def test_closed_it_has_none_and_keeps_none() -> None:
    cache = FunctionCache(2)
    one, drive = rested("a.1")
    late, other = rested("b.1")
    cache.keep(one)
    cache.close()
    cache.keep(late)
    assert drive.is_closed
    assert other.is_closed
    assert len(cache) == 0


async def _closed_in_a_loop(cache: FunctionCache) -> None:
    cache.close()


def test_it_is_closed_wherever_that_is_called() -> None:
    """Functions cannot be closed where an event loop runs; an engine can."""
    import asyncio

    from holdfast.kernel.functions.loop import check_thread

    class Checked(FakeDrive):
        @override
        def close(self) -> None:
            check_thread()
            super().close()

    drive = Checked()
    cache = FunctionCache(1)
    cache.keep(IdleFunction(job="a.1", epoch=1, code=CODE, drive=cast("Any", drive)))
    asyncio.run(_closed_in_a_loop(cache))
    assert drive.is_closed


def test_a_cache_that_is_opened_again_keeps_functions_and_leaves_nothing_behind() -> None:
    cache = FunctionCache(2)
    inherited = cast("list[object]", process_forks.inherited())
    before = len(inherited)
    for _ in range(3):
        cache.close()
        cache.keep(rested("a.1")[0])
        assert len(cache) == 0
        cache.reopen()
        cache.keep(rested("a.1")[0])
        assert len(cache) == 1
    assert len(inherited) == before
