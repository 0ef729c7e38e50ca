"""Delivers what publishers and subscribers of topics have left behind: a process that ended, or a lost follow-up."""

import logging
from typing import Final

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.kernel.commands import TopicDeliver, TopicDelivered

ROUNDS_MAX: Final = 20
"""The maximum number of transactions in one tick, besides that of the tick."""

_log = logging.getLogger("holdfast.maintenance")


class TopicSweeper:
    """Delivers the messages of all topics with something to deliver, of all namespaces.

    The first delivery shares the transaction of the tick: where nothing is to be delivered, it costs no other.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._after = ""

    @property
    def command(self) -> TopicDeliver:
        """The command that delivers the next topic."""
        core = self._dispatcher.core
        return TopicDeliver(namespace=core.namespace, after=self._after, limit=core.topic_deliveries)

    def go_on(self, done: TopicDelivered) -> tuple[int, bool]:
        """Deliver for a while after a first delivery. Return the number of deliveries, and whether there may be more.

        A topic whose row is damaged is logged and left out.
        """
        deliveries = 0
        for number in range(ROUNDS_MAX + 1):
            if number:
                done = self._dispatcher.dispatch(self.command)
            deliveries += done.deliveries
            self._after = done.next or ""
            if done.problem is not None:
                _log.error("messages of a topic can't be delivered: %s", done.problem)
            if done.topic is None:
                return deliveries, False
        return deliveries, True
