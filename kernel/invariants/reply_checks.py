"""Checks of updates between runs (M3): the reply to each update that a run waits for arrives, and no other one.

A run that has not ended lists the updates of other runs that it has not answered, and its own without a reply. Each of
the latter is listed by the run that got it, or its reply is being delivered. An ended run lists none.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.kernel.history import events
from holdfast.kernel.invariants.history_facts import RunView
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.kernel.runs.reply_deliveries import UPDATE_CALL, reply_delivery_of
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import TERMINAL

_OF_UPDATES: Final = frozenset(
    {events.UpdateReceived.type, events.UpdateSent.type, events.UpdateReplied.type, *events.UPDATE_ANSWERS}
)


def updates_fit(seen: RunView) -> Iterator[str]:
    """M3: the updates without a reply in the run's mailbox fit its history."""
    run = seen.run
    rows = [row for row in seen.history if row.type in _OF_UPDATES]
    if not rows and run.mailbox is None:
        return
    mailbox = mailbox_from(run.mailbox)
    if run.status in TERMINAL:
        if mailbox.updates or mailbox.sent:
            yield f"the run has ended, and lists updates {dict(mailbox.updates)} and {dict(mailbox.sent)}"
        return
    received, answered, sent, replied = _numbers(rows)
    own = {number for number in mailbox.updates if number >= run.first_row}
    if own != received - answered:
        yield f"the mailbox lists the updates {sorted(own)}, and {sorted(received - answered)} have no answer"
    if kept := sorted(number for number in mailbox.updates if number in answered):
        yield f"the mailbox lists the updates {kept}, which have an answer"
    if lost := sorted(sent - replied - mailbox.sent.keys()):
        yield f"the updates of the calls {lost} have no reply, and the mailbox does not list them"
    if len(replied) < sum(row.type == events.UpdateReplied.type for row in rows):
        yield "a call has two replies"
    if over := sorted(mailbox.sent.keys() & replied):
        yield f"the updates of the calls {over} have a reply, and the mailbox lists them"


def _numbers(rows: Sequence[HistoryRow]) -> tuple[set[int], set[int], set[str], set[str]]:
    """Return the updates of other runs, the answered ones, and the calls of sent and of replied updates."""
    received, answered, sent, replied = set[int](), set[int](), set[str](), set[str]()
    for row in rows:
        match event_of(row):
            case events.UpdateReceived(sender=str()):
                received.add(row.number)
            case events.UpdateSent(call=call, code=None):
                sent.add(call)
            case events.UpdateReplied(call=call):
                replied.add(call)
            case events.UpdateAnswer(call=call):
                answered.add(int(call.removeprefix(UPDATE_CALL)))
            case _:
                pass
    return received, answered, sent, replied


def replies_come(snapshot: Snapshot) -> Iterator[Violation]:
    """M3: each update without a reply is listed by the run that got it, or its reply is being delivered."""
    mailboxes = {
        run.key: mailbox_from(run.mailbox) for run in snapshot.runs.values() if run.mailbox is not None
    }
    if any(mailbox.sent for mailbox in mailboxes.values()):
        jobs = (job for of_run in snapshot.jobs.values() for job in of_run.values())
        deliveries = (reply_delivery_of(job) for job in jobs if job.state is JobState.PENDING_DELIVERY)
        coming = {one.address.key for one in deliveries if one is not None}
        coming |= {address.key for mailbox in mailboxes.values() for address in mailbox.updates.values()}
        for key, mailbox in mailboxes.items():
            if lost := sorted(one for one in mailbox.sent.values() if one not in coming):
                yield Violation("M3", key, f"the updates {lost} have no reply, and none will come")
