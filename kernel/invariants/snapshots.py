"""The rows of a store at one moment."""

from collections.abc import Mapping, Sequence

import attrs

from holdfast.ports.records import HistoryRow, Job, Run, Session
from holdfast.ports.working_set import Tables


@attrs.frozen(kw_only=True)
class Snapshot:
    """The rows of a store at one moment, as far as the invariants speak of them.

    `jobs` and `history` are by run key, `plans` the stored JSON texts by fingerprint. `sessions` are at least those
    that hold a lease.
    """

    runs: Mapping[str, Run]
    jobs: Mapping[str, Mapping[int, Job]]
    history: Mapping[str, Sequence[HistoryRow]]
    plans: Mapping[str, str]
    sessions: Mapping[str, Session]


def as_snapshot(store: Snapshot | Tables) -> Snapshot:
    """Return what is in tables, or the snapshot that it is already."""
    return _of_tables(store) if isinstance(store, Tables) else store


def _of_tables(tables: Tables) -> Snapshot:
    return Snapshot(
        runs=tables.runs,
        jobs=tables.jobs,
        history=tables.history,
        plans={plan.fingerprint: plan.body for plan in tables.plans.values()},
        sessions=tables.sessions,
    )
