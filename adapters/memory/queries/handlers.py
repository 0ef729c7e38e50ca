"""Answers to the queries of `Persistence.read` from plain dictionaries."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar, cast

from holdfast.adapters.memory.queries.credentials import list_audit_entries, list_credentials
from holdfast.adapters.memory.queries.due_work import earliest_due
from holdfast.adapters.memory.queries.limits import (
    level_states,
    limits_listed,
    line_states,
    queue_states,
    rate_lines,
)
from holdfast.adapters.memory.queries.namespaces import namespace_counted, namespaces_listed
from holdfast.adapters.memory.queries.run_output import answer_reported
from holdfast.adapters.memory.queries.topics import groups_listed, topics_listed
from holdfast.adapters.memory.queries.triggers import numbered_messages, trigger_named, triggers_listed
from holdfast.adapters.memory.queries.workers import held_jobs, queue_lines, workers_listed
from holdfast.adapters.memory.queries.workflows import workflows_listed
from holdfast.ports.attempt_output import Annotation, annotation_codes
from holdfast.ports.json import parse
from holdfast.ports.persistence import Query
from holdfast.ports.queries.credentials import (
    FindBrowserSession,
    FindCredential,
    ListAuditEntries,
    ListCredentials,
)
from holdfast.ports.queries.history import (
    HistoriesOf,
    HistoryOf,
    LastHeartbeat,
    NewestRows,
    NodeRowsOf,
    NotesOf,
    OutputRows,
)
from holdfast.ports.queries.limits import LevelStates, LineStates, ListLimits, QueueStates, RateLines
from holdfast.ports.queries.namespaces import CountNamespace, ListNamespaces
from holdfast.ports.queries.outbox import (
    CountDeadLetters,
    DeadLetter,
    ListDeadLetters,
    ListSinks,
    SinksWithDueStreams,
    StreamRows,
)
from holdfast.ports.queries.runs import (
    CountRuns,
    FindRun,
    JobsOfRun,
    ListRuns,
    OrphanedChildren,
    PendingDeliveries,
    PlaceOfRun,
    QueuedJobs,
    RunFilter,
    RunsByKey,
)
from holdfast.ports.queries.schedules import FindSchedule, ListSchedules, NextScheduleNamespace
from holdfast.ports.queries.store import CountAll, EarliestDue, SchemaVersion, StoreCounts, StoreTime
from holdfast.ports.queries.topics import ListGroups, ListTopics
from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, ListTriggers
from holdfast.ports.queries.values import LoadedWork, LoadValues, LoadWork, PlansByFingerprint, StoredValue
from holdfast.ports.queries.workers import HeldJobs, ListWorkers, QueueLines
from holdfast.ports.queries.workflows import ListWorkflows
from holdfast.ports.records.history import HEARTBEAT, STAGE_COMPLETED, STAGE_FAILED, HistoryRow
from holdfast.ports.records.job import Job, JobState, job_key
from holdfast.ports.records.outbox import SinkName, Stream, StreamState
from holdfast.ports.records.run import TERMINAL, ClosePolicy, Run, RunStatus, attribute_texts
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.values import Payload
from holdfast.ports.references import Reference, located
from holdfast.ports.search_values import ValueMatch, ValueSource, codes_of
from holdfast.ports.searches import CompletedRow, NodeRows
from holdfast.ports.working_set import Tables

R = TypeVar("R")


def answer(tables: Tables, query: Query[R]) -> R:
    """Return the answer to a query. TypeError for an unknown query."""
    return cast("R", _answer(tables, query))


def _answer(tables: Tables, query: object) -> object:  # one arm per query
    match query:
        case FindRun(name, None):
            return tables.run_named(name)
        case FindRun(name, generation):
            runs = tables.runs.values()
            return next((run for run in runs if run.name == name and run.generation == generation), None)
        case RunsByKey(keys):
            return tuple(tables.runs[key] for key in keys if key in tables.runs)
        case ListRuns():
            return _list_runs(tables, query)
        case CountRuns(which, at_most):
            return dict(Counter(run.status for run in islice(_matching(tables, which), at_most)))
        case PlaceOfRun(namespace, number, before):
            places = (run.place for run in tables.runs.values() if run.namespace == namespace)
            ordered = sorted((place for place in places if before is None or place < before), reverse=True)
            return ordered[number - 1] if number <= len(ordered) else None
        case JobsOfRun(run):
            return tuple(job for _, job in sorted(tables.jobs.get(run, {}).items()))
        case QueuedJobs():
            return _queued_jobs(tables, query)
        case HistoryOf(run, after, limit):
            return tuple(row for row in tables.history.get(run, ()) if row.number > after)[:limit]
        case HistoriesOf(places, limit):
            of_runs = ((tables.history.get(run, ()), after) for run, after in sorted(places))
            return tuple(
                islice((row for known, after in of_runs for row in known if row.number > after), limit)
            )
        case NewestRows(run=run, type=kind, before=before, limit=limit):
            known = reversed(tables.history.get(run, ()))
            newest = (row for row in known if row.type == kind and (before is None or row.number < before))
            return tuple(islice(newest, limit))
        case NotesOf(run, after, limit):
            notes = [note for note in tables.notes.values() if note.run == run and note.id > after]
            return tuple(sorted(notes, key=lambda note: note.id)[:limit])
        case LastHeartbeat(run, number, before):
            wanted = (run, number, HEARTBEAT)
            heartbeats = [note for note in tables.notes.values() if (note.run, note.job, note.kind) == wanted]
            earlier = [note for note in heartbeats if note.epoch < before]
            return max(earlier, key=lambda note: (note.epoch, note.id), default=None)
        case PlansByFingerprint(fingerprints):
            return tuple(tables.plans[name] for name in fingerprints if name in tables.plans)
        case LoadValues(wanted):
            return tuple(
                StoredValue(run, reference, _payloads(tables, *located(run, reference)))
                for run, reference in wanted
            )
        case LoadWork(jobs, wanted):
            keys = tuple(sorted({key.run for key, _ in jobs}))
            return LoadedWork(answer(tables, RunsByKey(keys)), answer(tables, LoadValues(wanted)))
        case OutputRows(run, node):
            return tuple(
                CompletedRow(run, row.number, node, row.item, row.type)
                for row in tables.history.get(run, ())
                if row.type == STAGE_COMPLETED and row.node == node
            )
        case FindSchedule(name):
            return tables.schedule_named(name)
        case ListSchedules():
            return _schedules(tables, query)
        case NextScheduleNamespace(after):
            return min(
                (row.namespace for row in tables.schedules.values() if row.namespace > after), default=None
            )
        case FindBrowserSession(id):
            return tables.browser_sessions.get(id)
        case FindCredential(id):
            return tables.credentials.get(id)
        case ListCredentials():
            return list_credentials(tables, query)
        case ListAuditEntries():
            return list_audit_entries(tables, query)
        case ListLimits():
            return limits_listed(tables, query)
        case RateLines():
            return rate_lines(tables, query)
        case LevelStates():
            return level_states(tables, query)
        case LineStates():
            return line_states(tables, query)
        case QueueStates():
            return queue_states(tables, query)
        case ListNamespaces():
            return namespaces_listed(tables, query)
        case CountNamespace():
            return namespace_counted(tables, query)
        case ListTopics():
            return topics_listed(tables, query)
        case ListGroups():
            return groups_listed(tables, query)
        case FindTrigger():
            return trigger_named(tables, query)
        case ListTriggers():
            return triggers_listed(tables, query)
        case ListNumberedMessages():
            return numbered_messages(tables, query)
        case ListWorkflows():
            return workflows_listed(tables, query)
        case ListWorkers():
            return workers_listed(tables, query)
        case HeldJobs():
            return held_jobs(tables, query)
        case QueueLines():
            return queue_lines(tables, query)
        case ListSinks(namespace):
            sinks = (sink for sink in tables.sinks.values() if sink.namespace == namespace)
            return tuple(sorted(sinks, key=lambda sink: sink.name))
        case SinksWithDueStreams():
            return tuple(name for name in sorted(set(query.names)) if _has_due_stream(tables, query, name))
        case StreamRows():
            return _stream_rows(tables, query)
        case ListDeadLetters():
            return _dead_letters(tables, query)
        case CountDeadLetters(namespace):
            return dict(Counter(tables.sinks[one.sink].name for one in dead_lettered_in(tables, namespace)))
        case NodeRowsOf(run):
            return tuple(node_rows(tables, run))
        case PendingDeliveries(limit, after):
            pending = [
                job
                for job in tables.all_jobs()
                if job.state is JobState.PENDING_DELIVERY and (after is None or job.key > after)
            ]
            return tuple(sorted(pending, key=lambda job: job.key)[:limit])
        case OrphanedChildren(runs, limit):
            return _children_left(tables, set(runs))[:limit]
        case EarliestDue():
            return earliest_due(tables)
        case CountAll(namespace):
            return _counts(tables, namespace)
        case StoreTime():
            return None
        case SchemaVersion():
            return "memory"
        case _:
            return answer_reported(tables, query)


def node_rows(tables: Tables, run: str) -> Iterator[NodeRows]:
    """Yield a summary of the history rows about each node of a run."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for row in tables.history.get(run, ()):
        if row.node is not None:
            numbers.setdefault((row.node, row.type), []).append(row.number)
    for (node, kind), rows in numbers.items():
        yield NodeRows(run, node, kind, rows[0], rows[-1], len(rows))


