"""Records what many functions have come to in few transactions: whatever has gathered goes with the next one."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from holdfast.hosts.execution.event_loops import ThisLoop, caller_into_loop
from holdfast.hosts.functions.call_queue import Call, Gathering, Here
from holdfast.hosts.functions.loader import Opener
from holdfast.hosts.functions.replay import Drive
from holdfast.kernel.commands import JobRecord, JobRecorded
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.clock import Clock
from holdfast.ports.errors import CommandError
from holdfast.ports.records import Micros

_NOW_SECONDS: Final = 0.01
"""How old what is known of the time may be when a function is told something."""


@attrs.define(eq=False)
class Record:
    """A command that records what a function has come to, and what was answered."""

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

    def apply(self) -> None:
        """Have the function take what is answered."""
        assert self.answer is not None
        self.drive.take(self.answer, now=self.now(), received=self.command.received)

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
        record = Record(kernel, command, drive, now)
        await self._gathering.made(Call(record, record.apply, record.turn))
        assert record.answer is not None
        return record.answer

    def send(
        self,
        kernel: Kernel,
        drive: Drive,
        command: JobRecord,
        now: Callable[[], Micros],
        wake: Callable[[], None],
    ) -> "Call[Record]":
        """Begin what `record` does, and return it. `stir` is called in the loop when it is over, or to be watched.

        Whoever is stirred, or is cancelled, waits until it is over.
        """
        record = Record(kernel, command, drive, now)
        call = Call(record, record.apply, record.turn)
        self._gathering.send(call, wake)
        return call

    async def sent(self, call: "Call[Record]") -> JobRecorded:
        """Return what was answered to what was sent, once its function was told. Raises as `record`."""
        if not call.is_plainly_over:
            await call.over()
        return self.answer(call)

    def answer(self, call: "Call[Record]") -> JobRecorded:
        """Return what was answered, and the function told. Raises as `record`."""
        if call.error is not None:
            raise call.error
        assert call.what.answer is not None
        return call.what.answer

    async def leave(self, call: "Call[Record]") -> None:
        """Wait for what was sent no more, unless something was done for it: then until it is over."""
        await self._gathering.leave(call)


class _Now:
    """What time it is, for functions that are told one after the other: it is asked again after a while."""

    def __init__(self, read_time: Callable[[], Micros], clock: Clock) -> None:
        self._read_time = read_time
        self._monotonic = clock.monotonic
        self._until = -math.inf
        self._now: Micros = 0

    def __call__(self) -> Micros:
        at = self._monotonic()
        if at >= self._until:
            self._now = self._read_time()
            self._until = at + _NOW_SECONDS
        return self._now


def _store(batch: Sequence[Call[Record]]) -> None:
    first = batch[0].what
    kernel = first.kernel
    try:
        now = _Now(first.now, kernel.clock)
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
            call.what.now = now
            call.takes_time = call.what.has_blobs


@attrs.define(eq=False)
class Shared:
    """The loop, and what opens functions and records what they come to, many at a time."""

    loop: ThisLoop = attrs.field(factory=ThisLoop)
    in_loop: Callable[[Callable[[], object]], None] = attrs.field(factory=caller_into_loop)
    opener: Opener = attrs.field(factory=Opener)
    recorder: Recorder = attrs.field(factory=Recorder)


shared_here: Final[Here[Shared]] = Here("holdfast_drivers", Shared)
