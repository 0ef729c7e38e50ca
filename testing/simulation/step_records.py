"""The record of steps in a simulation: the attempts that started, and the history rows of each call."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.invariants import Violation
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros

_ENDS: Final = events.STEP_ENDS | {events.TimerFired.type}
HOPELESS: Final = "never"
HOPELESS_TRIES: Final = 3
"""The attempts of a step that never succeeds; `HOPELESS` is the message of its errors."""

_CallEvent: TypeAlias = (
    events.StepQueued
    | events.StepRetrying
    | events.StepCompleted
    | events.StepFailed
    | events.StepCancelled
    | events.TimerFired
)
_OF_CALLS: Final = _ENDS | {events.StepRetrying.type, events.StepQueued.type}


@attrs.frozen(kw_only=True)
class StartedAttempt:
    """A started attempt of a step: its claim (job and epoch), call, number and arguments.

    If `is_queued`, the step is a job of its own, and the claim is that of this job.
    """

    job: str
    epoch: int
    run: str
    run_id: str
    call: str
    step: str
    attempt: int
    arguments: str
    is_queued: bool = False


@attrs.define
class _Call:
    """The state of a call according to its history rows."""

    is_undo: bool = False
    is_queued: bool = False
    ended: str = ""
    tries: int = 0
    losses: int = 0
    retry_at: Micros = 0


class StepRecords:
    """Records the started attempts and the rows of all calls in one simulation, and checks them."""

    def __init__(self) -> None:
        self.begun: dict[tuple[str, str], list[StartedAttempt]] = {}
        """The started attempts by run and call."""
        self._known: set[tuple[str, int, str, int]] = set()
        self._calls: dict[tuple[str, str], _Call] = {}
        self._lost: set[tuple[str, int | None]] = set()
        """The runs and epochs of lost attempts."""

    def record_row(self, row: HistoryRow) -> Iterator[Violation]:
        """Check that the outcome of a call does not change (S4) and that each attempt is counted once (S8)."""
        if row.type == events.StageLost.type:
            self._lost.add((row.run, row.epoch))
        if row.type not in _OF_CALLS:
            return
        event = events.event_of(row)
        assert isinstance(event, _CallEvent)
        call = self._calls.setdefault((row.run, event.call), _Call(is_undo=event.call.startswith("undo.")))
        where = f"row {row.number}, {row.type} of call {event.call}"
        if isinstance(event, events.StepQueued):
            if call.is_queued and not call.is_undo:
                yield Violation("S7", row.run, f"{where}: the call was queued before")
            call.is_queued, call.tries, call.losses, call.ended, call.retry_at = True, 0, 0, "", 0
            return
        if call.ended:
            yield Violation("S4", row.run, f"{where}: the call has ended already, with {call.ended}")
        if isinstance(event, events.StepCompleted | events.StepFailed | events.StepRetrying):
            call.tries += 1
            call.losses += not isinstance(event, events.StepCompleted) and event.lost
            counted = call.tries - call.losses
            is_hopeless = isinstance(event, events.StepFailed) and event.error.message == HOPELESS
            if is_hopeless and counted != HOPELESS_TRIES:
                yield Violation(
                    "S8",
                    row.run,
                    f"{where}: the step failed after {counted} attempts, expected {HOPELESS_TRIES}",
                )
            if event.attempt != call.tries:
                yield Violation("S8", row.run, f"{where}: expected attempt {call.tries}, got {event.attempt}")
        if isinstance(event, events.StepRetrying):
            # A lost attempt is retried at once, whatever clock `retry_at` comes from.
            call.retry_at = 0 if event.lost else event.retry_at or 0
        else:
            call.ended = row.type

    def forked(self, run: Run, history: Iterable[HistoryRow]) -> None:
        """Apply the rows that a forked run keeps from earlier generations: their attempts count."""
        for row in history:
            if row.type == events.RunCreated.type:
                self._begin_again(run.key)
            if row.number < run.first_row and row.type in _OF_CALLS:
                for _ in self.record_row(attrs.evolve(row, run=run.key)):
                    raise AssertionError(
                        f"row {row.number}, which run {run.key} keeps, violates an invariant"
                    )
        self._begin_again(run.key)

    def _begin_again(self, run: str) -> None:
        """Start another generation, in which queued steps are queued again."""
        for (key, _), call in self._calls.items():
            if key == run:
                call.is_queued = False

    def record_start(self, begun: StartedAttempt, job: Job | None, now: float) -> Iterator[Violation]:
        """Record a started attempt and check it: once per claim (S2), before the end (S4), number (S8), time (T1)."""
        before = self.begun.setdefault((begun.run, begun.call), [])
        uncounted = [one.epoch for one in before if one.attempt == begun.attempt and self._is_lost(one)]
        before.append(begun)
        key = (begun.job, begun.epoch, begun.call, begun.attempt)
        where = f"attempt {begun.attempt} of call {begun.call}, step {begun.step!r}"
        if key in self._known:
            yield Violation("S2", begun.job, f"{where} was started twice in epoch {begun.epoch}")
        self._known.add(key)
        if job is None or job.state is not JobState.LEASED or job.epoch != begun.epoch:
            return  # the attempt is lost and will be fenced
        call = self._calls.get((begun.run, begun.call), _Call())
        if call.ended:
            yield Violation("S4", begun.job, f"{where} was started, but the call has ended with {call.ended}")
        if begun.attempt != call.tries + 1:
            yield Violation("S8", begun.job, f"{where} was started, but {call.tries} attempts are recorded")
        if uncounted:
            yield Violation(
                "S8",
                begun.job,
                f"{where} was started again: the lost attempt of epoch {uncounted[0]} was not counted",
            )
        if call.retry_at > now and not begun.is_queued:  # queued: the wake-up of the job is checked
            early = (call.retry_at - now) / 1_000_000
            yield Violation("T1", begun.job, f"{where} was started {early:.3f} s too early")

    def _is_lost(self, begun: StartedAttempt) -> bool:
        return not begun.is_queued and (begun.run, begun.epoch) in self._lost

    def wasted(self) -> Iterator[Violation]:
        """Yield attempts that started more than once in a simulation without faults (W1)."""
        for (run, call), tries in self.begun.items():
            for attempt, times in Counter(one.attempt for one in tries).items():
                if times > 1:
                    yield Violation("W1", run, f"attempt {attempt} of call {call} was started {times} times")
