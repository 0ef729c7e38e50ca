"""Records what many functions have come to in few transactions: whatever has gathered goes with the next one."""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from holdfast.hosts.functions.drive import Drive
from holdfast.hosts.functions.gathering import Call, Gathering, Here
from holdfast.kernel.commands import JobRecord, JobRecorded
from holdfast.kernel.kernel import Kernel
from holdfast.ports.errors import CommandError
from holdfast.ports.records import Micros


@attrs.define(eq=False)
class _Record:
    kernel: Kernel
    command: JobRecord
    drive: Drive
    now: Callable[[], Micros]
    answer: JobRecorded | None = None

    @property
    def has_blobs(self) -> bool:
        """Whether what the function is told is kept elsewhere, which may be far away."""
        rows = () if self.answer is None else self.answer.rows
        return any(row.payload is not None and row.payload.blob is not None for row in rows)

    def tell(self) -> None:
        """Have the function take what is answered."""
        assert self.answer is not None
        self.drive.take(self.answer, now=self.now())

    def turn(self) -> int:
        """Return which turn the function is in."""
        return self.drive.turn


class Recorder:
    """Sends records of functions to the store. One for each kernel in each event loop."""

    def __init__(self) -> None:
        self._gathering = Gathering(_store)

    async def record(
        self, kernel: Kernel, drive: Drive, command: JobRecord, now: Callable[[], Micros]
    ) -> JobRecorded:
        """Store what a command has, and have its function take what is answered. `now` may ask the store for the time.

        Raises what either does; RestlessError if it does not get quiet, and runs on.
        Once it is sent it is waited for, whoever is cancelled: nobody else is to touch the function meanwhile.
        """
        record = _Record(kernel, command, drive, now)
        await self._gathering.made(Call(record, record.tell, record.turn))
        assert record.answer is not None
        return record.answer


recorder_here: Final[Here[Recorder]] = Here("holdfast_recorder", Recorder)


def _store(batch: Sequence[Call[_Record]]) -> None:
    kernel = batch[0].what.kernel
    try:
        answers = kernel.dispatch_many([call.what.command for call in batch])
        if any(not isinstance(answer, CommandError) and answer.admits_jobs for answer in answers):
            kernel.admit(batch[0].what.command.namespace, answers)
    except BaseException as error:  # noqa: BLE001  # each of those who wait raises it
        for call in batch:
            call.error = error
        return
    for call, answer in zip(batch, answers, strict=True):
        if isinstance(answer, CommandError):
            call.error = answer
        else:
            call.what.answer = answer
            call.takes_time = call.what.has_blobs
