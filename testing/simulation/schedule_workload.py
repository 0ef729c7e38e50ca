"""The random workload of schedules: their times and policies, what operators do with them, and what goes wrong."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import (
    Missed,
    Overlap,
    RunCreate,
    ScheduleBackfill,
    SchedulePause,
    SchedulePolicy,
    SchedulePut,
    ScheduleRemove,
    ScheduleResume,
    ScheduleTrigger,
)
from holdfast.kernel.commands.command import Command
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.ports.clock import micros
from holdfast.ports.json import canonical
from holdfast.ports.queries.schedules import FindSchedule
from holdfast.ports.records.schedule import ScheduleName
from holdfast.ports.records.values import Micros, Payload
from holdfast.testing.simulation.fibers import START
from holdfast.testing.simulation.processes import ClientAction
from holdfast.testing.simulation.scenarios import Scenario, ScheduleScenario, Sizes
from holdfast.testing.simulation.schedule_times import SECOND, WalkedTimes
from holdfast.testing.simulation.schedule_zones import NEW_ZONE, ZoneRelease, draw_releases

_MINUTE: Final = 60 * SECOND
_HOUR: Final = 60 * _MINUTE
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_DECLARED: Final = ("v1", "v2")


@workflow
async def quick(minutes: int, fails: bool) -> int:
    """Sleep for some minutes, and fail or not."""
    await sleep(timedelta(minutes=minutes))
    if fails:
        raise ValueError("on purpose")
    return minutes


@workflow
async def patient(minutes: int, fails: bool) -> int:
    """Sleep for longer. Not all hosts have this function."""
    await sleep(timedelta(minutes=5 * minutes))
    if fails:
        raise ValueError("on purpose")
    return minutes


_WORKFLOWS: Final = (quick, patient)


def draw_schedules(random: Random) -> tuple[Scenario, Sizes]:
    """Draw everything but the faults."""
    releases = draw_releases(random)
    hours = random.choice((2, 4, 6))
    downtimes = _draw_downtimes(random, hours)
    end = hours * _HOUR + sum(length for _, length in downtimes)
    actions: list[ClientAction] = []
    draws = [
        _Draw(random, name, releases, end)
        for name in ("hourly", "nightly", "digest/7")[: random.choice((1, 2, 2, 3))]
    ]
    for draw in draws:
        actions += draw.actions()
    jumps = _draw_jumps(random, end)
    for at, by in jumps:
        if by < 0:
            actions += draws[0].around(at)
    actions.sort(key=lambda action: action.at)
    scenario = Scenario(
        workflows=_WORKFLOWS,
        deploys=(_WORKFLOWS, _WORKFLOWS, _WORKFLOWS[:1], _WORKFLOWS[1:]),
        clients=[one for one in (actions[::2], actions[1::2]) if one],
        schedules=ScheduleScenario(
            releases=releases,
            downtimes=downtimes,
            clock_jumps=jumps,
            has_timer=random.random() < 0.3,
        ),
    )
    sizes = Sizes(
        workers=random.choice((1, 2, 2, 3)),
        lease=300.0,
        poll_interval=300.0,
        maintenance_interval=240.0,
        tick_interval=300.0,
        hint_wait=60.0,
        faults_for=end / SECOND,
        heals_for=2 * 86_400.0,
        function_cache=random.choice((0, 1_000)),
    )
    return scenario, sizes


def _draw_downtimes(random: Random, hours: int) -> list[tuple[int, int]]:
    if random.random() < 0.5:
        return []
    length = random.choice((_HOUR, 3 * _HOUR, 20 * _HOUR, 60 * _HOUR, 14 * 24 * _HOUR))
    return [(random.randrange(_HOUR, hours * _HOUR), length)]


def _draw_jumps(random: Random, end: int) -> list[tuple[int, int]]:
    """Draw settings of the store's clock, some of which are taken back."""
    if random.random() < 0.6:
        return []
    at = random.randrange(min(end, 8 * _HOUR))
    by = random.choice((-1, 1)) * random.choice((2 * _MINUTE, 20 * _MINUTE, 3 * _HOUR))
    if random.random() < 0.5:
        return [(at, by)]
    return [(at, by), (at + random.choice((_MINUTE, 30 * _MINUTE)), -by)]


