"""Triggers: messages of a topic start runs of a workflow, and how far each trigger got (docs/decisions/0116)."""

from typing import NamedTuple

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class TriggerName(NamedTuple):
    """The public name of a trigger. Sorts in the order in which triggers are listed."""

    namespace: str
    name: str


@frozen(kw_only=True)
class TriggerRow:
    """A stored trigger.

    The run of a message is stored in the transaction that moves `next_number` past the message, under the lock of this
    row. So each message starts one run, whichever hosts fire the trigger.
    """

    namespace: str
    name: str
    topic: str
    selection: str
    """JSON text of an object: the attributes that a message must have."""
    workflow: str
    """The name of the workflow. Only hosts that have its code fire the trigger."""
    start: str
    """JSON text of the `run.create` command of each run, without its id and input."""
    since: Micros
    """Messages that were published before this start no run."""
    next_number: int
    """The number of the first message that was not handled yet."""
    started: int = 0
    """How many runs it has started."""
    refused: int = 0
    """How many messages started no run, because the start was refused."""
    recent: str = "[]"
    """JSON text of a list: the outcomes of the last messages, oldest first."""
    changes: str = "[]"
    """JSON text of a list: the last changes by operators and deploys, with who made them."""
    paused: str | None = None
    """JSON text of an object: the time, the actor and the reason of its pause; None if it is not paused."""
    problem: str | None = None
    """Why it can't start the run of the next message yet, such as a quota; None if it can."""
    declared: str | None = None
    """The fingerprint of its declaration in code; None if it was made at run time."""
    created_at: Micros
    updated_at: Micros

    @property
    def trigger_name(self) -> TriggerName:
        """The name that users see."""
        return TriggerName(self.namespace, self.name)
