"""History rows and attempt output as immutable records, and the types of history rows that several modules know."""

from typing import Final

from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen

HISTORY_LONG: Final = "run.history_long"
"""The type of the history row that marks a durable function's history as long."""


CLOCK_READ: Final = "clock.read"


RESULT_REFUSED: Final = "result.refused"


SIGNAL_REFUSED: Final = "signal.refused"


PUBLISHED: Final = "value.published"
"""The type of the history rows of published values. Stores are queried for the newest."""


LOG: Final = "log"
"""The kind of attempt output that is a log line. Stores number these in the order in which they are stored."""


HEARTBEAT: Final = "heartbeat"
"""The kind of attempt output that holds heartbeat details. Stores are queried for the newest."""


SIGNAL_RECEIVED: Final = "signal.received"


CHANNEL_CLOSED: Final = "channel.closed"


FUNCTION_BEGAN: Final = "function.began"
"""The type of the history row that records, by a row number, which messages had arrived when a function began."""


STEP_QUEUED: Final = "step.queued"


STEP_CANCELLED: Final = "step.cancelled"


STEP_COMPLETED: Final = "step.completed"


STEP_FAILED: Final = "step.failed"


STEP_RETRYING: Final = "step.retrying"


STEP_STARTED: Final = "step.started"
"""The type of the history row of a new start of a lost step. Other starts are not recorded."""


STAGE_COMPLETED: Final = "stage.completed"


STAGE_FAILED: Final = "stage.failed"


STAGE_SUSPENDED: Final = "stage.suspended"


STAGE_CANCEL_FAILED: Final = "stage.cancel_failed"


STAGE_OUTCOMES: Final = (STAGE_COMPLETED, STAGE_FAILED, STAGE_SUSPENDED)
"""The types of the history rows that record the outcome of a stage or map item. Stores are queried for them."""


@frozen
class HistoryRow:
    """One entry of a run's history. Never changed."""

    run: str
    number: int
    """Counts from 1 without gaps; in a fork it continues the rows that the fork keeps."""
    type: str
    at: Micros
    node: str | None = None
    """The stage, or the call of a function, that it is about."""
    item: int | None = None
    """The index of the map item that it is about."""
    epoch: int | None = None
    """The epoch of the job whose attempt recorded it."""
    payload: Payload | None = None
    """A value: an input, a result, a message."""
    data: str | None = None
    """JSON text of small facts, such as errors, authors and times."""


@frozen(kw_only=True)
class OutputRow:
    """A row of attempt output. Not numbered."""

    id: str
    run: str
    job: int
    """The number of the job whose attempt wrote it."""
    epoch: int
    call: str = ""
    """The call of the step that wrote it; "" of a stage, and of a function itself."""
    at: Micros
    kind: str
    """`log`, `progress` or `heartbeat`."""
    data: str
    """JSON text; of a heartbeat, the value of its details."""