class _Draw:
    """Draws what operators do with one schedule."""

    def __init__(self, random: Random, name: str, releases: Sequence[ZoneRelease], end: int) -> None:
        self._random = random
        self._name = name
        self._releases = releases
        self._end = end

    def actions(self) -> list[ClientAction]:
        """Draw the actions. All but the first come at any time."""
        random = self._random
        found = [self._action(random.randrange(20 * _MINUTE), "create", self._put())]
        draws: tuple[Callable[[], Callable[[SyncEngine], object]], ...] = (
            self._put,
            lambda: self._sent(SchedulePause(schedule=self._name, reason="on purpose")),
            lambda: self._sent(ScheduleResume(schedule=self._name, make_up=random.random() < 0.5)),
            lambda: self._sent(ScheduleTrigger(schedule=self._name, overlap=self._draw_overlap())),
            self._backfill,
            lambda: self._sent(ScheduleRemove(schedule=self._name)),
            lambda: self._sent(ScheduleRemove(schedule=self._name, declared=random.choice(_DECLARED))),
        )
        for _ in range(random.choice((2, 4, 8))):
            at = random.randrange(self._end)
            index = random.choices(range(len(draws)), weights=(4, 3, 1, 3, 3, 1, 2))[0]
            found.append(self._action(at, f"action {index}", draws[index]()))
            if index == 1:
                later = at + random.choice((5 * _MINUTE, _HOUR, 3 * _HOUR))
                if (
                    random.random() < 0.5
                ):  # a part of what passes in the pause has its run when the schedule resumes
                    found.append(self._action(later - 2 * _MINUTE, "fill", self._backfill()))
                    resume = self._sent(ScheduleResume(schedule=self._name, make_up=True))
                    found.append(self._action(later, "resume", resume))
                else:
                    found.append(self._action(later, "resume", draws[2]()))
            elif index >= 5:
                later = at + random.choice((SECOND, 10 * _MINUTE, _HOUR))
                found.append(self._action(later, "make again", self._put()))
        return found

    def around(self, at: int) -> list[ClientAction]:
        """Draw a pause before the store's clock is set back, and a resume after it."""
        pause = self._sent(SchedulePause(schedule=self._name, reason="the clock is wrong"))
        resume = self._sent(ScheduleResume(schedule=self._name))
        later = at + self._random.randrange(_MINUTE)
        return [
            self._action(max(0, at - _MINUTE), "pause before the jump", pause),
            self._action(later, "resume after the jump", resume),
        ]

    def _action(self, at: int, what: str, do: Callable[[SyncEngine], object]) -> ClientAction:
        return ClientAction(at=at, what=f"{self._name}: {what} at {at}", do=do)

    def _draw_overlap(self) -> Overlap | None:
        return self._random.choice((None, None, Overlap.ALLOW, Overlap.SKIP))

    def _sent(self, command: Command[Any]) -> Callable[[SyncEngine], object]:
        """Return the action that sends a command, from a client with some release of zone data."""
        return partial(_send, command=command, release=self._random.choice(self._releases))

    def _put(self) -> Callable[[SyncEngine], object]:
        random = self._random
        start = RunCreate(
            workflow=random.choice(_WORKFLOWS).name,
            input=Payload(
                inline=canonical({"minutes": random.choice((0, 1, 7, 45)), "fails": random.random() < 0.25})
            ),
        )
        command = SchedulePut(
            schedule=self._name,
            start=start,
            timing=timing_of(self._draw_specs()),
            policy=self._draw_policy(),
            if_exists="error" if random.random() < 0.1 else "update",
            declared=random.choice((None, *_DECLARED)),
        )
        if random.random() < 0.3:
            return partial(_put_with_stored_timing, command=command, release=random.choice(self._releases))
        return self._sent(command)

    def _draw_policy(self) -> SchedulePolicy:
        random = self._random
        return SchedulePolicy(
            overlap=random.choice(tuple(Overlap)),
            missed=random.choice(tuple(Missed)),
            window=random.choice((None, None, 10 * _MINUTE, 4 * _HOUR)),
            jitter=random.choice((0, 0, 90 * SECOND, 20 * _MINUTE)),
            pause_after_failures=random.choice((None, None, 1, 3)),
            runs_max=random.choice((None, None, 2, 10)),
        )

    def _draw_specs(self) -> list[Spec]:
        """Draw an interval, or expressions of one zone."""
        random = self._random
        end = None
        if random.random() < 0.1:
            end = _BEGIN + timedelta(microseconds=random.randrange(_HOUR, self._end))
        if random.random() < 0.25:
            length = timedelta(minutes=random.choice((1, 7, 15, 60, 90)))
            return [Every(length, anchor=_BEGIN - timedelta(minutes=random.randrange(90)), end=end)]
        zones = ("UTC", "Test/East", "Test/East", "Test/West", "Test/West", NEW_ZONE)
        return [
            Cron(
                [self._draw_text() for _ in range(random.choice((1, 1, 2)))],
                zone=random.choice(zones),
                gap=random.choice(("shift", "shift", "skip")),
                fold=random.choice((None, None, "first", "last", "both")),
                end=end,
            )
        ]

    def _draw_text(self) -> str:
        random = self._random
        minute = random.choice(("0", "30", "*/15", "*/5", "7,37", "0-20/10", str(random.randrange(60))))
        hour = random.choice(("*", "*", "*/2", "0-23", "1-3,13-15", str(random.randrange(24))))
        day = random.choice(("*", "*", "*", "1-20"))
        weekday = "*" if day != "*" else random.choice(("*", "*", "1-5", "0,3,4"))
        return f"{minute} {hour} {day} * {weekday}"

    def _backfill(self) -> Callable[[SyncEngine], object]:
        random = self._random
        return partial(
            _backfill,
            name=self._name,
            release=random.choice(self._releases),
            back=random.choice((_HOUR, 12 * _HOUR)),
            most=random.choice((1, 3, 6)),
            overlap=random.choice(("queue", "allow")),
        )


