"""The ledger of triggers: each message that a trigger selects starts one run, and no other message does (X7, X8).

- X7: the commit that moves a trigger past messages starts, or joins, the run of each that it selects, and of no other,
  with the start that the trigger has by then.
  A trigger moves on message by message: it goes back only when it begins anew. Then messages may be gone that it had
  passed before, between others that are kept for a group; X6 is that none goes which a trigger has not passed.
- X8: in the end, no trigger is behind its topic, unless it is paused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.kernel.commands import TriggerPut, TriggerResume
from holdfast.kernel.invariants import Violation
from holdfast.kernel.rules.triggers import trigger_run_id
from holdfast.kernel.schedules.row_data import start_of, values_of
from holdfast.kernel.topics.selections import is_selected, texts_from
from holdfast.kernel.topics.trigger_data import MessageOutcome
from holdfast.ports.changes import Insert, Update
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.topic import MessageName, TopicMessageRow, TopicName
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.store import Commit

Messages = Mapping[TopicName, Mapping[int, TopicMessageRow]]
"""The messages of topics that have a number, by number, also those that were deleted."""


class TriggerLedger:
    """Checks what triggers start."""

    def __init__(self) -> None:
        self.seen = Counter[str]()
        """How often something happened that few histories have."""

    def before(self, tables: Tables, commit: Commit, messages: Messages) -> Iterator[Violation]:
        """Check a commit; `tables` are the rows before it."""
        new = {
            change.record.name: change.record
            for change in commit.changes
            if isinstance(change, Insert) and isinstance(change.record, Run)
        }
        explained: set[RunName] = set()
        for change in commit.changes:
            if not (isinstance(change, Update) and isinstance(change.record, TriggerRow)):
                continue
            after = change.record
            before = tables.triggers[after.trigger_name]
            if any(isinstance(one, TriggerPut) for one in commit.sent) and _begins_anew(before, after):
                self.seen["begun anew"] += 1
                continue
            handled = _handled(before, after)
            skips = any(isinstance(one, TriggerResume) and one.skip for one in commit.sent)
            for what in self._moved(tables, before, after, {} if skips else messages, handled, new):
                yield Violation("X7", after.name, what)
            explained |= {RunName(after.namespace, one.run) for one in handled.values() if one.run}
        names = {row.name for row in tables.triggers.values()}
        for run in sorted(new.keys() - explained):
            if run.id.split("/")[0] in names and tables.run_named(run) is None:
                yield Violation("X7", run.id, "was started, but no trigger has moved past its message")

    def _moved(
        self,
        tables: Tables,
        before: TriggerRow,
        after: TriggerRow,
        messages: Messages,
        handled: Mapping[int, MessageOutcome],
        new: Mapping[RunName, Run],
    ) -> Iterator[str]:
        if after.next_number < before.next_number:
            yield f"went back from {before.next_number} to {after.next_number}"
        stored = messages.get(TopicName(after.namespace, after.topic), {})
        if before.paused is not None and after.paused is not None and after.next_number != before.next_number:
            yield f"moved on to message {after.next_number} while it was paused"
        for number in range(before.next_number, after.next_number):
            message = stored.get(number)
            wanted = message is not None and _is_stored(tables, message) and _selects(before, message)
            one = handled.get(number)
            if wanted and one is None:
                yield f"moved past message {number}, which it selects, without a run"
            if one is None:
                self.seen["passed over"] += 1
                continue
            if not wanted:
                yield f"started {one.run} for message {number}, which it does not select"
            self.seen[one.outcome] += 1
            if one.run is None:
                continue
            name = RunName(after.namespace, one.run)
            if one.outcome == "started" and name not in new:
                yield f"counts {one.run} as started for message {number}, but the commit does not start it"
            if one.outcome == "started" and name in new and not _is_started_by(before, new[name]):
                yield f"started {one.run} for message {number} as it was before its update"
            if one.outcome == "existing" and tables.run_named(name) is None:
                yield f"counts {one.run} as existing for message {number}, but it does not exist"
            if one.run != trigger_run_id(after.name, after.topic, number):
                yield f"started {one.run} for message {number}"

    def wrong(self, tables: Tables) -> Iterator[str]:
        """Yield what is wrong when everything has ended."""
        for row in tables.triggers.values():
            if row.paused is None and behind(tables, row):
                yield f"X8: trigger {row.name} is behind its topic: {behind(tables, row)} messages"


def _is_started_by(row: TriggerRow, run: Run) -> bool:
    return start_of(row).priority in (None, run.priority)


def behind(tables: Tables, row: TriggerRow) -> int:
    """Return how many messages of its topic a trigger has not handled."""
    topic = tables.topics.get(TopicName(row.namespace, row.topic))
    return 0 if topic is None else max(0, topic.last - row.next_number + 1)


def _begins_anew(before: TriggerRow, after: TriggerRow) -> bool:
    return (before.topic, before.selection, before.since) != (after.topic, after.selection, after.since)


def _handled(before: TriggerRow, after: TriggerRow) -> dict[int, MessageOutcome]:
    """Return the outcomes of the messages that a change of a trigger has handled. A row keeps the last 20."""
    known = Counter(values_of(before.recent, MessageOutcome))
    new = Counter(values_of(after.recent, MessageOutcome)) - known
    return {one.number: one for one in new}


def _is_stored(tables: Tables, message: TopicMessageRow) -> bool:
    # Once it is gone, a message with its id may be published again.
    found = tables.topic_messages.get(MessageName(message.namespace, message.topic, message.id))
    return found is not None and found.number == message.number


def _selects(row: TriggerRow, message: TopicMessageRow) -> bool:
    return message.at >= row.since and is_selected(texts_from(row.selection), texts_from(message.attributes))
