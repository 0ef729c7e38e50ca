"""Deliveries of replies to updates that other runs have sent, each by a job of the kind `deliver`."""

from typing import Any, Final, cast

from holdfast.ports.json import canonical, parse
from holdfast.ports.mailboxes import ReplyAddress
from holdfast.ports.records.job import Job
from holdfast.ports.structs import frozen

UPDATE_CALL: Final = "update"
"""The call of an update in the run that gets it is this text and the number of its row."""


@frozen
class ReplyDelivery:
    """A reply that is to be delivered to another run."""

    address: ReplyAddress
    row: int | None
    """The number of the row with the answer; None: the run ended without one."""

    def to_text(self) -> str:
        """Return the input of the job, as JSON text."""
        return canonical({"key": self.address.key, "row": self.row, "sender": self.address.sender})


def reply_delivery_of(job: Job) -> ReplyDelivery | None:
    """Return the reply that a job delivers; None if it delivers the end of its run."""
    parsed: object = parse(job.input)
    if not isinstance(parsed, dict):
        return None
    fields = cast("dict[str, Any]", parsed)
    return ReplyDelivery(ReplyAddress(fields["sender"], fields["key"]), fields["row"])
