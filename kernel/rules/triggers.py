"""Rules for triggers: create, update, fire, pause, resume and remove (docs/decisions/0116)."""

from typing import Final, TypeAlias

from holdfast.kernel.commands import (
    TriggerFire,
    TriggerFired,
    TriggerPause,
    TriggerPut,
    TriggerRemove,
    TriggerRemoved,
    TriggerResume,
    TriggerStored,
)
from holdfast.kernel.commands.names import check_name
from holdfast.kernel.commands.triggers import TRIGGER_NAME_MAX
from holdfast.kernel.composed_searches import NamedTrigger
from holdfast.kernel.rules.starts import check_start, decide_create, reads_of_create
from holdfast.kernel.rules.topics import check_topic, texts_of_selection
from holdfast.kernel.schedules.row_data import Pause, start_text, text_of, with_change
from holdfast.kernel.state import Decision, Reads, State
from holdfast.kernel.topics.selections import selection_text
from holdfast.kernel.topics.trigger_data import (
    MessageOutcome,
    trigger_digest,
    with_outcome,
)
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import (
    CommandError,
    InvalidCommandError,
    QuotaExceededError,
    TriggerNotFoundError,
    UnknownWorkflowError,
    UnreadableRowError,
)
from holdfast.ports.records.topic import TopicName
from holdfast.ports.records.trigger import TriggerName, TriggerRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import TRIGGERS

_REASON_MAX: Final = 1_000

_Named: TypeAlias = TriggerPause | TriggerResume | TriggerRemove


def trigger_run_id(trigger: str, topic: str, number: int) -> str:
    """Return the id of the run that a trigger starts for a message: `ship-nz/orders/4711`."""
    return f"{trigger}/{topic}/{number}"


def reads_of_named(command: _Named) -> Reads:
    """Lock the trigger, and read its topic. Raises InvalidCommandError if its name is not valid."""
    return Reads(search=NamedTrigger(_name_of(command)))


def reads_of_put(command: TriggerPut) -> Reads:
    """Lock the trigger, and find where it begins. Raises InvalidCommandError."""
    return Reads(search=_put_search(command))


def _put_search(command: TriggerPut) -> NamedTrigger:
    check_topic(command.topic)
    return NamedTrigger(_name_of(command), topic=command.topic, since=command.since)


def reads_of_fire(command: TriggerFire) -> Reads:
    """Lock the trigger, and read what its start needs. Raises InvalidCommandError."""
    search = NamedTrigger(_name_of(command))
    if command.start is None or command.number is None:
        return Reads(search=search)
    return evolve(reads_of_create(command.start), search=search)


def _name_of(command: _Named | TriggerPut | TriggerFire) -> TriggerName:
    name = command.trigger
    check_name("the name of the trigger", name)
    if not 1 <= len(name) <= TRIGGER_NAME_MAX or name != name.strip("/") or "//" in name:
        raise InvalidCommandError(
            f"the name of a trigger has 1 to {TRIGGER_NAME_MAX} characters, and no / at its ends or beside another "
            f"one; got {name[:TRIGGER_NAME_MAX]!r}"
        )
    return TriggerName(command.namespace, name)


def _named(state: State, command: _Named) -> TriggerRow:
    row = state.tables.triggers.get(_name_of(command))
    if row is None:
        raise TriggerNotFoundError(command.trigger)
    return row


def _last_of(state: State, namespace: str, topic: str) -> int:
    found = state.tables.topics.get(TopicName(namespace, topic))
    return 0 if found is None else found.last


def decide_put(state: State, command: TriggerPut, now: Micros, _: Ids) -> Decision[TriggerStored]:
    """Create the trigger, or update it. Raises UnknownWorkflowError, InvalidCommandError."""
    known = state.tables.triggers.get(_name_of(command))
    if known is not None and command.declared is not None and known.declared == command.declared:
        return Decision(_stored(known, changed=False))
    if (command.start.workflow, command.start.version) not in state.workflows:
        raise UnknownWorkflowError(command.start.workflow, command.start.version)
    _check_put(command, now)
    first = state.found[_put_search(command)].first_number
    made = TriggerRow(
        namespace=command.namespace,
        name=command.trigger,
        topic=command.topic,
        selection=selection_text(texts_of_selection(command.selection)),
        workflow=command.start.workflow,
        start=start_text(command.start),
        since=now if command.since is None else command.since,
        next_number=_last_of(state, command.namespace, command.topic) + 1 if first is None else first,
        declared=command.declared,
        created_at=now,
        updated_at=now,
    )
    if known is None:
        row = with_change(made, "created", now, command.actor)
        return Decision(_stored(row, created=True, changed=True), (Insert(row),))
    updated = evolve(
        known,
        workflow=made.workflow,
        start=made.start,
        declared=known.declared if made.declared is None else made.declared,
        problem=None,
        updated_at=max(now, known.updated_at),
    )
    begins_anew = command.since is not None and command.since != known.since
    if begins_anew or (known.topic, known.selection) != (made.topic, made.selection):
        updated = evolve(
            updated,
            topic=made.topic,
            selection=made.selection,
            since=made.since,
            next_number=made.next_number,
        )
    row = with_change(updated, "updated", now, command.actor)
    return Decision(_stored(row, changed=True), (Update(row),))


