"""Messages that a run was sent, and whether its function received them."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import Final, Literal, TypeAlias

import attrs

from holdfast.hosts.functions.published_values import newest_rows
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import RunSignalled
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.ports.clock import instant
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run

MessageState: TypeAlias = Literal["unread", "received", "refused", "handed_on", "never_received"]
"""The state of a message. `never_received`: its generation ended without receiving it, and no other has followed."""
_PAGE: Final = 1_000


@attrs.frozen(kw_only=True)
class MessageInfo:
    """A message of a run, and its state when it was read."""

    channel: str
    """The name of its channel."""
    generation: int
    """The generation that it was sent to, or handed on to."""
    number: int
    """The number of its history row in this generation."""
    sent_at: datetime
    """When this row was stored; aware, in UTC."""
    state: MessageState
    """`unread` while the run is active and has not received it; `received` once the receipt is recorded; `refused` if
    it did not have the type of its channel; `handed_on` to the next generation; or `never_received` in an ended run."""
    why: str | None = None
    """Why it was refused; None if it was not."""
    key: str | None = None
    """The idempotency key that it was sent with, if any."""
    sender: str | None = None
    """The id of the run whose function sent it; None if no function did."""
    has_start: bool = False
    """Whether it was sent with a start that creates the next generation if this one ends without receiving it."""


def messages_of(core: Core, run: Run) -> list[MessageInfo]:
    """Return the messages of one generation in the order of arrival."""
    found: list[MessageInfo] = []
    before = None
    while page := newest_messages(core, run, before, _PAGE):
        found += page
        before = page[-1].number
        if len(page) < _PAGE:
            break
    return found[::-1]


def newest_messages(core: Core, run: Run, before: int | None, limit: int) -> tuple[MessageInfo, ...]:
    """Return at most `limit` messages of one generation, newest first, of those in rows before `before`."""
    persistence = core.stores.persistence
    rows = [*islice(newest_rows(persistence, run, events.SignalReceived.type, limit, before), limit)]
    if not rows:
        return ()
    first = rows[-1].number
    refusals = takewhile(
        lambda row: row.number > first, newest_rows(persistence, run, events.SignalRefused.type, _PAGE)
    )
    refused = {one.row: one.message for one in map(events.SignalRefused.from_row, refusals)}
    unread = mailbox_from(run.mailbox).unread
    left = [row.number for row in rows if row.number in unread] if run.status in TERMINAL else []
    handed = {number for number, _ in _handed_on(core, run, left)} if left else set[int]()
    return tuple(_info(run, row, handed, refused.get(row.number)) for row in rows)


def message_of(core: Core, sent: RunSignalled) -> MessageInfo:
    """Return a message and its state, following it to later generations. Raises RunNotFoundError."""
    read = core.stores.persistence.read
    found, number = read(RunsByKey((sent.run,))), sent.number
    if not found:
        raise RunNotFoundError(sent.run)
    run = found[0]
    while True:
        (row,) = read(HistoryOf(run.holder_of(number), number - 1, 1))
        is_left = run.status in TERMINAL and number in mailbox_from(run.mailbox).unread
        handed = dict(_handed_on(core, run, (number,))) if is_left else dict[int, int]()
        following = read(FindRun(run.name, run.generation + 1)) if handed else None
        if following is None:
            return _info(run, row, (), _why_refused(core, run, row))
        run, number = following, handed[number]


def _handed_on(core: Core, run: Run, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the messages that the next generation got: the number of the row here, and of the row there."""
    read = core.stores.persistence.read
    following = read(FindRun(run.name, run.generation + 1))
    if following is None:
        return
    kept = following.first_row - 1
    wanted = {number for number in numbers if number > kept}
    yield from ((number, number) for number in numbers if number <= kept)
    seen = kept
    while wanted and (rows := read(HistoryOf(following.key, seen, _PAGE))):
        seen = rows[-1].number
        for row in rows:
            if row.type != events.SignalReceived.type:
                continue
            again = events.SignalReceived.from_row(row).again
            if again is not None and again in wanted:
                wanted.discard(again)
                yield again, row.number


def _why_refused(core: Core, run: Run, message: HistoryRow) -> str | None:
    """Return why a message was refused, None if it was not. Messages checked by their sender are never refused."""
    is_checked = events.SignalReceived.from_row(message).checked
    if is_checked or message.number in mailbox_from(run.mailbox).unread:
        return None
    rows = rows_of(core.stores.persistence, run, message.number)
    refused = (events.SignalRefused.from_row(row) for row in rows if row.type == events.SignalRefused.type)
    return next((refusal.message for refusal in refused if refusal.row == message.number), None)


def _info(run: Run, row: HistoryRow, handed: Collection[int], refused: str | None) -> MessageInfo:
    mailbox = mailbox_from(run.mailbox)
    state: MessageState = "received" if refused is None else "refused"
    if row.number in mailbox.unread:
        state = "unread"
        if run.status in TERMINAL:
            state = "handed_on" if row.number in handed else "never_received"
    message = events.SignalReceived.from_row(row)
    return MessageInfo(
        channel=message.channel,
        generation=run.generation,
        number=row.number,
        sent_at=instant(row.at),
        state=state,
        why=refused,
        key=message.key,
        sender=message.sender,
        has_start=row.number in mailbox.starts,
    )
