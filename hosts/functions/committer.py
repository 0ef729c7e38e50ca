"""Group commit of the rows of many durable functions: rows that arrive meanwhile go into the next transaction."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs

from holdfast.hosts.execution.event_loops import CurrentLoop, caller_into_loop
from holdfast.hosts.execution.topic_delivery import try_to_deliver_topics
from holdfast.hosts.functions.call_queue import BatchedCall, CallBatcher, PerEventLoop
from holdfast.hosts.functions.loader import Opener
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.commands import EventAppend, JobRecord, JobRecorded, follow_up_of
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.clock import Clock
from holdfast.ports.errors import CommandError, ConflictError
from holdfast.ports.records.values import Micros

_NOW_SECONDS: Final = 0.01
"""For how many seconds a reading of the time is reused when rows are fed."""


@attrs.frozen
class After:
    """What follows from recorded rows, once they are stored."""

    fire_triggers: Callable[[Collection[str]], object] = lambda _: None
    """Called with the topics to which functions have published, once the messages are delivered."""
    deliver_results: Callable[[], object] = lambda: None
    """Called if replies to updates of other runs are to be delivered."""


NOTHING_AFTER: Final = After()


@attrs.define(eq=False)
class Record:
    """A command that records rows of a function, and its answer."""

    kernel: Kernel
    command: JobRecord
    drive: FunctionReplay
    now: Callable[[], Micros]
    after: After = NOTHING_AFTER
    ahead: EventAppend | None = None
    """The result of a step that is fed before it is stored; None if the rows are stored first."""
    stays_inline: Callable[[str], bool] = lambda _: True
    """Whether a result goes into its row."""
    has_returned: bool | None = None
    """Whether the function has returned after that, so that nothing was stored; None if nothing was fed ahead."""
    answer: JobRecorded | None = None

    @property
    def has_blobs(self) -> bool:
        """Whether feeding the answer reads a blob store, which may be slow."""
        rows = () if self.answer is None else self.answer.rows
        return any(row.payload is not None and row.payload.blob is not None for row in rows)

    def apply(self) -> None:
        """Feed the answer to the function. What is fed before it is stored is then stored, unless the function returns.

        Raises OvertakenError, and the errors of the store.
        """
        if self.ahead is not None:
            self.has_returned = self.drive.feed_ahead(self.ahead, self.now(), self.stays_inline)
            if self.has_returned:
                return
            self.ahead = None
            if (error := _store_alone(self)) is not None:
                raise error
        assert self.answer is not None
        self.drive.take(self.answer, now=self.now(), received=self.command.received)

    def turn(self) -> int:
        """Return the turn that the function is in."""
        return self.drive.turn


class Recorder:
    """Sends the records of functions to the store. One for each kernel in each event loop."""

    def __init__(self) -> None:
        self._gathering = CallBatcher(store_records)

    async def record(
        self,
        kernel: Kernel,
        drive: FunctionReplay,
        command: JobRecord,
        now: Callable[[], Micros],
        after: After = NOTHING_AFTER,
    ) -> JobRecorded:
        """Store the rows of a command and feed the answer to its function. `now` may read the time from the store.

        `after` has what follows from the rows.

        Raises the errors of either; WorkflowStalledError if the function does not stop to wait. Once it is sent it is
        awaited even if the caller is cancelled: until then, the function must not be touched.
        """
        record = Record(kernel, command, drive, now, after)
        await self._gathering.made(BatchedCall(record, record.apply, record.turn))
        assert record.answer is not None
        return record.answer

    def send(
        self,
        kernel: Kernel,
        drive: FunctionReplay,
        command: JobRecord,
        now: Callable[[], Micros],
        wake: Callable[[], None],
        after: After = NOTHING_AFTER,
        ahead: EventAppend | None = None,
        *,
        stays_inline: Callable[[str], bool],
    ) -> "BatchedCall[Record]":
        """Start what `record` does, and return the call. `ahead` and `stays_inline` are as in `Record`.

        `wake` is called in the loop when the call is over or its batch must be watched. The caller must then wait
        until it is over, also when it is cancelled (`BatchedCall.over`), and ask for its `answer`.
        """
        record = Record(kernel, command, drive, now, after, ahead, stays_inline)
        call = BatchedCall(record, record.apply, record.turn)
        self._gathering.send(call, wake)
        return call

    def answer(self, call: "BatchedCall[Record]") -> JobRecorded | None:
        """Return the answer of a call that is over; None if its function has returned before anything was stored.

        Raises as `record`, and OvertakenError.
        """
        if call.error is not None:
            raise call.error
        return call.what.answer

    async def leave(self, call: "BatchedCall[Record]") -> None:
        """Withdraw a call that has not started; otherwise wait until it is over."""
        await self._gathering.leave(call)


class _Now:
    """The current time for functions that are fed one after the other; read again after a while."""

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


def store_records(batch: Sequence[BatchedCall[Record]]) -> None:
    """Store the records of these calls in one transaction, but not those that are fed before they are stored.

    Each call gets its answer or its error.
    """
    if stored := [call for call in batch if call.what.ahead is None]:
        _store(stored)


def _store_alone(record: Record) -> BaseException | None:
    """Store one record; return the error if it has no answer."""
    call = BatchedCall(record, record.apply, record.turn)
    _store((call,))
    return call.error


def _store(batch: Sequence[BatchedCall[Record]]) -> None:
    first = batch[0].what
    kernel = first.kernel
    try:
        now = _Now(first.now, kernel.clock)
        answers = kernel.dispatch_many([call.what.command for call in batch])
        namespace, follow_up = first.command.namespace, follow_up_of(answers)
        kernel.admit(namespace, follow_up)
        if follow_up.topics:
            try_to_deliver_topics(kernel, namespace, follow_up.topics)
            first.after.fire_triggers(follow_up.topics)
        if follow_up.deliveries:
            first.after.deliver_results()
    except BaseException as error:  # noqa: BLE001  # raised in each waiting caller
        if isinstance(error, ConflictError) and len(batch) > 1:
            # The damaged rows of one run must not block the functions whose records share its transaction.
            for call in batch:
                _store((call,))
            return
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
    """The objects that all drivers of a kernel in an event loop share: the loop, the opener, the recorder."""

    loop: CurrentLoop = attrs.field(factory=CurrentLoop)
    in_loop: Callable[[Callable[[], object]], None] = attrs.field(factory=caller_into_loop)
    opener: Opener = attrs.field(factory=Opener)
    recorder: Recorder = attrs.field(factory=Recorder)


shared_here: Final[PerEventLoop[Shared]] = PerEventLoop(Shared)
