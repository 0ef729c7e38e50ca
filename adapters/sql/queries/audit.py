"""Answers to the queries that check a whole store, with one statement each."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, cast

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.rows import Row, askable, is_askable
from holdfast.adapters.sql.schema.columns import COLUMNS
from holdfast.adapters.sql.schema.tables import NOT_UNDER_WAY
from holdfast.ports.queries.audit import (
    BlobsOf,
    BlobUse,
    HistoriesOf,
    LiveSessions,
    OrphanedRows,
    RelatedRuns,
    SlotsOver,
    SlotsOverLimit,
    StreamPlace,
    StreamPlaces,
    UnreadableRows,
    WholeRun,
    WholeRuns,
)
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import levels_of
from holdfast.ports.records.run import Run, outer_limits_of_waiter
from holdfast.ports.records.values import MapItems
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.ports.tables import OF_RUNS
from holdfast.ports.unreadable import NO_SUCH_RUN, Unreadable, first_of_each, unreadable_columns

_RUN: Final = ", ".join(f"r.{name}" for name in rows.RUN)
_JOB: Final = ", ".join(f"j.{name}" for name in rows.JOB)
_WITH_JOBS: Final = "AS r LEFT JOIN holdfast_jobs AS j ON j.run = r.key ORDER BY r.key, j.number"
_HANGS_ON_RUNS: Final = (*(table.name for table in OF_RUNS), "attributes")
_NAME: Final = ("namespace", "id", "parent")
_WITHOUT_VALUES: Final = ", ".join(
    "CASE WHEN payload IS NULL THEN NULL ELSE '' END" if name == "payload" else name for name in rows.HISTORY
)
_EXAMINED: Final = (
    (Run, "key", ", ".join(rows.RUN)),
    (Job, "run", ", ".join(rows.JOB)),
    (HistoryRow, "run", _WITHOUT_VALUES),
    (MapItems, "run", ", ".join(rows.ITEMS)),
)
"""What to check column by column: record, column of the run's key, and an expression for each column."""


def inspecting_answers(dialect: Dialect) -> Mapping[type, Callable[[Link, Any], object]]:
    """Return the functions that answer these queries, by type."""
    known: Mapping[type, Callable[[Dialect, Link, Any], object]] = {
        WholeRuns: _whole_runs,
        UnreadableRows: _unreadable,
        HistoriesOf: _histories,
        RelatedRuns: _related_runs,
        OrphanedRows: _rows_of_nothing,
        SlotsOverLimit: _slots_over,
        LiveSessions: _live_sessions,
        StreamPlaces: _stream_places,
        BlobsOf: _blobs,
    }
    return {kind: partial(answer, dialect) for kind, answer in known.items()}


def _whole_runs(dialect: Dialect, link: Link, query: WholeRuns) -> tuple[WholeRun, ...]:
    # One statement, because a run and its jobs must be from the same snapshot.
    if query.keys is None:
        which, parameters = (
            "key > :after ORDER BY key LIMIT :limit",
            {"after": query.after, "limit": query.limit},
        )
    else:
        which, parameters = dialect.one_of("key", "keys"), {"keys": dialect.texts(askable(query.keys))}
    sql = f"SELECT {_RUN}, {_JOB} FROM (SELECT {', '.join(rows.RUN)} FROM holdfast_runs WHERE {which}) {_WITH_JOBS}"
    found = link.query(dialect.bound(sql), parameters)
    return tuple(_whole(list(theirs)) for _, theirs in groupby(found, lambda row: cast("str", row[0])))


def _whole(found: Sequence[Row]) -> WholeRun:
    width = len(rows.RUN)
    jobs = tuple(rows.job_from(row[width:]) for row in found if row[width] is not None)
    return WholeRun(rows.run_from(found[0][:width]), jobs)


