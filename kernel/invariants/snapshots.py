"""Snapshots: the rows of a store that the invariants are about."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from holdfast.ports.records.gatherings import Gathering
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import LimitName, LimitRow
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import Registration, Session
from holdfast.ports.records.topic import (
    MessageName,
    SubscriptionName,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.working_set import Tables


@attrs.frozen(kw_only=True)
class Snapshot:
    """The rows of a store, or of a part of it, in one state."""

    runs: Mapping[str, Run]
    """Runs by key."""
    jobs: Mapping[str, Mapping[int, Job]]
    """Jobs by run key and number."""
    history: Mapping[str, Sequence[HistoryRow]]
    """History rows by run key, in order."""
    plans: Mapping[str, str]
    """JSON texts of plans by fingerprint."""
    sessions: Mapping[str, Session]
    """At least the sessions that hold leases, by id."""
    gatherings: Collection[Gathering] | None = None
    """The rows by which starts find the runs that gather; None if they were not read."""
    registrations: Collection[Registration] | None = None
    """The rows of the worker registry; None if they, or some sessions, were not read."""
    limits: Mapping[LimitName, LimitRow] = attrs.field(factory=dict[LimitName, LimitRow])
    """Limits that were changed while running."""
    topics: Mapping[TopicName, TopicRow] | None = None
    """How far the messages of topics were delivered; None if these rows were not read."""
    topic_messages: Mapping[MessageName, TopicMessageRow] | None = None
    """The messages of topics; None if they were not read."""
    subscriptions: Mapping[SubscriptionName, SubscriptionRow] | None = None
    """The subscriptions of runs; None if they were not read."""


def as_snapshot(store: Snapshot | Tables) -> Snapshot:
    """Return the snapshot of these tables; a snapshot is returned unchanged."""
    return _of_tables(store) if isinstance(store, Tables) else store


def _of_tables(tables: Tables) -> Snapshot:
    return Snapshot(
        runs=tables.runs,
        jobs=tables.jobs,
        history=tables.history,
        plans={plan.fingerprint: plan.body for plan in tables.plans.values()},
        sessions=tables.sessions,
        gatherings=tuple(tables.gatherings.values()),
        registrations=tuple(tables.registrations.values()),
        limits=tables.limits,
        topics=tables.topics,
        topic_messages=tables.topic_messages,
        subscriptions=tables.subscriptions,
    )
