"""Resumes runs that were blocked because the code did not fit their history, once matching code is deployed."""

import logging
from typing import Final

from holdfast.hosts.execution.dispatcher import Dispatcher
from holdfast.hosts.functions.upgrade_check import check_run
from holdfast.hosts.inspection.why import RESUMED_BY_CODE
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import RunResume
from holdfast.kernel.dispatch.unreadable_runs import unreadable_of
from holdfast.kernel.history import events
from holdfast.ports.errors import RunNotFoundError, UnknownPlanError, UnreadableRowError
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.history import NewestRows
from holdfast.ports.queries.runs import ListRuns, RunFilter
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.unreadable import PARSE_ERRORS

INTERVAL: Final = 60.0
"""Seconds between two rounds of one process. The first round is at its start, which is when code is deployed."""
SECONDS_MAX: Final = 1.0
"""The maximum time that a round replays histories, in seconds. The next round continues where it stopped."""
TIMES_MAX: Final = 3
"""How often a run is resumed automatically.

A run that is blocked again each time, by workers with other code or by nondeterministic code, is left to an operator.
"""

REASON: Final = "the code of this process fits its history"

_PAGE: Final = 100
_UNFIT_MAX: Final = 10_000

_log = logging.getLogger("holdfast.maintenance")


class BlockedRunResumer:
    """Checks blocked runs periodically. Its state is only a cache, so losing it does no harm."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._dispatcher = Dispatcher(core)
        self._next = 0.0
        self._after: ListPlace | None = None
        self._unfit: set[tuple[str, int]] = set()
        """Run keys and history lengths that this process's code does not fit; for these the answer does not change."""

    def round(self) -> tuple[str, ...]:
        """Resume blocked runs whose histories fit this process's code, if a round is due. Return their ids."""
        monotonic = self._core.clock.monotonic
        began = monotonic()
        if began < self._next:
            return ()
        self._next = began + INTERVAL
        which = RunFilter(namespace=self._core.namespace, statuses=frozenset({RunStatus.BLOCKED}))
        page = self._core.stores.persistence.read(ListRuns(which, after=self._after, limit=_PAGE))
        resumed: list[str] = []
        self._after = None
        for run in page:
            if monotonic() - began >= SECONDS_MAX:
                break
            self._after = run.place
            if self._fits(run) and self._resumed(run):
                resumed.append(run.id)
        else:
            if len(page) < _PAGE:
                self._after = None
        return tuple(resumed)

    def _fits(self, run: Run) -> bool:
        seen = (run.key, run.last_row)
        if seen in self._unfit:
            return False
        code = self._core.registry.find_workflow(run.workflow, run.version)
        if code is not None and self._is_fixed(run):
            return True
        if len(self._unfit) >= _UNFIT_MAX:
            self._unfit.clear()
        self._unfit.add(seen)
        return False

    def _is_fixed(self, run: Run) -> bool:
        """Whether a run may be resumed, all its rows can be read, and this process's code fits its history."""
        try:
            is_fixed = self._may_be_resumed(run) and check_run(self._core, run).is_compatible
        except (UnreadableRowError, UnknownPlanError, *PARSE_ERRORS):
            return False
        return is_fixed and not unreadable_of(self._core.stores.persistence, (run.key,))

    def _may_be_resumed(self, run: Run) -> bool:
        """Whether a deploy can unblock a run, and automatic resumes are left since an operator last resumed it."""
        read = self._core.stores.persistence.read
        blocked = read(NewestRows(run=run.key, type=events.RunBlocked.type, limit=1))
        if not blocked or events.RunBlocked.from_row(blocked[0]).code not in RESUMED_BY_CODE:
            return False
        resumed = read(NewestRows(run=run.key, type=events.RunResumed.type, limit=TIMES_MAX))
        return len(resumed) < TIMES_MAX or any(
            events.RunResumed.from_row(row).reason != REASON for row in resumed
        )

    def _resumed(self, run: Run) -> bool:
        command = RunResume(
            namespace=run.namespace, run_id=run.id, reason=REASON, generation=run.generation, row=run.last_row
        )
        try:
            reply = self._dispatcher.dispatch(command)
        except RunNotFoundError:
            return False  # it was removed in the meantime
        if reply.changed:
            _log.info("run %s of %s was blocked and is resumed: %s", run.id, run.workflow, REASON)
        return reply.changed
