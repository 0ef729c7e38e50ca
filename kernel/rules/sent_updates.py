"""Rules for updates that a durable function sends to other runs, and for the replies.

The update and the row in the function's history are written in one transaction, so each is sent exactly once. The
answer opens a delivery in the transaction that records it, as does the end of the run for each update without one. The
sender keeps the key of each update whose reply has not arrived, so it gets each reply once, however often it is
delivered.
"""

from holdfast.kernel.commands import NO_FOLLOW_UP, FollowUp, RunDelivered, UpdateDeliver, UpdateSend
from holdfast.kernel.history import events
from holdfast.kernel.rules.leases import parse_job_id
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.rules.updates import check_update_name, receive_update
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.reply_deliveries import UPDATE_CALL, reply_delivery_of, reply_of
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Delete
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError, UpdateRefusedError
from holdfast.ports.mailboxes import ReplyAddress
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import TERMINAL, Run, RunName, end_of
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import JOBS


def send_update(
    state: State, draft: RunDraft, run: Run, job: Job, record: UpdateSend, now: Micros
) -> Decision[FollowUp]:
    """Send an update to a run and append the row, with the reason if it is refused.

    A run can't send one to itself: its function calls the method of its object.
    """
    check_update_name(record.update)
    event = events.UpdateSent(call=record.call, run=record.run_id, update=record.update, site=record.site)
    other = state.tables.run_named(RunName(run.namespace, record.run_id))
    sent: Decision[FollowUp] = Decision(NO_FOLLOW_UP)
    if other is None:
        event = evolve(event, code=RunNotFoundError.code, message="there is no such run")
    elif other.key == run.key:
        why = "the run is that of this function; call the method of the object that it exposes"
        event = evolve(event, code=UpdateRefusedError.code, message=why)
    else:
        address = ReplyAddress(run.id, f"{run.key}/{record.call}")
        received = events.UpdateReceived(
            update=record.update, key=address.key, checked=record.checked, sender=run.id
        )
        its = RunDraft(other, now)
        try:
            number = receive_update(state, its, other, received, record.arguments, now)
        except UpdateRefusedError as error:
            event = evolve(event, code=error.code, message=error.why)
        else:
            its.keep_mailbox(its.mailbox.with_update(number, address))
            draft.keep_mailbox(draft.mailbox.with_sent(record.call, address.key))
            sent = Decision(its.follow_up, its.changes(), tuple(its.hints))
    draft.append(event, node=job.node)
    return sent


def open_replies(draft: RunDraft) -> None:
    """Open a delivery for each update of another run that the rows of a draft answer."""
    answers = {
        int(events.UpdateAnswer.from_row(row).call.removeprefix(UPDATE_CALL)): row
        for row in draft.rows
        if row.type in events.UPDATE_ANSWERS
    }
    if not answers:
        return
    mailbox = draft.mailbox
    for number, address in mailbox.updates.items():
        if number in answers:
            draft.add_reply_delivery(reply_of(address, answers[number]))
    draft.keep_mailbox(mailbox.without_updates(answers))


def reads_of_deliver(command: UpdateDeliver) -> Reads:
    """Lock the run with the delivery job, and the newest generation of the sender with the job that drives it."""
    key = parse_job_id(command.job)
    return Reads(
        runs=(key.run,), names=(RunName(command.namespace, command.run_id),), jobs=(key,), drivers=True
    )


def decide_deliver(state: State, command: UpdateDeliver, now: Micros, _: Ids) -> Decision[RunDelivered]:
    """Append the reply to the sender's history and wake its function, if it waits for it. Repeating does nothing."""
    job = state.tables.job(parse_job_id(command.job))
    if job is None or job.state is not JobState.PENDING_DELIVERY or job.namespace != command.namespace:
        return Decision(RunDelivered(status="closed"))
    delivery = reply_delivery_of(job)
    if delivery is None or delivery.address.sender != command.run_id:
        raise InvalidCommandError(
            f"job {command.job} delivers {job.input}, and no reply to run {command.run_id!r}"
        )
    if delivery.row is not None and command.output is None and command.failure is None:
        raise InvalidCommandError("the update is completed; its output is missing")
    closed = Delete(JOBS, job.key)
    sender, call = state.tables.run_named(RunName(command.namespace, command.run_id)), delivery.address.call
    if sender is None or sender.status in TERMINAL:
        return Decision(RunDelivered(status="closed"), (closed,))
    draft = RunDraft(sender, now)
    mailbox = draft.mailbox
    if mailbox.sent.get(call) != delivery.address.key:
        return Decision(RunDelivered(status="closed"), (closed,))
    receiver = state.tables.runs[job.run]
    replied = events.UpdateReplied(call=call, run=receiver.id, outcome=delivery.outcome, error=delivery.error)
    if command.failure is not None:
        why = f"it was carried out, and its result can't be read: {command.failure.message}"
        replied = evolve(replied, outcome="lost", message=why)
    elif delivery.outcome == "lost":
        replied = evolve(replied, message=_end_text(receiver))
    output = command.output if replied.outcome == "completed" else None
    draft.append(replied, node=state.plan_of(sender).function, payload=output)
    draft.keep_mailbox(mailbox.without_sent(call))
    wake_driver(state, draft, sender, now)
    return Decision(RunDelivered(status="delivered"), (closed, *draft.changes()), tuple(draft.hints))


def _end_text(run: Run) -> str:
    """Return why an update without an answer has no reply."""
    if run.is_continued:
        return f"the run has continued as generation {run.generation + 1}"
    return f"the run {end_of(run.status)}"
