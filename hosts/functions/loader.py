"""Opens a function that is to be driven: as it was kept in memory, or else by a replay of its history."""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import attrs

from holdfast.hosts.execution.function_cache import IdleFunction
from holdfast.hosts.execution.prepared_attempts import Body
from holdfast.hosts.functions.call_queue import Call, Gathering
from holdfast.hosts.functions.function_events import Texts
from holdfast.hosts.functions.replay import Drive
from holdfast.kernel.authoring.functions import FunctionStage, Workflow
from holdfast.kernel.history.reader import rows_of
from holdfast.ports.events import RUN_ENDS
from holdfast.ports.persistence import JobsOfRun, RunsByKey
from holdfast.ports.records import HistoryRow, JobState

FRESH_SECONDS: Final = 0.1
"""For how long what was read of a run when it was claimed says that its function is new."""


class FencedError(Exception):
    """The history says that the attempt is over: its worker was stopped for so long that it was taken for lost."""


class Opener:
    """Opens functions in threads. What is known of all new ones that have gathered is asked in one question.

    One for each kernel in each event loop.
    """

    def __init__(self) -> None:
        self._gathering: Gathering[_Opening] = Gathering(_look)

    async def open(self, body: Body, make: Callable[[bool], None], turn: Callable[[], int]) -> None:
        """Have `make` called, which opens the function of an attempt; it is told whether that is new.

        `turn` is as for `turns.in_turns`. Whoever is cancelled leaves it behind.
        Raises what `make` does; RestlessError; UnavailableError.
        """
        opening = _Opening(body)
        await self._gathering.made(Call(opening, lambda: make(opening.is_new), turn, may_be_left=True))


@attrs.define(eq=False)
class _Opening:
    body: Body
    is_new: bool = False

    @property
    def may_be_new(self) -> bool:
        """Whether nobody has driven the function yet, and nothing was known of its run but how it was called."""
        return self.body.attempt.epoch == 1 and self.body.work.run.last_row == 1


def _look(batch: Sequence[Call[_Opening]]) -> None:
    """Find which of the new functions still are; the others have histories to be read, which takes its time."""
    try:
        new = _still_new([call.what.body for call in batch if call.what.may_be_new])
    except BaseException as error:  # noqa: BLE001  # each of those who wait raises it
        for call in batch:
            call.error = error
        return
    for call in batch:
        call.what.is_new = call.what.may_be_new and call.what.body.work.run.key in new
        call.takes_time = not call.what.is_new


def _still_new(bodies: Sequence[Body]) -> set[str]:
    """Return the runs of which there is no more than there was. Those that were read long ago are read again."""
    fresh = {body.work.run.key for body in bodies if _is_fresh(body)}
    keys = sorted({body.work.run.key for body in bodies} - fresh)
    runs = bodies[0].parts.persistence.read(RunsByKey(tuple(keys))) if keys else ()
    # To be lost, and to end, are rows: an attempt whose run has no more is held.
    return fresh | {run.key for run in runs if run.last_row == 1}


def _is_fresh(body: Body) -> bool:
    return body.read_at is not None and body.parts.clock.monotonic() < body.read_at + FRESH_SECONDS


def opened(body: Body, text: Texts, known: Callable[[Drive], object], *, is_new: bool) -> Drive:
    """Return the function of an attempt, told all of its history that there is. Not where an event loop runs.

    `known` is told of it before it runs. Of one that `is_new` there is nothing to be told.
    Raises what says that its input can't be read, or is not what it takes; UnavailableError if a store is away;
    FencedError.
    """
    return _resumed(body, text, known) or _replayed(body, text, known, is_new=is_new)


def keep_idle(body: Body, drive: Drive) -> None:
    """Keep a function in memory that rests, for whoever drives it next here. Not where an event loop runs."""
    attempt = body.attempt
    body.parts.cache.keep(IdleFunction(job=attempt.job, epoch=attempt.epoch, code=_code(body), drive=drive))


def _resumed(body: Body, text: Texts, known: Callable[[Drive], object]) -> Drive | None:
    """Return it as it was kept in memory, told what has come since; None if it is to be replayed."""
    drive = body.parts.cache.take(body.attempt, _code(body))
    if drive is None:
        return None
    drive.speak_to(body.runtime)
    known(drive)
    is_resumed = False
    try:
        is_resumed = drive.resume(rows_after(body, drive.seen), text, now=body.parts.trusted_now())
    finally:
        if not is_resumed:
            drive.close()
    return drive if is_resumed else None


def _replayed(body: Body, text: Texts, known: Callable[[Drive], object], *, is_new: bool) -> Drive:
    """Return it told all that there is, from the first row on."""
    run = body.work.run
    if body.work.error is not None:
        raise body.work.error
    history = () if is_new else rows_after(body, 0)
    # What was drawn in rows that are kept is drawn again: it hangs on the generation in which all began.
    first = history[0] if run.kept_rows and history else None
    machine = _code(body).machine(
        body.work.input,
        began_at=run.created_at if first is None else first.at,
        seed=run.key if first is None else first.run,
    )
    drive = Drive(machine, text)
    drive.know(run)
    drive.speak_to(body.runtime)
    known(drive)
    try:
        # Whoever had it before may have begun with steps of which nothing is recorded.
        now, begins = body.parts.trusted_now(), body.attempt.epoch == 1
        drive.open(history, seen=0 if history else 1, now=now, begins=begins)
    except BaseException:
        drive.close()
        raise
    return drive


def rows_after(body: Body, seen: int) -> list[HistoryRow]:
    """Return the rows of the history of an attempt's run after this number, those that it keeps too.

    FencedError if they tell that the attempt is over. Whoever drives the function now has counted what was under way
    when it began: were it driven here by what is recorded since, steps would begin that nobody counts.
    """
    rows = list(rows_of(body.parts.persistence, body.work.run, seen))
    if _may_be_over(rows, body) and not _is_held(body):
        raise FencedError
    return rows


def _may_be_over(rows: Sequence[HistoryRow], body: Body) -> bool:
    """Whether a row says that an attempt is over, or something like it: steps in queues count claims of their own.

    Makes no call for a row: a replay has thousands of them.
    """
    run, epoch = body.work.run.key, body.attempt.epoch
    return any(
        row.run == run
        and (
            row.type in RUN_ENDS
            or (row.epoch is not None and row.epoch > epoch)
            or (row.epoch == epoch and row.type == "stage.lost")
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
