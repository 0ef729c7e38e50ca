"""Starts stored with their messages: they start the next generation if the run ends with the messages unread."""

from typing import Any, Final, cast

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.json import parse
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


def start_facts(command: RunCreate, plan: Plan) -> dict[str, object]:
    """Return the data of the row that stores a start. The row's payload is the start's input."""
    bare = evolve(command, input=_NOTHING, signals=(), idempotency_key=None)
    usual = command_data(RunCreate(namespace="", workflow="", input=_NOTHING))
    fields = {
        name: value
        for name, value in command_data(bare).items()
        if name in _REQUIRED or value != usual.get(name)
    }
    return {"definition": plan.definition, "plan": plan.fingerprint, "start": fields}


def plan_of_start(row: HistoryRow) -> str:
    """Return the fingerprint of the plan of a stored start."""
    return str(_facts(row)["plan"])


def kept_start(row: HistoryRow) -> KeptStart:
    """Return the start that a row stores."""
    facts = _facts(row)
    fields = cast("dict[str, object]", facts["start"])
    command = from_data({**fields, "input": to_data(row.payload)}, RunCreate)
    return KeptStart(command, str(facts["plan"]))


def _facts(row: HistoryRow) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(row.data or "{}"))
