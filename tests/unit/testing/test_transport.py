from datetime import timedelta
from threading import Event, Thread

from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.ports.transport import Hint
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.threads import DEADLINE_SECONDS
from holdfast.testing.conformance.transport import a_hint
from holdfast.testing.transport import FaultyTransport, memory_transport


def _drained(transport: FaultyTransport) -> list[Hint | None]:
    hints: list[Hint | None] = []
    for _ in range(20):
        for delivery in transport.receive(100, 0):
            hints.append(delivery.hint)
            transport.ack(delivery.receipt)
    return hints


def test_a_receiver_that_waits_hears_of_a_clock_that_moves() -> None:
    clock = ManualClock()
    transport = memory_transport(clock, visibility_seconds=30.0)
    transport.announce([a_hint()])
    transport.receive(1, 0)
    received: list[Hint | None] = []
    begun = Event()

    def receive() -> None:
        begun.set()
        received.extend(delivery.hint for delivery in transport.receive(1, DEADLINE_SECONDS))

    receiver = Thread(target=receive, daemon=True)
    receiver.start()
    begun.wait(DEADLINE_SECONDS)
    clock.advance(timedelta(seconds=31))
    receiver.join(DEADLINE_SECONDS / 2)

    assert not receiver.is_alive()
    assert [a_hint()] == received


def test_without_faults_everything_arrives_once_and_in_order() -> None:
    transport = FaultyTransport(MemoryTransport(), 1, loses=0, repeats=0, delays=0, reorders=0)
    hints = [a_hint(number) for number in range(50)]
    transport.announce(hints)

    assert hints == _drained(transport)
    assert not any(transport.fired.values())


def test_each_fault_happens_and_is_counted() -> None:
    hints = [a_hint(number) for number in range(100)]
    transport = FaultyTransport(MemoryTransport(), 1, loses=1, repeats=0, delays=0, reorders=0)
    transport.announce(hints)
    assert _drained(transport) == []
    assert transport.fired["lost"] == 100

    transport = FaultyTransport(MemoryTransport(), 1, loses=0, repeats=0, delays=1, reorders=0)
    transport.announce(hints)
    assert set(hints) == set(_drained(transport))
    assert transport.fired["delayed"] == 100

    transport = FaultyTransport(MemoryTransport(), 1, loses=0, repeats=0, delays=0, reorders=1)
    transport.announce(hints)
    arrived = _drained(transport)
    assert hints != arrived
    assert set(hints) == set(arrived)
    assert transport.fired["reordered"] >= 1

    transport = FaultyTransport(MemoryTransport(), 1, loses=0, repeats=1, delays=0, reorders=0)
    transport.announce(hints)
    assert len(transport.receive(1_000, 0)) == 200
    assert transport.fired["repeated"] == 100


def test_an_acknowledgement_may_get_lost() -> None:
    clock = ManualClock()
    inner = memory_transport(clock, visibility_seconds=30.0)
    transport = FaultyTransport(inner, 1, loses=0, repeats=1, delays=0, reorders=0)
    transport.announce([a_hint()])
    for delivery in transport.receive(10, 0):
        transport.ack(delivery.receipt)
    clock.advance(timedelta(seconds=31))

    assert a_hint() in {delivery.hint for delivery in transport.receive(10, 0)}


def test_the_same_seed_does_the_same_harm() -> None:
    def harm(seed: int) -> list[Hint | None]:
        transport = FaultyTransport(MemoryTransport(), seed, loses=0.3, repeats=0.3, delays=0.3, reorders=0.5)
        for start in range(0, 100, 10):
            transport.announce([a_hint(number) for number in range(start, start + 10)])
        return _drained(transport)

    assert harm(1) == harm(1)
    assert harm(1) != harm(2)


def test_a_healed_transport_delivers_what_was_delayed() -> None:
    transport = FaultyTransport(MemoryTransport(), 1, loses=0, repeats=0, delays=1, reorders=0)
    transport.announce([a_hint(1)])
    transport.heal()
    transport.announce([a_hint(2)])

    assert {a_hint(1), a_hint(2)} == {delivery.hint for delivery in transport.receive(10, 0)}


def test_the_oldest_hints_are_dropped_beyond_the_capacity() -> None:
    transport = MemoryTransport(capacity=10)
    transport.announce([a_hint(number) for number in range(25)])

    assert [a_hint(number) for number in range(15, 25)] == [each.hint for each in transport.receive(100, 0)]
    assert transport.pending == 10


def test_hints_that_are_dealt_with_leave_nothing_behind() -> None:
    transport = MemoryTransport()
    for number in range(5_000):
        transport.announce([a_hint(number)])
        for delivery in transport.receive(10, 0):
            transport.ack(delivery.receipt)

    assert transport.pending == 0
    assert len(transport._order) <= 1_100  # pyright: ignore[reportPrivateUsage]
