"""The rule for starts under a bounded concurrency key: what makes way for a new run.

All such starts of a key are decided one after the other: each locks the row `start:<key>` before it locks a run
(`kernel/dispatch/start_lines.py`). Runs that are already ending do not count. See docs/decisions/0083.
"""

from collections.abc import Collection, Sequence

import attrs

from holdfast.kernel.commands import FollowUp, RunCancel, RunStopped, RunTerminate
from holdfast.kernel.history import events
from holdfast.kernel.limits.start_bounds import ENDED_MAX, StartBound, bound_of_run
from holdfast.kernel.rules.cancels import cancel_run
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.runs import end_run
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, State
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.errors import ConcurrencyFullError
from holdfast.ports.records.limits import ENDING_OLDER, WhenFull, start_slot
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import OpenRunsOfKey
from holdfast.ports.transport import Hint


@attrs.define
class BoundDecision:
    """What makes way for a new run, or the run that is returned instead."""

    existing: Run | None = None
    """The run that the start returns; then nothing changes."""
    ended: list[str] = attrs.field(factory=list[str])
    """The ids of the runs that were ended, oldest first."""
    changes: list[Change] = attrs.field(factory=list[Change])
    hints: list[Hint] = attrs.field(factory=list[Hint])
    follow_ups: list[FollowUp] = attrs.field(factory=list[FollowUp])

    def add(self, run: Run, decision: Decision[RunStopped]) -> None:
        """Add the end of a run."""
        self.ended.append(run.id)
        self.changes.extend(decision.changes)
        self.hints.extend(decision.hints)
        self.follow_ups.append(decision.reply.follow_up)


def apply_bound(
    state: State,
    new: Run,
    now: Micros,
    *,
    before: Run | None = None,
    parent: str | None = None,
    adopted: Collection[str] = (),
    returns: bool = True,
    earlier: Sequence[Change] = (),
) -> BoundDecision:
    """Return what makes way for a new run under its bound, if it has one.

    Args:
        state: The rows that were read.
        new: The run that is to be stored.
        now: The instant.
        before: The generation that the new one takes the place of.
        parent: The key of the run that starts it as a child run. It counts, but is never ended for it.
        adopted: The keys of child runs that it takes over. They count, but are never ended for it.
        returns: Whether another run can be returned instead; if not, `return` refuses.
        earlier: Changes of the same command, which are not in the state yet.

    Raises:
        ConcurrencyFullError: Too many runs of the key are open, and none is ended or returned.
    """
    bound = bound_of_run(new)
    if bound is None:
        return BoundDecision()
    line = _Line(state, bound, before, parent, adopted, earlier)
    bounded = BoundDecision()
    slot = start_slot(new.namespace, bound.place.key)
    if slot not in state.tables.slots and Insert(slot) not in earlier:
        # A row that does not exist cannot be locked: of two starts that add it, one conflicts and is decided again.
        bounded.changes.append(Insert(slot))
    while line.total >= bound.open_max(line.slots) and len(bounded.ended) < ENDED_MAX:
        if returns and bound.full is WhenFull.RETURN and line.newest is not None:
            return BoundDecision(existing=line.newest)
        if bound.full not in ENDING_OLDER or (line.has_kept and not line.under_way and not line.waiting):
            raise ConcurrencyFullError.of(
                bound.place.key,
                limit=bound.limit_in_force(line.slots),
                waiting=new.concurrency_waiting or 0,
                newest=line.newest_id,
            )
        if bound.full is not WhenFull.REPLACE and line.under_way:
            run = line.under_way.pop(0)
            bounded.add(run, _stopped(state, run, bound, new, now))
        elif line.waiting:
            run = line.waiting.pop(0)
            bounded.add(run, _superseded(state, run, bound, new, now))
        else:
            break
    return bounded


class _Line:
    """The open runs of a key: those that were read, oldest first, and how many there are beside them."""

    def __init__(
        self,
        state: State,
        bound: StartBound,
        before: Run | None,
        parent: str | None,
        adopted: Collection[str],
        earlier: Sequence[Change],
    ) -> None:
        place = bound.place
        runs = {
            key: run
            for key, run in state.tables.runs.items()
            if run.concurrency_key == place.key and run.namespace == place.namespace
        }
        kept = {*state.excluded, *adopted}  # a run is changed once in a command
        for change in earlier:
            if isinstance(change, Insert | Update) and isinstance(run := change.record, Run):
                if run.concurrency_key == place.key and run.namespace == place.namespace:
                    runs[run.key] = run
                if isinstance(change, Update):
                    kept.add(run.key)
        self.has_kept = parent in runs or any(key in runs for key in adopted)
        if parent is not None:
            kept.add(parent)
        if before is not None:
            runs.pop(before.key, None)
        counted = (run for run in runs.values() if run.counts_for_starts)
        ordered = sorted(counted, key=lambda run: (run.created_at, run.key))
        self._beside = state.open_beside.get(place, OpenRunsOfKey())
        self.slots = self._beside.slots
        self._kept = sum(run.key in kept and run.key not in state.excluded for run in ordered)
        self.under_way = [run for run in ordered if run.has_slot and run.key not in kept]
        self.waiting = [run for run in ordered if not run.has_slot and run.key not in kept]
        self.newest = ordered[-1] if ordered else None

    @property
    def total(self) -> int:
        """How many open runs are left."""
        return self._beside.total + self._kept + len(self.under_way) + len(self.waiting)

    @property
    def newest_id(self) -> str | None:
        """The id of the newest one."""
        return self._beside.newest_id if self.newest is None else self.newest.id


def _reason(bound: StartBound, new: Run) -> str:
    return f"run {new.id!r} took its place: the concurrency key {bound.place.key!r} was full"


def _superseded(state: State, run: Run, bound: StartBound, new: Run, now: Micros) -> Decision[RunStopped]:
    """End a run that waits."""
    reason = _reason(bound, new)
    draft = RunDraft(run, now)
    draft.keep_mailbox(draft.mailbox.without_starts())
    draft.append(events.RunCancelled(reason=reason, superseded_by=new.id))
    error: dict[str, object] = {"code": "superseded", "message": reason, "run": new.id}
    draft.end(RunStatus.CANCELLED, cancels={}, error=error)
    reply = RunStopped(status=draft.status, changed=True, follow_up=follow_up_after(state, run, draft))
    return Decision(reply, draft.changes(), tuple(draft.hints))


def _stopped(state: State, run: Run, bound: StartBound, new: Run, now: Micros) -> Decision[RunStopped]:
    """Cancel or terminate a run that is under way."""
    reason = _reason(bound, new)
    if bound.full is WhenFull.TERMINATE:
        terminate = RunTerminate(namespace=run.namespace, run_id=run.id, reason=reason)
        event = events.RunTerminated(reason=reason, superseded_by=new.id)
        return end_run(state, terminate, event, now)
    cancel = RunCancel(namespace=run.namespace, run_id=run.id, reason=reason)
    return cancel_run(state, cancel, now, superseded_by=new.id)
