"""Rehearses repairs on a copy in memory, so that the doctor promises nothing that a repair would not achieve.

A repair changes a run only if the plan and the history leave exactly one answer. Which runs these are is decided by
the kernel, after it has read them under locks. The doctor takes no locks and writes nothing until it is asked to, so it
gives the kernel a copy of what it has read.
"""

from collections.abc import Iterable, Iterator

from holdfast.hosts.maintenance.doctor.scan import Part
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import scratch_store
from holdfast.kernel.commands import RunRepair
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.invariants import Violation, as_snapshot
from holdfast.ports.changes import Change, Insert
from holdfast.ports.errors import HoldfastError
from holdfast.ports.queries.values import PlansByFingerprint
from holdfast.ports.unreadable import PARSE_ERRORS


def violations_after(core: Core, part: Part, repairs: Iterable[RunRepair]) -> list[Violation]:
    """Return the violations of these runs that would remain after repairs. Does not change the store."""
    copy = scratch_store()
    kernel = Kernel(persistence=copy, clock=core.clock, ids=core.stores.ids, plans=core.registry.plans)
    try:
        changes = tuple(_rows_of(core, part))
        copy.transact(lambda tx: tx.apply(changes))
        for repair in repairs:
            kernel.dispatch_many((repair,))
        snapshot = as_snapshot(copy.dump())
        after = Part(runs=[snapshot.runs[run.key] for run in part.runs], snapshot=snapshot)
        return after.violations(late_before=None)
    except (HoldfastError, *PARSE_ERRORS):
        # The rows contradict each other, which a repair would not get past either.
        return part.violations(late_before=None)


def _rows_of(core: Core, part: Part) -> Iterator[Change]:
    snapshot = part.snapshot
    plans = tuple(sorted({run.plan for run in snapshot.runs.values()}))
    yield from (Insert(row) for row in core.stores.persistence.read(PlansByFingerprint(plans)))
    yield from (Insert(session) for session in snapshot.sessions.values())
    for run in sorted(snapshot.runs.values(), key=lambda run: run.generation):
        yield Insert(run)
    yield from (Insert(row) for rows in snapshot.history.values() for row in rows)
    yield from (Insert(job) for jobs in snapshot.jobs.values() for job in jobs.values())