def _unreadable(dialect: Dialect, link: Link, query: UnreadableRows) -> tuple[Unreadable, ...]:
    keys = askable(query.keys)
    if not keys:
        return ()
    parameters = {"keys": dialect.texts(keys)}
    found: set[Unreadable] = set()
    for kind, of_run, selected in _EXAMINED:
        of = COLUMNS[kind]
        table, place = of.table.name, of.columns.index(of_run)
        sql = f"SELECT {selected} FROM {table} WHERE {dialect.one_of(of_run, 'keys')}"
        for row in link.query(dialect.bound(sql), parameters):
            wrong = unreadable_columns(kind, rows.fields_of(kind, row))
            found.update(Unreadable(table, row[place], of.column_of(field), why) for field, why in wrong)
    sql = (
        f"SELECT DISTINCT j.run FROM holdfast_jobs AS j WHERE {dialect.one_of('j.run', 'keys')} "
        "AND NOT EXISTS (SELECT 1 FROM holdfast_runs AS r WHERE r.key = j.run)"
    )
    orphans = link.query(dialect.bound(sql), parameters)
    found.update(Unreadable("holdfast_jobs", run, "run", NO_SUCH_RUN) for (run,) in orphans)
    return first_of_each(found)


def _histories(dialect: Dialect, link: Link, query: HistoriesOf) -> tuple[HistoryRow, ...]:
    columns = ", ".join("NULL" if name == "payload" else name for name in rows.HISTORY)
    run, number = query.after
    runs = [key for key in askable(query.runs) if key >= run]
    sql = (
        f"SELECT {columns} FROM holdfast_history WHERE {dialect.one_of('run', 'runs')} "
        "AND (run, number) > (:run, :number) ORDER BY run, number LIMIT :limit"
    )
    parameters = {"runs": dialect.texts(runs), "run": run, "number": number, "limit": query.limit}
    return tuple(map(rows.history_from, link.query(dialect.bound(sql), parameters))) if runs else ()


def _related_runs(dialect: Dialect, link: Link, query: RelatedRuns) -> tuple[str, ...]:
    wanted = sorted((*name, parent) for name, parent in set(query.wanted) if all(map(is_askable, name)))
    names = dialect.table_of("names", "n", dict.fromkeys(_NAME, "text"))
    sql = (
        f"SELECT DISTINCT r.key FROM {names} CROSS JOIN holdfast_runs AS r "
        "WHERE r.namespace = n.namespace AND r.id = n.id AND (r.parent = n.parent "
        "OR r.generation = (SELECT max(m.generation) FROM holdfast_runs AS m "
        "WHERE m.namespace = n.namespace AND m.id = n.id)) ORDER BY r.key"
    )
    found = link.query(dialect.bound(sql), {"names": encode_rows(_NAME, wanted)}) if wanted else ()
    return tuple(cast("str", key) for (key,) in found)


def _rows_of_nothing(dialect: Dialect, link: Link, query: OrphanedRows) -> tuple[tuple[str, str], ...]:
    # The range is repeated, so that no plan reads the runs of other pages.
    parts = " UNION ALL ".join(
        f"SELECT DISTINCT t.run AS run, '{name}' AS name FROM holdfast_{name} AS t "
        "WHERE t.run > :after AND t.run <= :upto AND NOT EXISTS (SELECT 1 FROM holdfast_runs AS r "
        "WHERE r.key = t.run AND r.key > :after AND r.key <= :upto)"
        for name in _HANGS_ON_RUNS
    )
    sql = f"SELECT run, name FROM ({parts}) AS found ORDER BY run, name LIMIT :limit"
    parameters = {"after": query.after, "upto": query.upto, "limit": query.limit}
    return tuple((run, name) for run, name in link.query(dialect.bound(sql), parameters))


