"""Starts that are kept with the messages that came with them: how the next generation of a run is to begin."""

from typing import Any, Final, cast

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.commands.codec import command_data, from_data, to_data
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.json import parse
from holdfast.ports.records import HistoryRow, Payload, RunStatus
from holdfast.ports.structs import evolve, frozen

_NOTHING: Final = Payload(inline="null")
_REQUIRED: Final = frozenset({"workflow", "namespace"})


@frozen
class KeptStart:
    """A start as a row has it: the command without its signals, and the fingerprint of the plan that it follows."""

    command: RunCreate
    plan: str

    def begins_after(self, status: RunStatus) -> bool:
        """Whether it begins a generation after one that has ended so."""
        return self.command.if_ended == "rerun" or status is not RunStatus.COMPLETED


def is_kept(command: RunCreate) -> bool:
    """Whether a start is kept with its signals where its run is active: once that has ended, it would begin again."""
    return bool(command.signals) and command.if_ended in ("rerun", "rerun_failed")


def start_facts(command: RunCreate, plan: Plan) -> dict[str, object]:
    """Return what the row tells that keeps a start. Its input is the payload of that row."""
    bare = evolve(command, input=_NOTHING, signals=(), idempotency_key=None)
    usual = command_data(RunCreate(namespace="", workflow="", input=_NOTHING))
    fields = {
        name: value
        for name, value in command_data(bare).items()
        if name in _REQUIRED or value != usual.get(name)
    }
    return {"definition": plan.definition, "plan": plan.fingerprint, "start": fields}


def plan_of_start(row: HistoryRow) -> str:
    """Return the fingerprint of the plan that the start in a row follows."""
    return str(_facts(row)["plan"])


def kept_start(row: HistoryRow) -> KeptStart:
    """Return the start that a row has."""
    facts = _facts(row)
    fields = cast("dict[str, object]", facts["start"])
    command = from_data({**fields, "input": to_data(row.payload)}, RunCreate)
    return KeptStart(command, str(facts["plan"]))


def _facts(row: HistoryRow) -> dict[str, Any]:
    return cast("dict[str, Any]", parse(row.data or "{}"))
