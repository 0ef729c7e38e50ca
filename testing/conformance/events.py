"""The contract of `EventSink`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from attrs import evolve

from holdfast.ports.clock import instant
from holdfast.ports.errors import UnavailableError
from holdfast.ports.events import Event, EventSink
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_key

_TRIES_MAX: Final = 1_000


def an_event(run: int = 1, number: int = 1, data: str = '{"attempt":1}') -> Event:
    """Return an event of a run."""
    at = instant(NOW) + timedelta(microseconds=number)
    return Event(
        namespace=NAMESPACE,
        run_id=f"run-{run}",
        run=a_key(run),
        number=number,
        type="stage.completed",
        at=at,
        data=data,
        workflow="orders",
        stage="bill",
    )


class EventSinkContract(ABC):
    """Every promise of `EventSink`. Derive a test class and define `make_sink` and `taken`.

    The tests deliver like Holdfast: in order within each run, and again from the same event if the sink raises.
    """

    @abstractmethod
    def make_sink(self) -> EventSink:
        """Return a sink without events."""

    @abstractmethod
    def taken(self, sink: EventSink) -> Sequence[Event]:
        """Return the events that the receiver got, with repeats, in the order of each run."""

    def test_what_is_emitted_is_taken(self) -> None:
        """Every field of it."""
        sink = self.make_sink()
        events = [
            an_event(1, 1),
            evolve(an_event(1, 2), item=0, generation=2),
            evolve(an_event(2, 1), namespace="tenant-2", run_id='é/ü "x",', stage=None),
        ]
        self._deliver(sink, events)

        assert set(events) == set(self.taken(sink))

    def test_what_was_not_emitted_is_not_taken(self) -> None:
        """No event is made up, and an empty batch is accepted."""
        sink = self.make_sink()
        self._deliver(sink, [])

        assert list(self.taken(sink)) == []

    def test_events_of_a_run_are_taken_in_order(self) -> None:
        """Whatever other runs' events are in between, in one batch or in several."""
        sink = self.make_sink()
        for start in range(1, 200, 20):
            self._deliver(
                sink, [an_event(run, number) for number in range(start, start + 20) for run in (1, 2, 3)]
            )

        for run in (1, 2, 3):
            assert list(range(1, 201)) == self._first_numbers(sink, run)

    def test_events_that_come_again_are_taken_again_or_dropped(self) -> None:
        """A repeat does not change the order in which a run's events first arrived."""
        sink = self.make_sink()
        events = [an_event(1, number) for number in range(1, 11)]
        self._deliver(sink, events[:6])
        self._deliver(sink, events[3:])

        assert list(range(1, 11)) == self._first_numbers(sink, 1)
        assert set(events) == set(self.taken(sink))

    def test_the_data_of_an_event_is_taken_to_the_letter(self) -> None:
        """Its JSON text is not re-encoded."""
        sink = self.make_sink()
        texts = [
            '{"b":1.0,"a":1e2}',
            '"\\ud83d\\ude00 \\u0000"',
            '"Größe 日本 😀"',
            "{ }",
            '"' + "x" * 100_000 + '"',
        ]
        self._deliver(sink, [an_event(1, number, text) for number, text in enumerate(texts, 1)])

        first = {event.number: event.data for event in reversed(self.taken(sink))}
        assert texts == [first[number] for number in range(1, len(texts) + 1)]

    def test_a_large_batch_is_taken(self) -> None:
        """Five hundred events at once."""
        sink = self.make_sink()
        self._deliver(sink, [an_event(1, number) for number in range(1, 501)])

        assert list(range(1, 501)) == self._first_numbers(sink, 1)

    def _deliver(self, sink: EventSink, events: Sequence[Event]) -> None:
        for _ in range(_TRIES_MAX):
            try:
                sink.emit(events)
            except UnavailableError:
                continue
            return
        raise AssertionError(f"the sink failed {_TRIES_MAX} times in a row")

    def _first_numbers(self, sink: EventSink, run: int) -> list[int]:
        return list(dict.fromkeys(event.number for event in self.taken(sink) if event.run == a_key(run)))
