"""Delivers messages of topics right after the commits that published them, or that subscribed."""

import logging
from collections.abc import Iterable
from typing import Final

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


def try_to_deliver_topics(kernel: Kernel, namespace: str, topics: Iterable[str]) -> None:
    """Deliver messages of these topics. A failure is logged only: maintenance does the same."""
    try:
        deliver_topics(kernel, namespace, topics)
    except HoldfastError as error:
        _log.warning("maintenance must deliver messages of a topic: %s", error)
