"""Drives a function until it has ended or waits for what is far off: runs its steps, and records what comes of them."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar, cast

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.execution.event_loops import ThisLoop
from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.execution.prepared_attempts import Body
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.functions.call_queue import Call
from holdfast.hosts.functions.committer import Record, shared_here
from holdfast.hosts.functions.function_events import is_unreadable
from holdfast.hosts.functions.history_rows import answer_rows, child_rows, queued_rows
from holdfast.hosts.functions.loader import FencedError, keep_idle, opened
from holdfast.hosts.functions.lost_steps import begins_again, begun_again, lost_steps
from holdfast.hosts.functions.outcomes import blocked, outcome_of, stuck
from holdfast.hosts.functions.pending_calls import Try
from holdfast.hosts.functions.replay import Drive
from holdfast.hosts.functions.stall_watchdog import in_turns
from holdfast.hosts.functions.step_heartbeats import Heartbeats
from holdfast.hosts.functions.step_runner import run_step, was_done
from holdfast.hosts.functions.store_retries import RETRY_MAX, RETRY_MIN, PatientValues, until_available
from holdfast.kernel.commands import (
    Blocked,
    Failure,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    Outcome,
    Recorded,
    passed_over,
)
from holdfast.kernel.history import limits
from holdfast.kernel.history.exceptions import error_words
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    STORE_ERRORS,
    CommandError,
    CompensationError,
    HistoryFullError,
    HoldfastError,
    RestlessError,
    UnreadableValueError,
)
from holdfast.ports.json import parse
from holdfast.ports.records import HISTORY_LONG, SUSPECT_AFTER, Micros

HISTORY_POLL_INTERVAL: Final[Micros] = 5_000_000
"""How long, in microseconds, a driver does without a look at the history, whatever it is told: hints may be lost."""
PUBLISH_WITHIN: Final[Micros] = 250_000
"""How long, in microseconds, what a function shows waits for something else to be recorded with."""
_EARLY: Final[Micros] = 20_000
"""How long, in microseconds, to wait with a timer that is due here, and not yet where it is recorded."""

T = TypeVar("T")

_log = logging.getLogger("holdfast.functions")


async def drive(body: Body, threads: CapacityLimiter) -> Outcome:
    """Drive the function of an attempt, and return how that ended. Raises only the cancellation of whoever drives it.

    What can't be recorded, for whatever reason, blocks its run, and no other.
    """
    driver = _Driver(body, threads)
    outcome: Outcome | None = None
    try:
        outcome = await driver.run()
        return outcome  # `finally` looks at it
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this function's
        first = _first(error)
        if isinstance(first, FencedError):
            return FunctionWaiting(
                seen=0, wake_at=micros(body.parts.clock.now())
            )  # that is fenced, and so counted
        run = body.work.run
        _log.exception("run %s (%s@%s) can't be driven", run.id, run.workflow, run.version)
        code = first.code if isinstance(first, CommandError) else "not_driven"
        return blocked(code, error_words(first))
    finally:
        if (let_go := driver.close(is_idle=isinstance(outcome, FunctionWaiting))) is not None:
            with CancelScope(shield=True):
                await result_in_thread(let_go)


class Alarm:
    """Makes a call after a while, or before: one that is set, and rings too early, is cheaper than another."""

    __slots__ = ("_call", "_loop", "_set")

    def __init__(self, loop: ThisLoop, call: Callable[[], object]) -> None:
        self._loop = loop
        self._call: Callable[[], object] | None = call
        self._set: tuple[float, Callable[[], object]] | None = None
        """When it rings, by the time of the loop, and what prevents that."""

    def ring_in(self, seconds: float) -> None:
        """Have it ring by then."""
        at = self._loop.time() + seconds
        if self._set is not None:
            if self._set[0] <= at:
                return
            self._set[1]()
        self._set = at, self._loop.call_later(seconds, self._ring)

    def stop(self) -> None:
        """Have it ring no more."""
        if self._set is not None:
            self._set[1]()
            self._set = None

    def end(self) -> None:
        """Have it ring never again, and keep nothing in memory that it would have called."""
        self.stop()
        self._call = None

    def _ring(self) -> None:
        self._set = None
        if self._call is not None:
            self._call()


class Trying:
    """A step that is tried, and can be stopped, also before its task has begun."""

    __slots__ = ("_is_cancelled", "_scope", "task")

    def __init__(self) -> None:
        self.task: object = None
        """Its task, which nobody else keeps."""
        self._scope: CancelScope | None = None
        self._is_cancelled = False

    def scope(self) -> CancelScope:
        """Return the scope of its task. To be called in that."""
        self._scope = CancelScope()
        if self._is_cancelled:
            self._scope.cancel()
        return self._scope

    def cancel(self) -> None:
        """Stop it."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class _Driver:
    def __init__(self, body: Body, threads: CapacityLimiter) -> None:
        self._body = body
        self._threads = threads
        self._parts = body.parts
        self._heartbeats = Heartbeats(body.runtime, body.parts.clock, is_first=body.attempt.epoch == 1)
        self._drive: Drive | None = None
        self._begun: list[Drive] = []
        """The function as soon as it runs, the last of several: it may be a while until it waits."""
        shared = shared_here.of(body.parts.kernel)
        self._loop, self._in_loop = shared.loop, shared.in_loop
        self._opener, self._recorder = shared.opener, shared.recorder
        self._context = copy_context()
        """What each of its steps begins with: what others have set there is nothing to it."""
        self._running: dict[str, Trying] = {}
        self._later: dict[str, Try] = {}
        """Steps that are to be tried again, but not yet."""
        self._lost: dict[str, Try] = {}
        """Those of the steps under way that were lost before."""
        self._lost_at: Micros = 0
        """When the last of them began."""
        self._done: list[Recorded] = []
        self._known: list[JobRecorded] = []
        """What was answered to those who have recorded something themselves, which the function is yet to be told."""
        self._failure: Failure | None = None
        """Why somebody has to look at the run, though its function could go on."""
        self._wake_event = self._loop.event()
        self._is_waiting = False
        """Whether it waits to be stirred, with nothing else to do."""
        self._has_only_steps = False
        """Whether nothing but steps was to be done for the function when that was looked at, before it waits."""
        self._sent: Call[Record] | None = None
        """What is being recorded without waiting for it."""
        self._alarm = Alarm(self._loop, self._wake)
        """When it is stirred by itself."""
        self._fault: BaseException | None = None
        """What has ended the task of a step that was to end by itself."""
        self._has_new_rows = False
        self._looked_at: Micros = 0
        self._timers_after: Micros = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._publish_at: Micros | None = None
        """When what the function shows is recorded by itself, if nothing else is before."""
        self._values = PatientValues(body.payloads)
        self._is_fenced = False
        """Whether somebody else drives it by now, or nobody does."""

    async def run(self) -> Outcome:
        try:
            drive = await until_available(self._open, "a function can't be driven yet")
        except RestlessError as error:
            for begun in self._begun[-1:]:
                begun.give_up(error)
            return blocked(error.code, str(error))
        except UnreadableValueError as error:
            return blocked(error.code, str(error))
        except HoldfastError as error:
            return self._body.failed(error)
        with self._parts.run_notifier.listening(
            self._body.attempt.run, lambda: self._in_loop(self._on_new_rows)
        ):
            try:
                outcome = await self._drive_on(drive)
            finally:
                await self._stop()
        self._body.runtime.received = drive.received()
        return await outcome_of(self._body, drive) if outcome is None else outcome

    async def _drive_on(self, drive: Drive) -> Outcome | None:
        """Drive the function until it rests, and return how; None if there is nothing more to drive."""
        self._looked_at = self._now()
        if self._body.attempt.attempt > 1 and not drive.is_over:
            # A clock that is behind here does not say what had begun, but by when it was lost all had that was due.
            lost_at = max(self._looked_at, self._body.work.run.updated_at)
            was_suspect = self._body.attempt.lost_attempts > SUSPECT_AFTER
            lost = lost_steps(drive.under_way(lost_at), was_suspect=was_suspect, now=lost_at)
            await self._record(drive, (*drive.notes(), *lost.rows))
            self._failure = lost.failure
        while not drive.is_over and not self._is_fenced:
            if self._fault is not None:
                raise self._fault
            if self._sent is not None:
                await self._until_sent(drive, self._sent)
                continue
            if self._known:
                await self._take(drive)
                continue
            now = self._now()
            if drive.is_full and self._failure is None:
                full = HistoryFullError(drive.seen, limits.ROWS_MORE)
                self._failure = Failure(code=full.code, message=str(full))
            has_others = drive.has_others
            if has_others and drive.queues.failure is not None and self._failure is None:
                self._failure = drive.queues.failure
            notes = drive.notes() if has_others else ()
            if not notes:  # whatever is begun may rely on them
                self._start(drive, now)
            is_time = self._failure is None and now >= self._timers_after
            due = drive.due(now) if is_time else ()
            again = self._begins_again(drive, now) if self._later and not notes else ()
            rows = (*notes, *self._taken(), *due, *again)
            if has_others:
                rows = (*rows, *await self._others(drive, now, begins=not notes, are_more=bool(rows)))
            else:
                self._publish_at = None
            if rows or self._has_new_rows or now - self._looked_at >= HISTORY_POLL_INTERVAL:
                self._has_new_rows = False
                await self._record(drive, rows)
                self._looked_at = now
                if due and drive.due(now):  # by the store's clock it is not time yet
                    self._timers_after = now + _EARLY
            elif (outcome := self._idle_outcome(drive, now)) is not None:
                if not (read := drive.before_suspend()):
                    return outcome
                await self._record(drive, read)
            else:
                await self._wait(drive, now)
        if drive.ended is not None and not self._is_fenced:
            # Or else a replay would not end as it did, and nobody would hear what updates have come to.
            left = (*drive.notes(), *await answer_rows(self._body, drive), *drive.published())
            if left:
                await self._record(drive, left)
        # Whatever a fenced attempt is settled with is fenced too, and so counted.
        return FunctionWaiting(seen=drive.seen, wake_at=self._now()) if self._is_fenced else None

    def _wake(self) -> None:
        self._wake_event.set()

    def _on_new_rows(self) -> None:
        self._has_new_rows = True
        self._wake_event.set()

    def close(self, *, is_idle: bool) -> Callable[[], None] | None:
        """Let go of the function. Return what is left to be done in a thread, if anything.

        If the function `rests`, that keeps it in memory.
        """
        self._heartbeats.flush()
        with self._lock:
            self._is_closed = True
            drive = self._drive
        if drive is None or not drive.is_in_memory:
            return None
        return drive.close if not is_idle or self._is_fenced else lambda: keep_idle(self._body, drive)

    def _now(self) -> Micros:
        return micros(self._parts.clock.now())

    async def _open(self) -> Drive:
        await self._opener.open(self._body, self._make_open, self._turn)
        assert self._drive is not None
        return self._drive

    def _turn(self) -> int:
        return self._begun[-1].turn if self._begun else 0

    def _make_open(self, is_new: bool) -> None:
        drive = opened(self._body, self._values.text, self._begun.append, is_new=is_new)
        with self._lock:
            self._drive = drive
            is_given_up = self._is_closed
        if is_given_up:  # nobody waits for this thread any more
            drive.close()

    # Steps ----------------------------------------------------------------------------------------------------------

    def _start(self, drive: Drive, now: Micros) -> None:
        """Start what has been asked for, unless the run is paused, and stop what nobody is interested in any more."""
        for one in drive.tries():
            self._later[one.request.call] = one
        for call in drive.dropped():
            self._later.pop(call, None)
            if call in self._running:
                self._running[call].cancel()
        if not self._later or not self._begins(drive, now):
            return
        for call, one in list(self._later.items()):
            if (one.at is None or one.at <= now) and (one.is_begun or not one.lost_attempts):
                del self._later[call]
                if one.lost_attempts:
                    self._lost[call], self._lost_at = one, now
                self._running[call] = trying = Trying()
                trying.task = self._loop.start(partial(self._run, one, trying), self._context)

    def _begins_again(self, drive: Drive, now: Micros) -> Sequence[Recorded]:
        """Return what is to be recorded of steps that were lost and begin again."""
        waiting = [one for one in self._later.values() if self._waits_for_its_turn(one, now)]
        if not waiting or not self._begins(drive, now):
            return ()
        turn, waited = self._body.attempt.epoch, now - self._lost_at
        again = begins_again(waiting, self._lost.values(), turn=turn, waited=waited)
        return [begun_again(one, now) for one in again]

    def _waits_for_its_turn(self, one: Try, now: Micros) -> bool:
        return one.lost_attempts > 0 and not one.is_begun and (one.at is None or one.at <= now)

    async def _run(self, one: Try, trying: Trying) -> None:
        call = one.request.call
        try:
            with trying.scope():
                clock, threads = self._parts.clock, self._threads
                recorded = await run_step(
                    self._body, one, clock, threads, self._command_of_one, self._heartbeats
                )
                if isinstance(recorded, JobRecorded):
                    self._known.append(recorded)
                    return
                if recorded.type == "step.failed" and (error := _unreadable(recorded)) is not None:
                    self._failure = error  # the try is not recorded: it is made again once the run goes on
                    return
                if recorded.type == "step.failed" and one.request.undoes and not was_done(recorded):
                    recorded = self._not_undone(recorded)
                self._done.append(recorded)
        except BaseException as error:
            self._fault = error
            if not isinstance(error, Exception):
                raise
        finally:
            del self._running[call]
            self._lost.pop(call, None)
            self._go_on()

    def _go_on(self) -> None:
        """Record what steps have come to, if there is nothing else to look at; or else stir who drives the function.

        Most steps come to an end, and to the next one, without that.
        """
        if self._sent is not None and self._is_alone:
            return  # what has come meanwhile goes with what comes of that
        if self._sent is None and self._done and self._is_alone and self._has_only_steps:
            self._send()
        else:
            self._wake_event.set()

    @property
    def _is_alone(self) -> bool:
        """Whether whoever drives the function waits, and nothing has come that is for it to look at."""
        if not self._is_waiting or self._wake_event.is_set():
            return False
        return not (self._has_new_rows or self._known or self._later or self._fault or self._failure)

    def _send(self) -> None:
        drive = self._drive
        assert drive is not None
        rows, self._done = self._done, []
        command, now = self._command(rows, drive.seen, drive.received()), self._parts.trusted_now
        self._sent = self._recorder.send(self._parts.kernel, drive, command, now, self._on_sent)

    def _on_sent(self) -> None:
        """Go on from what was recorded, unless that is for whoever drives the function to look at."""
        sent = self._sent
        if sent is None or not self._is_alone or not sent.is_plainly_over or sent.error is not None:
            self._wake_event.set()
            return
        try:
            self._begin_next(sent.what.drive, self._recorder.answer(sent))
        except Exception as error:  # noqa: BLE001  # others are told after this one
            self._fault = error
            self._wake_event.set()

    def _begin_next(self, drive: Drive, answer: JobRecorded) -> None:
        """Begin what the function has asked for by now."""
        self._sent = None
        self._note(drive, answer)
        self._looked_at = now = self._now()
        self._has_only_steps = self._publish_at is None and not self._is_fenced and drive.has_only_steps
        if self._has_only_steps:
            self._start(drive, now)
        if self._done:
            self._go_on()
        elif not self._has_only_steps or self._later or not self._running:
            self._wake_event.set()

    async def _until_sent(self, drive: Drive, sent: Call[Record]) -> None:
        """Wait until what was sent is recorded, and the function is told."""
        command = sent.what.command
        await self._record(drive, command.rows, seen=command.seen, sent=sent)
        self._sent = None
        self._looked_at = self._now()

    async def _stop(self) -> None:
        """Stop the steps that are under way, and wait until they are over; be stirred no more."""
        self._is_waiting = False
        self._alarm.end()
        for trying in list(self._running.values()):
            trying.cancel()
        if self._sent is not None:
            try:
                await self._recorder.leave(self._sent)
            except RestlessError as error:
                self._sent.what.drive.give_up(error)
        if not self._running:
            return
        with CancelScope(shield=True):
            while self._running:
                self._wake_event = self._loop.event()
                await self._wake_event.wait()

    async def _others(self, drive: Drive, now: Micros, *, begins: bool, are_more: bool) -> Sequence[Recorded]:
        """Return what is to be recorded beside what steps and timers have come to. `are_more` says whether those are.

        With `begins` runs are started, and steps get into their queues.
        """
        rows: list[Recorded] = [*await answer_rows(self._body, drive), *drive.queues.taken_back()]
        if begins and not drive.is_paused and self._failure is None:
            rows += [*await child_rows(self._body, drive), *await queued_rows(self._body, drive)]
        return [*rows, *self._published(drive, now, are_more or bool(rows))]

    def _published(self, drive: Drive, now: Micros, others: bool) -> list[Recorded]:
        """Return what the function shows, if it is to be recorded now: with others, before it rests, after a while."""
        published = drive.published()
        if not published:
            self._publish_at = None
            return []
        if self._publish_at is None:
            self._publish_at = now + PUBLISH_WITHIN
        if (
            others
            or self._has_new_rows
            or now >= self._publish_at
            or self._idle_outcome(drive, now) is not None
        ):
            self._publish_at = None
            return published
        return []

    def _not_undone(self, recorded: Recorded) -> Recorded:
        """Have the run blocked. Once somebody has resumed it, it is tried again: to be taken back is a must."""
        error = cast("dict[str, str]", parse(recorded.error or "{}"))
        what = f"what takes back a step, {recorded.step!r}, has failed {recorded.attempt} times"
        message = f"{what}: {error.get('type')}: {error.get('message')}; `run resume` has it tried again"
        self._failure = Failure(code=CompensationError.code, message=message[:MESSAGE_MAX])
        return attrs.evolve(recorded, type="step.retrying", retry_at=self._now())

    def _taken(self) -> list[Recorded]:
        done, self._done = self._done, []
        return done

    def _command_of_one(self, row: Recorded) -> JobRecord:
        drive = self._drive
        assert drive is not None
        return self._command((row,), drive.seen)

    def _command(self, rows: Sequence[Recorded], seen: int, received: tuple[int, ...] = ()) -> JobRecord:
        attempt = self._body.attempt
        return JobRecord(
            namespace=self._body.work.run.namespace,
            job=attempt.job,
            epoch=attempt.epoch,
            seen=seen,
            rows=tuple(rows),
            host=self._body.host,
            lost_attempts=self._drive.lost_attempts(rows) if self._drive is not None else 0,
            received=received,
        )

    async def _take(self, drive: Drive) -> None:
        """Tell the function what was recorded by others of its steps."""
        while self._known and not self._is_fenced:
            answer = self._known.pop(0)
            take = partial(in_turns, partial(drive.take, answer), lambda: drive.turn)
            try:
                with CancelScope(shield=True):  # nobody else is to touch the function meanwhile
                    await until_available(take, "what a step gave can't be had yet")
            except RestlessError as error:
                drive.give_up(error)
            self._note(drive, answer)

    def _note(self, drive: Drive, answer: JobRecorded) -> None:
        self._is_fenced = answer.status == "fenced"
        if any(row.type == HISTORY_LONG for row in answer.rows):
            _log.warning(
                "the history of run %r has %s rows, and may have %s: each wake-up reads them all",
                self._body.work.run.id,
                drive.seen,
                limits.ROWS_MAX,
            )

    async def _record(
        self,
        drive: Drive,
        rows: Sequence[Recorded],
        *,
        seen: int | None = None,
        sent: Call[Record] | None = None,
    ) -> None:
        """Store rows and tell the function. What may have been stored is sent again: it is stored once.

        `seen` is what was seen when they were sent first: what that stored is looked for among the rows after this.
        """
        wait = RETRY_MIN
        seen = drive.seen if seen is None else seen
        while True:
            try:
                if sent is not None:
                    before, sent = sent, None
                    answer = await self._recorder.sent(before)
                else:
                    command = self._command(rows, seen, drive.received())
                    now = self._parts.trusted_now
                    answer = await self._recorder.record(self._parts.kernel, drive, command, now)
            except RestlessError as error:
                drive.give_up(error)
                return
            except STORE_ERRORS as error:
                job = self._body.attempt.job
                _log.warning("what job %s has come to can't be recorded yet: %s", job, error)
                await anyio.sleep(wait)
                wait = min(2 * wait, RETRY_MAX)
                continue
            except CommandError:
                if len(rows) == 1:
                    raise
                await self._record_each(drive, rows)
                return
            break
        self._note(drive, answer)

    async def _record_each(self, drive: Drive, rows: Sequence[Recorded]) -> None:
        """Store rows one by one, so that what can be stored is. Raises what was refused first."""
        refused: CommandError | None = None
        for row in rows:
            try:
                if not self._is_fenced:
                    await self._record(drive, (row,))
            except CommandError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    async def _wait(self, drive: Drive, now: Micros) -> None:
        look_at = self._looked_at + HISTORY_POLL_INTERVAL
        # What is due and is not to begin would be due again at once: only what is under way is waited for.
        following = self._next(drive, now, begins=self._begins(drive, now))
        if following is None or self._failure is not None:
            at = look_at
        else:
            at = min(max(following, self._timers_after), look_at)
        if self._publish_at is not None:
            at = min(at, self._publish_at)
        self._alarm.ring_in(max(0.0, (at - now) / 1_000_000))
        self._has_only_steps = self._publish_at is None and drive.has_only_steps
        self._is_waiting = True
        try:
            await self._wake_event.wait()
        finally:
            self._is_waiting = False
        self._wake_event = self._loop.event()

    # Ends -----------------------------------------------------------------------------------------------------------

    def _next(self, drive: Drive, now: Micros, *, begins: bool = True) -> Micros | None:
        """Return when something is due, of steps too if they are to begin then; None if nothing is."""
        times = [one.at for one in drive.timers()]
        if begins:
            later = (one for one in self._later.values() if one.at is not None)
            # What waits for its turn has it when another has ended.
            if self._lost:
                later = (one for one in later if not self._waits_for_its_turn(one, now))
            times += (one.at for one in later if one.at is not None)
        return min(times, default=None)

    def _begins(self, drive: Drive, now: Micros) -> bool:
        """Whether steps that are due are to begin."""
        return not drive.is_paused and self._failure is None and not self._should_release(drive, now)

    def _idle_outcome(self, drive: Drive, now: Micros) -> Outcome | None:
        """Return that the function is to rest, if nothing of it is under way and nothing is soon."""
        if self._running or self._done or self._known:
            return None
        if self._failure is not None:
            return Blocked(failure=self._failure)
        waiting = FunctionWaiting(seen=drive.seen, lost_attempts=drive.lost_attempts())
        if self._later and self._should_release(drive, now):
            return attrs.evolve(waiting, wake_at=now)  # for whoever drives it next
        at = self._next(drive, now)
        if drive.is_paused:
            return attrs.evolve(waiting, wake_at=now if at is None or self._later else at)
        if at is None and drive.waits_for_others:
            return waiting
        if at is None:
            return stuck(drive.waits_at)
        is_far = at - now > self._parts.park_after or self._parts.is_leaving()
        return attrs.evolve(waiting, wake_at=at) if is_far else None

    def _should_release(self, drive: Drive, now: Micros) -> bool:
        """Whether nothing more is to begin here: there is no time left, or its claim has let it run beside others.

        Those are others than it may run beside: what was lost of it has ended since, or was lost more often before.
        """
        return self._is_out_of_time(now) or passed_over(drive.lost_attempts()) != self._body.attempt.pass_over

    def _is_out_of_time(self, now: Micros) -> bool:
        """Whether nothing more of it is to begin here: its host stops, or has little time left."""
        if self._parts.is_leaving():
            return True
        limit, ends_at = self._parts.drive_for, self._body.ends_at
        # What has begun by half of the time has as much again.
        half = None if ends_at is None else (ends_at - self._body.started_at) // 2
        driven_for = now - self._body.started_at
        return (limit is not None and driven_for > limit) or (half is not None and driven_for > half)


def _unreadable(recorded: Recorded) -> Failure | None:
    """Return why a run is to be blocked by a step that could not read what it was given; None if it is not."""
    error = cast("dict[str, str]", parse(recorded.error or "{}"))
    return Failure(code=error["code"], message=error["message"]) if is_unreadable(error) else None


def _first(error: BaseException) -> BaseException:
    """Return what was raised first in a group of task groups' errors."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
