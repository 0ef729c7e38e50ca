"""Reads of rows by key, for every table."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from holdfast.ports.changes import AdvanceStreams, Change, Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.gatherings import Gathering
from holdfast.ports.records.limits import FairKey, LimitRow, RateWindow, SlotName
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.outbox import Stream, StreamHead
from holdfast.ports.records.session import Registration
from holdfast.ports.records.topic import GroupRow, ReturnedRow, SubscriptionRow, TopicMessageRow, TopicRow
from holdfast.ports.records.workflow import WorkflowRow
from holdfast.ports.structs import evolve
from holdfast.ports.tables import (
    AI_CALLS,
    ANNOTATIONS,
    ARTIFACTS,
    AUDIT_ENTRIES,
    BROWSER_SESSIONS,
    CREDENTIALS,
    FAIR_KEYS,
    GATHERINGS,
    GROUPS,
    HISTORY,
    JOBS,
    LEADERS,
    LIMITS,
    MAP_ITEMS,
    NAMESPACES,
    OUTPUT,
    PLANS,
    RATES,
    REGISTRATIONS,
    REPLIES,
    RETURNED_MESSAGES,
    RUNS,
    SCHEDULES,
    SESSIONS,
    SINKS,
    SLOTS,
    STREAMS,
    SUBSCRIPTIONS,
    TABLES,
    TOPIC_MESSAGES,
    TOPICS,
    TRIGGERS,
    WORKFLOWS,
    Table,
)
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_browser_session,
    a_credential,
    a_job,
    a_key,
    a_leader_lease,
    a_note,
    a_page,
    a_plan,
    a_reply,
    a_row,
    a_run,
    a_schedule,
    a_session,
    a_sink,
    an_ai_call,
    an_annotation,
    an_artifact,
    an_audit_entry,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.triggers import FULL_TRIGGER


def _a_stream(number: int) -> Stream:
    return Stream(sink="sink", run=a_key(number), head_row=number, due_at=NOW)


def _advance(stream: Stream) -> AdvanceStreams:
    return AdvanceStreams(StreamHead(sink=stream.sink, run=stream.run, head_row=stream.head_row, at=NOW))


def _a_message(number: int) -> TopicMessageRow:
    return TopicMessageRow(
        namespace=NAMESPACE, topic="orders", id=f"message-{number}", at=NOW, payload="1", expires_at=NOW
    )


def _a_subscription(number: int) -> SubscriptionRow:
    return SubscriptionRow(
        namespace=NAMESPACE,
        run_id=f"run-{number}",
        channel="topic:orders",
        topic="orders",
        selection="{}",
        digest="d",
        since=NOW,
    )


def _a_group(number: int) -> GroupRow:
    return GroupRow(
        namespace=NAMESPACE,
        topic="orders",
        group_key=f"packers-{number}",
        name="packers",
        selection="{}",
        next_number=number,
        since=NOW,
        used_at=NOW,
    )


_ROWS: Final[Mapping[Table[Any, Any], tuple[Callable[[Any], Change], Callable[[int], object]]]] = {
    RUNS: (Insert, a_run),
    JOBS: (Insert, lambda number: a_job(1, number)),
    HISTORY: (Insert, lambda number: a_row(1, number)),
    MAP_ITEMS: (Insert, lambda number: a_page(page=number)),
    TOPICS: (Insert, lambda number: TopicRow(namespace=NAMESPACE, name=f"topic-{number}")),
    TRIGGERS: (Insert, lambda number: evolve(FULL_TRIGGER, name=f"trigger-{number}")),
    TOPIC_MESSAGES: (Insert, _a_message),
    SUBSCRIPTIONS: (Insert, _a_subscription),
    GROUPS: (Insert, _a_group),
    RETURNED_MESSAGES: (
        Insert,
        lambda number: ReturnedRow(namespace=NAMESPACE, topic="orders", group_key="packers", number=number),
    ),
    PLANS: (Insert, a_plan),
    REPLIES: (Insert, lambda number: a_reply(f"key-{number}")),
    SESSIONS: (Insert, a_session),
    REGISTRATIONS: (
        Insert,
        lambda number: Registration(session=a_key(number), namespace=NAMESPACE, about="{}", lease=number),
    ),
    LEADERS: (Insert, lambda number: a_leader_lease(f"task-{number}")),
    OUTPUT: (Insert, a_note),
    SINKS: (Insert, lambda number: a_sink(f"sink-{number}")),
    STREAMS: (_advance, _a_stream),
    ANNOTATIONS: (Insert, an_annotation),
    ARTIFACTS: (Insert, lambda number: an_artifact(f"artifact-{number}")),
    AI_CALLS: (Insert, an_ai_call),
    GATHERINGS: (
        Insert,
        lambda number: Gathering(namespace=NAMESPACE, name=f"g-{number}", run=a_key(number)),
    ),
    SLOTS: (Insert, lambda number: SlotName(NAMESPACE, f"slot-{number}")),
    SCHEDULES: (Insert, a_schedule),
    NAMESPACES: (Insert, lambda number: NamespaceRow(name=f"n-{number}", created_at=NOW)),
    FAIR_KEYS: (
        Insert,
        lambda number: FairKey(
            namespace=NAMESPACE, line="w/q", key=f"k-{number}", next_turn=number, updated_at=NOW
        ),
    ),
    RATES: (Insert, lambda number: RateWindow(namespace=NAMESPACE, name=f"r-{number}", updated_at=NOW)),
    CREDENTIALS: (Insert, a_credential),
    BROWSER_SESSIONS: (Insert, a_browser_session),
    AUDIT_ENTRIES: (Insert, an_audit_entry),
    WORKFLOWS: (
        Insert,
        lambda number: WorkflowRow(
            namespace=NAMESPACE, name=f"w-{number}", version="1", plan="f", schemas="{}", registered_at=NOW
        ),
    ),
    LIMITS: (Insert, lambda number: LimitRow(namespace=NAMESPACE, name=f"queue:{number}", updated_at=NOW)),
}
"""For each table, the change that inserts a row, and a function that returns rows with ascending keys."""


class KeyedReads(PersistenceCase):
    """Reads of any table by key."""

    @pytest.mark.parametrize("lock", [True, False])
    @pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
    def test_rows_of_every_table_are_read_by_key(
        self, store: Persistence, table: Table[Any, Any], lock: bool
    ) -> None:
        """With and without a lock, ascending, each once; unknown keys are left out."""
        insert, row = _ROWS[table]
        rows = [row(number) for number in (1, 2, 3)]
        put(store, *map(insert, rows))
        first, _, third, unknown = (table.key_of(one) for one in (*rows, row(4)))

        keys = [unknown, third, first, third]
        found = query(store, lambda tx: (tx.lock if lock else tx.get)(table, keys))

        assert found == [rows[0], rows[2]]
        assert query(store, lambda tx: (tx.lock if lock else tx.get)(table, [])) == []
