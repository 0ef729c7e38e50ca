"""What can be done next after changes to a run: `follow_up_after`."""

from holdfast.kernel.commands import FollowUp, merge
from holdfast.kernel.limits.concurrency import stage_limit_key
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import State
from holdfast.ports.records.run import Run


def follow_up_after(state: State, run: Run, draft: RunDraft) -> FollowUp:
    """Return what can be done after these changes to a run. Jobs deleted unread may have held any slot of its plan."""
    if not draft.closed_all:
        return draft.follow_up
    stages = (stage_limit_key(run, one) for one in state.plan_of(run).limited)
    steps = (job.concurrency_key for job in state.queued_steps(run.key) if job.concurrency_key)
    return merge(draft.follow_up, FollowUp(jobs=tuple(dict.fromkeys((*stages, *steps)))))
