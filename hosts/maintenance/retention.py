"""Retention: removes runs that ended longer ago than a given time, with their blobs."""

import logging
from datetime import timedelta
from typing import Final

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import RunRemove
from holdfast.ports.clock import micros
from holdfast.ports.durations import Duration
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import ListRuns, RunFilter
from holdfast.ports.records.run import TERMINAL
from holdfast.ports.records.values import Micros
from holdfast.ports.validation import duration

AT_ONCE: Final = 100
"""The number of runs removed in one batch."""
PAGES_MAX: Final = 5
"""The maximum number of batches in one sweep."""
RETENTION_MIN: Final = timedelta(hours=1)
"""The shortest retention."""

_log = logging.getLogger("holdfast.removing")


def checked_retention(where: str, retention: Duration) -> timedelta:
    """Return a retention as a timedelta. Raises InvalidArgumentError if it is not a duration of at least an hour."""
    return duration(where, "retention", retention, RETENTION_MIN)


class Retention:
    """Removes expired runs, a few batches at a time. `kept_for` is in microseconds."""

    def __init__(self, core: Core, kept_for: Micros) -> None:
        self._core = core
        self._dispatcher = Dispatcher(core)
        self._kept_for = kept_for
        self._after: ListPlace | None = None

    def sweep(self) -> bool:
        """Remove some expired runs, oldest first. Return whether there may be more.

        Runs that can't be removed yet are tried again in a later sweep.
        """
        core = self._core
        before = micros(core.clock.now()) - self._kept_for
        which = RunFilter(
            namespace=core.namespace,
            statuses=TERMINAL,
            created_before=before,
            ended_before=before,
            newest=True,
        )
        for _ in range(PAGES_MAX):
            query = ListRuns(which, after=self._after, oldest_first=True, limit=AT_ONCE)
            page = core.stores.persistence.read(query)
            if page:
                commands = [
                    RunRemove(namespace=run.namespace, run_id=run.id, generation=run.generation)
                    for run in page
                ]
                self._dispatcher.follow_up(*core.kernel.dispatch_many(commands))
            if len(page) < AT_ONCE:
                self._after = None
                return False
            self._after = page[-1].place
        return True
