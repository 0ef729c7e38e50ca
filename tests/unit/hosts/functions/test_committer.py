"""Records of several functions share a transaction, and a fault of one of them concerns no other."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from holdfast.hosts.functions.call_queue import BatchedCall
from holdfast.hosts.functions.committer import Record, store_records
from holdfast.kernel.commands import JobRecord, JobRecorded
from holdfast.ports.errors import ConflictError, HoldfastError, UnavailableError
from holdfast.testing.clock import ManualClock


class Kernel:
    """A kernel whose store fails for every transaction with a record of one job."""

    def __init__(self, error: HoldfastError) -> None:
        self.clock = ManualClock()
        self.batches: list[list[str]] = []
        self._error = error

    def dispatch_many(self, commands: Sequence[JobRecord]) -> list[JobRecorded]:
        self.batches.append([command.job for command in commands])
        if any(command.job == "hurt" for command in commands):
            raise self._error
        return [JobRecorded(status="recorded", rows=()) for _ in commands]

    def admit(self, namespace: str, follow_up: object) -> None:
        del namespace, follow_up


async def stored(kernel: Kernel, *jobs: str) -> list[BatchedCall[Record]]:
    calls = [
        BatchedCall(
            Record(
                cast("Any", kernel),
                cast("Any", SimpleNamespace(job=job, namespace="default")),
                cast("Any", None),
                lambda: 0,
            ),
            lambda: None,
            lambda: 0,
        )
        for job in jobs
    ]
    await anyio.lowlevel.checkpoint()
    store_records(calls)
    return calls


@pytest.mark.anyio
async def test_a_conflict_of_one_record_fails_that_one_alone() -> None:
    kernel = Kernel(ConflictError("jobs: x.1 exists"))
    first, hurt, last = await stored(kernel, "first", "hurt", "last")
    assert kernel.batches == [["first", "hurt", "last"], ["first"], ["hurt"], ["last"]]
    assert isinstance(hurt.error, ConflictError)
    assert first.error is last.error is None
    assert first.what.answer is not None
    assert last.what.answer is not None


@pytest.mark.anyio
async def test_a_store_that_is_away_fails_all_at_once() -> None:
    kernel = Kernel(UnavailableError("the store is away"))
    calls = await stored(kernel, "first", "hurt")
    assert len(kernel.batches) == 1
    assert all(isinstance(call.error, UnavailableError) for call in calls)
