"""The rule for signals and cancellations that a durable function sends to its child runs.

The child run and the row in the function's history are written in one transaction, so each is sent exactly once.
"""

from holdfast.kernel.commands import RowToRecord
from holdfast.kernel.rules.admissions import admits_jobs
from holdfast.kernel.rules.signals import receive, request_cancel
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, State
from holdfast.ports.errors import ChannelClosedError, SignalRefusedError
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.values import Micros


def notify_child(
    state: State, draft: RunDraft, run: Run, job: Job, recorded: RowToRecord, now: Micros
) -> Decision[tuple[str, ...]]:
    """Signal or cancel a child run and append the row, with the reason if the signal is refused.

    The reply is the concurrency keys for `job.admit`.
    """
    notice = recorded.child_message
    assert notice is not None
    facts: dict[str, object] = {"call": recorded.call, "run": notice.run_id}
    if recorded.site:
        facts["site"] = recorded.site
    child = state.tables.run_named(RunName(run.namespace, notice.run_id))
    sent: Decision[tuple[str, ...]] = Decision(())
    if notice.signal is None:
        sent = Decision(()) if child is None else _cancelled(state, child, notice.reason, now)
    elif child is None:
        facts["message"] = "it no longer exists"
    else:
        facts["channel"] = notice.signal.channel
        its = RunDraft(child, now)
        try:
            receive(state, its, child, (notice.signal,), now)
            sent = Decision((), its.changes(), tuple(its.hints))
        except SignalRefusedError as error:
            facts["message"] = error.why
            if isinstance(error, ChannelClosedError):
                facts["closed"] = True
    draft.append(recorded.type, node=job.node, data=facts)
    return sent


def _cancelled(state: State, child: Run, reason: str, now: Micros) -> Decision[tuple[str, ...]]:
    """Cancel a run as `run.cancel` does. An ended run stays unchanged."""
    if child.status in TERMINAL:
        return Decision(())
    if child.is_admitted and state.plan_of(child).function is not None:
        requested = request_cancel(state, child, reason, now)
        return Decision((), requested.changes, requested.hints)
    draft = RunDraft(child, now)
    draft.keep_mailbox(draft.mailbox.without_starts())
    draft.append("run.cancelled", data={"reason": reason} if reason else None)
    error: dict[str, object] = {"code": "cancelled", "message": reason}
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(child), error=error)
    return Decision(admits_jobs(state, child, draft), draft.changes(), tuple(draft.hints))
