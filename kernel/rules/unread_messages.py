"""The rule for unread messages: the commit that starts the next generation moves them there, in their order."""

from holdfast.kernel.history import events
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import State
from holdfast.ports.mailboxes import Mailbox
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.ports.structs import evolve


def count_forwarded(mailbox: Mailbox, used: int | None = None) -> int:
    """Return how many rows `forward_unread` appends. `used` is the row of the start that began the generation."""
    return len(mailbox.unread) + len(set(mailbox.starts.values()) - {used})


def forward_unread(
    state: State, draft: RunDraft, before: Run, mailbox: Mailbox, used: int | None = None
) -> None:
    """Append the unread messages of the previous generation to the next one.

    Their starts are appended too, so that they can begin a later generation; except `used`, the row of the start that
    began this one.
    """
    starts: dict[int, int] = {}
    for number in mailbox.unread:
        row = state.messages[before.key, number]
        start = mailbox.starts.get(number)
        if start is not None and start != used and start not in starts:
            starts[start] = append_start(draft, state.messages[before.key, start])
        append_again(draft, row, start=None if start is None else starts.get(start))


def append_start(draft: RunDraft, row: HistoryRow) -> int:
    """Append a start of another generation; return the number of the new row."""
    return draft.append(events.StartReceived.from_row(row), payload=row.payload)


def append_again(draft: RunDraft, row: HistoryRow, *, start: int | None) -> int:
    """Append a message of another generation, with its number there as `again`; return the number of the new row."""
    assert row.payload is not None
    message = evolve(events.SignalReceived.from_row(row), again=row.number, start=start)
    return draft.append_message(row.payload, message)
