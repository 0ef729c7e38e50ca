"""Loading of a durable function that is to be driven: from memory, or by a replay of its history."""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import attrs

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.function_cache import IdleFunction
from holdfast.hosts.functions.call_queue import BatchedCall, CallBatcher
from holdfast.hosts.functions.function_events import Texts
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.wiring.interceptors import enter_function
from holdfast.kernel.authoring.functions import FunctionStage, Workflow
from holdfast.kernel.functions.run_facts import facts_of
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.ports.queries.runs import JobsOfRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobState

FRESH_SECONDS: Final = 0.1
"""For how many seconds the run that was read at the claim proves that its function is new."""


class FencedError(Exception):
    """The history shows that the attempt is over: its worker was suspended for so long that it was taken for lost."""


class Opener:
    """Opens functions in threads. One query verifies all new functions of a batch.

    One for each kernel in each event loop.
    """

    def __init__(self) -> None:
        self._gathering: CallBatcher[_Opening] = CallBatcher(_look)

    async def open(self, body: Body, make: Callable[[bool], None], turn: Callable[[], int]) -> None:
        """Call `make`, which opens the function of an attempt; its argument is whether the function is new.

        `turn` is as for `stall_watchdog.run_watched`. A cancelled caller abandons the call. Raises the errors of
        `make`; WorkflowStalledError; UnavailableError.
        """
        opening = _Opening(body)
        await self._gathering.made(
            BatchedCall(opening, lambda: make(opening.is_new), turn, may_be_abandoned=True)
        )


@attrs.define(eq=False)
class _Opening:
    body: Body
    is_new: bool = False

    @property
    def may_be_new(self) -> bool:
        """Whether the function was never driven before and its run had only its first row when it was read."""
        return self.body.attempt.epoch == 1 and self.body.work.run.last_row == 1


def _look(batch: Sequence[BatchedCall[_Opening]]) -> None:
    """Verify which of the new functions are still new; the others get threads of their own to read their histories."""
    try:
        new = _still_new([call.what.body for call in batch if call.what.may_be_new])
    except BaseException as error:  # noqa: BLE001  # raised in each waiting caller
        for call in batch:
            call.error = error
        return
    for call in batch:
        call.what.is_new = call.what.may_be_new and call.what.body.work.run.key in new
        call.takes_time = not call.what.is_new


def _still_new(bodies: Sequence[Body]) -> set[str]:
    """Return the keys of the runs without further rows. Runs that were read too long ago are read again."""
    fresh = {body.work.run.key for body in bodies if _is_fresh(body)}
    keys = sorted({body.work.run.key for body in bodies} - fresh)
    runs = bodies[0].parts.persistence.read(RunsByKey(tuple(keys))) if keys else ()
    # A loss and an end are rows: without further rows the attempt still holds its lease.
    return fresh | {run.key for run in runs if run.last_row == 1}


def _is_fresh(body: Body) -> bool:
    return body.read_at is not None and body.parts.clock.monotonic() < body.read_at + FRESH_SECONDS


def load_function(
    body: Body, text: Texts, known: Callable[[FunctionReplay], object], *, is_new: bool
) -> FunctionReplay:
    """Return the function of an attempt, with its whole history fed. Not where an event loop runs.

    `known` receives the drive before the function runs. With `is_new` there are no rows to feed. Raises FencedError;
    the errors of an input that cannot be read or does not fit; UnavailableError if a store is down.
    """
    return _resumed(body, text, known) or _replayed(body, text, known, is_new=is_new)


def keep_idle(body: Body, drive: FunctionReplay) -> None:
    """Keep a waiting function in memory for the next attempt on this worker. Not where an event loop runs."""
    attempt = body.attempt
    body.parts.cache.keep(IdleFunction(job=attempt.job, epoch=attempt.epoch, code=_code(body), drive=drive))


def _resumed(body: Body, text: Texts, known: Callable[[FunctionReplay], object]) -> FunctionReplay | None:
    """Return the function from memory, with the new rows fed; None if it must be replayed."""
    drive = cast("FunctionReplay | None", body.parts.cache.take(body.attempt, _code(body)))
    if drive is None:
        return None
    drive.report_to(body.runtime, after=drive.seen)
    known(drive)
    is_resumed = False
    try:
        is_resumed = drive.resume(rows_after(body, drive.seen), text, now=body.parts.trusted_now())
    finally:
        if not is_resumed:
            drive.close()
    return drive if is_resumed else None


def _replayed(
    body: Body, text: Texts, known: Callable[[FunctionReplay], object], *, is_new: bool
) -> FunctionReplay:
    """Return the function after a replay from the first row."""
    run = body.work.run
    if body.work.error is not None:
        raise body.work.error
    history = () if is_new else rows_after(body, 0)
    # Kept rows were recorded with the seed of the first generation: random values must come out the same.
    first = history[0] if run.kept_rows and history else None
    facts = facts_of(run)
    machine = _code(body).machine(
        body.work.input,
        began_at=run.created_at if first is None else first.at,
        seed=run.key if first is None else first.run,
        run=facts,
    )
    drive = FunctionReplay(machine, text)
    drive.know(run)
    # What it has reported in rows of an earlier generation is in the output of that one.
    drive.report_to(body.runtime, after=max(run.reported_row, run.first_row - 1) or -1)
    known(drive)
    try:
        enter_function(machine, body.around_function, run.namespace, facts)
        # An earlier attempt may have started steps without a row: only the first may add messages to the first turn.
        now, begins = body.parts.trusted_now(), body.attempt.epoch == 1
        drive.open(history, seen=0 if history else 1, now=now, begins=begins)
    except BaseException:
        drive.close()
        raise
    return drive


def rows_after(body: Body, seen: int) -> list[HistoryRow]:
    """Return the history rows of an attempt's run after number `seen`, including kept rows of earlier generations.

    FencedError if they show that the attempt is over. The driver that took over has counted the steps that were
    running when it started: feeding its rows here would start steps that no loss is counted for.
    """
    rows = list(rows_of(body.parts.persistence, body.work.run, seen))
    if _may_be_over(rows, body) and not _is_held(body):
        raise FencedError
    return rows


def _may_be_over(rows: Sequence[HistoryRow], body: Body) -> bool:
    """Return whether a row may show that an attempt is over.

    Queued steps have epochs of their own, so `_is_held` decides. Makes no function call per row: a replay has
    thousands.
    """
    run, epoch = body.work.run.key, body.attempt.epoch
    return any(
        row.run == run
        and (
            row.type in events.RUN_ENDS
            or (row.epoch is not None and row.epoch > epoch)
            or (row.epoch == epoch and row.type == events.StageLost.type)
        )
        for row in rows
    )


def _is_held(body: Body) -> bool:
    attempt = body.attempt
    jobs = body.parts.persistence.read(JobsOfRun(attempt.run))
    held = (job for job in jobs if job.state is JobState.LEASED)
    return any(job.key.text == attempt.job and job.epoch == attempt.epoch for job in held)


def _code(body: Body) -> Workflow[..., object]:
    return cast("FunctionStage[Any, object]", body.stage).workflow
