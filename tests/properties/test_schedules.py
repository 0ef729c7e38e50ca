"""Random sequences of what happens to a schedule, against a ledger that walks through time minute by minute."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import (
    FollowUp,
    Missed,
    Overlap,
    RunCreate,
    ScheduleBackfill,
    ScheduleFire,
    SchedulePause,
    SchedulePolicy,
    SchedulePut,
    ScheduleRemove,
    ScheduleResume,
    SchedulesFired,
    ScheduleTrigger,
    StartKind,
    admissions,
)
from holdfast.kernel.schedules.row_data import NominalOutcome, scheduled_start, timing_of, values_of
from holdfast.kernel.schedules.timetable import MISSED_COUNTED_MAX
from holdfast.ports.queries.schedules import FindSchedule
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros
from tests.sizes import sized
from tests.unit.kernel.world import SECOND, World, completing, failed, payload, pipeline, stage

MINUTE: Final[Micros] = 60 * SECOND
LATE: Final[Micros] = 5 * MINUTE
DAY: Final[Micros] = 24 * 60 * MINUTE
NAME: Final = ScheduleName("default", "s")


def _of(instant: Micros) -> datetime:
    return datetime.fromtimestamp(instant // SECOND, UTC)


def _in_office_hours(instant: Micros) -> bool:
    time = _of(instant)
    return time.weekday() < 5 and 8 <= time.hour <= 17 and time.minute in {0, 30}


def _in_berlin(instant: Micros) -> bool:
    """Winter time: the sequences begin on January 1, and take some days."""
    time = _of(instant) + timedelta(hours=1)
    return time.minute == 15 and time.hour % 2 == 0


TIMINGS: Final[Sequence[tuple[Spec, Callable[[Micros], bool]]]] = (
    (Every(timedelta(minutes=1)), lambda _: True),
    (Every(timedelta(minutes=7)), lambda instant: instant // MINUTE % 7 == 0),
    (Cron("*/20 * * * *"), lambda instant: _of(instant).minute % 20 == 0),
    (Cron("0,30 8-17 * * 1-5"), _in_office_hours),
    (Cron("15 */2 * * *", zone="Europe/Berlin"), _in_berlin),
)
"""Specs, each with what says of a minute whether it is a nominal time."""

_SLOTTED: Final = {Overlap.QUEUE, Overlap.QUEUE_ONE, Overlap.CANCEL}


@attrs.define
class Ledger:
    """What a schedule has to do, worked out minute by minute, and what it did."""

    matches: Callable[[Micros], bool]
    missed: Missed
    window: Micros | None
    cursor: Micros
    """Up to here everything is accounted for."""

    def due(self, now: Micros) -> list[Micros]:
        """Return the nominal times that are not accounted for."""
        minute = self.cursor // MINUTE * MINUTE + MINUTE
        found: list[Micros] = []
        while minute <= now:
            if self.matches(minute):
                found.append(minute)
            minute += MINUTE
        return found

    def wanted(self, now: Micros, limit: int) -> tuple[list[Micros], int]:
        """Return the nominal times for which a firing wants a run, and how many it counts as missed."""
        due = self.due(now)
        if self.missed is Missed.ALL:
            longest = DAY if self.window is None else self.window
            made_up = [at for at in due if now - at <= longest]
            return made_up[:limit], len(due) - len(made_up)
        window = LATE if self.window is None and self.missed is Missed.NONE else self.window
        last = [at for at in due[-1:] if window is None or now - at <= window]
        return last, len(due) - len(last)


@attrs.define
class Story:
    """A world with one schedule, and all that is checked of it."""

    overlap: Overlap
    world: World = attrs.field(factory=lambda: World(pipeline(stage("a", attempts=1))))
    ledger: Ledger | None = None
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])
    removed: set[str] = attrs.field(factory=set[str])
    """Runs of schedules of this name that were removed since."""
    backfilled: set[str] = attrs.field(factory=set[str])
    handled: Counter[Micros] = attrs.field(factory=Counter[Micros])

    @property
    def now(self) -> Micros:
        return self.world.now

    @property
    def row(self) -> ScheduleRow | None:
        return self.world.store.read(FindSchedule(NAME))

    # What is done -------------------------------------------------------------------------------------------------

    def put(self, timing: int, **options: Any) -> None:
        """Make the schedule, or update it."""
        before = self.row
        spec, matches = TIMINGS[timing]
        self.options = options
        self.world.do(
            SchedulePut(
                schedule="s",
                start=RunCreate(workflow="w", input=payload(0)),
                timing=timing_of([spec]),
                policy=SchedulePolicy(overlap=self.overlap, **options),
                if_exists="update",
            )
        )
        after = self.row
        assert after is not None
        cursor = self.now
        if before is not None and self.ledger is not None:
            was_over = before.next_at is None and before.paused is None
            if before.timing == after.timing and not was_over:
                cursor = self.ledger.cursor
        self.ledger = Ledger(matches, options["missed"], options["window"], cursor)

    def fire(self, limit: int) -> None:
        """Fire once, and compare what was done with the ledger."""
        before = self.row
        fired: SchedulesFired = self.world.do(ScheduleFire(workflows=("w",), limit=limit))
        after = self.row
        if before is None or after is None or self.ledger is None:
            assert fired == SchedulesFired()
            return
        self.follow(fired.follow_up)
        outcomes = self.new_outcomes(after)
        if before.next_at is None or after.paused is not None or limit == 0:
            assert (outcomes, fired.missed) == ([], 0)
            return
        wanted, missed = self.ledger.wanted(self.now, limit)
        noted = [one.at for one in outcomes]
        if after.next_at is None and self.options["runs_max"] is not None:
            left = max(0, self.options["runs_max"] - before.started)
            assert len(fired.runs) == after.started - before.started == left
            assert noted == wanted[: len(noted)]
        else:
            assert noted == wanted
        assert fired.missed == after.missed - before.missed
        if missed <= MISSED_COUNTED_MAX:
            assert fired.missed == missed
        else:
            assert MISSED_COUNTED_MAX <= fired.missed <= MISSED_COUNTED_MAX + 1
        self.check_outcomes(outcomes)
        self.count(outcomes, fired, before, after)
        self.ledger.cursor = after.handled_until
        if after.next_at is not None:
            left = self.ledger.due(self.now)
            assert bool(left) is (after.next_at <= self.now)
            assert not left or fired.more
            self.check_next(after.next_at)

    def check_next(self, next_at: Micros) -> None:
        """The next time is the first nominal one after the cursor."""
        assert self.ledger is not None
        assert self.ledger.due(next_at)[:1] == [next_at]

    def check_outcomes(self, outcomes: Sequence[NominalOutcome]) -> None:
        for one in outcomes:
            assert one.kind is (StartKind.DUE if self.now - one.at <= LATE else StartKind.MADE_UP)
            self.handled[one.at] += 1
        started = [one for one in outcomes if one.outcome == "started"]
        if self.overlap not in {Overlap.ALLOW, Overlap.QUEUE}:
            assert len(started) <= 1
        if self.overlap in {Overlap.ALLOW, Overlap.QUEUE}:
            assert {one.outcome for one in outcomes} <= {"started", "existing"}

    def count(
        self,
        outcomes: Sequence[NominalOutcome],
        fired: SchedulesFired,
        before: ScheduleRow,
        after: ScheduleRow,
    ) -> None:
        """Each nominal time is started, skipped, superseded, existing or missed, and the row's counts add up."""
        kinds = Counter(one.outcome for one in outcomes)
        for outcome in kinds:
            event(f"{self.overlap.value}: {outcome}")
        assert kinds["started"] == len(fired.runs) == after.started - before.started
        assert kinds["skipped"] + kinds["superseded"] == fired.skipped == after.skipped - before.skipped
        assert [one.run for one in outcomes if one.outcome == "started"] == list(fired.runs)
        assert sum(kinds.values()) == len(outcomes)

    def new_outcomes(self, row: ScheduleRow) -> list[NominalOutcome]:
        """Return what the last command noted: time passes between any two."""
        return [one for one in values_of(row.recent, NominalOutcome) if one.handled_at == self.now]

    def follow(self, follow_up: FollowUp) -> None:
        """Let those runs begin that waited for a slot."""
        for command in admissions("default", follow_up):
            self.world.do(command)

    def pause(self) -> None:
        if self.row is not None:
            self.world.do(SchedulePause(schedule="s"))

    def resume(self, *, make_up: bool) -> None:
        before = self.row
        if before is None or self.ledger is None:
            return
        self.world.do(ScheduleResume(schedule="s", make_up=make_up))
        after = self.row
        assert after is not None
        if before.paused is not None and not make_up:
            self.ledger.cursor = self.now
        if before.paused is not None and after.next_at is not None:
            self.check_next(after.next_at)

    def trigger(self) -> None:
        before = self.row
        if before is None:
            return
        started = self.world.do(ScheduleTrigger(schedule="s"))
        self.follow(started.follow_up)
        after = self.row
        assert after is not None
        assert (after.handled_until, after.missed) == (before.handled_until, before.missed)
        assert after.next_at == (None if self.is_over(after) else before.next_at)

    def backfill(self, count: int, ago: int) -> None:
        before = self.row
        if before is None or self.ledger is None:
            return
        past = attrs.evolve(self.ledger, cursor=self.now - (ago + 120) * MINUTE).due(self.now - ago * MINUTE)
        times = past[:count]
        known = {run.id for run in self.runs()}
        filled = self.world.do(ScheduleBackfill(schedule="s", times=tuple(times)))
        self.backfilled.update(filled.runs)
        self.follow(filled.follow_up)
        assert len(filled.runs) + filled.existing == len(times)
        assert not known & set(filled.runs)
        after = self.row
        assert after is not None
        assert after.handled_until == before.handled_until
        assert after.next_at == (None if self.is_over(after) else before.next_at)

    def is_over(self, row: ScheduleRow) -> bool:
        """Whether the schedule has started as many runs as it may."""
        most: int | None = self.options["runs_max"]
        return most is not None and row.started >= most

    def remove(self) -> None:
        self.world.do(ScheduleRemove(schedule="s"))
        self.removed.update(run.id for run in self.runs())
        self.ledger = None

    def end(self, *, fails: bool) -> None:
        """End one run that is under way."""
        for attempt in self.world.claim(self.world.open(), limit=1):
            settled = self.world.settle(
                attempt, failed(retryable=False) if fails else completing(attempt, 0).outcome
            )
            self.follow(settled.follow_up)

    # What holds ---------------------------------------------------------------------------------------------------

    def runs(self) -> Sequence[Run]:
        return list(self.world.tables().runs.values())

    def check(self, before: ScheduleRow | None) -> None:
        """Check what holds after each step."""
        after = self.row
        starts: list[tuple[str, Micros]] = []
        for run in self.runs():
            start = scheduled_start(run.scheduled)
            assert start is not None
            if start.kind is StartKind.MANUAL:
                continue
            starts.append((start.schedule, start.at))
            assert run.created_at >= start.at, "a run is stored before its nominal time"
            assert start.previous is None or start.previous < start.at
        assert len(starts) == len(set(starts)), "a nominal time has two runs"
        if before is not None and after is not None and before.key == after.key:
            assert after.handled_until >= before.handled_until
        assert self.ledger is None or after is None or self.ledger.cursor == after.handled_until
        if after is not None and after.paused is not None:
            assert after.next_at is None
        under_way = [
            run.id
            for run in self.runs()
            if run.status not in TERMINAL
            and run.status is not RunStatus.PENDING
            and run.id not in self.removed
        ]
        if self.overlap not in _SLOTTED:  # a backfill begins beside what its schedule has started
            under_way = [run for run in under_way if run not in self.backfilled]
        if self.overlap is not Overlap.ALLOW:
            assert len(under_way) <= 1, f"{under_way} are under way"
        waiting = [
            run for run in self.runs() if run.status is RunStatus.PENDING and run.id not in self.backfilled
        ]
        if self.overlap is Overlap.QUEUE_ONE:
            assert len([run for run in waiting if run.id not in self.removed]) <= 1