def _list_runs(tables: Tables, query: ListRuns) -> tuple[Run, ...]:
    newest_first = not query.oldest_first
    found = sorted(_matching(tables, query.which), key=lambda run: run.place, reverse=newest_first)
    if query.after is not None:
        after = query.after
        found = [run for run in found if (run.place < after if newest_first else run.place > after)]
    return tuple(found[: query.limit])


def _schedules(tables: Tables, query: ListSchedules) -> tuple[ScheduleRow, ...]:
    listed = [
        row
        for row in tables.schedules.values()
        if row.namespace == query.namespace and row.name > query.after
        if query.due_before is None or (row.next_at is not None and row.next_at < query.due_before)
        if row.declared is not None or not query.declared
    ]
    return tuple(sorted(listed, key=lambda row: row.name)[: max(query.limit, 0)])


def _matching(tables: Tables, which: RunFilter) -> Iterator[Run]:
    wanted = which.value_matches
    annotated: dict[str, list[Annotation]] = {}
    for annotation in tables.annotations.values() if wanted else ():
        annotated.setdefault(annotation.run, []).append(annotation)
    for run in tables.runs.values():
        if (
            run.namespace == which.namespace
            and (which.workflow is None or run.workflow == which.workflow)
            and (not which.ids or run.id in which.ids)
            and (which.id_prefix is None or run.id.startswith(which.id_prefix))
            and (not which.statuses or run.status in which.statuses)
            and (which.created_from is None or run.created_at >= which.created_from)
            and (which.created_before is None or run.created_at < which.created_before)
            and (which.ended_before is None or (run.ended_at or which.ended_before) < which.ended_before)
            and (not wanted or _has_values(run, annotated.get(run.key, ()), wanted))
            and (which.queue is None or run.queue == which.queue)
            and (which.children_of is None or run.parent_run == which.children_of)
            and all(mark in (run.error or "") for mark in which.error_marks)
            and (not which.waiting or _waits(tables, run))
            and (not which.newest or tables.newest[run.name] == run.key)
        ):
            yield run


