"""Fires the triggers of the workflows that this process has: each message that one selects starts a run.

Every process with code fires, right after it has delivered messages of a topic, and now and then. Messages have numbers
that never change. So they are read outside of the transaction that starts the run; that transaction checks, under the
lock of the trigger, that the trigger is still where it was, and selects the messages that it selected.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from holdfast.hosts.text import counted
from holdfast.hosts.wiring.payloads import BlobOwner
from holdfast.hosts.wiring.services import NO_TRIGGERS_KNOWN, Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import RunCreate, TriggerFire, TriggerFired, follow_up_of
from holdfast.kernel.pipelines.input_attributes import joined_attributes
from holdfast.kernel.rules.triggers import trigger_run_id
from holdfast.kernel.schedules.row_data import start_of
from holdfast.kernel.topics.selections import is_selected, texts_from
from holdfast.kernel.topics.trigger_data import trigger_digest
from holdfast.kernel.values import decode_input
from holdfast.ports.errors import (
    CommandError,
    HoldfastError,
    InvalidArgumentError,
    InvalidValueError,
    UnstorableValueError,
)
from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, ListTriggers, TriggerEntry
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.records.topic import TopicMessageRow
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import evolve, frozen
from holdfast.ports.unreadable import PARSE_ERRORS

KNOWN_FOR: Final = 5.0
"""Seconds for which a process takes it that its workflows have no other triggers than those that it knows."""
MESSAGES_MAX: Final = 100
"""Most messages in one transaction."""
ROUNDS_MAX: Final = 20
"""Most transactions for one trigger at a time. What is left is left to the next round."""
_PAGE: Final = 100
_REASON_MAX: Final = 1_000

_log = logging.getLogger("holdfast.triggers")


class TriggerFirer:
    """Fires triggers. Safe from any thread: two that fire the same trigger start each run once."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def try_to_fire(self, topics: Collection[str] | None = None) -> bool:
        """Fire as `fire` does. A failure is logged only: the next round does the same."""
        try:
            return self.fire(topics)
        except HoldfastError as error:
            _log.warning("triggers could not fire: %s", error)
            return False

    def fire(self, topics: Collection[str] | None = None) -> bool:
        """Start the runs of the messages that were not handled yet. Return whether there may be more of them.

        With `topics`, only if one of them is known to have a trigger, or that is to be looked up again. Raises errors
        of the store.
        """
        workflows = frozenset(plan.workflow for plan in self._core.registry.plans)
        if not workflows:
            return False
        known, until = self._core.known_triggers
        if self._core.clock.monotonic() < until and (
            not known or (topics is not None and known.isdisjoint(topics))
        ):
            return False
        more = False
        for entry in self._entries(workflows):
            if entry.row.paused is None and entry.behind:
                more = self._fire(entry) or more
        return more

    def forget(self) -> None:
        """Look up the triggers at the next round: one was stored or resumed."""
        self._core.known_triggers = NO_TRIGGERS_KNOWN

    def _entries(self, workflows: Collection[str]) -> list[TriggerEntry]:
        """Read the triggers of workflows, and remember their topics."""
        found: list[TriggerEntry] = []
        after: str | None = ""
        while after is not None:
            query = ListTriggers(namespace=self._core.namespace, after=after, limit=_PAGE)
            page = self._core.stores.persistence.read(query)
            found += (one for one in page if one.row.workflow in workflows)
            after = page[-1].row.name if len(page) == _PAGE else None
        topics = frozenset(one.row.topic for one in found)
        self._core.known_triggers = (topics, self._core.clock.monotonic() + KNOWN_FOR)
        return found

    def _fire(self, entry: TriggerEntry) -> bool:
        """Start the runs of the next messages of a trigger. Return whether there may be more."""
        row, kernel = entry.row, self._core.kernel
        trigger = self._parse_trigger(row)
        most = min(MESSAGES_MAX, self._core.topic_deliveries)
        number, started = row.next_number, 0
        for _ in range(ROUNDS_MAX):
            if trigger is None:
                break
            query = ListNumberedMessages(namespace=row.namespace, topic=row.topic, number=number, limit=most)
            messages = self._core.stores.persistence.read(query)
            commands = list(self._commands(trigger, number, messages, entry.last))
            if not commands:
                break
            answers = kernel.dispatch_many(commands)
            kernel.admit(row.namespace, follow_up_of(answers))
            started += sum(isinstance(one, TriggerFired) and one.run_id is not None for one in answers)
            if self._note(row, answers):
                if len(messages) < most:
                    break
                number = commands[-1].next
            elif (moved := self._changed(row, number)) is not None:
                # The faster host may have read the messages before the last ones had numbers, and it has ended by now.
                # Or the trigger was updated.
                entry, row, number = moved, moved.row, moved.row.next_number
                trigger = self._parse_trigger(row)
            else:
                break
        else:
            return True
        if started:
            _log.info("trigger %s started %s", row.name, counted(started, "run"))
        return False

    def _parse_trigger(self, row: TriggerRow) -> "_Trigger | None":
        try:
            return _Trigger(row, texts_from(row.selection), start_of(row), trigger_digest(row))
        except (CommandError, AttributeError, *PARSE_ERRORS) as error:
            # It stays where it is, so that no message is lost: the doctor names it.
            _log.error("trigger %s can't be read: %s", row.name, error)
            return None

    def _changed(self, row: TriggerRow, number: int) -> TriggerEntry | None:
        """Return a trigger again if it was moved on from a number, or updated, and has messages to handle."""
        found = self._core.stores.persistence.read(FindTrigger(row.trigger_name))
        if (
            found is None
            or found.row.paused is not None
            or not found.behind
            or (found.row.next_number == number and trigger_digest(found.row) == trigger_digest(row))
        ):
            return None
        return found

    def _note(self, row: TriggerRow, answers: Sequence[TriggerFired | CommandError]) -> bool:
        """Log what is wrong. Return whether all messages were handled."""
        for answer in answers:
            if isinstance(answer, CommandError):
                _log.error("trigger %s can't fire: %s", row.name, answer)
                return False
            if answer.problem is not None:
                _log.warning("trigger %s is held up: %s", row.name, answer.problem)
            if answer.refused is not None:
                _log.warning("trigger %s started no run for a message: %s", row.name, answer.refused)
            if not answer.handled:
                return False
        return True

    def _commands(
        self, trigger: "_Trigger", number: int, messages: Sequence[TopicMessageRow], last: int
    ) -> Iterator[TriggerFire]:
        """Yield the commands for messages from a number on, in their order."""
        row = trigger.row
        for message in messages:
            if message.number is None or not trigger.selects(message):
                continue
            start, refused = self._start(trigger, message)
            yield TriggerFire(
                namespace=row.namespace,
                trigger=row.name,
                expected=number,
                digest=trigger.digest,
                number=message.number,
                next=message.number + 1,
                start=start,
                refused=refused,
            )
            number = message.number + 1
        numbers = [one.number for one in messages if one.number is not None]
        # Without any, they are all gone: those that are stored have a higher number than those that were removed.
        following = max(numbers, default=last) + 1
        if following > number:
            yield TriggerFire(
                namespace=row.namespace,
                trigger=row.name,
                expected=number,
                digest=trigger.digest,
                next=following,
            )

    def _start(self, trigger: "_Trigger", message: TopicMessageRow) -> tuple[RunCreate | None, str]:
        """Return the command that starts the run of a message, or why there can be none."""
        try:
            return self._start_of(trigger, message), ""
        except (InvalidValueError, UnstorableValueError, InvalidArgumentError) as error:
            where = f"message {message.number} of topic {message.topic!r}"
            return None, f"{where}: {error}"[:_REASON_MAX]

    def _start_of(self, trigger: "_Trigger", message: TopicMessageRow) -> RunCreate:
        core, row, start = self._core, trigger.row, trigger.start
        definition = core.registry.find_workflow(row.workflow)
        if definition is None:
            raise core.registry.unknown_workflow(row.workflow)
        names = definition.stage_parameters
        text = message.payload if names is None else f"{{{json.dumps(names[0])}:{message.payload}}}"
        value = decode_input(text, definition.input_type)
        text = definition.input_text(value)
        gathers = isinstance(definition, Workflow) and definition.gather is not None
        payload = self._stored(row, message, text)
        return evolve(
            start,
            namespace=row.namespace,
            id=None if gathers else trigger_run_id(row.name, row.topic, message.number or 0),
            if_exists="return",
            input=payload,
            items=definition.gathered_items(value) if isinstance(definition, Workflow) else None,
            input_size=len(text.encode()) if gathers and payload.blob is not None else None,
            attributes=joined_attributes(
                None,
                definition.attributes_in(text),
                None if start.attributes is None else attribute_texts(start.attributes),
            ),
        )

    def _stored(self, row: TriggerRow, message: TopicMessageRow, text: str) -> Payload:
        payloads = self._core.payloads
        if payloads.stay_inline(text):
            return Payload(inline=text)
        # A message that is handled again has the same input, blob included.
        name = f"{row.name}/{row.topic}/{message.id}"
        run = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
        return payloads.put(text, BlobOwner(namespace=row.namespace, run=run, stage="input", epoch=0))


@frozen
class _Trigger:
    """A trigger whose row can be read."""

    row: TriggerRow
    selected: Mapping[str, str]
    start: RunCreate
    digest: str

    def selects(self, message: TopicMessageRow) -> bool:
        """Whether it selects a message. If the attributes of a message are damaged, it has none."""
        if message.at < self.row.since:
            return False
        try:
            return is_selected(self.selected, texts_from(message.attributes))
        except (AttributeError, *PARSE_ERRORS):
            return not self.selected
