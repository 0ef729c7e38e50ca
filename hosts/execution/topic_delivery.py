"""Delivers messages of topics right after the commits that published them, or that subscribed."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from holdfast.kernel.commands import TopicDeliver
from holdfast.kernel.commands.topics import DELIVER_LIMIT
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.errors import HoldfastError

ROUNDS_MAX: Final = 20
"""How many transactions are made for a topic. What is left then is left to maintenance."""

_log = logging.getLogger("holdfast.engine")


def deliver_topics(
    kernel: Kernel, namespace: str, topics: Iterable[str], *, limit: int = DELIVER_LIMIT
) -> None:
    """Deliver messages of these topics, so many in a transaction. Raises errors of the store."""
    for topic in topics:
        for _ in range(ROUNDS_MAX):
            done = kernel.dispatch(TopicDeliver(namespace=namespace, topic=topic, limit=limit))
            kernel.admit(namespace, done.follow_up)
            if not done.more:
                break


class SharedDeliveries:
    """Deliveries that threads share: one that begins after a commit covers the messages of that commit.

    While a thread delivers a topic, others that have published to it wait, and the first of them delivers for all.
    Thread-safe.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Reset the state. A forked child calls this: the waiting threads exist only in its parent."""
        self._lock = threading.Lock()
        self._topics: dict[tuple[str, str], _SharedTopic] = {}

    def deliver(self, namespace: str, topic: str, deliver: Callable[[], None]) -> None:
        """Call `deliver`, unless another thread has called its own for the topic since this call began.

        Raises what `deliver` raises; then the next waiting thread delivers.
        """
        with self._lock:
            one = self._topics.setdefault((namespace, topic), _SharedTopic())
            one.requested += 1
            mine, one.waiting = one.requested, one.waiting + 1
        try:
            with one.turn:
                if one.covered < mine:
                    with self._lock:
                        covers = one.requested
                    deliver()
                    one.covered = covers
        finally:
            with self._lock:
                one.waiting -= 1
                if not one.waiting:
                    self._topics.pop((namespace, topic), None)


@attrs.define(eq=False)
class _SharedTopic:
    """A topic that threads deliver."""

    turn: threading.Lock = attrs.field(factory=threading.Lock)
    """Held by the thread that delivers."""
    requested: int = 0
    """How many deliveries were requested."""
    covered: int = 0
    """How many of these are done."""
    waiting: int = 0
    """How many threads are in `deliver`."""


def try_to_deliver_topics(kernel: Kernel, namespace: str, topics: Iterable[str]) -> None:
    """Deliver messages of these topics. A failure is logged only: maintenance does the same."""
    try:
        deliver_topics(kernel, namespace, topics)
    except HoldfastError as error:
        _log.warning("maintenance must deliver messages of a topic: %s", error)
