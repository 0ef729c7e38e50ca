"""Records what many functions have come to in few transactions: whatever has gathered goes with the next one."""

from typing import Final

import anyio
import attrs
from anyio import CancelScope
from anyio.lowlevel import RunVar

from holdfast.hosts.functions.drive import Drive
from holdfast.hosts.functions.turns import in_turns
from holdfast.hosts.process.threads import result_in_thread
from holdfast.kernel.commands import JobRecord, JobRecorded
from holdfast.kernel.kernel import Kernel
from holdfast.ports.errors import CommandError

RECORDS_MAX: Final = 500


@attrs.define(eq=False)
class _Record:
    command: JobRecord
    answer: JobRecorded | None = None
    error: BaseException | None = None
    answered: anyio.Event = attrs.field(factory=anyio.Event)

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None


class Recorder:
    """Sends records of functions to the store. While a transaction is under way, others gather for the next one.

    One for each event loop.
    """

    def __init__(self) -> None:
        self._waiting: list[_Record] = []
        self._turn = anyio.Lock()

    async def record(self, kernel: Kernel, drive: Drive, command: JobRecord) -> JobRecorded:
        """Store what a command has, and have its function take what is answered. Raises what either does.

        RestlessError if it does not get quiet, and runs on.
        Once it is sent it is waited for, whoever is cancelled: nobody else is to touch the function meanwhile.
        """
        record = _Record(command)
        self._waiting.append(record)
        try:
            async with self._turn:
                if not record.is_done:
                    await self._send(kernel)
        except BaseException:
            if record in self._waiting:  # it was cancelled before it was sent
                self._waiting.remove(record)
            else:
                with CancelScope(shield=True):
                    await record.answered.wait()
            raise
        if record.error is not None:
            raise record.error
        assert record.answer is not None
        answer = record.answer
        # Not in the turn of all: a function may take its time.
        with CancelScope(shield=True):
            await in_turns(lambda: drive.take(answer), lambda: drive.turn)
        return answer

    async def _send(self, kernel: Kernel) -> None:
        batch, self._waiting = self._waiting[:RECORDS_MAX], self._waiting[RECORDS_MAX:]
        with CancelScope(shield=True):
            try:
                await result_in_thread(lambda: _send(kernel, batch))
            finally:
                for record in batch:
                    record.answered.set()


def recorder_here() -> Recorder:
    """Return the recorder of the event loop that runs."""
    try:
        return _recorders.get()
    except LookupError:
        recorder = Recorder()
        _recorders.set(recorder)
        return recorder


_recorders: Final[RunVar[Recorder]] = RunVar("holdfast_recorder")


def _send(kernel: Kernel, batch: list[_Record]) -> None:
    try:
        answers = kernel.dispatch_many([one.command for one in batch])
        if any(not isinstance(answer, CommandError) and answer.admits_jobs for answer in answers):
            kernel.admit(batch[0].command.namespace, answers)
    except Exception as error:  # noqa: BLE001  # each of those who wait raises it
        for record in batch:
            record.error = error
        return
    for record, answer in zip(batch, answers, strict=True):
        if isinstance(answer, CommandError):
            record.error = answer
        else:
            record.answer = answer
