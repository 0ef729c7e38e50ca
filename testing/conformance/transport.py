"""The contract of `JobTransport`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import Event, Thread
from typing import Final

from holdfast.ports.transport import (
    Delivery,
    Hint,
    HistoryGrew,
    JobHint,
    JobTransport,
    RunEnded,
    delivers_run_hints,
)
from holdfast.testing.conformance.threads import DEADLINE_SECONDS, in_threads

_SWEEPS_MAX: Final = 200
_A_WHILE_SECONDS: Final = 0.2


def a_hint(number: int = 1, *, epoch: int = 0, queue: str = "main") -> JobHint:
    """Return a hint about a job."""
    return JobHint(job=f"01TESTKEY{number:017d}.{number}", epoch=epoch, queue=queue)


def run_hints(number: int = 1) -> list[Hint]:
    """Return a hint of each kind about a run."""
    run = f"01TESTKEY{number:017d}"
    return [RunEnded(run=run), HistoryGrew(run=run)]


class JobTransportContract(ABC):
    """Every promise of `JobTransport`, which may lose, repeat, delay and reorder. Define `make_transport`.

    A delivery without a hint means that anything may have changed, and counts as the awaited hint. Set
    `delivers_run_hints` to False if hints about runs are always lost, as where each message goes to one
    receiver.
    """

    delivers_run_hints: bool = True

    @abstractmethod
    def make_transport(self) -> JobTransport:
        """Return a transport without announced hints. It is closed after the test."""

    def test_a_hint_that_is_announced_again_and_again_arrives(self) -> None:
        """Hints of every kind: repetition makes up for losses."""
        hints: list[Hint] = [a_hint(3, epoch=7, queue="größe")]
        if self.delivers_run_hints:
            hints += run_hints(4)
        for hint in hints:
            transport = self.make_transport()
            try:
                assert _arrives(transport, hint)
            finally:
                transport.close()

    def test_it_says_whether_it_tells_of_runs(self) -> None:
        """Otherwise a process that only waits for runs would take job hints from the workers."""
        transport = self.make_transport()
        try:
            assert delivers_run_hints(transport) is self.delivers_run_hints
        finally:
            transport.close()

    def test_only_what_was_announced_arrives(self) -> None:
        """No hint is made up, and every field survives."""
        transport = self.make_transport()
        try:
            announced = {a_hint(number, epoch=number) for number in range(20)} | set(run_hints())
            for hint in announced:
                transport.announce([hint])
            arrived = {delivery.hint for _ in range(30) for delivery in transport.receive(10, 0)}

            assert arrived <= announced | {None}
        finally:
            transport.close()

    def test_no_more_arrives_than_was_asked_for(self) -> None:
        """`limit` bounds each `receive`."""
        transport = self.make_transport()
        try:
            transport.announce([a_hint(number) for number in range(30)])
            sizes = [len(transport.receive(limit, 0)) for limit in (1, 3, 10, 2, 7)]

            assert all(size <= limit for size, limit in zip(sizes, (1, 3, 10, 2, 7), strict=True))
        finally:
            transport.close()

    def test_nothing_arrives_where_nothing_was_announced(self) -> None:
        """With and without a wait; announcing nothing is allowed."""
        transport = self.make_transport()
        try:
            transport.announce([])

            assert list(transport.receive(10, 0)) == []
            assert list(transport.receive(10, 0.01)) == []
        finally:
            transport.close()

    def test_answers_about_unknown_deliveries_are_ignored(self) -> None:
        """Receipts that never existed, and used ones."""
        transport = self.make_transport()
        try:
            for receipt in ("", "0", "1", "1.0", "9" * 30, "no such receipt", "é\x00"):
                _answer_all(transport, receipt)
            transport.announce([a_hint()])
            for delivery in transport.receive(10, _A_WHILE_SECONDS):
                transport.ack(delivery.receipt)
                _answer_all(transport, delivery.receipt)
        finally:
            transport.close()

    def test_a_receiver_that_waits_is_woken_by_an_announcement(self) -> None:
        """Long before its wait ends, if the hint is announced repeatedly."""
        transport = self.make_transport()
        arrived = Event()

        def receive() -> None:
            while not arrived.is_set():
                if transport.receive(1, DEADLINE_SECONDS):
                    arrived.set()

        receiver = Thread(target=receive, daemon=True)
        receiver.start()
        try:
            for _ in range(_SWEEPS_MAX):
                transport.announce([a_hint()])
                if arrived.wait(0.05):
                    break
            assert arrived.is_set()
        finally:
            arrived.set()
            transport.close()
            receiver.join(DEADLINE_SECONDS)
        assert not receiver.is_alive()

    def test_close_ends_a_wait(self) -> None:
        """A waiting `receive` returns nothing."""
        transport = self.make_transport()
        received: list[Sequence[Delivery]] = []
        begun = Event()

        def receive() -> None:
            begun.set()
            received.append(transport.receive(1, DEADLINE_SECONDS))

        receiver = Thread(target=receive, daemon=True)
        receiver.start()
        begun.wait(DEADLINE_SECONDS)
        receiver.join(0.01)
        transport.close()
        receiver.join(DEADLINE_SECONDS / 2)

        assert not receiver.is_alive()
        assert [list(deliveries) for deliveries in received] == [[]]

    def test_close_is_harmless_when_repeated(self) -> None:
        """Later calls of any method neither raise nor wait."""
        transport = self.make_transport()
        transport.announce([a_hint()])
        transport.close()
        transport.close()

        transport.announce([a_hint()])
        assert list(transport.receive(1, DEADLINE_SECONDS)) == []
        _answer_all(transport, "1")

    def test_several_threads_use_it_at_once(self) -> None:
        """Each announces, receives and acknowledges, without disturbing the others."""
        transport = self.make_transport()
        try:

            def work(thread: int) -> set[Hint | None]:
                arrived: set[Hint | None] = set()
                for round_number in range(50):
                    transport.announce([a_hint(1_000 * thread + round_number)])
                    for delivery in transport.receive(3, 0):
                        arrived.add(delivery.hint)
                        transport.ack(delivery.receipt)
                return arrived

            announced = {a_hint(1_000 * thread + number) for thread in range(4) for number in range(50)}
            for arrived in in_threads(4, work):
                assert arrived <= announced | {None}
        finally:
            transport.close()


class RedeliveryContract(JobTransportContract):
    """Further promises of a transport that keeps each delivery until it is acknowledged, as a queue does.

    Define `pass_time` as well. The transport must repeat deliveries that are not acknowledged within
    `visibility_seconds`. Set `is_exact` to False if a delivery may occasionally reach two receivers, or an old receipt
    still count.
    """

    visibility_seconds: float = 30.0
    is_exact: bool = True

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let this much time pass for the transport created last."""

    def test_a_delivery_that_is_not_acknowledged_is_repeated(self) -> None:
        """After the visibility timeout, not before, and any number of times."""
        transport = self.make_transport()
        transport.announce([a_hint()])
        assert [a_hint()] == _hints(transport)
        for _ in range(5):
            self.pass_time(self.visibility_seconds * 0.9)
            assert _hints(transport) == []
            self.pass_time(self.visibility_seconds * 0.2)
            assert [a_hint()] == _hints(transport)
        transport.close()

    def test_a_delivery_that_is_acknowledged_is_not_repeated(self) -> None:
        """Others are."""
        transport = self.make_transport()
        transport.announce([a_hint(1), a_hint(2), a_hint(3)])
        for delivery in transport.receive(10, 0):
            if delivery.hint == a_hint(2):
                transport.ack(delivery.receipt)
        self.pass_time(self.visibility_seconds * 1.1)

        assert {a_hint(1), a_hint(3)} == set(_hints(transport))
        transport.close()

    def test_a_delivery_is_repeated_after_the_delay_that_was_asked_for(self) -> None:
        """Shorter or longer than the visibility timeout, or at once."""
        for delay in (0.0, 5.0, self.visibility_seconds * 3):
            transport = self.make_transport()
            transport.announce([a_hint()])
            (delivery,) = transport.receive(10, 0)
            transport.retry(delivery.receipt, delay)
            if delay:
                self.pass_time(delay * 0.9)
                assert _hints(transport) == []
            self.pass_time(delay * 0.2)
            assert [a_hint()] == _hints(transport)
            transport.close()

    def test_an_extended_delivery_is_not_repeated_meanwhile(self) -> None:
        """It may be extended repeatedly."""
        transport = self.make_transport()
        transport.announce([a_hint()])
        (delivery,) = transport.receive(10, 0)
        for _ in range(5):
            self.pass_time(self.visibility_seconds * 0.9)
            transport.extend(delivery.receipt, self.visibility_seconds)
        assert _hints(transport) == []

        self.pass_time(self.visibility_seconds * 1.1)
        assert [a_hint()] == _hints(transport)
        transport.close()

    def test_the_receipt_of_a_repeated_delivery_is_worth_nothing(self) -> None:
        """A slow receiver can't take the delivery away from its successor."""
        transport = self.make_transport()
        transport.announce([a_hint()])
        (slow,) = transport.receive(10, 0)
        self.pass_time(self.visibility_seconds * 1.1)
        assert [a_hint()] == _hints(transport)

        _answer_all(transport, slow.receipt)
        self.pass_time(self.visibility_seconds * 1.1)
        if self.is_exact:
            assert [a_hint()] == _hints(transport)
        transport.close()

    def test_every_hint_goes_to_one_receiver(self) -> None:
        """Concurrent receivers share the work."""
        transport = self.make_transport()
        transport.announce([a_hint(number) for number in range(200)])

        def receive(_: int) -> list[Hint | None]:
            mine: list[Hint | None] = []
            while deliveries := transport.receive(7, 0):
                mine += [delivery.hint for delivery in deliveries]
            return mine

        received = [hint for mine in in_threads(4, receive) for hint in mine]

        assert len(set(received)) == 200
        assert len(received) == 200 or not self.is_exact
        transport.close()


def _hints(transport: JobTransport) -> list[Hint | None]:
    return [delivery.hint for delivery in transport.receive(10, 0)]


def _answer_all(transport: JobTransport, receipt: str) -> None:
    transport.ack(receipt)
    transport.retry(receipt, 0.0)
    transport.extend(receipt, 1.0)


def _arrives(transport: JobTransport, hint: Hint) -> bool:
    for _ in range(_SWEEPS_MAX):
        transport.announce([hint])
        if any(delivery.hint in (hint, None) for delivery in transport.receive(10, _A_WHILE_SECONDS)):
            return True
    return False
