"""The starts that a run has gathered, after a change: it begins, ends, or is run again."""

from holdfast.ports.changes import Change, Delete
from holdfast.ports.records.gatherings import GatheringName
from holdfast.ports.records.run import GATHERING, Run, RunStatus
from holdfast.ports.structs import evolve
from holdfast.ports.tables import GATHERINGS


def after_gathering(before: Run, after: Run) -> tuple[Run, tuple[Change, ...]]:
    """Return a run after a change, and what else changes: once it has begun or ended, no start joins it any more.

    Of a run that was blocked, another may have taken the name since: its row stays.
    """
    gathered = after.gathered_starts
    if gathered is None or not gathered.is_open:
        return after, ()
    was_blocked = before.status is RunStatus.BLOCKED
    if after.status in GATHERING and not was_blocked:
        return after, ()
    closed = evolve(after, gathered=evolve(gathered, is_open=False).to_text())
    name = GatheringName(after.namespace, gathered.name)
    return closed, () if was_blocked else (Delete(GATHERINGS, name),)


def carried_starts(before: Run) -> str | None:
    """Return the gathered starts of the next generation of a run, which gets the same input."""
    gathered = before.gathered_starts
    if gathered is None:
        return None
    return evolve(gathered, is_open=False, of=gathered.of or before.key).to_text()
