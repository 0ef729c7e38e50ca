"""Events reach an SNS topic and an EventBridge bus; those that are too large become dead letters."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import attrs
import pytest

from holdfast.adapters.aws.eventbridge import EventBridgeSink
from holdfast.adapters.aws.sns import SnsSink
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.events.flusher import Flusher
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.rules.outbox import DEAD_LETTER_AFTER
from holdfast.ports.events import Event, EventSink
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from tests.aws import FakeAws
from tests.sinks import events_in


@stage
def plain(x: int) -> int:
    return x


ONE = Pipeline("one", input=int).pipe(plain)


@attrs.frozen
class Fattened:
    """A sink that makes the events of one run larger."""

    inner: EventSink
    run_id: str

    def emit(self, events: Sequence[Event], /) -> None:
        large = f'"{"x" * 300_000}"'
        self.inner.emit(
            [attrs.evolve(one, data=large) if one.run_id == self.run_id else one for one in events]
        )


def bus_of(aws: FakeAws) -> EventSink:
    client, bus = aws.new_bus()
    return EventBridgeSink(bus, client=client)


def topic_of(aws: FakeAws) -> EventSink:
    client, topic = aws.new_topic()
    return SnsSink(topic, client=client)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bus_of, topic_of], ids=["bus", "topic"])
def test_an_event_that_is_too_large_is_parked_with_the_reason_and_other_runs_go_on(
    aws: FakeAws,
    make: Callable[[FakeAws], EventSink],
) -> None:
    aws.batches.clear()
    clock = ManualClock()
    stores = attrs.evolve(open_stores("memory://"), clock=clock, ids=SeededIds(clock=clock))
    with Engine.on(stores, workflows=[ONE]).sync as engine:
        engine.register_sink("audit")
        flusher = Flusher(engine.core, {"audit": Fattened(make(aws), "large")})
        engine.start(ONE(1), id="large")
        for number in range(DEAD_LETTER_AFTER):
            engine.start(ONE(1), id=f"small-{number}")
            flusher.flush()
            clock.advance(timedelta(seconds=70))
        (letter,) = engine.dead_letters()
        entries = [entry for batch in aws.batches for entry in batch]
        taken = {
            event.run_id for entry in entries for event in events_in(entry.get("Detail") or entry["Message"])
        }

        assert (letter.run_id, letter.number, letter.attempts) == ("large", 1, DEAD_LETTER_AFTER)
        assert "bytes, and may have 262,143" in letter.error
        assert taken == {f"small-{number}" for number in range(DEAD_LETTER_AFTER)}