def _send(engine: SyncEngine, command: Command[Any], release: ZoneRelease) -> object:
    engine.core.kernel.zones = release
    engine.core.sync_clock()
    reply = engine.client.dispatch(command)
    follow_up = getattr(reply, "follow_up", None)
    if follow_up is not None:
        engine.core.kernel.admit(engine.core.namespace, follow_up)
    return reply


def _put_with_stored_timing(engine: SyncEngine, command: SchedulePut, release: ZoneRelease) -> object:
    """Update all but the times."""
    row = engine.core.stores.persistence.read(FindSchedule(ScheduleName("default", command.schedule)))
    if row is not None:
        command = SchedulePut(
            schedule=command.schedule,
            start=command.start,
            timing=row.timing,
            policy=command.policy,
            if_exists="update",
        )
    return _send(engine, command, release)


def _backfill(
    engine: SyncEngine, name: str, release: ZoneRelease, back: Micros, most: int, overlap: Any
) -> object:
    """Backfill the last nominal times before now, some of which may have their runs."""
    row = engine.core.stores.persistence.read(FindSchedule(ScheduleName("default", name)))
    if row is None or (NEW_ZONE in row.timing and NEW_ZONE not in release.tables):
        return None
    engine.core.sync_clock()
    now = micros(engine.core.clock.now())
    times = WalkedTimes(row.timing, release).between(max(now - back, START - 24 * _HOUR), now)[-most:]
    return _send(engine, ScheduleBackfill(schedule=name, times=tuple(times), overlap=overlap), release)
