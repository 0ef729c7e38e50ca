"""The reads of transactions: the statement of each table by key, and of each search. Built once per database."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Parameters
from holdfast.adapters.sql.dialect import HAS_LIMITS, Dialect, encode_rows, types_of
from holdfast.adapters.sql.queries.namespaces import (
    PARTS_OF_NAMESPACE,
    RUNS_OF_NAMESPACE,
    WORKFLOWS_OF_NAMESPACE,
)
from holdfast.adapters.sql.queries.turns import TURN, turn_searches
from holdfast.adapters.sql.queries.waiting_searches import PLACE, WANTED, used_in_spans, waiting_statements
from holdfast.adapters.sql.rows import BIGINT_MAX, Row, askable, askable_keys, is_askable
from holdfast.adapters.sql.schema import tables
from holdfast.adapters.sql.schema.columns import COLUMNS
from holdfast.ports import searches as s
from holdfast.ports.queries.audit import LAST
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.limits import FairKeyName
from holdfast.ports.records.topic import GROUP_IDLE, TopicName
from holdfast.ports.records.values import Micros
from holdfast.ports.records.workflow import WorkflowKey
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.ports.tables import TABLES, Table
from holdfast.ports.unreadable import INSTANT_MAX, NUMBER_MAX

_FOR_NONE: Final = {"item": -1, "kind": "", "namespace": ""}
"""What a statement gets for a field that is None."""
_QUEUE_CLAIM: Final = ("claim", "queue", "definition", "most")
_RUN_NAME: Final = ("namespace", "id")
DUE_RUNS: Final = (
    "SELECT key FROM holdfast_runs WHERE status = 'pending' AND start_at IS NOT NULL "
    "AND start_at <= :now {}ORDER BY start_at LIMIT :limit"
)
DUE_RATES: Final = (
    "SELECT w.namespace, w.name FROM holdfast_rate_limits AS w WHERE w.admits_at IS NOT NULL "
    "AND w.admits_at <= :now {}ORDER BY w.admits_at, w.namespace, w.name LIMIT :limit"
)
"""Formats with a condition for one namespace."""


@attrs.frozen
class KeyedRead:
    """The statements that read rows of one table by key."""

    get: str
    lock: str
    parameters: Callable[[Collection[Any]], Parameters | None]
    """Returns the parameters for keys; None if no row can have one of them."""
    record: Callable[[Row], Any]


@attrs.frozen(kw_only=True)
class SqlSearch:
    """The statements of one search. Their parameters are named as its fields."""

    sql: str | Mapping[Waiting, str] = ""
    """The statement without locks, or one for each kind of waiters."""
    of_one: str = ""
    """The statement without locks for a search that names one namespace, if another one is for all of them."""
    lock: str = ""
    """The statement with locks. It is not used if `locks` of the search is false."""
    answer: Callable[[Sequence[Row]], Any]
    columns: tuple[str, ...] = ()
    """The columns of the keys or names that the search lists; none if it lists texts."""
    special: Callable[[Any], Parameters | None] | None = None
    """Returns the parameters for a search, if they are not simply its fields; None if nothing can be found."""
    keyed: bool = False
    """See `Link.query`."""
    probes: bool = False
    """Whether it often finds nothing, so that it may be made without locks first (see `Link.probes`)."""
    agrees_with: str = ""
    """A statement, sent along, that must find rows with the same first columns. Otherwise both are repeated."""
    jobs: str = ""
    """A statement, sent after those, that locks the jobs of an answer that is LockedAttempts."""
    of_one_name: "SqlSearch | None" = None
    """The statements for a search that lists one name. The server need not guess how many names there are."""

    def chosen(self, search: s.Search[Any]) -> "SqlSearch":
        """Return the statements for a search: those for one name if it lists one."""
        of_one = self.of_one_name
        return self if of_one is None or len(cast("s.LatestRuns", search).names) != 1 else of_one

    def is_locking(self, search: s.Search[Any]) -> bool:
        """Whether it locks what it finds."""
        return bool(self.lock) and bool(getattr(search, "locks", True))

    def unlocked(self, search: s.Search[Any]) -> str:
        """Return the statement without locks."""
        if self.of_one and getattr(search, "namespace", None) is not None:
            return self.of_one
        if isinstance(self.sql, str):
            return self.sql
        waiting: Waiting = getattr(search, "waiting", Waiting.RUNS)
        return self.sql[waiting]

    def parameters(self, dialect: Dialect, search: s.Search[Any], now: Micros) -> Parameters | None:
        """Return the parameters for a search and its instant; None if nothing can be found."""
        if self.special is not None:
            parameters = self.special(search)
            return None if parameters is None else {"now": now, **parameters}
        given: dict[str, object] = {"now": now, "before": now - getattr(search, "grace", 0)}
        for field in attrs.fields(type(search)):  # type: ignore[arg-type]
            name, value = field.name, getattr(search, field.name)
            if value is None:
                given[name] = _FOR_NONE[name]
            elif isinstance(value, SlotPlace):
                given |= value._asdict()
            elif isinstance(value, str):
                given[name] = str(value) if is_askable(value) else None
            elif isinstance(value, int):
                least = 1 if name == "limit" else 0
                given[name] = value if least <= value <= BIGINT_MAX else None
            else:
                given[name] = _listed(dialect, self.columns, value)
            if given.get(name, name) is None:
                return None
        return given


def columns_of(columns: Sequence[str], table: str) -> str:
    """Return columns of a table for a statement."""
    return ", ".join(f"{table}.{column}" for column in columns)


# By key ---------------------------------------------------------------------------------------------------------


def keyed_reads(dialect: Dialect) -> Mapping[Table[Any, Any], KeyedRead]:
    """Build the statements that read rows by key."""
    return {table: _keyed_read(dialect, table) for table in TABLES}


def _keyed_read(dialect: Dialect, table: Table[Any, Any]) -> KeyedRead:
    known = COLUMNS.get(table.record)
    if known is None:  # the record is the key
        stored, columns, keys = tables.slots, table.key, table.key
    else:
        stored, columns, keys = known.table, known.columns, tuple(map(known.column_of, table.key))
    start = f"SELECT {columns_of(columns, 't')} FROM"
    order = f"ORDER BY {columns_of(keys, 't')}"
    if len(keys) == 1:
        sql = f"{start} {stored.name} AS t WHERE {dialect.one_of(f't.{keys[0]}', 'keys')} {order}"
    else:
        wanted = dialect.table_of("keys", "k", types_of(stored, keys))
        same = " AND ".join(f"t.{key} = k.{key}" for key in keys)
        sql = f"{start} {wanted} CROSS JOIN {stored.name} AS t WHERE {same} {order}"

    def parameters(wanted: Collection[Any]) -> Parameters | None:
        listed = _listed(dialect, keys if len(keys) > 1 else (), wanted)
        return None if listed is None else {"keys": listed}

    lock = dialect.bound(sql + dialect.lock.format("t"))
    return KeyedRead(dialect.bound(sql), lock, parameters, rows.record_of(table.record))


def _listed(dialect: Dialect, columns: Sequence[str], values: Collection[Any]) -> object:
    """Return texts, or keys of several columns, as one parameter; None if no row can have one of them."""
    if columns:
        keys = askable_keys(values)
        return encode_rows(columns, keys) if keys else None
    texts = askable(values)
    return dialect.texts(texts) if texts else None


# Searches -------------------------------------------------------------------------------------------------------


def node_rows(of_runs: str) -> str:
    """Return the statement that counts history rows of runs by node and type. `of_runs` is its condition."""
    return (
        "SELECT run, node, type, min(number), max(number), count(*) FROM holdfast_history "
        f"WHERE {of_runs} AND node IS NOT NULL GROUP BY run, node, type"
    )


def searches_for(dialect: Dialect) -> Mapping[type[s.Search[Any]], SqlSearch]:
    """Build the statements of all searches."""
    made = {
        **_of_jobs(dialect),
        **_of_runs(dialect),
        **_of_histories(dialect),
        **_of_schedules(dialect),
        **_of_topics(dialect),
        **_of_sinks(dialect),
        **_of_credentials(dialect),
        **_of_waiters(dialect),
        **_of_turns(dialect),
    }
    return {kind: _bound(dialect, one) for kind, one in made.items()}


def _bound(dialect: Dialect, one: SqlSearch) -> SqlSearch:
    sql = one.sql
    return attrs.evolve(
        one,
        sql=dialect.bound(sql)
        if isinstance(sql, str)
        else {key: dialect.bound(of) for key, of in sql.items()},
        of_one=dialect.bound(one.of_one),
        lock=dialect.bound(one.lock),
        agrees_with=dialect.bound(one.agrees_with),
        jobs=dialect.bound(one.jobs),
        of_one_name=None if one.of_one_name is None else _bound(dialect, one.of_one_name),
    )


_Searches: TypeAlias = dict[type[s.Search[Any]], SqlSearch]


def _of_jobs(dialect: Dialect) -> _Searches:
    jobs = f"SELECT {columns_of(rows.JOB, 'j')} FROM holdfast_jobs AS j WHERE"
    keys = "SELECT j.run, j.number FROM holdfast_jobs AS j"
    for_claims = (
        f"SELECT {columns_of(rows.SESSION, 's')}, {HAS_LIMITS} FROM holdfast_sessions AS s "
        f"WHERE {dialect.one_of('s.id', 'ids')} ORDER BY s.id"
    )
    return {
        s.ClaimableJobs: SqlSearch(
            lock=dialect.claimable(rows.JOB, rows.SESSION),
            special=_claim,
            answer=_claimed,
            keyed=True,
            probes=True,
        ),
        s.DueJobs: SqlSearch(
            lock=f"{jobs} j.state = 'sleeping' AND j.wake_at <= :now AND (:kind = '' OR j.kind = :kind) "
            f"ORDER BY j.wake_at, j.run, j.number LIMIT :limit{dialect.skip_locked}",
            answer=_each(rows.job_from),
            probes=True,
        ),
        s.SessionsForClaims: SqlSearch(
            sql=for_claims,
            lock=for_claims + dialect.lock.format("s"),
            answer=_for_claims,
            keyed=True,
        ),
        s.QueuedOfQueue: SqlSearch(
            sql=f"{jobs} j.namespace = :namespace AND j.queue = :queue AND j.state = 'queued' "
            "AND (j.definition, j.queue_position, j.run, j.number) > (:definition, :position, :run, :number) "
            "ORDER BY j.definition, j.queue_position, j.run, j.number LIMIT :limit",
            special=_of_queue,
            answer=_each(rows.job_from),
        ),
        s.SleepersUnderRates: SqlSearch(
            lock=f"SELECT {columns_of(rows.JOB, 'j')} FROM holdfast_rate_limits AS w CROSS JOIN holdfast_jobs AS j "
            "WHERE w.namespace = :namespace AND w.name >= :start AND w.name < :beyond AND w.wakes_at > :now "
            "AND substr(w.name, length(w.name) - length(CAST(:end AS text)) + 1) = :end "
            "AND j.state = 'sleeping' AND j.wake_at = w.wakes_at AND j.namespace = w.namespace "
            "AND j.concurrency_key = w.name AND j.rate_limit IS NOT NULL "
            f"ORDER BY j.run, j.number LIMIT :limit{dialect.lock.format('j')}",
            special=_of_sleepers,
            answer=_each(rows.job_from),
            probes=True,
        ),
        s.JobsOfRuns: SqlSearch(
            lock=f"{jobs} {dialect.one_of('j.run', 'runs')} ORDER BY j.run, j.number{dialect.lock.format('j')}",
            answer=_each(rows.job_from),
            keyed=True,
        ),
        s.StageJobs: SqlSearch(
            sql=f"{keys} WHERE j.run = (SELECT r.key "
            "FROM holdfast_runs AS r WHERE r.namespace = :namespace AND r.id = :run_id "
            "ORDER BY r.generation DESC LIMIT 1) AND j.node = :stage AND (:item < 0 OR j.item = :item) "
            "AND (j.kind = 'poll' OR (j.kind = 'stage' AND j.state = 'leased')) ORDER BY j.run, j.number",
            answer=_each(rows.job_key_from),
        ),
        s.ExternalJobs: SqlSearch(
            sql=f"{keys} WHERE j.namespace = :namespace "
            "AND j.waiting_for = :key AND j.kind = 'poll' ORDER BY j.run, j.number",
            answer=_each(rows.job_key_from),
        ),
        s.LostJobs: SqlSearch(
            sql=f"{keys} JOIN holdfast_sessions AS s ON s.id = j.session "
            "WHERE j.state = 'leased' AND s.state <> 'open' ORDER BY j.run, j.number LIMIT :limit",
            answer=_each(rows.job_key_from),
        ),
        s.OverdueHeartbeats: SqlSearch(
            sql=f"{keys} WHERE j.heartbeat_by < :before "
            "AND j.state = 'leased' ORDER BY j.heartbeat_by, j.run, j.number LIMIT :limit",
            answer=_each(rows.job_key_from),
        ),
        s.AnyPendingDelivery: SqlSearch(
            sql="SELECT 1 FROM holdfast_jobs WHERE state = 'pending_delivery' LIMIT 1", answer=bool
        ),
        s.ExpiredSessions: SqlSearch(
            lock=f"SELECT {columns_of(rows.SESSION, 's')} FROM holdfast_sessions AS s WHERE s.state = 'open' "
            f"AND (s.expires_at < :before OR s.expires_at > {INSTANT_MAX}) "
            f"ORDER BY s.id LIMIT :limit{dialect.skip_locked}",
            answer=_each(rows.session_from),
            probes=True,
        ),
    }


def _of_latest_runs(dialect: Dialect) -> _Searches:
    names = dialect.table_of("names", "n", {"namespace": "text", "id": "text"})
    several = (
        f"FROM {names} CROSS JOIN holdfast_runs AS r WHERE r.namespace = n.namespace AND r.id = n.id "
        "AND r.generation = (SELECT max(m.generation) FROM holdfast_runs AS m "
        "WHERE m.namespace = n.namespace AND m.id = n.id) ORDER BY r.key"
    )
    one = (
        "FROM holdfast_runs AS r WHERE r.namespace = :namespace AND r.id = :id "
        "ORDER BY r.generation DESC LIMIT 1"
    )
    runs, lock = columns_of(rows.RUN, "r"), dialect.lock.format("r")

    # While the first statement waits for a lock, another transaction may add a generation, which it does not see.
    # The second statement, sent along with it, does; so both must agree.
    def latest(newest: str) -> SqlSearch:
        return SqlSearch(
            lock=f"SELECT {runs} {newest}{lock}",
            agrees_with=f"SELECT r.key {newest}",
            answer=_each(rows.run_from),
        )

    def with_drivers(search: SqlSearch, newest: str) -> SqlSearch:
        return attrs.evolve(
            search,
            jobs=f"SELECT {columns_of(rows.JOB, 'j')} FROM holdfast_jobs AS j WHERE j.number = 1 "
            f"AND j.kind = '{JobKind.WORKFLOW.value}' AND {dialect.one_found_by('j.run', f'SELECT r.key {newest}')} "
            f"ORDER BY j.run{dialect.lock.format('j')}",
            answer=_with_drivers,
        )

    of_one = attrs.evolve(latest(one), special=_of_one_name)
    of_several = attrs.evolve(latest(several), columns=_RUN_NAME)
    return {
        s.LatestRuns: attrs.evolve(of_several, of_one_name=of_one),
        s.LatestRunsAndDrivers: attrs.evolve(
            with_drivers(of_several, several), of_one_name=with_drivers(of_one, one)
        ),
    }


def _of_runs(dialect: Dialect) -> _Searches:
    names = dialect.table_of("names", "n", {"namespace": "text", "id": "text"})
    runs = columns_of(rows.RUN, "r")
    outlines = (
        "SELECT r.key, r.namespace, r.id, r.workflow, r.version, r.status, "
        "coalesce((SELECT max(h.number) FROM holdfast_history AS h WHERE h.run = r.key "
        f"AND h.number <= {NUMBER_MAX}), 0) FROM holdfast_runs AS r "
        f"WHERE {dialect.one_of('r.key', 'runs')} ORDER BY r.key"
    )
    lock = dialect.lock.format("r")
    return {
        **_of_latest_runs(dialect),
        s.Generations: SqlSearch(
            sql=f"SELECT {runs} FROM {names} CROSS JOIN holdfast_runs AS r WHERE r.namespace = n.namespace "
            "AND r.id = n.id ORDER BY r.namespace, r.id, r.generation",
            columns=_RUN_NAME,
            answer=_each(rows.run_from),
            keyed=True,
        ),
        s.RunKeys: SqlSearch(
            sql="SELECT key FROM holdfast_runs WHERE key > :after ORDER BY key LIMIT :limit",
            answer=_each(_first),
        ),
        s.ActiveRuns: SqlSearch(
            sql=f"SELECT key FROM holdfast_runs WHERE status NOT IN {tables.ENDED} AND key > :after "
            "ORDER BY key LIMIT :limit",
            answer=_each(_first),
        ),
        s.IncompleteRuns: SqlSearch(
            sql="SELECT r.key FROM (SELECT key, status, last_job, open_jobs, "
            "(SELECT count(*) FROM holdfast_jobs AS j WHERE j.run = key AND j.state <> 'pending_delivery' "
            "AND j.kind <> 'cancel') AS found "
            f"FROM holdfast_runs WHERE {dialect.one_of('key', 'runs')} "
            f"AND status NOT IN {tables.ENDED}) AS r WHERE r.found <> r.open_jobs OR (r.found = 0 "
            "AND NOT (r.status IN ('pending', 'paused', 'blocked') AND r.last_job = 0)) ORDER BY r.key",
            answer=_each(_first),
            keyed=True,
        ),
        s.DueRuns: SqlSearch(
            sql=DUE_RUNS.format(""),
            of_one=DUE_RUNS.format("AND namespace = :namespace "),
            answer=_each(_first),
        ),
        s.OverdueRuns: SqlSearch(
            sql=f"SELECT key FROM holdfast_runs WHERE status NOT IN {tables.ENDED} "
            "AND deadline IS NOT NULL AND deadline <= :now AND error IS NULL ORDER BY deadline LIMIT :limit",
            answer=_each(_first),
        ),
        s.RunOutlines: SqlSearch(
            sql=outlines, lock=outlines + lock, answer=_each(rows.outline_from), keyed=True
        ),
    }


def _of_histories(dialect: Dialect) -> _Searches:
    annotation_keys = dialect.table_of("keys", "k", {"run": "text", "key": "text"})
    of_runs = dialect.one_of("run", "runs")
    return {
        s.NodeResults: SqlSearch(
            sql="SELECT run, number, node, item, type FROM holdfast_history "
            f"WHERE {of_runs} AND {dialect.one_of('type', 'types')} ORDER BY run, number",
            answer=_each(rows.completed_from),
        ),
        s.NodeSummaries: SqlSearch(sql=node_rows(of_runs), answer=_each(rows.node_rows_from), keyed=True),
        s.AnnotationKeys: SqlSearch(
            sql=f"SELECT a.run, a.key, a.name FROM {annotation_keys} CROSS JOIN holdfast_annotations AS a "
            "WHERE a.run = k.run AND a.key = k.key ORDER BY a.run, a.key, a.name",
            columns=("run", "key"),
            answer=list,
        ),
        # In the transaction that has locked the runs, so that no annotation is added before it is committed.
        s.RunAnnotations: SqlSearch(
            lock=f"SELECT {', '.join(rows.ANNOTATION)} FROM holdfast_annotations "
            f"WHERE {of_runs} AND scope = 'run' ORDER BY run, at, id",
            answer=_each(rows.annotation_from),
            keyed=True,
        ),
    }


_SCHEDULES_AHEAD: Final = 10
"""How many times the limit of due schedules are candidates: so many transactions can fire at the same time."""


def _of_schedules(dialect: Dialect) -> _Searches:
    schedules = f"SELECT {columns_of(rows.SCHEDULE, 's')} FROM"
    of_workflows = (
        f"{schedules} holdfast_schedules AS s WHERE s.namespace = :namespace "
        f"AND {dialect.one_of('s.workflow', 'workflows')}"
    )
    names = dialect.table_of("names", "n", {"namespace": "text", "name": "text"})
    workflows = dialect.table_of("workflows", "w", {"name": "text"})
    first = dialect.rows_for_each(
        workflows,
        "holdfast_schedules AS s",
        "s.namespace = :namespace AND s.workflow = w.name AND s.next_at <= :now",
        "ORDER BY s.next_at, s.key LIMIT :ahead",
    )
    answer = _each(rows.schedule_from)
    return {
        # Thousands may be due at midnight: the index alone says which come first. Of those, others may have locked
        # some. `IS TRUE` keeps the planner from finding all that is due by the index a second time.
        s.DueSchedules: SqlSearch(
            lock=f"{schedules} holdfast_schedules AS s "
            f"WHERE {dialect.one_found_by('s.key', f'SELECT s.key FROM {first}')} "
            f"AND (s.next_at <= :now AND s.workflow IN (SELECT w.name FROM {workflows})) IS TRUE "
            f"ORDER BY s.next_at, s.key LIMIT :limit{dialect.skip_locked}",
            special=_of_due_schedules,
            answer=answer,
            probes=True,
        ),
        s.NextScheduleTime: SqlSearch(
            sql="SELECT (SELECT min(s.next_at) FROM holdfast_schedules AS s "
            f"WHERE s.namespace = :namespace AND s.workflow = w.name AND s.next_at > :now) FROM {workflows}",
            special=_of_workflows,
            answer=_earliest,
        ),
        s.SchedulesByName: SqlSearch(
            lock=f"{schedules} {names} CROSS JOIN holdfast_schedules AS s "
            f"WHERE s.namespace = n.namespace AND s.name = n.name ORDER BY s.key{dialect.lock.format('s')}",
            columns=rows.SLOT,
            answer=answer,
            keyed=True,
        ),
        s.SchedulesOfOtherZones: SqlSearch(
            lock=f"{of_workflows} AND s.key > :after AND s.zones <> '' AND s.zones <> :version "
            f"ORDER BY s.key LIMIT :limit{dialect.skip_locked}",
            answer=answer,
            probes=True,
        ),
    }


_USERS: Final = (
    ("subscriptions", "holdfast_subscriptions", " AND t.next_number IS NULL"),
    ("subscriptions", "holdfast_subscriptions", " AND t.next_number IS NOT NULL"),
    ("triggers", "holdfast_triggers", ""),
)
"""What uses a topic: its name, and the rows, which an index has."""
_ROWS: Final = (
    ("message", "holdfast_topic_messages", "id", "0", ""),
    ("returned", "holdfast_returned_messages", "group_key", "t.number", ", t.number"),
    ("group", "holdfast_topic_groups", "group_key", "0", ""),
)
"""The rows of a topic: their kind, table, column with the name, number, and order."""
_IS_STORED: Final = (
    "(SELECT 1 FROM holdfast_topic_messages AS b WHERE b.namespace = r.namespace AND b.topic = r.topic "
    "AND b.number BETWEEN r.number AND r.number AND b.number IS NOT NULL ORDER BY b.number LIMIT 1) IS NOT NULL"
)
"""The condition that a message which went back is stored.