def _slots_over(dialect: Dialect, link: Link, query: SlotsOverLimit) -> tuple[SlotsOver, ...]:
    if query.waiting is Waiting.RUNS:
        return _levels_over(dialect, link)[: query.limit]
    sql = (
        "SELECT namespace, concurrency_key, count(*), max(coalesce(concurrency_limit, 0)) FROM holdfast_jobs "
        "WHERE state IN ('queued', 'leased') AND concurrency_key IS NOT NULL "
        "GROUP BY namespace, concurrency_key HAVING count(*) > max(coalesce(concurrency_limit, 0)) "
        "ORDER BY namespace, concurrency_key LIMIT :limit"
    )
    found = link.query(dialect.bound(sql), {"limit": query.limit})
    return tuple(SlotsOver(SlotPlace(namespace, key), used, most) for namespace, key, used, most in found)


def _levels_over(dialect: Dialect, link: Link) -> tuple[SlotsOver, ...]:
    """Return the levels of concurrency keys of which runs hold more slots than the highest limit."""
    # The index includes runs that were paused before admission, which hold no slot.
    sql = (
        "SELECT namespace, concurrency_key, concurrency_outer, max(coalesce(concurrency_limit, 0)), count(*) "
        f"FROM holdfast_runs WHERE status NOT IN {NOT_UNDER_WAY} AND concurrency_key IS NOT NULL AND last_job > 0 "
        "GROUP BY namespace, concurrency_key, concurrency_outer"
    )
    used: Counter[SlotPlace] = Counter()
    most: dict[SlotPlace, int] = {}
    for namespace, key, outer, limit, number in link.query(dialect.bound(sql), {}):
        around = zip(levels_of(key), outer_limits_of_waiter(outer), strict=False)
        for level, level_limit in (*around, (key, limit)):
            place = SlotPlace(namespace, level)
            used[place] += number
            most[place] = max(level_limit, most.get(place, 0))
    return tuple(
        SlotsOver(place, used[place], limit) for place, limit in sorted(most.items()) if used[place] > limit
    )


def _live_sessions(dialect: Dialect, link: Link, query: LiveSessions) -> int:
    sql = "SELECT count(*) FROM holdfast_sessions WHERE state = 'open' AND expires_at > :now"
    return cast("int", link.query(dialect.bound(sql), {"now": query.now})[0][0])


def _stream_places(dialect: Dialect, link: Link, query: StreamPlaces) -> tuple[StreamPlace, ...]:
    sql = (
        "SELECT o.run, o.head_row, o.delivered, o.due_at, r.last_row FROM (SELECT run, head_row, delivered, due_at "
        "FROM holdfast_outbox WHERE sink = :sink AND run > :after ORDER BY run LIMIT :limit) AS o "
        "LEFT JOIN holdfast_runs AS r ON r.key = o.run ORDER BY o.run"
    )
    parameters = {"sink": query.sink, "after": query.after, "limit": query.limit}
    return tuple(StreamPlace(*row) for row in link.query(dialect.bound(sql), parameters))


def _blobs(dialect: Dialect, link: Link, query: BlobsOf) -> tuple[BlobUse, ...]:
    of_these = dialect.one_of("run", "runs")
    # An item is [text, null] or [null, blob key]. A false match of the pattern is harmless.
    sql = (
        f"SELECT run, 'artifact', blob FROM holdfast_artifacts WHERE {of_these} "
        f"UNION ALL SELECT run, 'ai_call', prompt_blob FROM holdfast_ai_calls WHERE {of_these} "
        f"AND prompt_blob IS NOT NULL UNION ALL SELECT run, 'ai_call', response_blob FROM holdfast_ai_calls "
        f"WHERE {of_these} AND response_blob IS NOT NULL "
        f"UNION ALL SELECT run, 'items', items FROM holdfast_map_items WHERE {of_these} AND items LIKE '%%[null,%%'"
    )
    found = link.query(dialect.bound(sql), {"runs": dialect.texts(askable(query.runs))})
    return tuple(sorted(_uses(found), key=lambda use: (use.run, use.what, use.blob)))


def _uses(found: Sequence[Row]) -> Iterator[BlobUse]:
    for run, what, text in found:
        if what != "items":
            yield BlobUse(run, what, text)
            continue
        for _, blob in cast("list[list[str | None]]", json.loads(text)):
            if blob is not None:
                yield BlobUse(run, "item", blob)
