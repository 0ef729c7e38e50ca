"""Loading of a durable function that is to be driven: from memory, or by a replay of its history."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from holdfast.ports.errors import HoldfastError
from holdfast.ports.queries.history import HistoriesOf
from holdfast.ports.queries.runs import JobsOfRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobState

FRESH_SECONDS: Final = 0.1
"""For how many seconds the run that was read at the claim proves that its function is new, and rows can be fed."""
SHORT: Final = 50
"""The most history rows that a function may have to be fed for them to be read together with those of others."""
_TOGETHER_MAX: Final = 1_000
"""The most history rows that one statement reads."""


class FencedError(Exception):
    """The history shows that the attempt is over: its worker was suspended for so long that it was taken for lost."""


class Opener:
    """Opens functions in threads. One query verifies all new functions of a batch, one reads all short histories.

    One for each kernel in each event loop.
    """

    def __init__(self) -> None:
        self._gathering: CallBatcher[Opening] = CallBatcher(_look)

    async def open(self, body: Body, make: "Callable[[Opening], None]", turn: Callable[[], int]) -> None:
        """Call `make`, which opens the function of an attempt.

        `turn` is as for `stall_watchdog.run_watched`. A cancelled caller abandons the call. Raises the errors of
        `make`; WorkflowStalledError; UnavailableError.
        """
        opening = Opening(body)
        await self._gathering.made(BatchedCall(opening, lambda: make(opening), turn, may_be_abandoned=True))


@attrs.frozen
class _ReadRows:
    """History rows of a run that were read."""

    after: int
    """The number of the row after which they begin. None follow after them."""
    rows: list[HistoryRow]
    at: float
    """When the read began, by the monotonic clock."""

    @property
    def has_blobs(self) -> bool:
        return any(row.payload is not None and row.payload.blob is not None for row in self.rows)


@attrs.define(eq=False)
class Opening:
    """A function that is to be opened, and what is known of its history."""

    body: Body
    is_new: bool = False
    """Whether it was never driven before and has no rows to be fed."""
    read: _ReadRows | None = None
    """The rows that were read with those of other functions; None if it reads its own."""

    @property
    def may_be_new(self) -> bool:
        """Whether the function was never driven before and its run had only its first row when it was read."""
        return self.body.attempt.epoch == 1 and self.body.work.run.last_row == 1

    def rows_after(self, seen: int) -> list[HistoryRow]:
        """Return the rows that were read with those of other functions, unless that was too long ago.

        Otherwise as the function `rows_after`.
        """
        read, self.read = self.read, None
        if read is None or read.after != seen or not _is_fresh(self.body, read.at):
            return rows_after(self.body, seen)
        return _held_rows(self.body, read.rows)


def _look(batch: Sequence[BatchedCall[Opening]]) -> None:
    """Verify which of the new functions are still new, and read the short histories of the others.

    Those with long histories, or with values in the blob store, get threads of their own.
    """
    try:
        new = _still_new([call.what.body for call in batch if call.what.may_be_new])
        for call in batch:
            call.what.is_new = call.what.may_be_new and call.what.body.work.run.key in new
        with suppress(HoldfastError):  # then each reads its own history, and raises its own error
            _read_short([call.what for call in batch if not call.what.is_new])
    except BaseException as error:  # noqa: BLE001  # raised in each waiting caller
        for call in batch:
            call.error = error
        return
    for call in batch:
        read = call.what.read
        call.takes_time = not call.what.is_new and (read is None or read.has_blobs)


def _read_short(openings: Sequence[Opening]) -> None:
    """Read the rows of the functions that have few of them."""
    together: dict[str, tuple[Opening, int]] = {}
    expected = 0
    for one in openings:
        run, seen = one.body.work.run, _last_fed_row(one.body)
        number = max(run.last_row - seen, 0)
        if run.kept_rows or number > SHORT:
            continue
        if expected + number >= _TOGETHER_MAX:
            _read_together(together)
            together, expected = {}, 0
        together[run.key] = one, seen
        expected += number
    if together:
        _read_together(together)


def _last_fed_row(body: Body) -> int:
    """Return the number of the last row that was fed to the function in memory; 0 without one."""
    drive = cast("FunctionReplay | None", body.parts.cache.find(body.attempt, _code(body)))
    return 0 if drive is None else drive.seen


def _read_together(openings: Mapping[str, tuple[Opening, int]]) -> None:
    """Read the rows of runs, by key, after the row with this number. Leave out what is longer than it was."""
    parts = next(iter(openings.values()))[0].body.parts
    at = parts.clock.monotonic()
    places = tuple((key, seen) for key, (_, seen) in sorted(openings.items()))
    found = parts.persistence.read(HistoriesOf(places, _TOGETHER_MAX))
    by_run: dict[str, list[HistoryRow]] = {key: [] for key in openings}
    for row in found:
        by_run[row.run].append(row)
    if len(found) == _TOGETHER_MAX:  # only the runs before the last one are complete
        last = found[-1].run
        by_run = {key: of_run for key, of_run in by_run.items() if of_run and key != last}
    for key, of_run in by_run.items():
        one, seen = openings[key]
        one.read = _ReadRows(seen, of_run, at)


def _still_new(bodies: Sequence[Body]) -> set[str]:
    """Return the keys of the runs without further rows. Runs that were read too long ago are read again."""
    fresh = {body.work.run.key for body in bodies if _is_fresh(body, body.read_at)}
    keys = sorted({body.work.run.key for body in bodies} - fresh)
    runs = bodies[0].parts.persistence.read(RunsByKey(tuple(keys))) if keys else ()
    # A loss and an end are rows: without further rows the attempt still holds its lease.
    return fresh | {run.key for run in runs if run.last_row == 1}


def _is_fresh(body: Body, read_at: float | None) -> bool:
    return read_at is not None and body.parts.clock.monotonic() < read_at + FRESH_SECONDS


def load_function(opening: Opening, text: Texts, known: Callable[[FunctionReplay], object]) -> FunctionReplay:
    """Return the function of an attempt, with its whole history fed. Not where an event loop runs.

    `known` receives the drive before the function runs. Raises FencedError; the errors of an input that cannot be read
    or does not fit; UnavailableError if a store is down.
    """
    return _resumed(opening, text, known) or _replayed(opening, text, known)


def keep_idle(body: Body, drive: FunctionReplay) -> None:
    """Keep a waiting function in memory for the next attempt on this worker. Not where an event loop runs."""
    attempt = body.attempt
    body.parts.cache.keep(IdleFunction(job=attempt.job, epoch=attempt.epoch, code=_code(body), drive=drive))


def _resumed(
    opening: Opening, text: Texts, known: Callable[[FunctionReplay], object]
) -> FunctionReplay | None:
    """Return the function from memory, with the new rows fed; None if it must be replayed."""
    body = opening.body
    drive = cast("FunctionReplay | None", body.parts.cache.take(body.attempt, _code(body)))
    if drive is None:
        return None
    drive.report_to(body.runtime, after=drive.seen)
    known(drive)
    is_resumed = False
    try:
        is_resumed = drive.resume(opening.rows_after(drive.seen), text, now=body.parts.trusted_now())
    finally:
        if not is_resumed:
            drive.close()
    return drive if is_resumed else None


def _replayed(opening: Opening, text: Texts, known: Callable[[FunctionReplay], object]) -> FunctionReplay:
    """Return the function after a replay from the first row."""
    body = opening.body
    run = body.work.run
    if body.work.error is not None:
        raise body.work.error
    history = () if opening.is_new else opening.rows_after(0)
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
    return _held_rows(body, list(rows_of(body.parts.persistence, body.work.run, seen)))


def _held_rows(body: Body, rows: list[HistoryRow]) -> list[HistoryRow]:
    """Return these rows. FencedError if they show that the attempt is over."""
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
