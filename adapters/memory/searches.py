"""What `Transaction.find` finds in plain dictionaries, and rows by key."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.adapters.memory.job_index import JobOrder
from holdfast.adapters.memory.queries.handlers import dead_lettered_in, node_rows
from holdfast.adapters.memory.queries.limits import sleepers
from holdfast.adapters.memory.queries.namespaces import parts_of_namespace, runs_of_namespace
from holdfast.adapters.memory.queries.waiting import (
    first_waiting,
    open_runs,
    queued,
    used,
    used_in_spans,
    waited_for,
    waited_for_in_spans,
)
from holdfast.adapters.memory.queries.workflows import workflows_of_namespace
from holdfast.ports import searches as s
from holdfast.ports import tables as t
from holdfast.ports.attempt_output import Annotation, AnnotationScope
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.limits import FairKeyName, LimitName, LimitRow, RateName, queue_limit
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey
from holdfast.ports.records.run import ACTIVE, HELD, Run, RunName, RunStatus
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.topic import (
    GROUP_IDLE,
    GroupName,
    GroupRow,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.ports.unreadable import RunOutline
from holdfast.ports.working_set import Tables

R = TypeVar("R")
K = TypeVar("K")


def rows_by_key(tables: Tables, table: t.Table[R, K], keys: Collection[K]) -> list[R]:
    """Return the rows of a table with these keys, ascending."""
    row_at = _ROW_AT.get(table)
    ordered: list[K] = sorted(set[Any](keys))
    found = (
        map(tables.rows[table].get, ordered) if row_at is None else (row_at(tables, key) for key in ordered)
    )
    return [row for row in found if row is not None]


def _history_row(tables: Tables, key: tuple[str, int]) -> HistoryRow | None:
    run, number = key
    history = tables.history.get(run, [])
    at = number - history[0].number if history else -1
    return history[at] if 0 <= at < len(history) else None


_ROW_AT: Final[Mapping[t.Table[Any, Any], Callable[[Tables, Any], Any]]] = {
    t.JOBS: Tables.job,
    t.HISTORY: _history_row,
}
"""How rows are found that are not in `Tables.rows`."""


class Store(NamedTuple):
    """What a search goes by: the rows, their order, and the instant."""

    tables: Tables
    order: JobOrder
    now: Micros


def find(store: Store, search: s.Search[R]) -> R:
    """Return what a search finds. TypeError for an unknown search."""
    found: Callable[[Store, s.Search[R]], R] | None = _SEARCHES.get(type(search))
    if found is None:
        raise TypeError(f"{search!r} is no search that this store knows")
    return found(store, search)


def _claimable_jobs(store: Store, search: s.ClaimableJobs) -> s.LockedAttempts:
    limits = store.tables.limits
    claims = [one for one in search.queue_claims if not _is_paused(limits, search.namespace, one.queue)]
    jobs = _in_order(store, store.order.claimable(search.namespace, claims, search.limit, search.pass_over))
    sessions = rows_by_key(store.tables, t.SESSIONS, [search.session]) if jobs else ()
    return s.LockedAttempts((), jobs, sessions, bool(jobs) and bool(limits))


def _is_paused(limits: Mapping[LimitName, LimitRow], namespace: str, queue: str) -> bool:
    row = limits.get(queue_limit(namespace, queue)) if limits else None
    return row is not None and row.is_paused != 0


def _sessions_for_claims(store: Store, search: s.SessionsForClaims) -> s.LockedAttempts:
    sessions = rows_by_key(store.tables, t.SESSIONS, search.ids)
    return s.LockedAttempts((), (), sessions, bool(sessions) and bool(store.tables.limits))


def _queued_of_queue(store: Store, search: s.QueuedOfQueue) -> Sequence[Job]:
    queued = [
        job
        for job in store.tables.all_jobs()
        if job.state is JobState.QUEUED and (job.namespace, job.queue) == (search.namespace, search.queue)
    ]
    placed = sorted(((job.definition, job.queue_position, job.run, job.number), job.key) for job in queued)
    return _in_order(store, [key for place, key in placed if place > search.after][: search.limit])


def _due_jobs(store: Store, search: s.DueJobs) -> Sequence[Job]:
    if search.kind is None:
        return _in_order(store, store.order.due(store.now, search.limit))
    sleepers = _in_order(store, store.order.due(store.now, len(store.order)))
    return [job for job in sleepers if job.kind is search.kind][: search.limit]


def _in_order(store: Store, keys: Iterable[JobKey]) -> list[Job]:
    return [job for job in map(store.tables.job, keys) if job is not None]


def _jobs_of_runs(store: Store, search: s.JobsOfRuns) -> Sequence[Job]:
    jobs = store.tables.jobs
    return [job for run in sorted(set(search.runs)) for _, job in sorted(jobs.get(run, {}).items())]


def _stage_jobs(store: Store, search: s.StageJobs) -> Sequence[JobKey]:
    run = store.tables.run_named(RunName(search.namespace, search.run_id))
    jobs = store.tables.jobs.get(run.key, {}).values() if run else ()
    return sorted(
        job.key
        for job in jobs
        if job.node == search.stage and search.item in (None, job.item) and _is_wakeable(job)
    )


def _is_wakeable(job: Job) -> bool:
    return job.kind is JobKind.POLL or (job.kind is JobKind.STAGE and job.state is JobState.LEASED)


def _external_jobs(store: Store, search: s.ExternalJobs) -> Sequence[JobKey]:
    wanted = (search.namespace, search.key, JobKind.POLL)
    return sorted(
        job.key for job in store.tables.all_jobs() if (job.namespace, job.waiting_for, job.kind) == wanted
    )


def _lost_jobs(store: Store, search: s.LostJobs) -> Sequence[JobKey]:
    sessions = store.tables.sessions
    dead = {key for key, session in sessions.items() if session.state is SessionState.DEAD}
    if not dead:
        return []
    lost = [
        job.key for job in store.tables.all_jobs() if job.state is JobState.LEASED and job.session in dead
    ]
    return sorted(lost)[: search.limit]


def _overdue_heartbeats(store: Store, search: s.OverdueHeartbeats) -> Sequence[JobKey]:
    before = store.now - search.grace
    overdue = [
        (job.heartbeat_by, job.key)
        for job in store.tables.all_jobs()
        if job.state is JobState.LEASED and job.heartbeat_by is not None and job.heartbeat_by < before
    ]
    return [key for _, key in sorted(overdue)[: search.limit]]


def _expired_sessions(store: Store, search: s.ExpiredSessions) -> Sequence[Session]:
    before = store.now - search.grace
    expired = [
        session
        for session in store.tables.sessions.values()
        if session.state is SessionState.OPEN and session.expires_at < before
    ]
    return sorted(expired, key=lambda session: session.id)[: search.limit]


def _latest_runs(store: Store, search: s.LatestRuns) -> Sequence[Run]:
    found = map(store.tables.run_named, set(search.names))
    return sorted((run for run in found if run is not None), key=lambda run: run.key)


def _latest_runs_and_drivers(store: Store, search: s.LatestRunsAndDrivers) -> s.LockedAttempts:
    runs = _latest_runs(store, s.LatestRuns(search.names))
    first = (store.tables.job(JobKey(run.key, 1)) for run in runs)
    jobs = [job for job in first if job is not None and job.kind is JobKind.WORKFLOW]
    return s.LockedAttempts(runs, jobs, ())


def _generations(store: Store, search: s.Generations) -> Sequence[Run]:
    wanted = set(search.names)
    found = [run for run in store.tables.runs.values() if run.name in wanted]
    return sorted(found, key=lambda run: (run.name, run.generation))


def _active_runs(store: Store, search: s.ActiveRuns) -> Sequence[str]:
    runs = store.tables.runs.items()
    return sorted(key for key, run in runs if run.status in ACTIVE and key > search.after)[: search.limit]


def _incomplete_runs(store: Store, search: s.IncompleteRuns) -> Sequence[str]:
    runs = rows_by_key(store.tables, t.RUNS, search.runs)
    return [run.key for run in runs if not _is_complete(store.tables, run)]


def _is_complete(tables: Tables, run: Run) -> bool:
    jobs = sum(not job.outlives_run for job in tables.jobs.get(run.key, {}).values())
    waits = run.status in {RunStatus.PENDING, *HELD} and not run.is_admitted
    return run.status not in ACTIVE or (jobs == run.open_jobs and (jobs > 0 or waits))


def _due_runs(store: Store, search: s.DueRuns) -> Sequence[str]:
    due = [
        (run.start_at, run.key)
        for run in store.tables.runs.values()
        if run.status is RunStatus.PENDING and run.start_at is not None and run.start_at <= store.now
        if search.namespace in {None, run.namespace}
    ]
    return [key for _, key in sorted(due)[: search.limit]]


def _due_run_rates(store: Store, search: s.DueRunRates) -> Sequence[RateName]:
    due = [
        (window.admits_at, name)
        for name, window in store.tables.rates.items()
        if window.admits_at is not None and window.admits_at <= store.now
        if search.namespace in {None, name.namespace}
    ]
    return [name for _, name in sorted(due)[: search.limit]]


def _overdue_runs(store: Store, search: s.OverdueRuns) -> Sequence[str]:
    overdue = [
        (run.deadline, run.key)
        for run in store.tables.runs.values()
        if run.status in ACTIVE and not run.is_ending
        if run.deadline is not None and run.deadline <= store.now
    ]
    return [key for _, key in sorted(overdue)[: search.limit]]


def _run_outlines(store: Store, search: s.RunOutlines) -> Sequence[RunOutline]:
    history = store.tables.history
    return [
        RunOutline(
            run.key,
            run.namespace,
            run.id,
            run.workflow,
            run.version,
            run.status,
            max((row.number for row in history.get(run.key, ())), default=0),
        )
        for run in rows_by_key(store.tables, t.RUNS, search.runs)
    ]


def _node_results(store: Store, search: s.NodeResults) -> Sequence[s.CompletedRow]:
    return [
        s.CompletedRow(run, row.number, row.node or "", row.item, row.type)
        for run in sorted(set(search.runs))
        for row in store.tables.history.get(run, ())
        if row.type in search.types
    ]


def _annotation_keys(store: Store, search: s.AnnotationKeys) -> Sequence[tuple[str, str, str]]:
    wanted = set(search.keys)
    return sorted(name for name in store.tables.names[t.ANNOTATIONS] if name[:2] in wanted)


def _run_annotations(store: Store, search: s.RunAnnotations) -> Sequence[Annotation]:
    runs = set(search.runs)
    found = sorted(store.tables.annotations.items())
    return [one for _, one in found if one.run in runs and one.scope is AnnotationScope.RUN]


def _schedules_of(store: Store, namespace: str, workflows: Collection[str]) -> list[ScheduleRow]:
    schedules = store.tables.schedules.values()
    return [row for row in schedules if row.namespace == namespace and row.workflow in workflows]


def _due_schedules(store: Store, search: s.DueSchedules) -> Sequence[ScheduleRow]:
    due = [
        (row.next_at, row.key, row)
        for row in _schedules_of(store, search.namespace, search.workflows)
        if row.next_at is not None and row.next_at <= store.now
    ]
    return [row for _, _, row in sorted(due, key=lambda one: one[:2])[: search.limit]]


def _next_schedule_time(store: Store, search: s.NextScheduleTime) -> Micros | None:
    schedules = _schedules_of(store, search.namespace, search.workflows)
    return min(
        (row.next_at for row in schedules if row.next_at is not None and row.next_at > store.now),
        default=None,
    )


def _schedules_by_name(store: Store, search: s.SchedulesByName) -> Sequence[ScheduleRow]:
    found = map(store.tables.schedule_named, set(search.names))
    return sorted((row for row in found if row is not None), key=lambda row: row.key)


def _topic_to_deliver(store: Store, search: s.TopicToDeliver) -> TopicName | None:
    tables = store.tables
    found = {
        *(
            TopicName(row.namespace, row.topic)
            for row in tables.topic_messages.values()
            if row.number is None
        ),
        *(TopicName(row.namespace, row.topic) for row in _first_expired(store)),
        *(
            TopicName(row.namespace, row.topic)
            for row in tables.subscriptions.values()
            if row.next_number is not None
        ),
        *(row.topic_name for row in tables.topics.values() if row.after_subscription is not None),
        *(
            TopicName(group.namespace, group.topic)
            for group in tables.groups.values()
            if _is_to_be_served(store, group, _last_number(store, group))
        ),
    }
    after = (search.after_namespace, search.after_name)
    return min((name for name in found if name > after), default=None)


def _first_expired(store: Store) -> list[TopicMessageRow]:
    found = [
        row
        for row in store.tables.topic_messages.values()
        if row.number is not None and row.expires_at < store.now
    ]
    return sorted(found, key=lambda row: (row.expires_at, row.message_name))[: s.EXPIRED_WINDOW]


def _is_passed(store: Store, message: TopicMessageRow) -> bool:
    """Whether no trigger, and no group that is used, is before a message."""
    tables, topic, number = store.tables, (message.namespace, message.topic), message.number or 0
    is_for_trigger = any(
        (row.namespace, row.topic) == topic and row.next_number <= number for row in tables.triggers.values()
    )
    is_for_group = any(
        (group.namespace, group.topic) == topic
        and group.next_number <= number
        and (group.used_at >= store.now - GROUP_IDLE or _members_waiting(store, group.group_name))
        for group in tables.groups.values()
    )
    return not (is_for_trigger or is_for_group)


def _is_free(store: Store, message: TopicMessageRow) -> bool:
    """Whether no member holds a message, and it did not go back to a group."""
    tables, name = store.tables, (message.namespace, message.topic, message.number)
    is_held = any((row.namespace, row.topic, row.holds) == name for row in tables.subscriptions.values())
    went_back = any(
        (row.namespace, row.topic, row.number) == name for row in tables.returned_messages.values()
    )
    return not (is_held or went_back)


def _members_waiting(store: Store, name: GroupName) -> list[SubscriptionRow]:
    found = [
        row
        for row in store.tables.subscriptions.values()
        if (row.namespace, row.topic, row.group_key) == name and row.holds is None
    ]
    return sorted(found, key=lambda row: (row.waits_since or 0, row.run_id, row.channel))


def _is_to_be_served(store: Store, group: GroupRow, last: int) -> bool:
    """Whether a member of a group waits, and a message may be handed out."""
    return bool(_members_waiting(store, group.group_name)) and (
        group.next_number <= last or bool(_messages_returned(store, group.group_name))
    )


def _last_number(store: Store, group: GroupRow) -> int:
    topic = store.tables.topics.get(TopicName(group.namespace, group.topic))
    return 0 if topic is None else topic.last


def _groups_to_serve(store: Store, search: s.GroupsToServe) -> Sequence[GroupRow]:
    found = [
        group
        for group in store.tables.groups.values()
        if (group.namespace, group.topic) == (search.namespace, search.topic)
        and _is_to_be_served(store, group, search.number)
    ]
    return sorted(found, key=lambda group: group.group_key)[: search.limit]


def _waiting_members(store: Store, search: s.WaitingMembers) -> Sequence[SubscriptionRow]:
    name = GroupName(search.namespace, search.topic, search.group_key)
    return _members_waiting(store, name)[: search.limit]


def _members_without_group(store: Store, search: s.MembersWithoutGroup) -> Sequence[SubscriptionRow]:
    groups = store.tables.groups
    found = [
        (row.group_key, row.waits_since or 0, row.run_id, row.channel, row)
        for row in _subscriptions_of(store, search.namespace, search.topic)
        if row.group_key is not None
        and row.holds is None
        and GroupName(row.namespace, row.topic, row.group_key) not in groups
    ]
    return [one[-1] for one in sorted(found, key=lambda one: one[:-1])[: search.limit]]


def _returned_messages(store: Store, search: s.ReturnedMessages) -> Sequence[TopicMessageRow]:
    found = _messages_returned(store, GroupName(search.namespace, search.topic, search.group_key))
    return sorted(found, key=lambda row: row.number or 0)[: search.limit]


def _messages_returned(store: Store, group: GroupName) -> list[TopicMessageRow]:
    numbers = {name.number for name in store.tables.returned_messages if name[:3] == group}
    return [row for row in _messages_of(store, group.namespace, group.topic) if row.number in numbers]


def _messages_of(store: Store, namespace: str, topic: str) -> list[TopicMessageRow]:
    messages = store.tables.topic_messages.values()
    return [row for row in messages if (row.namespace, row.topic) == (namespace, topic)]


def _topic_users(store: Store, search: s.TopicUsers) -> Sequence[str]:
    users = (("subscriptions", store.tables.subscriptions), ("triggers", store.tables.triggers))
    wanted = (search.namespace, search.topic)
    return [
        name for name, rows in users if any((row.namespace, row.topic) == wanted for row in rows.values())
    ]


def _rows_of_topic(store: Store, search: s.RowsOfTopic) -> Sequence[s.RowOfTopic]:
    tables, wanted = store.tables, (search.namespace, search.topic)
    messages = sorted(name.id for name in tables.topic_messages if name[:2] == wanted)
    returned = sorted(
        (name.group_key, name.number) for name in tables.returned_messages if name[:2] == wanted
    )
    groups = sorted(name.group_key for name in tables.groups if name[:2] == wanted)
    found = (
        *(s.RowOfTopic("message", name) for name in messages),
        *(s.RowOfTopic("returned", *one) for one in returned),
        *(s.RowOfTopic("group", name) for name in groups),
    )
    return found[: search.limit]


def _new_messages(store: Store, search: s.NewMessages) -> Sequence[TopicMessageRow]:
    found = [row for row in _messages_of(store, search.namespace, search.topic) if row.number is None]
    return sorted(found, key=lambda row: (row.at, row.sender_row, row.id))[: search.limit]


def _numbered_messages(store: Store, search: s.NumberedMessages) -> Sequence[TopicMessageRow]:
    numbered = [(row.number or 0, row) for row in _messages_of(store, search.namespace, search.topic)]
    found = [one for one in numbered if one[0] >= max(search.number, 1)]
    return [row for _, row in sorted(found, key=lambda one: one[0])[: search.limit]]


def _first_number_since(store: Store, search: s.FirstNumberSince) -> int | None:
    found = _messages_of(store, search.namespace, search.topic)
    return min(
        (row.number for row in found if row.number is not None and row.at >= search.since), default=None
    )


def _expired_messages(store: Store, search: s.ExpiredMessages) -> Sequence[s.ExpiredMessage]:
    found = [
        row
        for row in _messages_of(store, search.namespace, search.topic)
        if row.expires_at < store.now and row.number is not None and row.number <= search.number
    ]
    found.sort(key=lambda row: (row.expires_at, row.id))
    return [
        s.ExpiredMessage(row.id, not (_is_passed(store, row) and _is_free(store, row)))
        for row in found[: search.limit]
    ]


def _messages_before(store: Store, search: s.MessagesBefore) -> Sequence[str]:
    found = [
        (row.number, row)
        for row in _messages_of(store, search.namespace, search.topic)
        if row.number is not None and row.number < search.number and _is_passed(store, row)
    ]
    first = [row for _, row in sorted(found, key=lambda one: one[0])[: search.limit + s.KEPT_WINDOW]]
    return [row.id for row in first if _is_free(store, row)][: search.limit]


def _subscriptions_of(store: Store, namespace: str, topic: str) -> list[SubscriptionRow]:
    found = store.tables.subscriptions.values()
    return sorted(
        (row for row in found if (row.namespace, row.topic) == (namespace, topic)),
        key=lambda row: row.subscription_name,
    )


def _subscriptions_of_digests(store: Store, search: s.SubscriptionsOfDigests) -> Sequence[SubscriptionRow]:
    after, digests = (search.after_run, search.after_channel), set(search.digests)
    return [
        row
        for row in _subscriptions_of(store, search.namespace, search.topic)
        if row.next_number is None and row.digest in digests and (row.run_id, row.channel) > after
    ][: search.limit]


def _subscriptions_behind(store: Store, search: s.SubscriptionsBehind) -> Sequence[SubscriptionRow]:
    found = _subscriptions_of(store, search.namespace, search.topic)
    return [row for row in found if row.next_number is not None][: search.limit]


def _schedules_of_other_zones(store: Store, search: s.SchedulesOfOtherZones) -> Sequence[ScheduleRow]:
    others = [
        row
        for row in _schedules_of(store, search.namespace, search.workflows)
        if row.key > search.after and row.zones not in {"", search.version}
    ]
    return sorted(others, key=lambda row: row.key)[: search.limit]


def _sinks_by_name(store: Store, search: s.SinksByName) -> Sequence[Sink]:
    found = map(store.tables.sink_named, set(search.names))
    return sorted((sink for sink in found if sink is not None), key=lambda sink: sink.key)


def _due_streams(store: Store, search: s.DueStreams) -> Sequence[Stream]:
    known = store.tables.sink_named(SinkName(search.namespace, search.sink))
    if known is None or (known.retry_at is not None and known.retry_at > store.now):
        return []
    due = [
        (stream.due_at, stream.run, stream)
        for stream in store.tables.streams.values()
        if stream.sink == known.key and stream.due_at is not None and stream.due_at <= store.now
    ]
    return [stream for _, _, stream in sorted(due, key=lambda one: one[:2])[: search.limit]]


def _dead_lettered_streams(store: Store, search: s.DeadLetteredStreams) -> Sequence[Stream]:
    tables = store.tables
    dead_lettered = [
        stream
        for stream in dead_lettered_in(tables, search.namespace)
        if (not search.sink or tables.sinks[stream.sink].name == search.sink)
        and (not search.run_id or tables.runs[stream.run].id == search.run_id)
    ]
    return dead_lettered[: search.limit]


def _undelivered_heads(store: Store, search: s.UndeliveredHeads) -> Sequence[StreamHead]:
    tables, namespace = store.tables, search.namespace
    sinks = [
        sink for sink in tables.sinks.values() if sink.namespace == namespace and sink.name in search.sinks
    ]
    found: list[StreamHead] = []
    for run in rows_by_key(tables, t.RUNS, search.runs):
        for sink in sinks:
            stream = tables.streams.get(StreamKey(sink.key, run.key))
            head_row = 0 if stream is None else stream.head_row
            if run.namespace == namespace and run.updated_at >= sink.since and head_row < run.last_row:
                found.append(StreamHead(sink=sink.key, run=run.key, head_row=run.last_row, at=run.updated_at))
    return sorted(found, key=lambda head: (head.sink, head.run))


def _counted(found: Counter[SlotPlace], places: Collection[SlotPlace]) -> Mapping[SlotPlace, int]:
    return {place: found[place] for place in places}


def _first_turns(store: Store, search: s.FirstTurns) -> Mapping[s.QueuePart, s.WaitingTurn]:
    turns = ((part, store.order.first_turn(part)) for part in set(search.parts))
    return {part: turn for part, turn in turns if turn is not None}


def _highest_turns(store: Store, search: s.HighestTurns) -> Mapping[FairKeyName, int]:
    found: dict[FairKeyName, int] = {}
    lines = {line[:2] for line in search.lines}
    for row in store.tables.fair_keys.values():
        if (row.namespace, row.line) in lines:
            line = FairKeyName(row.namespace, row.line, "")
            found[line] = max(row.next_turn, found.get(line, row.next_turn))
    return found


_SEARCHES: Final[Mapping[type, Callable[[Store, Any], Any]]] = {
    s.ClaimableJobs: _claimable_jobs,
    s.SessionsForClaims: _sessions_for_claims,
    s.QueuedOfQueue: _queued_of_queue,
    s.SleepersUnderRates: lambda store, search: sleepers(store.tables, search, store.now),
    s.DueJobs: _due_jobs,
    s.JobsOfRuns: _jobs_of_runs,
    s.StageJobs: _stage_jobs,
    s.ExternalJobs: _external_jobs,
    s.LostJobs: _lost_jobs,
    s.OverdueHeartbeats: _overdue_heartbeats,
    s.AnyPendingDelivery: lambda store, _: store.order.has_deliveries,
    s.ExpiredSessions: _expired_sessions,
    s.LatestRuns: _latest_runs,
    s.LatestRunsAndDrivers: _latest_runs_and_drivers,
    s.Generations: _generations,
    s.RunKeys: lambda store, search: sorted(key for key in store.tables.runs if key > search.after)[
        : search.limit
    ],
    s.ActiveRuns: _active_runs,
    s.IncompleteRuns: _incomplete_runs,
    s.DueRuns: _due_runs,
    s.DueRunRates: _due_run_rates,
    s.OverdueRuns: _overdue_runs,
    s.RunOutlines: _run_outlines,
    s.NodeResults: _node_results,
    s.NodeSummaries: lambda store, search: [
        rows for run in sorted(set(search.runs)) for rows in node_rows(store.tables, run)
    ],
    s.AnnotationKeys: _annotation_keys,
    s.RunAnnotations: _run_annotations,
    s.DueSchedules: _due_schedules,
    s.NextScheduleTime: _next_schedule_time,
    s.SchedulesByName: _schedules_by_name,
    s.SchedulesOfOtherZones: _schedules_of_other_zones,
    s.TopicToDeliver: _topic_to_deliver,
    s.TopicUsers: _topic_users,
    s.RowsOfTopic: _rows_of_topic,
    s.NewMessages: _new_messages,
    s.NumberedMessages: _numbered_messages,
    s.FirstNumberSince: _first_number_since,
    s.ExpiredMessages: _expired_messages,
    s.SubscriptionsOfDigests: _subscriptions_of_digests,
    s.MessagesBefore: _messages_before,
    s.SubscriptionsBehind: _subscriptions_behind,
    s.GroupsToServe: _groups_to_serve,
    s.WaitingMembers: _waiting_members,
    s.ReturnedMessages: _returned_messages,
    s.MembersWithoutGroup: _members_without_group,
    s.AllSinks: lambda store, _: [sink for _, sink in sorted(store.tables.sinks.items())],
    s.SinksByName: _sinks_by_name,
    s.CredentialsNamed: lambda store, search: [
        row
        for _, row in sorted(store.tables.credentials.items())
        if {row.id, row.unique_label} & set(search.names)
    ],
    s.BrowserSessionsOfPrincipal: lambda store, search: [
        row
        for _, row in sorted(store.tables.browser_sessions.items())
        if (row.kind, row.principal) == (search.kind, search.principal)
    ],
    s.AnyCredential: lambda store, _: bool(store.tables.credentials),
    s.DueStreams: _due_streams,
    s.DeadLetteredStreams: _dead_lettered_streams,
    s.UndeliveredHeads: _undelivered_heads,
    s.KeysWaitedFor: lambda store, search: [
        one for one in waited_for(store.tables, search.waiting) if one.place in search.places
    ],
    s.KeysWaitedForInSpans: lambda store, search: waited_for_in_spans(
        store.tables, search.spans, search.limit
    ),
    s.AllKeysWaitedFor: lambda store, search: [
        one for one in waited_for(store.tables, search.waiting) if one.place > search.after
    ][: search.limit],
    s.FirstPendingRuns: lambda store, search: [
        run for run, _ in first_waiting(store.tables, search.waiting, search.wanted)
    ],
    s.FirstLimitedJobs: lambda store, search: [
        JobKey(*key) for key in first_waiting(store.tables, Waiting.JOBS, search.wanted)
    ],
    s.UsedSlots: lambda store, search: _counted(used(store.tables, search.waiting), search.places),
    s.SlotsInSpans: lambda store, search: used_in_spans(store.tables, search.spans),
    s.FirstTurns: _first_turns,
    s.NeighbouringTurns: lambda store, search: {
        turn: store.order.turns_around(turn) for turn in set(search.turns)
    },
    s.HighestTurns: _highest_turns,
    s.OpenRuns: lambda store, search: open_runs(store.tables, search.wanted),
    s.NamespaceRuns: lambda store, search: runs_of_namespace(store.tables, search),
    s.NamespaceParts: lambda store, search: parts_of_namespace(store.tables, search),
    s.WorkflowsOfNamespace: lambda store, search: workflows_of_namespace(store.tables, search),
    s.QueuedUnderRates: lambda store, search: _counted(queued(store.tables), search.places),
}
