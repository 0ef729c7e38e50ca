"""The JSON texts in the row of a trigger."""

import hashlib
import json
from typing import Literal, TypeAlias

from holdfast.kernel.schedules.row_data import RECENT_MAX, text_of, values_of
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve, frozen

TriggerOutcome: TypeAlias = Literal["started", "joined", "existing", "refused"]


@frozen(kw_only=True)
class MessageOutcome:
    """The outcome of a message of a trigger."""

    number: int
    """The number of the message."""
    at: Micros
    """When it was handled."""
    outcome: TriggerOutcome
    """A run was started; the message joined a run that gathers; its run existed; the start was refused."""
    run: str | None = None
    """The id of the run."""
    reason: str = ""
    """Why the start was refused."""


def trigger_digest(row: TriggerRow) -> str:
    """Return the digest of what decides which messages start runs, and which runs: what an update changes."""
    parts = (row.topic, row.selection, row.since, row.workflow, row.start)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def with_outcome(row: TriggerRow, outcome: MessageOutcome) -> TriggerRow:
    """Return a trigger with an outcome added to those that its row keeps, and counted."""
    recent = (*values_of(row.recent, MessageOutcome), outcome)[-RECENT_MAX:]
    return evolve(
        row,
        recent=text_of(recent),
        started=row.started + (outcome.outcome == "started"),
        refused=row.refused + (outcome.outcome == "refused"),
    )
