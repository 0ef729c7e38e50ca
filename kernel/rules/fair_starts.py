"""Rules for turns: when a run whose workflow shares workers by key takes one (docs/decisions/0085).

A run takes its turn when its first job is queued: at its start, or at its admission if it was pending.
"""

import copy
from collections.abc import Sequence

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.limits.fairness import WEIGHT_MAX, Turn, fair_place
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, Plan
from holdfast.kernel.rules.run_creation import waits_for_admission
from holdfast.kernel.state import State
from holdfast.ports.changes import Change
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.job import rank_of, waits_since
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve


def check_weight(command: RunCreate, plan: Plan) -> None:
    """Raise InvalidCommandError if a start has a weight that is out of range, or that means nothing."""
    if command.weight is None:
        return
    if not 1 <= command.weight <= WEIGHT_MAX:
        raise InvalidCommandError(f"weight is {command.weight}; it must be from 1 to {WEIGHT_MAX:,}")
    if plan.fair is None:
        raise InvalidCommandError(
            f"weight is for workflows whose keys share workers, and {plan.workflow!r} has no fair=Fair(by=...); add it"
            " there, or leave the weight out"
        )


def turn_of_start(state: State, command: RunCreate, plan: Plan, now: Micros) -> Turn | None:
    """Return the turn of a run that starts now. None if it is pending at first, or if its workflow has no turns."""
    if plan.fair is None or state.fair is None or waits_for_admission(command, now):
        return None
    place = fair_place(
        command.namespace, plan, command.queue or plan.queue or DEFAULT_QUEUE, command.attributes
    )
    return None if place is None else state.fair.take(place, now, command.weight, now)


def weight_of_pending(state: State, command: RunCreate, plan: Plan, now: Micros) -> tuple[Change, ...]:
    """Return the change that keeps the weight of a start whose run takes its turn later, at its admission."""
    if command.weight is None or plan.fair is None or state.fair is None:
        return ()
    queue = command.queue or plan.queue or DEFAULT_QUEUE
    place = fair_place(command.namespace, plan, queue, command.attributes)
    return () if place is None else state.fair.weighted(place, command.weight, now)


def turn_of_run(state: State, run: Run, plan: Plan, now: Micros, *, weight: int | None = None) -> Turn | None:
    """Return the turn of a run whose first job is queued now. None if its workflow has no turns.

    Without a weight it has that of its key.
    """
    if plan.fair is None or state.fair is None:
        return None
    place = fair_place(run.namespace, plan, run.queue, run.attributes)
    return (
        None
        if place is None
        else state.fair.take(place, waits_since(run.queue_position, run.priority), weight, now)
    )


def ranked(run: Run, turn: Turn | None) -> Run:
    """Return a run with the rank of its turn."""
    return run if turn is None else evolve(run, queue_position=rank_of(turn.since, run.priority))


def after_turns(state: State, changes: Sequence[Change]) -> State:
    """Return the state for the next of several starts that one command makes."""
    if state.fair is None:
        return state
    following = copy.copy(state)
    following.fair = state.fair.copy()
    following.fair.note(changes)
    return following
