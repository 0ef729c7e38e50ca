"""Driver of a durable function: runs its steps and records their outcomes, until the function ends or has to wait.

`drive` executes one attempt of the job that drives a function. It opens the function (loader.py: from memory, or by a
replay) and then repeats: start the steps that the function requested, wait for something to happen, store the rows
that record it, and feed the function the rows of the answer. An answer has all rows since the last one that the
function received, so also those of other writers: messages, cancellations, ends of child runs (docs/decisions/0025).
A function that waits for more than a second with no step running is parked: its attempt ends with `FunctionWaiting`,
its job sleeps until a timer is due or a message arrives, and the function stays in the worker's cache.

The driver and the tasks of the steps run on the event loop of the host. The function itself runs in threads, because
it has an event loop of its own. All drivers of a loop share an `Opener` and a `Recorder`, which run many functions in
one thread and store the rows of many functions in one transaction (docs/decisions/0008).

A round of `_drive_on` does the first of these that applies:

- process a record that a step sent, or the answer of a transactional step;
- store rows: notes, outcomes of steps, due timers, child runs, queued steps, replies, published values. Without any, it
  reads new rows if a hint arrived or the last look is five seconds ago, as hints may be lost;
- return the outcome of a function that waits with nothing running: parked, blocked or stuck;
- wait for a step, a hint or the alarm.

Before it looks for rows, a round starts the steps that are due. While there are `FunctionReplay.notes`, nothing new is
started: the function relies on them, so they must be stored first.

Steps continue without these rounds. While the function waits only for inline steps, a step that ends sends its own
record (`_send`), and the answer starts the next step (`_begin_next`). Everything else wakes the driver.

A function often returns after the same step as in earlier runs. The result of such a step (`last_steps.py`) is fed
before it is stored, and if the function returns, step and end are stored together (docs/decisions/0126). A function
has no effect but through what it requests, and nothing that it requests is started before the row is stored.

What is guaranteed:

- The result of a step is stored before anything is done that the function requests after it.
- A record is repeated until the store answers, with the same `seen`. The kernel compares it with the rows after that
  one, so rows that an unanswered attempt has stored are not stored again.
- If another worker has claimed the job, the answer is `fenced` and nothing is stored. The steps here are cancelled, and
  the outcome of this attempt is fenced as well.
- In a takeover, the steps that may have been running are recorded as lost before anything else (docs/decisions/0059).
- An unexpected error blocks this run and affects no other run. If the store refuses one row of several, the others are
  stored one by one first.
- A cancelled driver cancels its steps and waits for them, and for a record in flight.

What is ugly and why it stays:

- The two ways to record share `_is_waiting`, `_has_only_steps`, `_sent` and `_done`; `_is_alone` decides which of them
  continues. Without the second one a step takes 0.084 ms of the event loop instead of 0.048 ms.
- `_failure` ends nothing at once: the run is blocked when the running steps have ended, so that their results are kept.
- A fenced attempt returns `FunctionWaiting`, since there must be some outcome. It is refused, and counted as fenced.
- The clock here may be ahead of the store's: a timer that is due here and not there is sent again after 20 ms.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final, TypeVar

import anyio
import attrs
from anyio import CancelScope, CapacityLimiter

from holdfast.hosts.execution.attempt_log import log_failed_step, log_refused_message
from holdfast.hosts.execution.bodies import INTERCEPTOR_FAILED, Body
from holdfast.hosts.execution.event_loops import CurrentLoop
from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.functions.call_queue import BatchedCall
from holdfast.hosts.functions.committer import After, Record, shared_here
from holdfast.hosts.functions.function_events import is_unreadable
from holdfast.hosts.functions.history_rows import answer_rows, child_rows, queued_rows
from holdfast.hosts.functions.loader import FencedError, Opening, keep_idle, load_function
from holdfast.hosts.functions.lost_steps import lost_steps, restart_row, restartable_steps
from holdfast.hosts.functions.outcomes import blocked, outcome_of, stuck
from holdfast.hosts.functions.pending_calls import StepAttempt
from holdfast.hosts.functions.replay import FunctionReplay, OvertakenError
from holdfast.hosts.functions.stall_watchdog import run_watched
from holdfast.hosts.functions.step_heartbeats import Heartbeats
from holdfast.hosts.functions.step_runner import run_step
from holdfast.hosts.functions.store_retries import RETRY_MAX, RETRY_MIN, PatientValues, until_available
from holdfast.hosts.text import first_of
from holdfast.hosts.wiring.interceptors import FunctionRefusedError
from holdfast.hosts.wiring.start_calls import StartRefusedError
from holdfast.kernel.commands import (
    Blocked,
    EventAppend,
    EventPublish,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    Outcome,
    StepFail,
    pass_over_for,
)
from holdfast.kernel.functions.protocol import FunctionReturned
from holdfast.kernel.history import events, limits
from holdfast.kernel.history.exceptions import error_words
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    STORE_ERRORS,
    CommandError,
    HistoryFullError,
    HoldfastError,
    UnreadableRowError,
    UnreadableValueError,
    WorkflowStalledError,
)
from holdfast.ports.records.job import SUSPECT_AFTER
from holdfast.ports.records.values import Micros

AHEAD_ROWS_MAX: Final = 1_000
"""From how many rows on nothing is fed before it is stored, because a function that is overtaken is replayed."""
HISTORY_POLL_INTERVAL: Final[Micros] = 5_000_000
"""Microseconds between two looks at the history at most, because hints may be lost."""
OUTPUT_WITHIN: Final[Micros] = 2_000_000
"""Microseconds that what the function reports, its log for example, waits for rows to be stored with."""
PUBLISH_WITHIN: Final[Micros] = 250_000
"""Microseconds that published values and events wait for other rows to be stored with."""
_FAILED_STEPS: Final = frozenset({events.StepFailed.type, events.StepRetrying.type})
_EARLY: Final[Micros] = 20_000
"""Microseconds until a timer is sent again that is due here and not yet by the clock of the store."""

T = TypeVar("T")

_log = logging.getLogger("holdfast.functions")


async def drive(body: Body, threads: CapacityLimiter) -> Outcome:
    """Drive the function of an attempt and return the outcome. Raises only the cancellation of the caller.

    An error that prevents recording blocks the run of the function, and no other.
    """
    driver = _Driver(body, threads)
    outcome: Outcome | None = None
    try:
        outcome = await driver.run()
        return outcome  # `finally` reads it
    except Exception as error:  # noqa: BLE001  # any error concerns this function only
        first = first_of(error)
        if isinstance(first, FencedError):
            return FunctionWaiting(
                seen=0, wake_at=micros(body.parts.clock.now())
            )  # fenced as well, and counted by that
        run = body.work.run
        _log.exception("run %s (%s@%s) can't be driven", run.id, run.workflow, run.version)
        code = first.code if isinstance(first, CommandError) else "not_driven"
        return blocked(code, error_words(first))
    finally:
        if (let_go := driver.close(is_idle=isinstance(outcome, FunctionWaiting))) is not None:
            with CancelScope(shield=True):
                await result_in_thread(let_go)


class WakeTimer:
    """Calls a function after a delay, or earlier: keeping a timer that is set costs less than replacing it."""

    __slots__ = ("_call", "_loop", "_set")

    def __init__(self, loop: CurrentLoop, call: Callable[[], object]) -> None:
        self._loop = loop
        self._call: Callable[[], object] | None = call
        self._set: tuple[float, Callable[[], object]] | None = None
        """The due time by the clock of the loop, and the function that cancels the timer."""

    def ring_in(self, seconds: float) -> None:
        """Make the call within this many seconds."""
        at = self._loop.time() + seconds
        if self._set is not None:
            if self._set[0] <= at:
                return
            self._set[1]()
        self._set = at, self._loop.call_later(seconds, self._ring)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._set is not None:
            self._set[1]()
            self._set = None

    def end(self) -> None:
        """Cancel the timer for good, and drop the reference to the callback."""
        self.stop()
        self._call = None

    def _ring(self) -> None:
        self._set = None
        if self._call is not None:
            self._call()


class RunningStep:
    """A running attempt of a step, which can be cancelled even before its task has started."""

    __slots__ = ("_is_cancelled", "_scope", "task")

    def __init__(self) -> None:
        self.task: object = None
        """Its task. This is the only reference to it."""
        self._scope: CancelScope | None = None
        self._is_cancelled = False

    def scope(self) -> CancelScope:
        """Return the cancel scope of its task. Call it in that task."""
        self._scope = CancelScope()
        if self._is_cancelled:
            self._scope.cancel()
        return self._scope

    def cancel(self) -> None:
        """Cancel it."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class _Driver:
    def __init__(self, body: Body, threads: CapacityLimiter) -> None:
        self._body = body
        self._attempt = body.attempt
        self._threads = threads
        self._parts = body.parts
        self._heartbeats = Heartbeats(body.runtime, body.parts.clock, is_first=body.attempt.epoch == 1)
        self._drive: FunctionReplay | None = None
        self._begun: list[FunctionReplay] = []
        """Drives that were opened, the last one current: it may run for long before `_open` returns."""
        shared = shared_here.of(body.parts.kernel)
        self._loop, self._in_loop = shared.loop, shared.in_loop
        self._opener, self._recorder = shared.opener, shared.recorder
        self._after = After(body.parts.fire_triggers, body.parts.deliver_results)
        self._context = copy_context()
        """The context that each step starts in, free of context variables of other runs."""
        self._running: dict[str, RunningStep] = {}
        self._later: dict[str, StepAttempt] = {}
        """Steps that have not been started yet: new ones, retries that are not due, lost ones that await their turn."""
        self._lost: dict[str, StepAttempt] = {}
        """Running steps that were lost before."""
        self._lost_at: Micros = 0
        """When the last of these was started."""
        self._done: list[EventAppend | StepFail] = []
        """Outcomes of steps that are not recorded yet."""
        self._known: list[JobRecorded] = []
        """Answers of transactional steps that are not fed yet."""
        self._failure: Failure | None = None
        """Why the run must be blocked although its function could continue."""
        self._wake_event = self._loop.event()
        self._is_waiting = False
        """Whether the driver waits in `_wait`."""
        self._has_only_steps = False
        """Whether the function needed nothing but inline steps when that was last checked."""
        self._sent: BatchedCall[Record] | None = None
        """A record in flight that no task waits for."""
        self._sent_at: Micros = 0
        """When it was sent."""
        self._alarm = WakeTimer(self._loop, self._wake)
        """Wakes the driver when something is due."""
        self._fault: BaseException | None = None
        """An unexpected error of a step's task or of a record without a task, to be raised in the driver."""
        self._has_new_rows = False
        self._looked_at: Micros = 0
        """When the last request was sent whose answer confirmed the lease."""
        self._timers_after: Micros = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._publish_at: Micros | None = None
        """When published values are recorded if no other rows are before."""
        self._values = PatientValues(body.payloads)
        self._is_fenced = False
        """Whether this attempt has lost its lease."""
        self._noted = 0
        """The number of the last row of any answer."""
        self._last_steps = body.parts.last_steps
        self._last_step: str | None = None
        """The call of the step whose result was recorded last, if it was sent without waking the driver."""

    async def run(self) -> Outcome:
        try:
            drive = await until_available(self._open, "a function can't be driven yet")
        except WorkflowStalledError as error:
            for begun in self._begun[-1:]:
                begun.give_up(error)
            return blocked(error.code, str(error))
        except (UnreadableValueError, UnreadableRowError) as error:
            return blocked(error.code, str(error))
        except FunctionRefusedError as refused:
            return blocked(INTERCEPTOR_FAILED, str(refused))
        except HoldfastError as error:
            return self._body.failed(error)
        with self._parts.run_notifier.listening(self._attempt.run, lambda: self._in_loop(self._on_new_rows)):
            try:
                outcome = await self._drive_on(drive)
            except OvertakenError:
                # The rows are stored, in another order than the function has received them: it is replayed.
                return FunctionWaiting(seen=drive.seen - 1, wake_at=self._now())
            except BaseException:
                await self._store_ahead(drive)
                raise
            finally:
                await self._stop()
        if drive.fault is not None:
            await self._store_ahead(drive)
        self._body.runtime.received = drive.received()
        return await outcome_of(self._body, drive) if outcome is None else outcome

    async def _drive_on(self, drive: FunctionReplay) -> Outcome | None:
        """Drive until the function is to be suspended or blocked; return that outcome, None if it ended or failed."""
        self._looked_at = self._now()
        if self._attempt.attempt > 1 and not drive.is_over:
            # The clock here may be behind: by the time of the loss all steps that were due had been started.
            lost_at = max(self._looked_at, self._body.work.run.updated_at)
            was_suspect = self._attempt.lost_attempts > SUSPECT_AFTER
            lost = lost_steps(drive.running_steps(lost_at), self._body, was_suspect=was_suspect)
            await self._record(drive, (*drive.notes(), *lost))
        while self._sent is not None or not (drive.is_over or self._is_fenced):
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
            if not notes:  # new steps may rely on them
                self._start(drive, now)
            is_time = self._failure is None and now >= self._timers_after
            due = drive.due(now) if is_time else ()
            again = self._begins_again(drive, now) if self._later and not notes else ()
            rows = (*notes, *self._taken(), *due, *again)
            if has_others:
                rows = (*rows, *await self._others(drive, now, begins=not notes, are_more=bool(rows)))
            else:
                self._publish_at = None
            if rows or self._has_new_rows or now >= self._look_at or self._must_look(drive, now):
                self._has_new_rows = False
                await self._record(drive, rows)
                self._looked_at = now
                if due and drive.due(now):  # not due by the clock of the store
                    self._timers_after = now + _EARLY
            elif (outcome := self._idle_outcome(drive, now)) is not None:
                if not (read := drive.before_suspend()):
                    return outcome
                await self._record(drive, read)
            else:
                await self._wait(drive, now)
        if drive.ended is not None and not self._is_fenced:
            # Without these rows a replay would end differently, and updates would get no reply.
            left = (*drive.notes(), *await answer_rows(self._body, drive), *drive.published())
            if left:
                await self._record(drive, left)
            elif self._last_step is not None and isinstance(drive.ended, FunctionReturned):
                self._last_steps.confirm(self._attempt.definition, self._last_step)
        # The outcome of a fenced attempt is fenced too, and counted by that.
        return FunctionWaiting(seen=drive.seen, wake_at=self._now()) if self._is_fenced else None

    @property
    def _look_at(self) -> Micros:
        """When the history is read although nothing is to be recorded. Output is stored with that."""
        has_output = self._body.runtime.has_function_output
        return self._looked_at + (OUTPUT_WITHIN if has_output else HISTORY_POLL_INTERVAL)

    def _wake(self) -> None:
        self._wake_event.set()

    def _on_new_rows(self) -> None:
        self._has_new_rows = True
        self._wake_event.set()

    def close(self, *, is_idle: bool) -> Callable[[], None] | None:
        """Detach from the function; return what remains to be done in a thread, if anything.

        With `is_idle` that keeps the function in memory, otherwise it evicts it.
        """
        self._heartbeats.flush()
        with self._lock:
            self._is_closed = True
            drive = self._drive
        if drive is None or not drive.is_in_memory:
            return None
        is_kept = is_idle and not self._is_fenced and drive.ahead is None
        return (lambda: keep_idle(self._body, drive)) if is_kept else drive.close

    def _now(self) -> Micros:
        return micros(self._parts.clock.now())

    async def _open(self) -> FunctionReplay:
        await self._opener.open(self._body, self._make_open, self._turn)
        assert self._drive is not None
        return self._drive

    def _turn(self) -> int:
        return self._begun[-1].turn if self._begun else 0

    def _make_open(self, opening: Opening) -> None:
        drive = load_function(opening, self._values.text, self._begun.append)
        with self._lock:
            self._drive = drive
            is_given_up = self._is_closed
        if is_given_up:  # the caller was cancelled meanwhile
            drive.close()

    # Steps ----------------------------------------------------------------------------------------------------------

    def _start(self, drive: FunctionReplay, now: Micros) -> None:
        """Start requested steps, unless the run is paused or blocked; cancel steps that are not awaited any more."""
        for one in drive.tries():
            self._later[one.request.call] = one
        for call in drive.dropped():
            self._later.pop(call, None)
            if call in self._running:
                self._running[call].cancel()
        if not self._later or not self._begins(drive, now):
            return
        for call, one in list(self._later.items()):
            if self._is_due(one, min(now, self._looked_at)):
                del self._later[call]
                if one.lost_attempts:
                    self._lost[call], self._lost_at = one, now
                self._running[call] = trying = RunningStep()
                trying.task = self._loop.start(partial(self._run, one, trying), self._context)

    def _must_look(self, drive: FunctionReplay, now: Micros) -> bool:
        """Return whether a retry has become due since the store last confirmed the lease.

        A process that was suspended does not know that its lease has expired, and the next worker counts only the
        attempts that were due when it took over (docs/decisions/0141).
        """
        later = (one.at for one in self._later.values() if one.at is not None and self._is_due(one, now))
        return any(at > self._looked_at for at in later) and self._begins(drive, now)

    def _is_due(self, one: StepAttempt, at: Micros) -> bool:
        """Return whether an attempt is due at an instant and does not await its turn among lost steps."""
        return (one.at is None or one.at <= at) and (one.is_restarted or not one.lost_attempts)

    def _begins_again(self, drive: FunctionReplay, now: Micros) -> Sequence[EventAppend]:
        """Return the rows for lost steps that start again."""
        waiting = [one for one in self._later.values() if self._waits_for_its_turn(one, now)]
        if not waiting or not self._begins(drive, now):
            return ()
        turn, waited = self._attempt.epoch, now - self._lost_at
        again = restartable_steps(waiting, self._lost.values(), turn=turn, waited=waited)
        return [restart_row(one, self._body.host, now) for one in again]

    def _waits_for_its_turn(self, one: StepAttempt, now: Micros) -> bool:
        return one.lost_attempts > 0 and not one.is_restarted and (one.at is None or one.at <= now)

    async def _run(self, one: StepAttempt, trying: RunningStep) -> None:
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
                if isinstance(recorded, StepFail) and is_unreadable(recorded.event.error.type):
                    # Not recorded: retried once the run is resumed.
                    error = recorded.event.error
                    self._failure = Failure(code=error.code, message=error.message)
                    return
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
        """Send the outcomes of steps if nothing else needs attention; otherwise wake the driver.

        Most steps end, and the next ones start, without waking it.
        """
        if self._sent is not None and self._is_alone:
            return  # `_begin_next` sends it after the answer
        if self._sent is None and self._done and self._is_alone and self._has_only_steps:
            self._send()
        else:
            self._wake_event.set()

    @property
    def _is_alone(self) -> bool:
        """Whether the driver waits and nothing has happened that it must process."""
        if not self._is_waiting or self._wake_event.is_set():
            return False
        return not (self._has_new_rows or self._known or self._later or self._fault or self._failure)

    def _send(self) -> None:
        drive = self._drive
        assert drive is not None
        self._sent_at = self._now()
        rows, self._done = self._done, []
        ahead = self._step_to_feed_ahead(drive, rows)
        command, now = (
            self._command(rows, drive.seen, drive.received(), stores=ahead is None),
            self._parts.trusted_now,
        )
        self._sent = self._recorder.send(
            self._parts.kernel,
            drive,
            command,
            now,
            self._on_sent,
            self._after,
            ahead,
            stays_inline=self._body.payloads.stay_inline,
        )

    def _step_to_feed_ahead(
        self, drive: FunctionReplay, rows: Sequence[EventAppend | StepFail]
    ) -> EventAppend | None:
        """Return the result of the step that is probably the last one of its function; None if it is not known."""
        self._last_step = None
        if len(rows) != 1 or self._running or self._later or drive.seen >= AHEAD_ROWS_MAX:
            return None
        done = rows[0]
        if not isinstance(done, EventAppend) or not isinstance(done.event, events.StepCompleted):
            return None
        if done.published or done.artifacts or done.payload is None or done.payload.inline is None:
            return None
        self._last_step = call = done.event.call
        return done if self._last_steps.expects(self._attempt.definition, call) else None

    async def _store_ahead(self, drive: FunctionReplay) -> None:
        """Store the result of a step that was fed before it was stored, because this attempt is given up.

        If that fails, the step runs again, as after a crash.
        """
        await self._stop()
        if drive.ahead is None:
            return
        command = self._command((drive.ahead.step,), drive.ahead.after, stores=True)
        store = partial(self._parts.kernel.dispatch_many, (command,))
        with CancelScope(shield=True):
            try:
                await result_in_thread(store)
            except STORE_ERRORS as error:
                _log.warning("the outcome of job %s can't be recorded: %s", command.job, error)

    def _on_sent(self) -> None:
        """Continue with the next steps after a record was answered, or wake the driver."""
        sent = self._sent
        if sent is None or not self._is_alone or not sent.is_plainly_over or sent.error is not None:
            self._wake_event.set()
            return
        try:
            answer = self._answer(sent)
            if answer is None:
                self._wake_event.set()
            else:
                self._begin_next(sent.what.drive, answer)
        except Exception as error:  # noqa: BLE001  # other callbacks of the batch follow this one
            self._fault = error
            self._wake_event.set()

    def _answer(self, sent: BatchedCall[Record]) -> JobRecorded | None:
        if sent.what.has_returned is False:
            self._last_steps.refute(self._attempt.definition, self._last_step or "")
            self._last_step = None
        return self._recorder.answer(sent)

    def _begin_next(self, drive: FunctionReplay, answer: JobRecorded) -> None:
        """Start the steps that the function has requested since."""
        self._sent = None
        self._note(drive, answer)
        self._looked_at, now = self._sent_at, self._now()
        self._has_only_steps = self._publish_at is None and not self._is_fenced and drive.has_only_steps
        if self._has_only_steps:
            self._start(drive, now)
        if self._done:
            self._go_on()
        elif not self._has_only_steps or self._later or not self._running:
            self._wake_event.set()

    async def _until_sent(self, drive: FunctionReplay, sent: BatchedCall[Record]) -> None:
        """Wait until the record in flight is stored and its answer fed."""
        command = sent.what.command
        await self._record(drive, command.records, seen=command.seen, sent=sent)
        self._sent = None
        self._looked_at = self._sent_at

    async def _stop(self) -> None:
        """Cancel the running steps and wait for them and for a record in flight; stop the alarm."""
        self._is_waiting = False
        self._alarm.end()
        for trying in list(self._running.values()):
            trying.cancel()
        # Left once: the second time `leave` would wait for a call that it has taken back, and that is never made.
        sent, self._sent = self._sent, None
        if sent is not None:
            try:
                await self._recorder.leave(sent)
            except WorkflowStalledError as error:
                sent.what.drive.give_up(error)
        if not self._running:
            return
        with CancelScope(shield=True):
            while self._running:
                self._wake_event = self._loop.event()
                await self._wake_event.wait()

    async def _others(
        self, drive: FunctionReplay, now: Micros, *, begins: bool, are_more: bool
    ) -> Sequence[FunctionRecord]:
        """Return the rows to record besides outcomes of steps and timers; `are_more` is whether there are such.

        With `begins`, rows that start child runs and queue steps are included.
        """
        rows: list[FunctionRecord] = [
            *await answer_rows(self._body, drive),
            *drive.queues.cancellation_rows(),
        ]
        if begins and not drive.is_paused and self._failure is None:
            try:
                rows += await child_rows(self._body, drive)
            except StartRefusedError as refused:
                self._failure = Failure(code=INTERCEPTOR_FAILED, message=str(refused)[:MESSAGE_MAX])
            else:
                rows += await queued_rows(self._body, drive)
        return [*rows, *self._published(drive, now, are_more or bool(rows))]

    def _published(
        self, drive: FunctionReplay, now: Micros, others: bool
    ) -> list[EventAppend | EventPublish]:
        """Return published values and events if it is time to record them.

        That is with other rows, before parking, or after a while.
        """
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

    def _taken(self) -> list[EventAppend | StepFail]:
        done, self._done = self._done, []
        return done

    def _command_of_one(self, row: FunctionRecord) -> JobRecord:
        drive = self._drive
        assert drive is not None
        return self._command((row,), drive.seen)

    def _command(
        self,
        rows: Sequence[FunctionRecord],
        seen: int,
        received: tuple[int, ...] = (),
        *,
        stores: bool = False,
    ) -> JobRecord:
        """Return the command that records rows; with `stores` also the output so far."""
        attempt = self._attempt
        return JobRecord(
            namespace=self._body.work.run.namespace,
            job=attempt.job,
            epoch=attempt.epoch,
            seen=seen,
            records=tuple(rows),
            outputs=self._body.runtime.take_all() if stores else (),
            reported=seen if stores else 0,
            lost_attempts=self._drive.lost_attempts(rows) if self._drive is not None else 0,
            received=received,
        )

    async def _take(self, drive: FunctionReplay) -> None:
        """Feed the answers of transactional steps."""
        self._last_step = None
        while self._known and not self._is_fenced:
            answer = self._known.pop(0)
            take = partial(run_watched, partial(drive.take, answer), lambda: drive.turn)
            try:
                with CancelScope(shield=True):  # the function must not be touched meanwhile
                    await until_available(take, "the result of a step can't be loaded yet")
            except WorkflowStalledError as error:
                drive.give_up(error)
            self._note(drive, answer)

    def _note(self, drive: FunctionReplay, answer: JobRecorded) -> None:
        self._is_fenced = answer.status == "fenced"
        self._failure = self._failure or answer.failure
        for row in answer.rows:
            if row.number <= self._noted:  # answers overlap
                continue
            self._noted = row.number
            if row.type in _FAILED_STEPS and row.epoch == self._attempt.epoch:
                log_failed_step(self._body.work.run, row, is_blocked=answer.failure is not None)
            elif row.type == events.SignalRefused.type and row.epoch == self._attempt.epoch:
                log_refused_message(self._body.work.run, row)
            elif row.type == events.HistoryLong.type:
                _log.warning(
                    "the history of run %r has %s rows of at most %s: each wake-up reads all of them",
                    self._body.work.run.id,
                    drive.seen,
                    limits.ROWS_MAX,
                )

    async def _record(
        self,
        drive: FunctionReplay,
        rows: Sequence[FunctionRecord],
        *,
        seen: int | None = None,
        sent: BatchedCall[Record] | None = None,
    ) -> None:
        """Store rows and feed the answer; repeat while the store is down.

        Rows that were stored already are not stored again. `seen` is the last row that was seen when they were first
        sent: the kernel looks for them in the rows after it.
        """
        wait = RETRY_MIN
        seen = drive.seen if seen is None else seen
        received = None if sent is None else sent.what.command.received
        if sent is None:
            self._last_step = None
        while True:
            before, sent = sent, None
            if before is not None:
                command = before.what.command
            else:
                # What the function has received since a step that is not stored is not received yet.
                if drive.ahead is None or received is None:
                    received = drive.received()
                command = self._command(rows, seen, received, stores=True)
            try:
                if before is not None:
                    if not before.is_plainly_over:
                        await before.over()
                    answer = self._answer(before)
                    if answer is None:
                        return
                else:
                    now = self._parts.trusted_now
                    kernel = self._parts.kernel
                    answer = await self._recorder.record(kernel, drive, command, now, self._after)
            except WorkflowStalledError as error:
                drive.give_up(error)
                return
            except STORE_ERRORS as error:
                self._body.runtime.put_back(command.outputs)
                job = self._attempt.job
                _log.warning("the outcome of job %s can't be recorded yet: %s", job, error)
                await anyio.sleep(wait)
                wait = min(2 * wait, RETRY_MAX)
                continue
            except CommandError:
                self._body.runtime.put_back(command.outputs)
                if len(rows) == 1:
                    raise
                await self._record_each(drive, rows)
                return
            break
        self._note(drive, answer)

    async def _record_each(self, drive: FunctionReplay, rows: Sequence[FunctionRecord]) -> None:
        """Store rows one by one, so that one refused row does not block the others. Raises the first refusal."""
        refused: CommandError | None = None
        for row in rows:
            try:
                if not self._is_fenced:
                    await self._record(drive, (row,))
            except CommandError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    async def _wait(self, drive: FunctionReplay, now: Micros) -> None:
        look_at = self._look_at
        # Due steps that may not start would be due again at once: then only running steps are waited for.
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

    def _next(self, drive: FunctionReplay, now: Micros, *, begins: bool = True) -> Micros | None:
        """Return when the next timer, or step if `begins`, is due; None if none is."""
        times = [one.at for one in drive.timers()]
        if begins:
            later = (one for one in self._later.values() if one.at is not None)
            # A lost step that awaits its turn starts when another has ended.
            if self._lost:
                later = (one for one in later if not self._waits_for_its_turn(one, now))
            times += (one.at for one in later if one.at is not None)
        return min(times, default=None)

    def _begins(self, drive: FunctionReplay, now: Micros) -> bool:
        """Return whether steps that are due may start."""
        return not drive.is_paused and self._failure is None and not self._should_release(drive, now)

    def _idle_outcome(self, drive: FunctionReplay, now: Micros) -> Outcome | None:
        """Return the outcome of a function that is to be suspended or blocked; None while it has work now or soon."""
        if self._running or self._done or self._known:
            return None
        if self._failure is not None:
            return Blocked(failure=self._failure)
        waiting = FunctionWaiting(seen=drive.seen, lost_attempts=drive.lost_attempts())
        if self._later and self._should_release(drive, now):
            return attrs.evolve(waiting, wake_at=now)  # for the next driver
        at = self._next(drive, now)
        if drive.is_paused:
            return attrs.evolve(waiting, wake_at=now if at is None or self._later else at)
        if at is None and drive.waits_for_others:
            return waiting
        if at is None:
            return stuck(drive.waits_at)
        is_far = at - now > self._parts.park_after or self._parts.is_leaving()
        return attrs.evolve(waiting, wake_at=at) if is_far else None

    def _should_release(self, drive: FunctionReplay, now: Micros) -> bool:
        """Return whether nothing more may start here.

        Either its time is up, or its claim allowed other neighbours than it may have now (docs/decisions/0059). The
        latter is so when its lost steps have ended, or when one of them was lost more often than at the claim.
        """
        return self._is_out_of_time(now) or pass_over_for(drive.lost_attempts()) != self._attempt.pass_over

    def _is_out_of_time(self, now: Micros) -> bool:
        """Return whether nothing more may start here, because the host is shutting down or has little time left."""
        if self._parts.is_leaving():
            return True
        limit, ends_at = self._parts.drive_for, self._body.ends_at
        # A step that starts before half of the time has the other half to end.
        half = None if ends_at is None else (ends_at - self._body.started_at) // 2
        driven_for = now - self._body.started_at
        return (limit is not None and driven_for > limit) or (half is not None and driven_for > half)
