"""Checks of limits that were changed while running, and of paused queues (F1)."""

from collections.abc import Iterator

from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.kernel.limits.overrides import is_queue_paused, names_of, slots_in_force
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import SlotName
from holdfast.ports.records.run import Run


def is_changed(snapshot: Snapshot, one: Run | Job) -> bool:
    """Return whether a limit of a run or job was ever changed, so that its holders may exceed those of plans."""
    return bool(snapshot.limits) and any(name in snapshot.limits for name in names_of(one))


def changed_limits(before: Snapshot, after: Snapshot) -> Iterator[Violation]:
    """F1: what is admitted has a slot by the limit in force, and nothing is claimed from a paused queue.

    The batch may have changed the limit itself: so the one before it, and the one after it, are both good. Only runs in
    `before` are checked, which may be a part of the store; nothing is admitted or claimed as it is created.
    """
    if not after.limits:
        return
    yield from _admitted(before, after)
    for run in before.runs:
        for job in after.jobs.get(run, {}).values():
            known = before.jobs.get(job.run, {}).get(job.number)
            is_claimed = job.state is JobState.LEASED and (known is None or known.epoch < job.epoch)
            paused = (is_queue_paused(one.limits, job.namespace, job.queue) for one in (before, after))
            if is_claimed and all(paused):
                yield Violation("F1", job.key.text, f"it was claimed from the paused queue {job.queue!r}")


def _admitted(before: Snapshot, after: Snapshot) -> Iterator[Violation]:
    had, have = _holders(before), _holders(after)
    admitted: set[SlotName] = set()
    limits: dict[SlotName, list[int]] = {}
    for key, one in have.items():
        run = one.run if isinstance(one, Job) else one.key
        in_force = slots_in_force(after.limits, one)
        if key not in had and run in before.runs and is_changed(after, one):
            admitted.update(slot for slot, _ in in_force)
        for (slot, limit), (_, earlier) in zip(in_force, slots_in_force(before.limits, one), strict=True):
            limits.setdefault(slot, []).append(max(limit, earlier))
    for slot in sorted(admitted):
        used, most = len(limits[slot]), max(limits[slot])
        if used > most:
            found = f"one more was admitted, so {used} are under way, but the limit in force is {most}"
            yield Violation("F1", slot.name, found)


def _holders(snapshot: Snapshot) -> dict[object, Run | Job]:
    found: dict[object, Run | Job] = {
        key: run for key, run in snapshot.runs.items() if run.slot is not None and run.has_slot
    }
    for jobs in snapshot.jobs.values():
        found.update((job.key, job) for job in jobs.values() if job.slot is not None and job.has_slot)
    return found
