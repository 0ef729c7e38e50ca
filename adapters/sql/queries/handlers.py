"""Answers to the queries of `Persistence.read`, with one statement each."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Database, Link, Parameters
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.queries.audit import inspecting_answers
from holdfast.adapters.sql.queries.credentials import (
    find_browser_session,
    find_credential,
    list_audit_entries,
    list_credentials,
)
from holdfast.adapters.sql.queries.due_work import earliest_due
from holdfast.adapters.sql.queries.limits import (
    level_states,
    line_states,
    list_limits,
    queue_states,
    rate_lines,
)
from holdfast.adapters.sql.queries.namespaces import count_namespace, list_namespaces
from holdfast.adapters.sql.queries.outbox import (
    count_dead_letters,
    list_dead_letters,
    list_sinks,
    sinks_with_due_streams,
    stream_rows,
)
from holdfast.adapters.sql.queries.run_output import reported_answers
from holdfast.adapters.sql.queries.runs import place_of_run, runs_counted, runs_listed
from holdfast.adapters.sql.queries.schedules import find_schedule, list_schedules, next_schedule_namespace
from holdfast.adapters.sql.queries.topics import list_groups, list_topics
from holdfast.adapters.sql.queries.triggers import find_trigger, list_numbered_messages, list_triggers
from holdfast.adapters.sql.queries.values import load_values
from holdfast.adapters.sql.queries.workers import held_jobs, list_workers, queue_lines
from holdfast.adapters.sql.queries.workflows import list_workflows
from holdfast.adapters.sql.rows import askable, is_askable
from holdfast.adapters.sql.schema.tables import ENDED
from holdfast.adapters.sql.searches import node_rows
from holdfast.ports.errors import SchemaError, UnreadableRowError
from holdfast.ports.pagination import ListPlace
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
    RunsByKey,
)
from holdfast.ports.queries.schedules import FindSchedule, ListSchedules, NextScheduleNamespace
from holdfast.ports.queries.store import CountAll, EarliestDue, SchemaVersion, StoreCounts, StoreTime
from holdfast.ports.queries.topics import ListGroups, ListTopics
from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, ListTriggers
from holdfast.ports.queries.values import LoadedWork, LoadValues, LoadWork, PlansByFingerprint
from holdfast.ports.queries.workers import HeldJobs, ListWorkers, QueueLines
from holdfast.ports.queries.workflows import ListWorkflows
from holdfast.ports.records.history import HEARTBEAT, STAGE_COMPLETED, HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros, PlanRow
from holdfast.ports.searches import CompletedRow, NodeRows

R = TypeVar("R")

_RUNS: Final = f"SELECT {', '.join(rows.RUN)} FROM holdfast_runs WHERE "
_HISTORY: Final = f"SELECT {', '.join(rows.HISTORY)} FROM holdfast_history WHERE "


_STATUSES: Final = frozenset(status.value for status in RunStatus)

_log = logging.getLogger("holdfast.sql")


def _readable(found: Iterable[rows.Row]) -> Iterator[Run]:
    """Yield the runs in rows, without those that can't be read, so that the others are still listed."""
    for row in found:
        try:
            yield rows.run_from(row)
        except UnreadableRowError as error:
            _log.error("a run is omitted from a list: %s", error)