def _has_values(run: Run, annotations: Iterable[Annotation], wanted: Iterable[ValueMatch]) -> bool:
    texts = attribute_texts(run.attributes).items()
    found = {
        ValueSource.ATTRIBUTE: {(name, code) for name, text in texts for code in codes_of(text)},
        ValueSource.ANNOTATION: annotation_codes(annotations),
    }
    return all(
        any(name == match.name and match.matches(code) for name, code in found[match.source])
        for match in wanted
    )


def _waits(tables: Tables, run: Run) -> bool:
    jobs = tables.jobs.get(run.key, {}).values()
    return run.status is RunStatus.RUNNING and not any(
        job.state in (JobState.QUEUED, JobState.LEASED) for job in jobs
    )


def _queued_jobs(tables: Tables, query: QueuedJobs) -> tuple[Job, ...]:
    matching = [
        job
        for job in tables.all_jobs()
        if job.state is JobState.QUEUED
        and job.namespace == query.namespace
        and job.definition in query.definitions
        and (query.after is None or job.key > query.after)
        and (run := tables.runs.get(job.run)) is not None
        and run.updated_at <= query.quiet_since
    ]
    return tuple(sorted(matching, key=lambda job: job.key)[: query.limit])


def _children_left(tables: Tables, runs: Collection[str]) -> tuple[Run, ...]:
    left = [
        child
        for child in tables.runs.values()
        if child.parent is not None
        and child.status not in TERMINAL
        and child.close_policy is not ClosePolicy.ABANDON
        and (parent := job_key(child.parent)).run in runs
        and tables.job(parent) is None
    ]
    return tuple(sorted(left, key=lambda child: (child.parent or "", child.key)))


