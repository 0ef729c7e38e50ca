"""The rule for actors: events that a command of an operator appends to a history have the command's actor.

See docs/decisions/0077.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias, TypeVar

from holdfast.kernel.commands import OperatorCommand
from holdfast.kernel.history import events
from holdfast.kernel.state import Decision, State
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve

C = TypeVar("C", bound=OperatorCommand[object])
R = TypeVar("R")

_Decide: TypeAlias = Callable[[State, C, Micros, Ids], Decision[R]]


def signed(decide: _Decide[C, R]) -> _Decide[C, R]:
    """Return a rule that decides likewise, and stores the command's actor in the events that an operator may cause."""

    def decide_signed(state: State, command: C, now: Micros, ids: Ids) -> Decision[R]:
        decision = decide(state, command, now, ids)
        actor = command.actor
        if actor is None:
            return decision
        return evolve(decision, changes=tuple(_signed(change, actor) for change in decision.changes))

    return decide_signed


def _signed(change: Change, actor: Actor) -> Change:
    """Return a change with the actor in its event. A message that is delivered again keeps its own."""
    if not (isinstance(change, Insert) and isinstance(change.record, HistoryRow)):
        return change
    record = change.record
    data = _signed_data(record.type, record.data, actor)
    return change if data == record.data else Insert(evolve(record, data=data))


@lru_cache(maxsize=256)
def _signed_data(event_type: str, data: str | None, actor: Actor) -> str | None:
    """Return the data of an event with the actor, if an operator may cause it.

    Kept, because runs that a client starts by the hundred have the same data.
    """
    kind = events.class_of(event_type)
    if not issubclass(kind, events.OperatorEvent):
        return data
    event = kind.from_facts(parse(data) if data else {})
    if event.actor is not None or getattr(event, "again", None) is not None:
        return data
    return evolve(event, actor=actor).data