# A row keeps twenty outcomes, one of which may be an older start.
_FIRE: Final = st.tuples(st.just("fire"), st.sampled_from((19, 19, 19, 3, 1, 0)))
_END: Final = st.tuples(st.just("end"), st.booleans())
ACTIONS: Final[st.SearchStrategy[tuple[Any, ...]]] = st.one_of(
    _FIRE,
    _FIRE,
    _FIRE,
    _FIRE,
    _END,
    _END,
    st.tuples(st.just("put"), st.integers(0, len(TIMINGS) - 1)),
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume"), st.booleans()),
    st.tuples(st.just("resume"), st.booleans()),
    st.tuples(st.just("trigger")),
    st.tuples(st.just("backfill"), st.integers(0, 4), st.sampled_from((0, 1, 30, 600))),
    st.tuples(st.just("remove")),
)
PASSED: Final = st.sampled_from((1, 30, 60, 60, 61, 420, 1_200, 1_800, 3_600, 7_200, 40_000, 90_000))
"""How many seconds pass before an action: at least one, so that each has its own instant."""
STEPS: Final = st.lists(st.tuples(PASSED, ACTIONS), min_size=10, max_size=40)
OPTIONS: Final = st.fixed_dictionaries(
    {
        "window": st.sampled_from((None, None, 0, 10 * MINUTE, 180 * MINUTE)),
        "runs_max": st.sampled_from((None, None, None, 3)),
        "pause_after_failures": st.sampled_from((None, None, 2)),
        "jitter": st.sampled_from((0, 90 * SECOND)),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("missed", Missed)
@pytest.mark.parametrize("overlap", Overlap)
@given(
    timing=st.integers(0, len(TIMINGS) - 1),
    options=OPTIONS,
    steps=STEPS,
)
@pytest.mark.sized
@settings(deadline=None, max_examples=sized(10, 100))
def test_each_nominal_time_is_accounted_for_once(
    overlap: Overlap,
    missed: Missed,
    timing: int,
    options: dict[str, Any],
    steps: list[tuple[int, tuple[Any, ...]]],
) -> None:
    story = Story(overlap)
    options["missed"] = missed
    story.put(timing, **options)
    for seconds, (name, *given_values) in steps:
        story.world.wait(seconds)
        before = story.row
        match name:
            case "put":
                story.put(given_values[0] if before is None else timing, **options)
            case "resume":
                story.resume(make_up=given_values[0])
            case "end":
                story.end(fails=given_values[0])
            case _:
                getattr(story, name)(*given_values)
        story.check(before)