def _payloads(tables: Tables, run: str, reference: Reference) -> tuple[Payload, ...]:
    rows = tables.history.get(run, [])
    match reference:
        case int():
            return tuple(row.payload for row in rows if row.number == reference and row.payload is not None)
        case ("item", str(node), int(page), int(at)):
            stored = tables.pages.get((run, node, page))
            if stored is None:
                return ()
            inline, blob = cast("list[list[str | None]]", parse(stored.items))[at]
            return (Payload(inline=inline, blob=blob),)
        case ("map" | "failures" as which, str(node), int(first), int(last)):
            wanted = STAGE_COMPLETED if which == "map" else STAGE_FAILED
            outputs = [
                (row.item or 0, row.payload)
                for row in rows
                if first <= row.number <= last and row.node == node and row.type == wanted
            ]
            return tuple(
                payload for _, payload in sorted(outputs, key=lambda pair: pair[0]) if payload is not None
            )
        case _:
            raise TypeError(f"{reference!r} is not a reference to one value or one map")


def _counts(tables: Tables, namespace: str) -> StoreCounts:
    runs: dict[str, int] = {}
    jobs: dict[str, int] = {}
    for run in tables.runs.values():
        if run.namespace == namespace:
            runs[run.status] = runs.get(run.status, 0) + 1
    for job in tables.all_jobs():
        if job.namespace == namespace:
            jobs[job.state] = jobs.get(job.state, 0) + 1
    return StoreCounts(runs=runs, jobs=jobs)


def dead_lettered_in(tables: Tables, namespace: str) -> list[Stream]:
    """Return the dead-lettered streams of a namespace's sinks, by key."""
    return [
        stream
        for _, stream in sorted(tables.streams.items())
        if stream.state is StreamState.DEAD_LETTERED
        and stream.run in tables.runs
        and (sink := tables.sinks.get(stream.sink)) is not None
        and sink.namespace == namespace
    ]


def _has_due_stream(tables: Tables, query: SinksWithDueStreams, name: str) -> bool:
    sink = tables.sink_named(SinkName(query.namespace, name))
    if sink is None or (sink.batch is not None) is not query.are_read:
        return False
    if sink.retry_at is not None and sink.retry_at > query.now:
        return False
    return any(
        stream.sink == sink.key and stream.due_at is not None and stream.due_at <= query.now
        for stream in tables.streams.values()
    )


def _stream_rows(tables: Tables, query: StreamRows) -> tuple[HistoryRow, ...]:
    found: list[HistoryRow] = []
    for start in sorted(query.starts, key=lambda one: one.run):
        rows = tables.history.get(start.run, [])
        first = (
            start.after + 1 if start.after else next((r.number for r in rows if r.at >= start.since), None)
        )
        if first is not None:
            found += [row for row in rows if first <= row.number < first + query.limit]
    return tuple(found)


def _dead_letters(tables: Tables, query: ListDeadLetters) -> tuple[DeadLetter, ...]:
    place = ("", "") if query.after is None else query.after
    found: list[DeadLetter] = []
    for stream in dead_lettered_in(tables, query.namespace):
        sink, run = tables.sinks[stream.sink].name, tables.runs[stream.run]
        if query.sink not in {"", sink} or query.run_id not in {"", run.id} or (sink, run.key) <= place:
            continue
        found.append(
            DeadLetter(
                sink=sink,
                run=run.key,
                run_id=run.id,
                number=stream.refused_row or 0,
                head_row=stream.head_row,
                attempts=stream.attempts,
                dead_lettered_at=stream.dead_lettered_at or 0,
                error=stream.error or "",
            )
        )
    return tuple(sorted(found, key=lambda one: (one.sink, one.run))[: query.limit])
