"""The rule for signals and cancellations that a durable function sends to its child runs.

The child run and the row in the function's history are written in one transaction, so each is sent exactly once.
"""

from holdfast.kernel.commands import NO_FOLLOW_UP, ChildCancel, ChildSignal, FollowUp
from holdfast.kernel.history import events
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.signals import receive, request_cancel
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, State
from holdfast.ports.errors import ChannelClosedError, SignalRefusedError
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve


def notify_child(
    state: State, draft: RunDraft, run: Run, job: Job, record: ChildSignal | ChildCancel, now: Micros
) -> Decision[FollowUp]:
    """Signal or cancel a child run and append the row, with the reason if the signal is refused."""
    child = state.tables.run_named(RunName(run.namespace, record.run_id))
    sent: Decision[FollowUp] = Decision(NO_FOLLOW_UP)
    if isinstance(record, ChildCancel):
        sent = Decision(NO_FOLLOW_UP) if child is None else _cancelled(state, child, record.reason, now)
        draft.append(
            events.ChildCancelling(call=record.call, run=record.run_id, site=record.site), node=job.node
        )
        return sent
    event = events.ChildSignalled(call=record.call, run=record.run_id, site=record.site)
    if child is None:
        event = evolve(event, message="it no longer exists")
    else:
        event = evolve(event, channel=record.signal.channel)
        its = RunDraft(child, now)
        try:
            receive(state, its, child, (record.signal,), now)
            sent = Decision(its.follow_up, its.changes(), tuple(its.hints))
        except SignalRefusedError as error:
            event = evolve(event, message=error.why, closed=isinstance(error, ChannelClosedError))
    draft.append(event, node=job.node)
    return sent


def _cancelled(state: State, child: Run, reason: str, now: Micros) -> Decision[FollowUp]:
    """Cancel a run as `run.cancel` does. An ended run stays unchanged."""
    if child.status in TERMINAL:
        return Decision(NO_FOLLOW_UP)
    if child.is_admitted and state.plan_of(child).function is not None:
        requested = request_cancel(state, child, reason, now)
        return Decision(requested.reply.follow_up, requested.changes, requested.hints)
    draft = RunDraft(child, now)
    draft.keep_mailbox(draft.mailbox.without_starts())
    draft.append(events.RunCancelled(reason=reason))
    error: dict[str, object] = {"code": "cancelled", "message": reason}
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(child), error=error)
    return Decision(follow_up_after(state, child, draft), draft.changes(), tuple(draft.hints))
