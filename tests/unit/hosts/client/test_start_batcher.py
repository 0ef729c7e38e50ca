"""The start batcher: commands of several threads share a transaction; each gets its own reply."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from holdfast.hosts.client.start_batcher import COMMANDS_MAX, TRANSACTIONS_MAX, GroupCommit
from holdfast.kernel.commands import Command, RunTerminate
from holdfast.ports.errors import RunNotFoundError, UnavailableError

SOON = 120


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds. Raises AssertionError if it does not in time."""
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def command(name: str) -> Command[Any]:
    return RunTerminate(run_id=name)


class Store:
    """A store that answers commands with the run's id, on command; `refused` ones get errors."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may = threading.Semaphore(0)
        self.refused: set[str] = set()
        self.fails: Exception | None = None

    def dispatch_many(self, commands: Sequence[Command[Any]]) -> list[object]:
        names = [str(getattr(one, "run_id", "")) for one in commands]
        self.batches.append(names)
        assert self.may.acquire(timeout=SOON)
        if self.fails is not None:
            raise self.fails
        return [RunNotFoundError(name) if name in self.refused else name for name in names]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def group(store: Store) -> GroupCommit:
    return GroupCommit(store.dispatch_many)


Begin = Callable[[str], "Future[object]"]


@pytest.fixture
def begin(group: GroupCommit) -> Iterator[Begin]:
    """Dispatch a command in a thread."""
    with ThreadPoolExecutor(2 * COMMANDS_MAX) as threads:

        def submit(name: str) -> "Future[object]":
            return threads.submit(group.dispatch, command(name))

        yield submit


def _sent(store: Store, batches: int) -> bool:
    return len(store.batches) == batches


def _gathered(group: GroupCommit, commands: int) -> bool:
    private: Any = group
    return len(private._waiting) == commands


def busy(store: Store, group: GroupCommit, begin: Begin, *names: str) -> list["Future[object]"]:
    """Fill all transactions with commands, and let these commands wait."""
    first: list[Future[object]] = []
    for number in range(TRANSACTIONS_MAX):
        first.append(begin(f"first {number}"))
        until(partial(_sent, store, number + 1))
    others: list[Future[object]] = []
    for number, name in enumerate(names, 1):
        others.append(begin(name))
        until(partial(_gathered, group, number))
    return [*first, *others]


def test_one_that_comes_alone_is_sent_at_once(store: Store, begin: Begin) -> None:
    store.may.release(2)
    assert [begin("a").result(SOON), begin("b").result(SOON)] == ["a", "b"]
    assert store.batches == [["a"], ["b"]]


def test_those_that_come_meanwhile_go_together_and_each_gets_its_own(
    store: Store, group: GroupCommit, begin: Begin
) -> None:
    store.refused = {"b"}
    *first, a, b, c = busy(store, group, begin, "a", "b", "c")
    store.may.release(TRANSACTIONS_MAX + 1)
    assert [one.result(SOON) for one in (*first, a, c)] == ["first 0", "first 1", "a", "c"]
    with pytest.raises(RunNotFoundError):
        b.result(SOON)
    assert store.batches[TRANSACTIONS_MAX:] == [["a", "b", "c"]]


def test_what_keeps_a_transaction_from_being_made_is_raised_by_all_of_it(
    store: Store, group: GroupCommit, begin: Begin
) -> None:
    store.fails = UnavailableError("away")
    for one in busy(store, group, begin, "a", "b"):
        store.may.release(TRANSACTIONS_MAX + 1)
        with pytest.raises(UnavailableError):
            one.result(SOON)
    store.fails = None
    store.may.release()
    assert begin("c").result(SOON) == "c"


def test_no_more_go_together_than_may(store: Store, group: GroupCommit, begin: Begin) -> None:
    many = busy(store, group, begin, *(str(number) for number in range(COMMANDS_MAX + 1)))
    store.may.release(TRANSACTIONS_MAX + 2)
    for one in many:
        one.result(SOON)
    assert sorted(map(len, store.batches)) == [*[1] * TRANSACTIONS_MAX, 1, COMMANDS_MAX]


def test_the_next_one_is_begun_when_as_many_wait_as_went_with_the_last(
    store: Store, group: GroupCommit, begin: Begin
) -> None:
    *_, a, b = busy(store, group, begin, "a", "b")
    store.may.release()
    until(partial(_sent, store, TRANSACTIONS_MAX + 1))  # a and b are under way, and one of the first
    c = begin("c")
    until(partial(_gathered, group, 1))
    d = begin("d")
    until(partial(_gathered, group, 2))
    store.may.release()
    until(partial(_sent, store, TRANSACTIONS_MAX + 2))
    e = begin("e")
    until(partial(_gathered, group, 1))
    store.may.release(TRANSACTIONS_MAX + 1)
    assert [one.result(SOON) for one in (a, b, c, d, e)] == ["a", "b", "c", "d", "e"]
    assert store.batches[TRANSACTIONS_MAX:] == [["a", "b"], ["c", "d"], ["e"]]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also in a process that was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_who_waits(group: GroupCommit) -> None:
    """Send Ctrl-C once the main thread waits: a signal just before that would not interrupt the wait."""
    until(partial(_gathered, group, 1))
    time.sleep(0.1)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_who_is_interrupted_takes_its_command_back_and_holds_up_no_other(
    store: Store, group: GroupCommit, begin: Begin
) -> None:
    first = busy(store, group, begin)

    thread = threading.Thread(target=interrupt_who_waits, args=(group,))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        group.dispatch(command("mine"))
    thread.join()
    other = begin("other")
    store.may.release(TRANSACTIONS_MAX + 1)
    assert [one.result(SOON) for one in (*first, other)] == ["first 0", "first 1", "other"]
    assert store.batches[TRANSACTIONS_MAX:] == [["other"]]


@pytest.mark.usefixtures("interruptible")
def test_who_is_interrupted_when_its_turn_comes_lets_the_next_one_send(
    store: Store, group: GroupCommit, begin: Begin
) -> None:
    first = busy(store, group, begin)
    private: Any = group

    def interrupting() -> None:
        until(partial(_gathered, group, 1))
        with private._lock:  # so that what is interrupted can't say so before its turn has come
            interrupt_who_waits(group)
            time.sleep(0.05)
            mine = private._waiting.popleft()
            mine.sends = True
            private._is_called = True
            private._under_way += 1

    thread = threading.Thread(target=interrupting)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        group.dispatch(command("mine"))
    thread.join()
    store.may.release(TRANSACTIONS_MAX)
    assert [one.result(SOON) for one in first] == ["first 0", "first 1"]
    until(lambda: private._under_way == 0)
    store.may.release()
    assert begin("other").result(SOON) == "other"
