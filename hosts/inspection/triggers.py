"""Triggers as the client shows them: which messages start which runs, and how far each trigger got."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

import attrs

from holdfast.hosts.wiring.pages import pages_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.schedules.row_data import OperatorChange, pause_of, values_of
from holdfast.kernel.topics.selections import texts_from
from holdfast.kernel.topics.trigger_data import MessageOutcome, TriggerOutcome
from holdfast.ports.clock import instant
from holdfast.ports.errors import TriggerNotFoundError
from holdfast.ports.queries.triggers import FindTrigger, ListTriggers, TriggerEntry
from holdfast.ports.records.trigger import TriggerName
from holdfast.ports.unreadable import PARSE_ERRORS

_PAGE: Final = 100

TriggerState: TypeAlias = Literal["active", "paused", "held"]
"""The state of a trigger: it starts runs, it is paused, or it is held up at a message and tries that again."""


@attrs.frozen(kw_only=True)
class TriggeredMessage:
    """The outcome of a message of a trigger."""

    number: int
    """The number of the message in its topic."""
    at: datetime
    """When the trigger handled it."""
    outcome: TriggerOutcome
    """`started`: a run was started. `joined`: the message joined a run that gathers its starts. `existing`: a run with
    that id existed. `refused`: the start was refused."""
    run: str | None
    """The id of the run."""
    reason: str
    """Why the start was refused; "" if it was not."""


@attrs.frozen(kw_only=True)
class TriggerChanged:
    """A change of a trigger."""

    at: datetime
    """When."""
    change: str
    """`created`, `updated`, `paused` or `resumed`."""
    by: str
    """Who made it, for people; "" if unknown."""
    reason: str
    """Why, for people; "" without a reason."""


@attrs.frozen(kw_only=True)
class TriggerInfo:
    """A trigger, and how far it got."""

    name: str
    """Its name."""
    topic: str
    """The topic whose messages start runs."""
    selected: Mapping[str, str]
    """The texts that a message must have, by key."""
    workflow: str
    """The workflow of the runs."""
    state: TriggerState
    """Its state: `active`, `paused` or `held`."""
    next_number: int
    """The number of the first message of the topic that it has not handled."""
    behind: int
    """How many numbered messages of the topic it has not handled, whether it selects them or not."""
    since: datetime
    """Messages that were published before this start no run."""
    started: int
    """How many runs it has started."""
    refused: int
    """How many messages started no run, because the start was refused."""
    problem: str | None
    """Why it is held up at the next message, if it is."""
    paused_at: datetime | None
    """When it was paused; None if it is not."""
    paused_by: str
    """Who paused it, for people; "" if unknown."""
    pause_reason: str
    """Why it was paused, for people; "" if it was not, or without a reason."""
    declared: bool
    """Whether the code of an engine declares it."""
    recent: tuple[TriggeredMessage, ...]
    """The outcomes of the last 20 messages, oldest first."""
    changes: tuple[TriggerChanged, ...]
    """The last 20 changes, oldest first."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it last changed, or handled messages."""


def trigger_entries(
    core: Core,
    after: str | None = None,
    limit: int | None = None,
    *,
    namespace: str | None = None,
    declared: bool = False,
) -> Iterator[TriggerEntry]:
    """Yield the triggers of a namespace, by default that of the engine, by name, up to a number of them."""
    core.connect()

    def read(place: str | None, wanted: int) -> Sequence[TriggerEntry]:
        query = ListTriggers(
            namespace=namespace or core.namespace, after=place or "", limit=wanted, declared=declared
        )
        return core.stores.persistence.read(query)

    for page in pages_of(read, _PAGE, after, limit, lambda entry: entry.row.name):
        yield from page


def read_trigger(core: Core, name: str) -> TriggerInfo:
    """Return a trigger. TriggerNotFoundError."""
    core.connect()
    entry = core.stores.persistence.read(FindTrigger(TriggerName(core.namespace, name)))
    if entry is None:
        raise TriggerNotFoundError(name)
    return trigger_info(entry)


def trigger_info(entry: TriggerEntry) -> TriggerInfo:
    """Return a trigger as a document."""
    row = entry.row
    pause = pause_of(row)
    return TriggerInfo(
        name=row.name,
        topic=row.topic,
        selected=selected_texts(row.selection) or {},
        workflow=row.workflow,
        state="paused" if pause is not None else "active" if row.problem is None else "held",
        next_number=row.next_number,
        behind=entry.behind,
        since=instant(row.since),
        started=row.started,
        refused=row.refused,
        problem=row.problem,
        paused_at=None if pause is None else instant(pause.since),
        paused_by="" if pause is None or pause.actor is None else pause.actor.text,
        pause_reason="" if pause is None else pause.reason,
        declared=row.declared is not None,
        recent=tuple(map(_message, values_of(row.recent, MessageOutcome))),
        changes=tuple(map(_change, values_of(row.changes, OperatorChange))),
        created_at=instant(row.created_at),
        updated_at=instant(row.updated_at),
    )


def selected_texts(selection: str) -> dict[str, str] | None:
    """Return the texts that a message must have; None if the row is damaged, so that it selects none."""
    try:
        return texts_from(selection)
    except (*PARSE_ERRORS, AttributeError):
        return None


def _message(one: MessageOutcome) -> TriggeredMessage:
    return TriggeredMessage(
        number=one.number, at=instant(one.at), outcome=one.outcome, run=one.run, reason=one.reason
    )


def _change(one: OperatorChange) -> TriggerChanged:
    by = "" if one.actor is None else one.actor.text
    return TriggerChanged(at=instant(one.at), change=one.change, by=by, reason=one.reason)