def _check_put(command: TriggerPut, now: Micros) -> None:
    start = command.start
    wrong = {
        "namespace": start.namespace != command.namespace,
        "id": start.id is not None,
        "start_at": start.start_at is not None,
        "idempotency_key": start.idempotency_key is not None,
        "scheduled": start.scheduled is not None,
        "signals": bool(start.signals),
        "input": start.input.inline != "null",
    }
    if field := next((name for name, is_wrong in wrong.items() if is_wrong), None):
        raise InvalidCommandError(f"start.{field} is set; the trigger sets it for each run")
    if command.since is not None and command.since > now:
        raise InvalidCommandError("since is in the future; leave it out for messages from now on")
    check_start(start)


def decide_fire(state: State, command: TriggerFire, now: Micros, ids: Ids) -> Decision[TriggerFired]:
    """Start the run of a message and move the trigger on; a start that is refused holds up no other message."""
    row = state.tables.triggers.get(_name_of(command))
    if row is None or row.paused is not None or row.next_number != command.expected:
        return Decision(TriggerFired(handled=False))
    if command.digest is not None and command.digest != trigger_digest(row):
        return Decision(TriggerFired(handled=False))
    if (
        not command.expected
        <= (command.expected if command.number is None else command.number)
        < command.next
    ):
        raise InvalidCommandError(
            f"next is {command.next}, and number {command.number}: the trigger continues after the message"
        )
    moved = evolve(row, next_number=command.next, problem=None, updated_at=max(now, row.updated_at))
    if command.number is None:
        return Decision(TriggerFired(handled=True), (Update(moved),))
    if command.start is None:
        return _refused(moved, command.number, command.refused, now)
    try:
        decision = decide_create(state, command.start, now, ids)
    except (UnreadableRowError, UnknownWorkflowError):
        raise
    except QuotaExceededError as error:
        held = evolve(row, problem=str(error)[:_REASON_MAX])
        return Decision(
            TriggerFired(handled=False, problem=held.problem), () if held == row else (Update(held),)
        )
    except CommandError as error:
        return _refused(moved, command.number, str(error), now)
    made = decision.reply
    outcome = MessageOutcome(
        number=command.number,
        at=now,
        outcome="started" if made.created else "joined" if command.start.id is None else "existing",
        run=made.run_id,
    )
    changes: tuple[Change, ...] = (Update(with_outcome(moved, outcome)), *decision.changes)
    reply = TriggerFired(handled=True, run_id=made.run_id, follow_up=made.follow_up)
    return Decision(reply, changes, decision.hints)


def _refused(row: TriggerRow, number: int, why: str, now: Micros) -> Decision[TriggerFired]:
    reason = why[:_REASON_MAX]
    outcome = MessageOutcome(number=number, at=now, outcome="refused", reason=reason)
    return Decision(TriggerFired(handled=True, refused=reason), (Update(with_outcome(row, outcome)),))


def decide_pause(state: State, command: TriggerPause, now: Micros, _: Ids) -> Decision[TriggerStored]:
    """Pause the trigger. A paused one stays as it is. Raises TriggerNotFoundError."""
    known = _named(state, command)
    if known.paused is not None:
        return Decision(_stored(known, changed=False))
    pause = Pause(since=now, actor=command.actor, reason=command.reason)
    row = evolve(known, paused=text_of(pause), updated_at=max(now, known.updated_at))
    row = with_change(row, "paused", now, command.actor, command.reason)
    return Decision(_stored(row, changed=True), (Update(row),))


def decide_resume(state: State, command: TriggerResume, now: Micros, _: Ids) -> Decision[TriggerStored]:
    """Resume the trigger. One that is not paused stays as it is. Raises TriggerNotFoundError."""
    known = _named(state, command)
    if known.paused is None:
        return Decision(_stored(known, changed=False))
    row = evolve(known, paused=None, updated_at=max(now, known.updated_at))
    if command.skip:
        # A message that was published before now may get its number later.
        following = max(known.next_number, _last_of(state, known.namespace, known.topic) + 1)
        row = evolve(row, next_number=following, since=max(now, known.since))
    row = with_change(row, "resumed", now, command.actor)
    return Decision(_stored(row, changed=True), (Update(row),))


def decide_remove(state: State, command: TriggerRemove, _: Micros, __: Ids) -> Decision[TriggerRemoved]:
    """Remove the trigger."""
    name = _name_of(command)
    known = state.tables.triggers.get(name)
    if known is None or (command.declared is not None and known.declared != command.declared):
        return Decision(TriggerRemoved(removed=False))
    return Decision(TriggerRemoved(removed=True), (Delete(TRIGGERS, name),))


def _stored(row: TriggerRow, *, created: bool = False, changed: bool) -> TriggerStored:
    return TriggerStored(trigger=row.name, created=created, changed=changed, next_number=row.next_number)
