"""Reads the quotas of the namespaces in which clients start runs, and how much of them is used.

That a namespace has no quota is known for `QUOTAS_KNOWN_FOR` seconds, so that starts in it read nothing for this. The
row of one that has a quota is locked, so that its starts are decided one after the other.
"""

import math
from collections.abc import Sequence
from typing import Final

from holdfast.kernel.composed_searches import NamespaceContents, RegisteredWorkflows
from holdfast.kernel.dispatch.command_batches import BATCH_COMMANDS_MAX
from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.limits.quotas import QuotaUse
from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import Reads, State
from holdfast.ports.clock import Clock, micros
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.run import TERMINAL
from holdfast.ports.records.values import Micros
from holdfast.ports.records.workflow import WorkflowKey
from holdfast.ports.searches import NamespaceParts, NamespaceRuns, WorkflowsOfNamespace
from holdfast.ports.tables import NAMESPACES, WORKFLOWS

QUOTAS_KNOWN_FOR: Final = 15.0
"""Seconds for which a process takes a namespace for one without a quota."""
NAMESPACES_KNOWN_MAX: Final = 1_000
"""The most namespaces of which a process remembers that."""
_MINUTE: Final[Micros] = 60_000_000


class QuotaReads:
    """The quotas of namespaces, as one process knows them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unlimited: dict[str, float] = {}
        """Namespaces without a quota, each with the time until which that is assumed."""

    def read(self, tx: Transaction, state: State, needs: Sequence[Reads], _: ReadSet) -> None:
        """Lock the rows of namespaces with a quota in which clients start runs, and count their runs."""
        for reads in needs:
            if isinstance(reads.search, NamespaceContents):  # it may be given a quota
                self._unlimited.pop(reads.search.namespace, None)
        wanted = {new.namespace for reads in needs for new in reads.new_runs if new.parent is None}
        now = self._clock.monotonic() if wanted else 0.0
        unknown = sorted(one for one in wanted if self._unlimited.get(one, -math.inf) <= now)
        if not unknown:
            return
        limited = [row.name for row in tx.get(NAMESPACES, unknown) if row.has_quota]
        rows = [row for row in tx.lock(NAMESPACES, limited) if row.has_quota] if limited else ()
        for row in rows:
            state.quotas[row.name] = self._use_of(tx, row)
        if len(self._unlimited) > NAMESPACES_KNOWN_MAX:
            self._unlimited.clear()
        self._unlimited.update(dict.fromkeys(set(unknown) - set(limited), now + QUOTAS_KNOWN_FOR))

    def _use_of(self, tx: Transaction, row: NamespaceRow) -> QuotaUse:
        since = micros(self._clock.now()) - _MINUTE
        # As many more as one batch may end: there may be more active runs than a quota that was lowered.
        active_max = 0 if row.max_active_runs is None else row.max_active_runs + BATCH_COMMANDS_MAX
        active, started = tx.find(NamespaceRuns(row.name, active_max, since, row.max_starts_per_minute or 0))
        return QuotaUse(row, active, started)


def note_known_runs(_: Transaction, state: State, __: Sequence[Reads], ___: ReadSet) -> None:
    """Note which runs were read: the others that the state will have are new."""
    for name, use in state.quotas.items():
        use.known = frozenset(state.tables.runs)
        use.open = frozenset(
            run.key
            for run in state.tables.runs.values()
            if run.namespace == name and run.status not in TERMINAL
        )


def namespace_contents(tx: Transaction, state: State, search: NamespaceContents, _: Micros) -> SearchResult:
    """Lock the row of a namespace, and find what it has."""
    for row in tx.lock(NAMESPACES, [search.namespace]):
        state.tables.put(row)
    return SearchResult(
        contents=tuple(tx.find(NamespaceParts(search.namespace))),
        workflows=tuple(tx.find(WorkflowsOfNamespace(search.namespace))),
    )


def registered_workflows(
    tx: Transaction, state: State, search: RegisteredWorkflows, _: Micros
) -> SearchResult:
    """Lock workflows, and find the keys of all of the namespace."""
    for row in tx.lock(WORKFLOWS, [WorkflowKey(search.namespace, *one) for one in search.versions]):
        state.tables.put(row)
    return SearchResult(workflows=tuple(tx.find(WorkflowsOfNamespace(search.namespace))))
