"""A sink that fails for an hour, always or mostly: no event is lost, skipped or dead-lettered."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Final

import attrs
import pytest

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.errors import EventRefusedError, SinkUnavailableError
from holdfast.ports.events import Event
from holdfast.ports.records.run import RunStatus
from holdfast.testing.clock import ManualClock
from tests.faults.fleet import Fleet

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)


@stage
def add_one(ctx: StageContext, number: int) -> int:
    ctx.publish("user.added", {"to": number})
    return number + 1


ADD = Pipeline("add", input=int).pipe(add_one.options(name="first")).pipe(add_one.options(name="second"))
EVENTS_EACH: Final = 6
"""The run is created; two stages publish and complete; the run completes."""


@attrs.define
class Receiver:
    """A sink that takes events or fails as told; it records the events and the times of calls."""

    time: ManualClock
    came: list[Event] = attrs.field(factory=list[Event])
    calls: list[float] = attrs.field(factory=list[float])
    fails: Callable[[], Exception | None] = lambda: None

    def emit(self, events: Sequence[Event], /) -> None:
        self.calls.append(self.time.monotonic())
        if (error := self.fails()) is not None:
            raise error
        self.came += events

    def numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for event in self.came:
            found.setdefault(event.run_id, []).append(event.number)
        return found


def away(draw: Random, share: float) -> Callable[[], Exception | None]:
    """Fail a share of calls, in one way or another."""

    def fails() -> Exception | None:
        if draw.random() >= share:
            return None
        return draw.choice([SinkUnavailableError("503"), OSError("reset"), ValueError("what is <html>?")])

    return fails


@pytest.mark.slow
@pytest.mark.parametrize(
    "share", [1.0, pytest.param(0.95, marks=pytest.mark.slow), pytest.param(0.7, marks=pytest.mark.slow), 0.3]
)
def test_an_outage_of_an_hour_parks_nothing_and_hinders_nobody(share: float) -> None:
    fleet = Fleet((ADD,))
    ill, well = Receiver(fleet.time), Receiver(fleet.time)
    engine = fleet.engine.sync
    for name in ("ill", "well"):
        engine.register_sink(name)
    for _ in range(2):
        fleet.worker(sinks={"ill": ill, "well": well})
    fleet.pass_time(2 * MINUTE)
    ill.fails = away(Random(round(share * 100)), share)
    runs: list[str] = []
    for number in range(60):  # one a minute, all through the outage
        runs.append(engine.start(ADD(number), id=f"r{number}").id)
        fleet.pass_time(MINUTE)
    fleet.pass_time(3 * MINUTE)
    assert {run.status for run in fleet.store.dump().runs.values()} == {RunStatus.COMPLETED}
    assert well.numbers().keys() == set(runs)  # the other sink has had them as soon as ever
    if share == 1.0:
        assert ill.came == []
        assert len(ill.calls) < 100
    assert list(engine.dead_letters()) == []

    ill.fails = lambda: None
    fleet.pass_time(12 * MINUTE)
    whole = list(range(1, EVENTS_EACH + 1))
    assert ill.numbers() == well.numbers() == dict.fromkeys(runs, whole)
    assert list(engine.dead_letters()) == []
    assert [(sink.failures, sink.dead_letters) for sink in engine.sinks()] == [(0, 0), (0, 0)]


def test_an_event_that_is_refused_is_put_aside_at_once_though_and_no_other_run_s() -> None:
    fleet = Fleet((ADD,))
    sink = Receiver(fleet.time)

    class Picky:
        def emit(self, events: Sequence[Event], /) -> None:
            if any((event.run_id, event.number) == ("bad", 3) for event in events):
                raise EventRefusedError("not this one")
            sink.emit(events)

    engine = fleet.engine.sync
    engine.register_sink("picky")
    fleet.worker(sinks={"picky": Picky()})
    for run in ("good", "bad", "other"):
        engine.start(ADD(1), id=run)
    fleet.pass_time(10 * MINUTE)

    whole = list(range(1, EVENTS_EACH + 1))
    assert sink.numbers() == {"good": whole, "bad": [1, 2], "other": whole}
    (letter,) = engine.dead_letters()
    assert (letter.run_id, letter.number, letter.waiting) == ("bad", 3, EVENTS_EACH - 2)


@pytest.mark.slow
def test_what_a_receiver_fails_at_without_refusing_it_is_put_aside_after_an_hour() -> None:
    fleet = Fleet((ADD,))
    sink = Receiver(fleet.time)

    class Brittle:
        def emit(self, events: Sequence[Event], /) -> None:
            if any((event.run_id, event.number) == ("bad", 1) for event in events):
                raise OSError("500: a bug")
            sink.emit(events)

    engine = fleet.engine.sync
    engine.register_sink("brittle")
    fleet.worker(sinks={"brittle": Brittle()})
    engine.start(ADD(1), id="bad")
    parked_after = 0
    for minute in range(120):
        engine.start(ADD(1), id=f"r{minute}")
        fleet.pass_time(MINUTE)
        if list(engine.dead_letters()):
            parked_after = minute
            break
    assert 60 <= parked_after < 90
