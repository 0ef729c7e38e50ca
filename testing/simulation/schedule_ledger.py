"""The ledger of schedules: each nominal time with its outcome, checked at each commit.

- T4a: a nominal time has one run at most, with the id that names it.
- T4b: `handled_until` does not go back.
- T4c: each nominal time is accounted for once: it started a run, was skipped, had its run already, or was missed.
- T4d: no run is stored before its nominal time, by the store's clock.
- T4e: after a pause, an update of the times, a resume without make-up, or a removal, nothing fires that was planned
  before. A removal of a declaration removes nothing else.
- T4f: once faults have stopped, what is due is accounted for within a bound.
- T4g: `next_at` is the first nominal time after `handled_until`, by the release of zone data that the row names. An
  older release replaces no newer one, unless its host fires.
- T4h: but under `allow`, no two runs of a schedule are under way.
- S6: a host fires only schedules whose code it has.

A local time that a run was started for is not repeated where another release of zone data has it later.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import attrs

from holdfast.kernel.commands import (
    ScheduleFire,
    SchedulePut,
    ScheduleRemove,
    ScheduleReplan,
    ScheduleResume,
)
from holdfast.kernel.invariants import Violation
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.json import parse
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import SCHEDULES
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.schedule_times import SECOND, WalkedTimes, offset_at
from holdfast.testing.simulation.schedule_zones import ZoneRelease
from holdfast.testing.simulation.store import Commit
from holdfast.testing.simulation.store_time import StoreTimeline

NOTED_MAX: Final = 19
"""A row keeps 20 outcomes. The oldest of them may be the last start, however long ago that was."""
MISSED_COUNTED_MAX: Final = 1_000
OVERDUE_AFTER: Final[Micros] = 5_400 * SECOND
"""How late a nominal time may be accounted for without faults: hosts look for newer zone data once an hour."""
_LATE_AFTER: Final[Micros] = 300 * SECOND
_DAY: Final[Micros] = 86_400 * SECOND
_INEXACT: Final[Micros] = 15 * SECOND
"""By how much the clock of a host may be behind the store's."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class _LocalTime:
    """The last nominal time that a schedule noted, and what the clock of its zone showed then."""

    at: Micros
    zone: str
    local: Micros


@attrs.define
class _Account:
    """What the ledger knows of one schedule, from its creation to its removal."""

    key: str
    barrier: Micros
    """Nothing fires for a nominal time up to this one."""
    last: _LocalTime | None = None
    runs: set[str] = attrs.field(factory=set[str])
    """Keys of the runs that it started under its present overlap policy."""


@attrs.frozen
class _Outcome:
    """An outcome of a nominal time in a row."""

    at: Micros
    outcome: str
    kind: str


