"""Deliveries of replies to updates that other runs have sent, each by a job of the kind `deliver`."""

from collections.abc import Mapping
from typing import Any, Final, cast

import attrs

from holdfast.kernel.history import events
from holdfast.ports.json import canonical, parse
from holdfast.ports.mailboxes import ReplyAddress
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.structs import frozen

UPDATE_CALL: Final = "update"
"""The call of an update in the run that gets it is this text and the number of its row."""
_OUTCOMES: Final[Mapping[str, str]] = {
    events.UpdateCompleted.type: "completed",
    events.UpdateFailed.type: "failed",
    events.UpdateRejected.type: "rejected",
}


@frozen(kw_only=True)
class ReplyDelivery:
    """A reply that is to be delivered to another run."""

    address: ReplyAddress
    outcome: str
    """As in `UpdateReplied`; `lost`: the run ended without an answer."""
    row: int | None = None
    """The number of the row with the result; None without a result."""
    error: events.RecordedError | None = None
    """What the update raised, or why it was rejected."""

    def to_text(self) -> str:
        """Return the input of the job, as JSON text."""
        fields: dict[str, object] = {
            "error": None if self.error is None else self.error.text,
            "key": self.address.key,
            "outcome": self.outcome,
            "row": self.row,
            "sender": self.address.sender,
        }
        return canonical(fields)


def reply_of(address: ReplyAddress, answer: HistoryRow) -> ReplyDelivery:
    """Return the delivery of the answer in a row."""
    event = events.event_of(answer)
    error = event.error if isinstance(event, events.UpdateFailed | events.UpdateRejected) else None
    return ReplyDelivery(
        address=address,
        outcome=_OUTCOMES[answer.type],
        row=answer.number if error is None else None,
        # Only what the sender's function needs to raise it again.
        error=None if error is None else attrs.evolve(error, traceback=None),
    )


def reply_delivery_of(job: Job) -> ReplyDelivery | None:
    """Return the reply that a job delivers; None if it delivers the end of its run."""
    parsed: object = parse(job.input)
    if not isinstance(parsed, dict):
        return None
    fields = cast("dict[str, Any]", parsed)
    error, row = fields["error"], fields["row"]
    texts = (fields["sender"], fields["key"], fields["outcome"])
    if not all(isinstance(text, str) for text in texts) or not isinstance(row, int | None):
        raise TypeError("the job of a reply has a field of another type")
    return ReplyDelivery(
        address=ReplyAddress(fields["sender"], fields["key"]),
        outcome=fields["outcome"],
        row=row,
        error=None if error is None else events.RecordedError.from_text(error),
    )
