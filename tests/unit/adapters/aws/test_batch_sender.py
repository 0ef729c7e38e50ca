"""The batch sender: batching, retries and giving up, for any AWS service."""

from collections.abc import Callable, Sequence

import pytest

from holdfast.adapters.aws.batch_sender import AT_ONCE, BYTES_MAX, WITHIN, Entry, Failure, send_in_order
from holdfast.ports.errors import EventRefusedError, SinkUnavailableError

SOON = Failure(reason="too fast", final=False)
NEVER = Failure(reason="malformed", final=True)


def entries(run: str, many: int, size: int = 10) -> list[Entry[str]]:
    return [Entry(run=run, name=f"{run}/{one}", content=f"{run}/{one}", size=size) for one in range(many)]


class Service:
    """A service that takes the entries to which `says` does not object. Each request takes `seconds`."""

    def __init__(self, says: Callable[[str], Failure | None] = lambda _: None, seconds: float = 0.0) -> None:
        self.says = says
        self.seconds = seconds
        self.requests: list[list[str]] = []
        self.taken: list[str] = []
        self.now = 0.0

    def __call__(self, contents: Sequence[str]) -> list[Failure | None]:
        self.requests.append(list(contents))
        self.now += self.seconds
        outcomes = [self.says(content) for content in contents]
        self.taken += [
            content for content, outcome in zip(contents, outcomes, strict=True) if outcome is None
        ]
        return outcomes

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def send(self, given: Sequence[Entry[str]]) -> None:
        send_in_order("the bus", given, self, monotonic=lambda: self.now, sleep=self.sleep)


def test_a_request_is_full_and_has_one_entry_of_each_run() -> None:
    service = Service()
    service.send([entry for run in range(20) for entry in entries(f"run-{run}", 5)])

    assert [len(request) for request in service.requests] == [AT_ONCE] * 10
    assert all(len({name.split("/")[0] for name in request}) == AT_ONCE for request in service.requests)


def test_a_long_run_does_not_come_last() -> None:
    service = Service()
    service.send([*(entry for run in range(18) for entry in entries(f"run-{run}", 2)), *entries("long", 4)])

    assert len(service.requests) == 4


def test_an_entry_that_failed_is_sent_again_before_those_that_follow_it_and_holds_up_no_other_run() -> None:
    said = iter([SOON, SOON])
    service = Service(lambda content: next(said, None) if content == "a/1" else None)
    service.send([*entries("a", 3), *entries("b", 3)])

    assert [name for name in service.taken if name.startswith("a")] == ["a/0", "a/1", "a/2"]
    assert service.requests == [["a/0", "b/0"], ["a/1", "b/1"], ["a/1", "b/2"], ["a/1"], ["a/2"]]
    assert service.now == pytest.approx(0.2 + 0.4)


def test_an_entry_that_fails_on_and_on_is_left_for_later() -> None:
    service = Service(lambda content: SOON if content == "a/1" else None)
    with pytest.raises(SinkUnavailableError, match="the bus rejected event a/1: too fast"):
        service.send(entries("a", 3))

    assert service.taken == ["a/0"]
    assert len(service.requests) == 5


def test_an_entry_that_is_refused_is_not_sent_again() -> None:
    service = Service(lambda content: NEVER if content == "a/1" else None)
    with pytest.raises(EventRefusedError, match="a/1: malformed"):
        service.send(entries("a", 3))

    assert service.requests == [["a/0"], ["a/1"]]


def test_one_that_is_too_large_is_refused_before_anything_is_sent() -> None:
    service = Service()
    with pytest.raises(EventRefusedError, match=r"event a/0 has 262,144 bytes"):
        service.send([*entries("b", 1), *entries("a", 1, BYTES_MAX + 1)])

    assert service.requests == []


def test_a_request_is_not_longer_than_it_may_be() -> None:
    service = Service()
    service.send([entry for run in "abc" for entry in entries(run, 1, BYTES_MAX // 2)])

    assert service.requests == [["a/0", "b/0"], ["c/0"]]


def test_a_slow_service_is_given_up_in_time() -> None:
    service = Service(seconds=5.0)
    with pytest.raises(SinkUnavailableError, match="too slow: 7 events were not sent"):
        service.send(entries("a", 10))

    assert service.now < WITHIN + 5.0