A range is read in the order of the index of numbers. By an equal number, a database may read any index of the topic.
"""


def _is_waited_for(group: str) -> str:
    """Return the condition that a member of a group waits.

    With ORDER and LIMIT, a database looks into the index for each group, however many members it expects.
    """
    return (
        f"(SELECT 1 FROM holdfast_subscriptions AS w WHERE w.namespace = {group}.namespace "
        f"AND w.topic = {group}.topic AND w.group_key = {group}.group_key AND w.group_key IS NOT NULL "
        "AND w.holds IS NULL ORDER BY w.waits_since LIMIT 1) IS NOT NULL"
    )


def _has_returned(group: str) -> str:
    """Return the condition that a group has a message that went back and is stored.

    It is no join: a database might begin with the messages of the topic.
    """
    return (
        f"(SELECT 1 FROM holdfast_returned_messages AS r WHERE r.namespace = {group}.namespace "
        f"AND r.topic = {group}.topic AND r.group_key = {group}.group_key AND {_IS_STORED} "
        "ORDER BY r.number LIMIT 1) IS NOT NULL"
    )


def _sources_to_deliver() -> Sequence[tuple[str, str, str]]:
    """Return where topics with something to deliver are found: the column with the name, the rows, and their order.

    The order is that of the index by which the first one is to be read.
    """
    reached = "(SELECT o.last FROM holdfast_topics AS o WHERE o.namespace = t.namespace AND o.name = t.topic)"
    groups = (
        f"holdfast_topic_groups AS t WHERE (t.next_number <= coalesce({reached}, 0) OR {_has_returned('t')}) "
        f"AND {_is_waited_for('t')}"
    )
    expired = (
        "(SELECT m.namespace, m.topic FROM holdfast_topic_messages AS m WHERE m.number IS NOT NULL "
        f"AND m.expires_at < :now ORDER BY m.expires_at, m.namespace, m.topic LIMIT {s.EXPIRED_WINDOW}) AS t "
        "WHERE t.topic IS NOT NULL"
    )
    return (
        ("t.topic", "holdfast_topic_messages AS t WHERE t.number IS NULL", ", t.at, t.sender_row, t.id"),
        ("t.topic", "holdfast_subscriptions AS t WHERE t.next_number IS NOT NULL", ", t.run_id, t.channel"),
        ("t.name", "holdfast_topics AS t WHERE t.after_subscription IS NOT NULL", ""),
        ("t.topic", groups, ", t.group_key"),
        ("t.topic", expired, ""),
    )


def _of_topics(dialect: Dialect) -> _Searches:
    of_topic = "namespace = :namespace AND topic = :topic"
    messages = (
        f"SELECT {columns_of(rows.TOPIC_MESSAGE, 'm')} FROM holdfast_topic_messages AS m WHERE {of_topic}"
    )
    subscriptions = (
        f"SELECT {columns_of(rows.SUBSCRIPTION, 's')} FROM holdfast_subscriptions AS s WHERE {of_topic}"
    )
    # Computed once: of all groups, the one that is behind most keeps messages. So a slow group does not make each of
    # the messages that it keeps cost a look.
    of_triggers = (
        "(SELECT h.next_number FROM holdfast_triggers AS h WHERE h.namespace = :namespace AND h.topic = :topic "
        "ORDER BY h.next_number LIMIT 1)"
    )
    of_groups = (
        "(SELECT g.next_number FROM holdfast_topic_groups AS g WHERE g.namespace = :namespace AND g.topic = :topic "
        f"AND (g.used_at >= :now - {GROUP_IDLE} OR {_is_waited_for('g')}) ORDER BY g.next_number LIMIT 1)"
    )
    is_passed = " AND ".join(
        f"m.number < coalesce({first}, {NUMBER_MAX})" for first in (of_triggers, of_groups)
    )
    is_free = (
        "(SELECT 1 FROM holdfast_subscriptions AS w WHERE w.namespace = m.namespace AND w.topic = m.topic "
        "AND w.holds BETWEEN m.number AND m.number AND w.holds IS NOT NULL ORDER BY w.holds LIMIT 1) IS NULL "
        "AND (SELECT 1 FROM holdfast_returned_messages AS r WHERE r.namespace = m.namespace "
        "AND r.topic = m.topic AND r.number BETWEEN m.number AND m.number ORDER BY r.number LIMIT 1) IS NULL"
    )
    returned = dialect.rows_for_each(
        "(SELECT r.namespace, r.topic, r.number FROM holdfast_returned_messages AS r WHERE r.namespace = :namespace "
        f"AND r.topic = :topic AND r.group_key = :group_key AND {_IS_STORED} ORDER BY r.number LIMIT :limit) AS r",
        "holdfast_topic_messages AS m",
        "m.namespace = r.namespace AND m.topic = r.topic AND m.number BETWEEN r.number AND r.number "
        "AND m.number IS NOT NULL",
        "ORDER BY m.number LIMIT :limit",
    )
    groups = "SELECT {} FROM holdfast_topic_groups AS g WHERE".format(columns_of(rows.GROUP, "g"))
    message, subscription = _each(rows.topic_message_from), _each(rows.subscription_from)
    return {
        s.TopicToDeliver: SqlSearch(
            sql="SELECT namespace, name FROM ("
            + " UNION ALL ".join(
                f"SELECT * FROM (SELECT t.namespace, {name} AS name FROM {source} "
                f"AND (t.namespace, {name}) > (:after_namespace, :after_name) "
                f"ORDER BY t.namespace, {name}{order} LIMIT 1) AS f"
                for name, source, order in _sources_to_deliver()
            )
            + ") AS found ORDER BY namespace, name LIMIT 1",
            answer=_topic_found,
        ),
        s.TopicUsers: SqlSearch(
            sql=" UNION ALL ".join(
                f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {table} AS t WHERE t.namespace = :namespace "
                f"AND t.topic = :topic{more})"
                for name, table, more in _USERS
            ),
            answer=lambda found: sorted({row[0] for row in found}),
        ),
        s.RowsOfTopic: SqlSearch(
            sql="SELECT kind, name, number FROM ("
            + " UNION ALL ".join(
                f"SELECT * FROM (SELECT {place} AS place, '{kind}' AS kind, t.{name} AS name, {number} AS number "
                f"FROM {table} AS t WHERE t.namespace = :namespace AND t.topic = :topic "
                f"ORDER BY t.{name}{order} LIMIT :limit) AS f"
                for place, (kind, table, name, number, order) in enumerate(_ROWS)
            )
            + ") AS found ORDER BY place, name, number LIMIT :limit",
            answer=_each(lambda row: s.RowOfTopic(*row)),
        ),
        s.NewMessages: SqlSearch(
            sql=f"{messages} AND m.number IS NULL ORDER BY m.at, m.sender_row, m.id LIMIT :limit",
            answer=message,
        ),
        s.NumberedMessages: SqlSearch(
            sql=f"{messages} AND m.number >= :number ORDER BY m.number LIMIT :limit", answer=message
        ),
        s.FirstNumberSince: SqlSearch(
            sql="SELECT min(m.number) FROM holdfast_topic_messages AS m "
            f"WHERE {of_topic} AND m.at >= :since AND m.number IS NOT NULL",
            answer=_earliest,
        ),
        s.ExpiredMessages: SqlSearch(
            sql=f"SELECT m.id, CASE WHEN {is_passed} AND {is_free} THEN 0 ELSE 1 END "
            f"FROM holdfast_topic_messages AS m WHERE {of_topic} AND m.expires_at < :now AND m.number <= :number "
            "ORDER BY m.expires_at, m.id LIMIT :limit",
            answer=_each(lambda row: s.ExpiredMessage(row[0], bool(row[1]))),
        ),
        s.MessagesBefore: SqlSearch(
            sql="SELECT m.id FROM (SELECT m.namespace, m.topic, m.number, m.id FROM holdfast_topic_messages AS m "
            f"WHERE {of_topic} AND m.number < :number AND m.number IS NOT NULL AND {is_passed} ORDER BY m.number "
            f"LIMIT :limit + {s.KEPT_WINDOW}) AS m WHERE {is_free} ORDER BY m.number LIMIT :limit",
            answer=_each(lambda row: row[0]),
        ),
        s.SubscriptionsOfDigests: SqlSearch(
            sql=f"{subscriptions} AND {dialect.one_of('s.digest', 'digests')} AND s.next_number IS NULL "
            "AND (s.run_id, s.channel) > (:after_run, :after_channel) ORDER BY s.run_id, s.channel LIMIT :limit",
            answer=subscription,
        ),
        s.SubscriptionsBehind: SqlSearch(
            sql=f"{subscriptions} AND s.next_number IS NOT NULL ORDER BY s.run_id, s.channel LIMIT :limit",
            answer=subscription,
        ),
        s.GroupsToServe: SqlSearch(
            sql=f"{groups} g.namespace = :namespace AND g.topic = :topic AND {_is_waited_for('g')} "
            f"AND (g.next_number <= :number OR {_has_returned('g')}) ORDER BY g.group_key LIMIT :limit",
            answer=_each(rows.group_from),
        ),
        s.WaitingMembers: SqlSearch(
            sql=f"{subscriptions} AND s.group_key = :group_key AND s.group_key IS NOT NULL AND s.holds IS NULL "
            "ORDER BY s.waits_since, s.run_id, s.channel LIMIT :limit",
            answer=subscription,
        ),
        s.MembersWithoutGroup: SqlSearch(
            sql=f"{subscriptions} AND s.group_key IS NOT NULL AND s.holds IS NULL "
            "AND NOT EXISTS (SELECT 1 FROM holdfast_topic_groups AS g WHERE g.namespace = s.namespace "
            "AND g.topic = s.topic AND g.group_key = s.group_key) "
            "ORDER BY s.group_key, s.waits_since, s.run_id, s.channel LIMIT :limit",
            answer=subscription,
        ),
        s.ReturnedMessages: SqlSearch(
            sql=f"SELECT {columns_of(rows.TOPIC_MESSAGE, 'm')} FROM {returned}", answer=message
        ),
    }


def _of_credentials(dialect: Dialect) -> _Searches:
    is_named = f"{dialect.one_of('c.id', 'names')} OR {dialect.one_of('c.unique_label', 'names')}"
    return {
        s.CredentialsNamed: SqlSearch(
            lock=f"SELECT {columns_of(rows.CREDENTIAL, 'c')} FROM holdfast_credentials AS c "
            f"WHERE {is_named} ORDER BY c.id{dialect.lock.format('c')}",
            answer=_each(rows.credential_from),
        ),
        s.BrowserSessionsOfPrincipal: SqlSearch(
            lock=f"SELECT {columns_of(rows.BROWSER_SESSION, 'b')} FROM holdfast_browser_sessions AS b "
            f"WHERE b.principal = :principal AND b.kind = :kind ORDER BY b.id{dialect.lock.format('b')}",
            answer=_each(rows.browser_session_from),
        ),
        s.AnyCredential: SqlSearch(sql="SELECT 1 FROM holdfast_credentials LIMIT 1", answer=bool),
    }


def _of_sinks(dialect: Dialect) -> _Searches:
    sinks, streams = (
        f"SELECT {columns_of(rows.SINK, 's')} FROM",
        f"SELECT {columns_of(rows.STREAM, 'o')} FROM holdfast_outbox AS o WHERE",
    )
    names = dialect.table_of("names", "n", {"namespace": "text", "name": "text"})
    by_name = (
        f"{sinks} {names} CROSS JOIN holdfast_sinks AS s "
        "WHERE s.namespace = n.namespace AND s.name = n.name ORDER BY s.key"
    )
    return {
        s.AllSinks: SqlSearch(
            sql=f"{sinks} holdfast_sinks AS s ORDER BY s.key", answer=_each(rows.sink_from)
        ),
        s.SinksByName: SqlSearch(
            sql=by_name,
            lock=by_name + dialect.lock.format("s"),
            columns=rows.SLOT,
            answer=_each(rows.sink_from),
            keyed=True,
        ),
        s.DueStreams: SqlSearch(
            lock=f"{streams} o.sink = (SELECT s.key FROM holdfast_sinks AS s "
            "WHERE s.namespace = :namespace AND s.name = :sink AND (s.retry_at IS NULL OR s.retry_at <= :now)) "
            f"AND o.due_at <= :now ORDER BY o.due_at, o.run LIMIT :limit{dialect.skip_locked}",
            answer=_each(rows.stream_from),
            probes=True,
        ),
        s.DeadLetteredStreams: SqlSearch(
            lock=f"{streams} o.state = 'dead_lettered' "
            "AND o.sink IN (SELECT s.key FROM holdfast_sinks AS s WHERE s.namespace = :namespace "
            "AND (CAST(:sink AS text) = '' OR s.name = :sink)) "
            "AND (CAST(:run_id AS text) = '' OR o.run IN (SELECT r.key FROM holdfast_runs AS r "
            "WHERE r.namespace = :namespace AND r.id = :run_id)) "
            f"ORDER BY o.sink, o.run LIMIT :limit{dialect.lock.format('o')}",
            answer=_each(rows.stream_from),
            probes=True,
        ),
        s.UndeliveredHeads: SqlSearch(
            sql="SELECT s.key, r.key, r.last_row, r.updated_at FROM holdfast_runs AS r "
            "JOIN holdfast_sinks AS s ON s.namespace = r.namespace AND s.since <= r.updated_at "
            "LEFT JOIN holdfast_outbox AS o ON o.sink = s.key AND o.run = r.key "
            f"WHERE s.namespace = :namespace AND {dialect.one_of('s.name', 'sinks')} "
            f"AND {dialect.one_of('r.key', 'runs')} "
            "AND (o.run IS NULL OR o.head_row < r.last_row) AND r.last_row > 0 ORDER BY s.key, r.key",
            answer=_each(rows.stream_head_from),
        ),
    }


def _of_waiters(dialect: Dialect) -> _Searches:
    waiting = waiting_statements(dialect)
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    return {
        s.KeysWaitedFor: SqlSearch(
            sql={kind: of.waited_for for kind, of in waiting.items()},
            columns=PLACE,
            answer=_each(rows.waited_for_from),
        ),
        s.KeysWaitedForInSpans: SqlSearch(
            sql=waiting[Waiting.RUNS].in_spans,
            columns=s.KeySpan._fields,
            answer=_each(rows.waited_for_from),
        ),
        s.AllKeysWaitedFor: SqlSearch(
            sql={kind: of.all_waited_for for kind, of in waiting.items()}, answer=_each(rows.waited_for_from)
        ),
        s.FirstPendingRuns: SqlSearch(
            sql={kind: waiting[kind].first for kind in (Waiting.RUNS, Waiting.RATED_RUNS)},
            special=_wanted,
            answer=_each(_first),
        ),
        s.DueRunRates: SqlSearch(
            sql=DUE_RATES.format(""),
            of_one=DUE_RATES.format("AND w.namespace = :namespace "),
            answer=_each(rows.rate_name_from),
        ),
        s.FirstLimitedJobs: SqlSearch(
            sql=waiting[Waiting.JOBS].first, special=_wanted, answer=_each(rows.job_key_from)
        ),
        s.UsedSlots: SqlSearch(
            sql={kind: of.used for kind, of in waiting.items()}, columns=PLACE, answer=_by_place
        ),
        s.SlotsInSpans: SqlSearch(sql=used_in_spans(dialect), columns=s.KeySpan._fields, answer=_by_place),
        s.OpenRuns: SqlSearch(sql=_open_runs(dialect), special=_wanted_open, answer=rows.open_runs_from),
        s.NamespaceRuns: SqlSearch(
            sql=RUNS_OF_NAMESPACE,
            special=_of_namespace,
            answer=lambda found: tuple(found[0]) if found else (0, 0),
        ),
        s.NamespaceParts: SqlSearch(sql=PARTS_OF_NAMESPACE, special=_of_namespace, answer=_each(_first)),
        s.WorkflowsOfNamespace: SqlSearch(
            sql=WORKFLOWS_OF_NAMESPACE, answer=_each(lambda row: (WorkflowKey(*row[:3]), row[3]))
        ),
        s.QueuedUnderRates: SqlSearch(
            sql="SELECT p.namespace, p.key, (SELECT count(*) FROM holdfast_jobs AS j WHERE j.state = 'queued' "
            "AND j.rate_limit IS NOT NULL AND j.namespace = p.namespace AND j.concurrency_key = p.key) "
            f"FROM {places}",
            columns=PLACE,
            answer=_by_place,
        ),
    }


def _of_turns(dialect: Dialect) -> _Searches:
    turns = turn_searches(dialect)
    return {
        s.FirstTurns: SqlSearch(sql=turns.first, columns=s.QueuePart._fields, answer=rows.first_turns_from),
        s.NeighbouringTurns: SqlSearch(
            sql=turns.neighbouring, special=_turns, answer=rows.neighbouring_turns_from
        ),
        s.HighestTurns: SqlSearch(
            sql=turns.highest, columns=FairKeyName._fields, answer=rows.highest_turns_from
        ),
    }


def _open_runs(dialect: Dialect) -> str:
    """Return the search for the oldest open runs of each key, with the numbers of all of them.

    A row for the first of those under way, and of those that wait, is in the answer even if none is named.
    """
    wanted = dialect.table_of("wanted", "p", {"namespace": "text", "key": "text", "most": "bigint"})
    waits = "(CASE WHEN w.status = 'pending' OR w.last_job = 0 THEN 1 ELSE 0 END)"
    of_key = "PARTITION BY w.namespace, w.concurrency_key"
    return (
        "SELECT namespace, concurrency_key, run, id, waits, place, most, total, age, "
        "(SELECT l.slots FROM holdfast_limits AS l WHERE l.namespace = open_runs.namespace "
        "AND l.name = 'run:' || open_runs.concurrency_key) FROM ("
        f"SELECT w.namespace, w.concurrency_key, w.key AS run, w.id, {waits} AS waits, p.most, "
        f"row_number() OVER ({of_key}, {waits} ORDER BY w.created_at, w.key) AS place, "
        f"count(*) OVER ({of_key}, {waits}) AS total, "
        f"row_number() OVER ({of_key} ORDER BY w.created_at DESC, w.key DESC) AS age "
        f"FROM {wanted} CROSS JOIN holdfast_runs AS w WHERE w.namespace = p.namespace "
        f"AND w.concurrency_key = p.key AND w.status NOT IN {tables.ENDED} AND w.concurrency_key IS NOT NULL "
        "AND w.error IS NULL) AS open_runs WHERE place <= most OR place = 1 OR age = 1 "
        "ORDER BY namespace, concurrency_key, waits, place"
    )


# Parameters -----------------------------------------------------------------------------------------------------


def _claim(search: s.ClaimableJobs) -> Parameters | None:
    pairs: dict[tuple[str, str], Row] = {}
    for place, queue_claim in enumerate(search.queue_claims):
        most = min(queue_claim.limit, search.limit)
        if most > 0 and is_askable(queue_claim.queue):
            for definition in askable(queue_claim.definitions):
                pairs.setdefault(
                    (queue_claim.queue, definition), (place, queue_claim.queue, definition, most)
                )
    if not pairs or not is_askable(search.namespace):
        return None
    return {
        "session": search.session if is_askable(search.session) else "",
        "namespace": search.namespace,
        "queue_claims": encode_rows(_QUEUE_CLAIM, pairs.values()),
        "most": max(pair[3] for pair in pairs.values()),
        "limit": search.limit,
        "pass_over": search.pass_over.value,
    }


def _of_due_schedules(search: s.DueSchedules) -> Parameters | None:
    given = _of_workflows(search)
    if given is None or search.limit <= 0:
        return None
    limit = min(search.limit, BIGINT_MAX // _SCHEDULES_AHEAD)
    return {**given, "limit": limit, "ahead": limit * _SCHEDULES_AHEAD}


def _of_workflows(search: s.DueSchedules | s.NextScheduleTime) -> Parameters | None:
    names = askable(search.workflows)
    if not names or not is_askable(search.namespace):
        return None
    return {
        "namespace": search.namespace,
        "workflows": encode_rows(("name",), [(name,) for name in names]),
    }


def _turns(search: s.NeighbouringTurns) -> Parameters | None:
    wanted = askable_keys((*part, turn) for part, turn in search.turns)
    return {"turns": encode_rows(TURN, wanted)} if wanted else None


def _of_one_name(search: s.LatestRuns | s.LatestRunsAndDrivers) -> Parameters | None:
    (name,) = search.names
    return name._asdict() if is_askable(name.namespace) and is_askable(name.id) else None


def _with_drivers(found: Sequence[Row]) -> s.LockedAttempts:
    return s.LockedAttempts([rows.run_from(row) for row in found], (), ())


def _of_queue(search: s.QueuedOfQueue) -> Parameters | None:
    definition, position, run, number = search.after
    texts = (search.namespace, search.queue, definition, run)
    if search.limit <= 0 or not all(map(is_askable, texts)):
        return None
    return {
        "namespace": search.namespace,
        "queue": search.queue,
        "definition": definition,
        "position": position,
        "run": run,
        "number": number,
        "limit": min(search.limit, BIGINT_MAX),
    }


def _of_sleepers(search: s.SleepersUnderRates) -> Parameters | None:
    if search.limit <= 0 or not all(map(is_askable, (search.namespace, search.start, search.end))):
        return None
    return {
        "namespace": search.namespace,
        "start": search.start,
        "beyond": f"{search.start}{LAST}",
        "end": search.end,
        "limit": min(search.limit, BIGINT_MAX),
    }


def _wanted(search: s.FirstPendingRuns | s.FirstLimitedJobs) -> Parameters | None:
    most_by_place = {
        place: most
        for place, most in search.wanted
        if most > 0 and is_askable(place.namespace) and is_askable(place.key)
    }
    if not most_by_place:
        return None
    return {
        "wanted": encode_rows(WANTED, ((*place, most) for place, most in most_by_place.items())),
        "most": max(most_by_place.values()),
    }


def _of_namespace(search: s.NamespaceRuns | s.NamespaceParts) -> Parameters | None:
    return attrs.asdict(search) if is_askable(search.namespace) else None


def _wanted_open(search: s.OpenRuns) -> Parameters | None:
    most_by_place = {
        place: most for place, most in search.wanted if is_askable(place.namespace) and is_askable(place.key)
    }
    if not most_by_place:
        return None
    return {"wanted": encode_rows(WANTED, ((*place, most) for place, most in most_by_place.items()))}


# Answers --------------------------------------------------------------------------------------------------------


def _each(record: Callable[[Row], Any]) -> Callable[[Iterable[Row]], list[Any]]:
    return lambda found: [record(row) for row in found]


def _first(row: Row) -> str:
    first: str = row[0]
    return first


def _topic_found(found: Sequence[Row]) -> TopicName | None:
    return TopicName(*found[0]) if found else None


def _earliest(found: Sequence[Row]) -> Micros | None:
    # SQLite keeps any value in any column: one that is no number is no time.
    return min((at for (at,) in found if isinstance(at, int)), default=None)


def _claimed(found: Sequence[Row]) -> s.LockedAttempts:
    of_job = len(rows.JOB)
    jobs = [rows.job_from(row[:of_job]) for row in found]
    if not found:
        return s.LockedAttempts((), (), ())
    *by, has_limits = found[0][of_job:]
    sessions = [rows.session_from(tuple(by))] if by[0] is not None else ()
    return s.LockedAttempts((), jobs, sessions, bool(has_limits))


def _for_claims(found: Sequence[Row]) -> s.LockedAttempts:
    sessions = [rows.session_from(row[:-1]) for row in found]
    return s.LockedAttempts((), (), sessions, any(row[-1] for row in found))


def _by_place(found: Sequence[Row]) -> Mapping[SlotPlace, int]:
    return {SlotPlace(namespace, key): number for namespace, key, number in found}
