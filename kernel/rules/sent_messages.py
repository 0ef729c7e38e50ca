"""The rule for signals and cancellations that a durable function sends to other runs.

The other run and the row in the function's history are written in one transaction, so each is sent exactly once.
"""

from holdfast.kernel.commands import NO_FOLLOW_UP, CancelSend, FollowUp, SignalSend
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


def notify_run(
    state: State, draft: RunDraft, run: Run, job: Job, record: SignalSend | CancelSend, now: Micros
) -> Decision[FollowUp]:
    """Signal or cancel a run and append the row, with the reason if the signal is refused.

    A run may signal itself, but a cancellation of itself does nothing: its function raises `CancelRun`.
    """
    other = state.tables.run_named(RunName(run.namespace, record.run_id))
    sent: Decision[FollowUp] = Decision(NO_FOLLOW_UP)
    if isinstance(record, CancelSend):
        if other is not None and other.key != run.key:
            sent = _cancelled(state, other, record.reason, now)
        draft.append(events.CancelSent(call=record.call, run=record.run_id, site=record.site), node=job.node)
        return sent
    event = events.SignalSent(call=record.call, run=record.run_id, site=record.site)
    if other is None:
        event = evolve(event, message="there is no such run")
    else:
        event = evolve(event, channel=record.signal.channel)
        is_own = other.key == run.key
        its = draft if is_own else RunDraft(other, now)
        try:
            receive(state, its, other, (record.signal,), now, sender=run.id)
            if not is_own:
                sent = Decision(its.follow_up, its.changes(), tuple(its.hints))
        except SignalRefusedError as error:
            event = evolve(event, message=error.why, closed=isinstance(error, ChannelClosedError))
    draft.append(event, node=job.node)
    return sent


def _cancelled(state: State, run: Run, reason: str, now: Micros) -> Decision[FollowUp]:
    """Cancel a run as `run.cancel` does. An ended run stays unchanged."""
    if run.status in TERMINAL:
        return Decision(NO_FOLLOW_UP)
    if run.is_admitted and state.plan_of(run).function is not None:
        requested = request_cancel(state, run, reason, now)
        return Decision(requested.reply.follow_up, requested.changes, requested.hints)
    draft = RunDraft(run, now)
    draft.keep_mailbox(draft.mailbox.without_starts())
    draft.append(events.RunCancelled(reason=reason))
    error: dict[str, object] = {"code": "cancelled", "message": reason}
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(run), error=error)
    return Decision(follow_up_after(state, run, draft), draft.changes(), tuple(draft.hints))
