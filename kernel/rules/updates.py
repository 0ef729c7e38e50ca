"""Rules for updates: a request is a history row that wakes the durable function. Its result is a later row."""

from typing import Final

from holdfast.kernel.commands import RunUpdate, RunUpdated
from holdfast.kernel.commands.names import check_name
from holdfast.kernel.history import events
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError, UpdateRefusedError
from holdfast.ports.records.run import TERMINAL, Run, RunName, end_of
from holdfast.ports.records.values import Micros, Payload

UPDATE_MAX: Final = 256
"""Longest name of an update, in characters."""


def reads_of_update(command: RunUpdate) -> Reads:
    """Lock the newest generation of the run and the job that drives it."""
    return Reads(names=(RunName(command.namespace, command.run_id),), drivers=True)


def decide_update(state: State, command: RunUpdate, now: Micros, _: Ids) -> Decision[RunUpdated]:
    """Append the request to the history and wake the function. See `RunUpdate` for the errors."""
    run = state.tables.run_named(RunName(command.namespace, command.run_id))
    if run is None:
        raise RunNotFoundError(command.run_id)
    check_update_name(command.update)
    if command.generation is not None and command.generation != run.generation:
        why = f"generation {command.generation} was requested, but {run.generation} is the newest"
        raise UpdateRefusedError(run.id, why)
    draft = RunDraft(run, now)
    received = events.UpdateReceived(
        update=command.update, key=command.idempotency_key, checked=command.checked
    )
    number = receive_update(state, draft, run, received, command.arguments, now)
    reply = RunUpdated(run=run.key, number=number, status=run.status)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def check_update_name(name: str) -> None:
    """Raise InvalidCommandError if the name of an update is not valid."""
    check_name("the update", name)
    if not 1 <= len(name) <= UPDATE_MAX:
        raise InvalidCommandError(f"an update's name has 1 to {UPDATE_MAX} characters, not {len(name)}")


def receive_update(
    state: State, draft: RunDraft, run: Run, received: events.UpdateReceived, arguments: Payload, now: Micros
) -> int:
    """Append an update to the history of a run and wake its function; return the number of its row.

    Raises UpdateRefusedError.
    """
    plan = state.plan_of(run)
    if plan.function is None:
        why = f"{plan.workflow!r} is a pipeline; only durable functions expose anything"
        raise UpdateRefusedError(run.id, why)
    if run.status in TERMINAL:
        raise UpdateRefusedError(run.id, f"the run {end_of(run.status)}")
    number = draft.append(received, payload=arguments)
    wake_driver(state, draft, run, now)
    return number
