"""The ledger of groups: where each message of a group is (X9).

X9: a message is handed to one member, and to another one only after it went back. None is deleted while a group has to
hand it out, or a member has it and has not read it. When everything has ended, each message that the group selects was
handed out, went back, or is still to be handed out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from holdfast.kernel.history import events
from holdfast.kernel.invariants import Violation
from holdfast.kernel.topics.selections import is_selected, texts_from
from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.topic import (
    GroupName,
    GroupRow,
    MessageName,
    ReturnedRow,
    TopicMessageRow,
    TopicName,
)
from holdfast.ports.tables import TOPIC_MESSAGES
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.store import Commit

Messages: TypeAlias = Mapping[TopicName, Mapping[int, TopicMessageRow]]
"""The messages of topics that have a number, by number, also those that were deleted."""


class GroupLedger:
    """Records which member of a group has each message."""

    def __init__(self) -> None:
        self.seen = Counter[str]()
        """How often something happened that few histories have."""
        self._places: dict[tuple[GroupName, int], RunName | None] = {}
        self._returns = Counter[tuple[GroupName, int]]()
        self._commits = 0
        self._begun: dict[GroupName, int] = {}
        """In which commit each group began."""
        self._deleted: dict[tuple[TopicName, int], int] = {}
        """In which commit messages were deleted."""

    def before(self, tables: Tables, commit: Commit) -> Iterator[Violation]:
        """Check and record a commit; `tables` are the rows before it."""
        runs = {
            change.record.key: change.record.name
            for change in commit.changes
            if isinstance(change, Insert) and isinstance(change.record, Run)
        }
        self._commits += 1
        for change in commit.changes:
            match change:
                case Insert(GroupRow() as group):
                    self._begun.setdefault(group.group_name, self._commits)
                case Delete(table, MessageName() as key) if table is TOPIC_MESSAGES:
                    number = tables.topic_messages[key].number or 0
                    self._deleted[TopicName(key.namespace, key.topic), number] = self._commits
                    needed = self._needed(tables, commit, TopicName(key.namespace, key.topic), number)
                    yield from (Violation("X9", key.topic, what) for what in needed)
                case _:
                    pass
        # A message that goes back is inserted after the rows of histories: a run may end with its last row.
        for change in commit.changes:
            if isinstance(change, Insert) and isinstance(change.record, ReturnedRow):
                yield from self._go_back(change.record)
        for change in commit.changes:
            if isinstance(change, Insert) and isinstance(change.record, HistoryRow):
                row = change.record
                if row.type == events.SignalReceived.type:
                    name = runs.get(row.run) or tables.runs[row.run].name
                    yield from self._receive(name, events.SignalReceived.from_row(row))

    def _needed(self, tables: Tables, commit: Commit, topic: TopicName, number: int) -> Iterator[str]:
        """Yield why a message must not be deleted."""
        what = f"message {number} was deleted, but"
        for group in tables.groups.values():
            if (group.namespace, group.topic) == topic and group.next_number <= number:
                yield f"{what} group {group.group_key} has to hand it out"
        for name, holder in self._places.items():
            if (*name[0][:2], name[1]) == (*topic, number) and holder is None:
                yield f"{what} it went back to group {name[0].group_key}, which has to hand it out"
        changed = {
            change.record.key: change.record
            for change in commit.changes
            if isinstance(change, Insert | Update) and isinstance(change.record, Run)
        }
        for run in {**tables.runs, **changed}.values():
            for one in mailbox_from(run.mailbox).groups.values():
                if (run.namespace, one.topic, one.number) == (*topic, number):
                    yield f"{what} {run.id} has it as a member of group {one.group_key}, and has not read it"

    def _go_back(self, row: ReturnedRow) -> Iterator[Violation]:
        name = GroupName(row.namespace, row.topic, row.group_key), row.number
        if self._places.get(name) is None:
            what = f"message {row.number} of group {row.group_key} went back, but no member has it"
            yield Violation("X9", row.topic, what)
        self._places[name] = None  # it is in the group
        self._returns[name] += 1
        self.seen["went back"] += 1

    def _receive(self, run: RunName, event: events.SignalReceived) -> Iterator[Violation]:
        if event.group_key is None or event.number is None or event.topic is None:
            return
        name = GroupName(run.namespace, event.topic, event.group_key), event.number
        holder = self._places.get(name)
        what = f"message {event.number} of group {event.group_key} was handed to {run.id}"
        if event.again is None and holder is not None:
            yield Violation("X9", event.topic, f"{what}, but {holder.id} has it")
        if event.again is not None and holder != run:
            yield Violation("X9", event.topic, f"{what} again, which does not have it")
        self.seen["handed out" if event.again is None else "had again"] += 1
        if event.again is None and name in self._places:
            self.seen["handed out after it went back"] += 1
        self._places[name] = run

    def wrong(self, tables: Tables, messages: Messages) -> Iterator[str]:
        """Yield what is wrong when everything has ended."""
        unread: dict[tuple[str, int], tuple[GroupName, int]] = {}
        for run in tables.runs.values():
            mailbox = mailbox_from(run.mailbox)
            if mailbox.groups:
                yield f"X9: run {run.key} has ended, and keeps the messages {dict(mailbox.groups)} of groups"
            rows = {row.number: row for row in tables.whole_history(run)} if mailbox.returned else {}
            for number in mailbox.returned:
                one = events.SignalReceived.from_row(rows[number]).of_group
                assert one is not None
                # A rerun that keeps the row lists it, too.
                name = GroupName(run.namespace, one.topic, one.group_key), one.number
                unread[rows[number].run, number] = name
        left = Counter(unread.values())
        for name, times in sorted(left.items()):
            if self._returns[name] != times:
                what = f"message {name[1]} of group {name[0].group_key} was left unread by {times} members"
                yield f"X9: {what}, but went back {self._returns[name]} times"
        for group in tables.groups.values():
            selection = texts_from(group.selection)
            for number, message in messages.get(TopicName(group.namespace, group.topic), {}).items():
                is_due = number < group.next_number and message.at >= group.since
                if not is_due or not is_selected(selection, texts_from(message.attributes)):
                    continue
                if (group.group_name, number) not in self._places and not self._is_old(group, message):
                    yield f"X9: no member of group {group.group_key} was ever handed message {number}"

    def _is_old(self, group: GroupRow, message: TopicMessageRow) -> bool:
        """Whether a message was deleted before the group began."""
        name = TopicName(message.namespace, message.topic), message.number or 0
        return name in self._deleted and self._deleted[name] <= self._begun[group.group_name]
