"""Delivers what publishers and subscribers of topics have left behind: a process that ended, or a lost follow-up."""

import logging
from typing import Final

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.kernel.commands import TopicDeliver
from holdfast.ports.errors import HoldfastError, UnavailableError

ROUNDS_MAX: Final = 20
"""The maximum number of transactions in one tick."""

_log = logging.getLogger("holdfast.maintenance")


class TopicSweeper:
    """Delivers the messages of all topics with something to deliver, of all namespaces."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._after = ""

    def sweep(self) -> tuple[int, bool]:
        """Deliver for a while. Return how many messages went to subscribers, and whether there may be more.

        A topic that can't be delivered is logged, and holds up those after it only. UnavailableError propagates.
        """
        deliveries = 0
        core = self._dispatcher.core
        for _ in range(ROUNDS_MAX):
            try:
                command = TopicDeliver(
                    namespace=core.namespace, after=self._after, limit=core.topic_deliveries
                )
                done = self._dispatcher.dispatch(command)
            except UnavailableError:
                raise
            except HoldfastError as error:
                _log.error("messages of a topic can't be delivered: %s", error)
                self._after = ""
                return deliveries, False
            deliveries += done.deliveries
            self._after = done.next or ""
            if done.topic is None:
                return deliveries, False
        return deliveries, True