class Answers:
    """Answers to all queries that a store supports."""

    def __init__(self, database: Database) -> None:
        self._dialect: Dialect = database.dialect
        self._clock_sql = database.clock_sql
        self._known: dict[type, Callable[[Link, Any], object]] = {
            FindRun: self._find_run,
            RunsByKey: self._runs_by_key,
            ListRuns: self._list_runs,
            CountRuns: self._count_runs,
            PlaceOfRun: self._place_of_run,
            JobsOfRun: self._jobs_of_run,
            QueuedJobs: self._queued_jobs,
            HistoryOf: self._history_of,
            HistoriesOf: self._histories_of,
            NewestRows: self._newest_rows,
            NotesOf: self._notes_of,
            LastHeartbeat: self._last_heartbeat,
            PlansByFingerprint: self._plans,
            LoadValues: self._load_values,
            LoadWork: self._load_work,
            OutputRows: self._output_rows,
            NodeRowsOf: self._node_rows_of,
            PendingDeliveries: self._pending_deliveries,
            OrphanedChildren: self._children_left,
            StoreTime: self._store_time,
            SchemaVersion: self._schema_version,
            CountAll: self._count_all,
            EarliestDue: lambda link, _: earliest_due(link, self._dialect),
            FindSchedule: lambda link, query: find_schedule(link, self._dialect, query),
            FindBrowserSession: lambda link, query: find_browser_session(link, self._dialect, query),
            FindCredential: lambda link, query: find_credential(link, self._dialect, query),
            ListCredentials: lambda link, query: list_credentials(link, self._dialect, query),
            ListAuditEntries: lambda link, query: list_audit_entries(link, self._dialect, query),
            ListLimits: lambda link, query: list_limits(link, self._dialect, query),
            RateLines: lambda link, query: rate_lines(link, self._dialect, query),
            LevelStates: lambda link, query: level_states(link, self._dialect, query),
            LineStates: lambda link, query: line_states(link, self._dialect, query),
            QueueStates: lambda link, query: queue_states(link, self._dialect, query),
            ListNamespaces: lambda link, query: list_namespaces(link, self._dialect, query),
            CountNamespace: lambda link, query: count_namespace(link, self._dialect, query),
            ListTopics: lambda link, query: list_topics(link, self._dialect, query),
            ListGroups: lambda link, query: list_groups(link, self._dialect, query),
            FindTrigger: lambda link, query: find_trigger(link, self._dialect, query),
            ListTriggers: lambda link, query: list_triggers(link, self._dialect, query),
            ListNumberedMessages: lambda link, query: list_numbered_messages(link, self._dialect, query),
            ListWorkflows: lambda link, query: list_workflows(link, self._dialect, query),
            ListWorkers: lambda link, query: list_workers(link, self._dialect, query),
            HeldJobs: lambda link, query: held_jobs(link, self._dialect, query),
            QueueLines: lambda link, query: queue_lines(link, self._dialect, query),
            ListSchedules: lambda link, query: list_schedules(link, self._dialect, query),
            NextScheduleNamespace: lambda link, query: next_schedule_namespace(link, self._dialect, query),
            ListSinks: lambda link, query: list_sinks(link, self._dialect, query),
            SinksWithDueStreams: lambda link, query: sinks_with_due_streams(link, self._dialect, query),
            StreamRows: lambda link, query: stream_rows(link, self._dialect, query),
            ListDeadLetters: lambda link, query: list_dead_letters(link, self._dialect, query),
            CountDeadLetters: lambda link, query: count_dead_letters(link, self._dialect, query),
            **reported_answers(database.dialect),
            **inspecting_answers(database.dialect),
        }

    def answer(self, link: Link, query: Query[R]) -> R:
        """Return the answer to a query. TypeError for an unknown query."""
        known = self._known.get(type(query))
        if known is None:
            raise TypeError(f"expected a query of holdfast.ports.queries, got {query!r}")
        return cast("R", known(link, query))

    def _query(self, link: Link, sql: str, /, **parameters: object) -> Sequence[rows.Row]:
        return link.query(self._dialect.bound(sql), parameters)

    def _query_by_key(self, link: Link, sql: str, /, **parameters: object) -> Sequence[rows.Row]:
        return link.query(self._dialect.bound(sql), parameters, keyed=True)

    def _find_run(self, link: Link, query: FindRun) -> Run | None:
        name = query.name
        if not is_askable(name.namespace) or not is_askable(name.id):
            return None
        sql = f"{_RUNS}namespace = :namespace AND id = :id"
        if query.generation is None:
            sql = f"{sql} ORDER BY generation DESC LIMIT 1"
            found = self._query_by_key(link, sql, namespace=name.namespace, id=name.id)
        else:
            sql = f"{sql} AND generation = :generation"
            found = self._query(link, sql, namespace=name.namespace, id=name.id, generation=query.generation)
        return rows.run_from(found[0]) if found else None

    def _runs_by_key(self, link: Link, query: RunsByKey) -> tuple[Run, ...]:
        if len(query.keys) == 1 and is_askable(query.keys[0]):
            # Planned once: the server plans a list of keys again each time, which takes longer than the read.
            found = self._query_by_key(link, f"{_RUNS}key = :key", key=query.keys[0])
            return tuple(map(rows.run_from, found))
        return self._by_text(
            link, f"{_RUNS}{self._dialect.one_of('key', 'texts')}", query.keys, rows.run_from
        )

    def _list_runs(self, link: Link, query: ListRuns) -> tuple[Run, ...]:
        listed: list[Run] = []
        while (question := runs_listed(query, self._dialect)) is not None:
            found = self._query(link, question.sql, **question.parameters)
            readable = list(_readable(found))
            listed += readable
            if len(readable) == len(found):
                break
            # Fill the page up: callers take a short page for the last one.
            last = dict(zip(rows.RUN, found[-1], strict=True))
            place = ListPlace(last["created_at"], last["key"])
            query = attrs.evolve(query, after=place, limit=len(found) - len(readable))
        return tuple(listed)

    def _count_runs(self, link: Link, query: CountRuns) -> dict[RunStatus, int]:
        question = runs_counted(query, self._dialect)
        found = self._query(link, question.sql, **question.parameters) if question else ()
        return {RunStatus(status): number for status, number in found if status in _STATUSES}

    def _place_of_run(self, link: Link, query: PlaceOfRun) -> ListPlace | None:
        if not is_askable(query.namespace):
            return None
        question = place_of_run(query)
        found = self._query(link, question.sql, **question.parameters)
        return ListPlace(*found[0]) if found else None

    def _jobs_of_run(self, link: Link, query: JobsOfRun) -> tuple[Job, ...]:
        sql = f"SELECT {', '.join(rows.JOB)} FROM holdfast_jobs WHERE run = :run ORDER BY number"
        return tuple(map(rows.job_from, self._query(link, sql, run=query.run)))

    def _queued_jobs(self, link: Link, query: QueuedJobs) -> tuple[Job, ...]:
        definitions = askable(query.definitions)
        if not definitions or not is_askable(query.namespace):
            return ()
        run, number = query.after or ("", 0)
        columns = ", ".join(f"j.{name}" for name in rows.JOB)
        sql = (
            f"SELECT {columns} FROM holdfast_jobs AS j JOIN holdfast_runs AS r ON r.key = j.run "
            "WHERE j.state = 'queued' AND j.namespace = :namespace "
            f"AND {self._dialect.one_of('j.definition', 'definitions')} "
            "AND (j.run, j.number) > (:run, :number) AND r.updated_at <= :quiet_since "
            "ORDER BY j.run, j.number LIMIT :limit"
        )
        found = self._query(
            link,
            sql,
            namespace=query.namespace,
            definitions=self._dialect.texts(definitions),
            run=run,
            number=number,
            quiet_since=query.quiet_since,
            limit=query.limit,
        )
        return tuple(map(rows.job_from, found))

    def _history_of(self, link: Link, query: HistoryOf) -> tuple[HistoryRow, ...]:
        sql = f"{_HISTORY}run = :run AND number > :after ORDER BY number LIMIT :limit"
        found = self._query_by_key(link, sql, run=query.run, after=query.after, limit=query.limit)
        return tuple(map(rows.history_from, found))

    def _histories_of(self, link: Link, query: HistoriesOf) -> tuple[HistoryRow, ...]:
        places = [place for place in query.places if is_askable(place[0])]
        if not places:
            return ()
        given = self._dialect.table_of("places", "k", {"run": "text", "number": "bigint"})
        columns = ", ".join(f"h.{name}" for name in rows.HISTORY)
        sql = (
            f"SELECT {columns} FROM {given} CROSS JOIN holdfast_history AS h "
            "WHERE h.run = k.run AND h.number > k.number ORDER BY h.run, h.number LIMIT :limit"
        )
        bound = encode_rows(("run", "number"), places)
        found = self._query_by_key(link, sql, places=bound, limit=query.limit)
        return tuple(map(rows.history_from, found))

    def _newest_rows(self, link: Link, query: NewestRows) -> tuple[HistoryRow, ...]:
        place = "" if query.before is None else "AND number < :before "
        sql = f"{_HISTORY}run = :run AND type = :type {place}ORDER BY number DESC LIMIT :limit"
        bound = {} if query.before is None else {"before": query.before}
        found = self._query(link, sql, run=query.run, type=query.type, limit=query.limit, **bound)
        return tuple(map(rows.history_from, found))

    def _notes_of(self, link: Link, query: NotesOf) -> tuple[OutputRow, ...]:
        sql = (
            f"SELECT {', '.join(rows.NOTE)} FROM holdfast_attempt_output WHERE run = :run AND id > :after "
            "ORDER BY id LIMIT :limit"
        )
        found = self._query(link, sql, run=query.run, after=query.after, limit=query.limit)
        return tuple(map(rows.record_of(OutputRow), found))

    def _last_heartbeat(self, link: Link, query: LastHeartbeat) -> OutputRow | None:
        sql = (
            f"SELECT {', '.join(rows.NOTE)} FROM holdfast_attempt_output WHERE run = :run AND job = :job "
            f"AND epoch < :before AND kind = '{HEARTBEAT}' ORDER BY epoch DESC, id DESC LIMIT 1"
        )
        found = self._query(link, sql, run=query.run, job=query.job, before=query.before)
        return rows.record_of(OutputRow)(found[0]) if found else None

    def _plans(self, link: Link, query: PlansByFingerprint) -> tuple[PlanRow, ...]:
        sql = f"SELECT {', '.join(rows.PLAN)} FROM holdfast_plans WHERE {self._dialect.one_of('fingerprint', 'texts')}"
        return self._by_text(link, sql, query.fingerprints, rows.record_of(PlanRow))

    def _load_values(self, link: Link, query: LoadValues) -> object:
        return load_values(link, self._dialect, query.wanted)[1]

    def _load_work(self, link: Link, query: LoadWork) -> LoadedWork:
        keys = askable(key.run for key, _ in query.jobs)
        sql = self._dialect.bound(f"{_RUNS}{self._dialect.one_of('key', 'texts')}")
        runs: list[tuple[str, Parameters]] = [(sql, {"texts": self._dialect.texts(keys)})] if keys else []
        found, values = load_values(link, self._dialect, query.wanted, runs)
        return LoadedWork(tuple(rows.run_from(row) for answer in found for row in answer), values)

    def _output_rows(self, link: Link, query: OutputRows) -> tuple[CompletedRow, ...]:
        sql = (
            "SELECT run, number, node, item, type FROM holdfast_history "
            f"WHERE run = :run AND node = :node AND type = '{STAGE_COMPLETED}' ORDER BY number"
        )
        return tuple(map(rows.completed_from, self._query(link, sql, run=query.run, node=query.node)))

    def _node_rows_of(self, link: Link, query: NodeRowsOf) -> tuple[NodeRows, ...]:
        return tuple(map(rows.node_rows_from, self._query(link, node_rows("run = :run"), run=query.run)))

    def _pending_deliveries(self, link: Link, query: PendingDeliveries) -> tuple[Job, ...]:
        after = query.after or JobKey("", 0)
        sql = (
            f"SELECT {', '.join(rows.JOB)} FROM holdfast_jobs WHERE state = 'pending_delivery' "
            "AND (run, number) > (:run, :number) ORDER BY run, number LIMIT :limit"
        )
        found = self._query(link, sql, run=after.run, number=after.number, limit=query.limit)
        return tuple(map(rows.job_from, found))

    def _children_left(self, link: Link, query: OrphanedChildren) -> tuple[Run, ...]:
        # The ids of a run's jobs are a range: its key, a dot, a number. In ASCII a slash follows the dot.
        runs = sorted({*askable(query.runs)})
        if not runs:
            return ()
        columns = ", ".join(f"r.{name}" for name in rows.RUN)
        left = (
            f"r.parent > p.run || '.' AND r.parent < p.run || '/' AND r.status NOT IN {ENDED} "
            "AND r.close_policy <> 'abandon' AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS j WHERE j.run = p.run "
            "AND p.run || '.' || CAST(j.number AS text) = r.parent)"
        )
        given = self._dialect.table_of("runs", "p", {"run": "text"})
        order = "ORDER BY r.parent, r.key LIMIT :limit"
        found_in = self._dialect.rows_for_each(given, "holdfast_runs AS r", left, order)
        sql = f"SELECT {columns} FROM {found_in}"
        parents = encode_rows(("run",), [(run,) for run in runs])
        found = self._query(link, sql, runs=parents, limit=query.limit)
        return tuple(map(rows.run_from, found))

    def _store_time(self, link: Link, query: StoreTime) -> Micros | None:
        del query
        return None if self._clock_sql is None else cast("Micros", link.query(self._clock_sql)[0][0])

    def _schema_version(self, link: Link, query: SchemaVersion) -> str | None:
        del query
        try:
            found = link.query("SELECT version_num FROM holdfast_version")
        except SchemaError:
            return None
        return cast("str", found[0][0]) if found else None

    def _count_all(self, link: Link, query: CountAll) -> StoreCounts:
        sql = (
            "SELECT 'run', status, count(*) FROM holdfast_runs WHERE namespace = :namespace GROUP BY status "
            "UNION ALL SELECT 'job', state, count(*) FROM holdfast_jobs WHERE namespace = :namespace GROUP BY state"
        )
        found = self._query(link, sql, namespace=query.namespace)
        runs = {status: number for kind, status, number in found if kind == "run"}
        jobs = {state: number for kind, state, number in found if kind == "job"}
        return StoreCounts(runs=runs, jobs=jobs)

    def _by_text(
        self, link: Link, sql: str, texts: Iterable[str], record: Callable[[rows.Row], R]
    ) -> tuple[R, ...]:
        wanted = askable(texts)
        if not wanted:
            return ()
        return tuple(record(row) for row in self._query_by_key(link, sql, texts=self._dialect.texts(wanted)))
