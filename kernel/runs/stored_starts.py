"""Starts stored with their messages: they start the next generation if the run ends with the messages unread."""

from typing import Final

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import evolve, frozen

_NOTHING: Final = Payload(inline="null")
_REQUIRED: Final = frozenset({"workflow", "namespace"})


@frozen
class KeptStart:
    """A stored start: the command without its signals, and the fingerprint of its plan (docs/decisions/0061)."""

    command: RunCreate
    plan: str

    def begins_after(self, status: RunStatus) -> bool:
        """Whether it starts a next generation after one that ended with this status."""
        return self.command.if_ended == "rerun" or status is not RunStatus.COMPLETED


def is_kept(command: RunCreate) -> bool:
    """Whether a start of an active run is stored with its signals, as it would rerun the run once that has ended."""
    return bool(command.signals) and command.if_ended in ("rerun", "rerun_failed")


def start_event(command: RunCreate, plan: Plan) -> events.StartReceived:
    """Return the event that stores a start. The payload of its row is the start's input."""
    bare = evolve(command, input=_NOTHING, signals=(), idempotency_key=None)
    usual = command_data(RunCreate(namespace="", workflow="", input=_NOTHING))
    fields = {
        name: value
        for name, value in command_data(bare).items()
        if name in _REQUIRED or value != usual.get(name)
    }
    return events.StartReceived(definition=plan.definition, plan=plan.fingerprint, start=fields)


def plan_of_start(row: HistoryRow) -> str:
    """Return the fingerprint of the plan of a stored start."""
    return events.StartReceived.from_row(row).plan


def kept_start(row: HistoryRow) -> KeptStart:
    """Return the start that a row stores."""
    event = events.StartReceived.from_row(row)
    command = from_data({**event.start, "input": to_data(row.payload)}, RunCreate)
    return KeptStart(command, event.plan)