class ScheduleLedger:
    """Follows the schedules of one simulation."""

    def __init__(
        self,
        releases: Sequence[ZoneRelease],
        clock: StoreTimeline,
        may_be_early: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        self.outcomes: dict[str, int] = {}
        """How many runs of each kind were started, and how many nominal times had each outcome."""
        self._releases = {one.version: one for one in releases}
        self._newest = releases[-1].version
        self._clock = clock
        self._may_be_early = may_be_early
        self._latest: Micros = 0
        """The latest time that the process of a commit may take for the store's."""
        self._accounts: dict[str, _Account] = {}
        self._run_of: dict[tuple[str, Micros], str] = {}
        self._walked: dict[tuple[str, str], WalkedTimes] = {}
        self._before: dict[str, ScheduleRow] = {}

    def before(self, tables: Tables) -> None:
        """Remember the schedules before a commit."""
        self._before = dict(tables.schedules)

    def after(self, tables: Tables, commit: Commit) -> Iterator[Violation]:
        """Yield what a commit did wrong."""
        self._latest = self._clock.latest() + round(self._may_be_early(commit.process))
        runs = [run for change in commit.changes if (run := _scheduled_run(change)) is not None]
        for run in runs:
            yield from self._started(run)
        for change in commit.changes:
            match change:
                case Insert(ScheduleRow() as row):
                    self._accounts[row.key] = _Account(row.key, barrier=self._earliest(row.updated_at))
                    yield from self._planned(row)
                case Update(ScheduleRow() as row):
                    yield from self._updated(self._before[row.key], row, commit, runs)
                case Delete(table, key) if table is SCHEDULES:
                    yield from self._removed(self._before[key], commit)
                    del self._accounts[key]
                case _:
                    pass
        yield from self._overlaps(tables, commit.changes)

    def overdue(self, tables: Tables) -> Iterator[Violation]:
        """Yield the schedules that have not accounted for what is due, though faults stopped long ago (T4f)."""
        for row in tables.schedules.values():
            if row.paused is not None or _is_over(row):
                continue
            first = self._first_after(row, self._times(row.timing, self._newest), row.handled_until)
            if row.problem is not None:
                yield Violation("T4f", row.name, f"it can't fire, though all hosts can: {row.problem}")
            elif first is not None and first <= self._clock.now() - OVERDUE_AFTER:
                late = (self._clock.now() - first) // SECOND
                yield Violation("T4f", row.name, f"{_text(first)} was due {late} s ago")
            elif row.zones not in ("", self._newest):
                yield Violation("T4f", row.name, f"it is still planned by {row.zones}")

    # Runs -----------------------------------------------------------------------------------------------------------

    def _started(self, run: Run) -> Iterator[Violation]:
        """Check a new run of a schedule."""
        start: Any = parse(run.scheduled or "{}")
        name, at, kind = start["schedule"], start["at"], start["kind"]
        if at > self._latest:
            yield Violation("T4d", run.id, f"it was stored {(at - self._latest) / SECOND} s early")
        row = next((one for one in self._before.values() if one.name == name), None)
        if row is None:
            yield Violation("T4e", run.id, "its schedule had been removed")
            return
        self.outcomes[kind] = self.outcomes.get(kind, 0) + 1
        if kind == "manual":
            return
        expected = f"{name}/{_text(at)}"
        if run.id != expected:
            yield Violation("T4a", run.id, f"the run of this nominal time is named {expected}")
        if (name, at) in self._run_of:
            yield Violation("T4a", run.id, f"the nominal time had the run {self._run_of[name, at]}")
        self._run_of[name, at] = run.id
        if kind == "backfill":
            return
        self._accounts[row.key].runs.add(run.key)
        if row.paused is not None:
            yield Violation("T4e", run.id, "its schedule was paused")
        barrier = self._accounts[row.key].barrier
        if at <= barrier:
            what = f"{_text(at)} was planned before the change at {_text(barrier)}"
            yield Violation("T4e", run.id, what)

    def _overlaps(self, tables: Tables, changes: Sequence[Change]) -> Iterator[Violation]:
        """Yield schedules with two runs under way (T4h)."""
        touched = {
            change.record.key
            for change in changes
            if isinstance(change, Insert | Update) and isinstance(change.record, Run)
        }
        for account in self._accounts.values():
            if not account.runs & touched:
                continue
            row = tables.schedules[account.key]
            overlap = _policy(row).get("overlap", "skip")
            waiting = {RunStatus.PENDING} if overlap != "skip" else set[RunStatus]()
            found = [
                run for key in account.runs if (run := tables.runs[key]).status not in TERMINAL | waiting
            ]
            if overlap != "allow" and len(found) > 1:
                names = ", ".join(sorted(run.id for run in found))
                yield Violation("T4h", row.name, f"overlap is {overlap}, but {names} are under way")

    # Rows -----------------------------------------------------------------------------------------------------------

    def _updated(
        self, old: ScheduleRow, new: ScheduleRow, commit: Commit, runs: Sequence[Run]
    ) -> Iterator[Violation]:
        """Check a change of a row."""
        account = self._accounts[new.key]
        if new.handled_until < old.handled_until:
            yield Violation("T4b", new.name, f"handled_until went back to {_text(new.handled_until)}")
        for command in commit.sent:
            match command:
                case ScheduleFire():
                    if new.workflow not in command.workflows:
                        yield Violation("S6", new.name, f"a host fired it without the code of {new.workflow}")
                    yield from self._fired(account, old, new, runs)
                case SchedulePut():
                    if new.timing != old.timing:
                        account.barrier = max(account.barrier, self._earliest(new.updated_at))
                        account.last = None
                    if _policy(new).get("overlap") != _policy(old).get("overlap"):
                        account.runs.clear()
                case ScheduleResume() if old.paused is not None and not command.make_up:
                    account.barrier = max(account.barrier, self._earliest(new.updated_at))
                case ScheduleReplan() if new.zones < old.zones:
                    yield Violation("T4g", new.name, f"{new.zones} replaced the newer release {old.zones}")
                case _:
                    pass
        yield from self._planned(new)

    def _removed(self, row: ScheduleRow, commit: Commit) -> Iterator[Violation]:
        for command in commit.sent:
            if isinstance(command, ScheduleRemove) and command.declared not in (None, row.declared):
                yield Violation("T4e", row.name, f"it was removed as {command.declared}, which it is not")

    def _planned(self, row: ScheduleRow) -> Iterator[Violation]:
        """Check the next nominal time of a row (T4g)."""
        expected = None
        if row.paused is None and row.problem is None and not _is_over(row):
            expected = self._first_after(row, self._times(row.timing, row.zones), row.handled_until)
        if row.problem is None and row.next_at != expected:
            what = (
                f"next_at is {_text(row.next_at)}, and by {row.zones or 'UTC'} it must be {_text(expected)}"
            )
            yield Violation("T4g", row.name, f"{what}, after {_text(row.handled_until)}")

    def _fired(
        self, account: _Account, old: ScheduleRow, new: ScheduleRow, runs: Sequence[Run]
    ) -> Iterator[Violation]:
        """Check that a firing accounts for each nominal time that it passed (T4c)."""
        if new.problem is not None:
            return
        if new.handled_until > self._latest:
            yield Violation("T4c", new.name, f"times up to {_text(new.handled_until)} count as handled")
        times = self._times(new.timing, new.zones)
        passed = [
            at
            for at in times.between(old.handled_until, new.handled_until)
            if not _is_repeated(account.last, times, at)
        ]
        known = {(one["at"], one["handled_at"]) for one in _recent(old)}
        noted = [
            _Outcome(one["at"], one["outcome"], one["kind"])
            for one in _recent(new)
            if (one["at"], one["handled_at"]) not in known
        ]
        missed = new.missed - old.missed
        for one in noted:
            self.outcomes[one.outcome] = self.outcomes.get(one.outcome, 0) + 1
        self.outcomes["missed"] = self.outcomes.get("missed", 0) + missed
        yield from self._accounted(old, new, passed, noted, missed)
        mine = [run for run in runs if parse(run.scheduled or "{}")["schedule"] == new.name]
        counted = new.started - old.started, new.skipped - old.skipped
        left_out = sum(one.outcome in {"skipped", "superseded"} for one in noted)
        if len(noted) < NOTED_MAX and counted != (len(mine), left_out):
            what = f"{counted} were counted as started and skipped, but {len(mine), left_out} were"
            yield Violation("T4c", new.name, what)
        if noted:
            at = noted[-1].at
            zone = min(times.zones, default="UTC")
            local = at + offset_at(times.release.table(zone), at // SECOND) * SECOND
            account.last = _LocalTime(at, zone, local)

    def _accounted(
        self,
        old: ScheduleRow,
        new: ScheduleRow,
        passed: Sequence[Micros],
        noted: Sequence[_Outcome],
        missed: int,
    ) -> Iterator[Violation]:
        where = f"({_text(old.handled_until)}, {_text(new.handled_until)}]"
        if len(noted) >= NOTED_MAX:  # the row keeps no more
            if len(passed) < missed + len(noted):
                yield Violation(
                    "T4c", new.name, f"{len(passed)} passed in {where}, and more are accounted for"
                )
            return
        found = [one.at for one in noted]
        for at in sorted({at for at in found if found.count(at) > 1 or at not in passed}):
            yield Violation("T4c", new.name, f"{_text(at)} is no nominal time in {where}, or is noted twice")
        is_counted = missed < MISSED_COUNTED_MAX
        if is_counted and len(passed) != len(found) + missed:
            what = f"{len(passed)} passed in {where}, but {len(found)} are noted and {missed} were missed"
            yield Violation("T4c", new.name, what)
        policy = _policy(new)
        which, window = policy.get("missed", "last"), policy.get("window")
        if window is None:
            window = {"all": _DAY, "none": _LATE_AFTER}.get(which)
        since = 0 if window is None else self._latest - window
        for at in passed if which == "all" else passed[-1:]:
            if at not in found and at >= since:
                what = f"{_text(at)} was missed, though missed is {which} and the window is {window}"
                yield Violation("T4c", new.name, what)

    # Times ----------------------------------------------------------------------------------------------------------

    def _times(self, timing: str, version: str) -> WalkedTimes:
        release = self._releases[version or self._newest]
        times = self._walked.get((timing, release.version))
        if times is None:
            times = self._walked[timing, release.version] = WalkedTimes(timing, release)
        return times

    def _first_after(self, row: ScheduleRow, times: WalkedTimes, after: Micros) -> Micros | None:
        last = self._accounts[row.key].last
        found = times.first_after(after)
        while found is not None and _is_repeated(last, times, found):
            found = times.first_after(found)
        return found

    def _earliest(self, at: Micros) -> Micros:
        """Return an instant that the clocks of all hosts have passed when a change is stored."""
        return min(at, self._clock.earliest()) - _INEXACT


def _is_repeated(last: _LocalTime | None, times: WalkedTimes, at: Micros) -> bool:
    """Whether the zone's clock showed this time already by the release that was used when the last run was started."""
    if last is None or last.zone not in times.zones:
        return False
    table = times.release.table(last.zone)
    shown = last.at + offset_at(table, last.at // SECOND) * SECOND
    return last.at < at <= last.at + last.local - shown


def _scheduled_run(change: Change) -> Run | None:
    if isinstance(change, Insert) and isinstance(change.record, Run) and change.record.scheduled is not None:
        return change.record
    return None


def _recent(row: ScheduleRow) -> list[Any]:
    return [one for one in parse(row.recent) if one["kind"] in {"due", "made_up"}]


def _policy(row: ScheduleRow) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(row.policy))


def _is_over(row: ScheduleRow) -> bool:
    most = _policy(row).get("runs_max")
    return most is not None and row.started >= most


def _text(at: Micros | None) -> str:
    if at is None:
        return "None"
    return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")
