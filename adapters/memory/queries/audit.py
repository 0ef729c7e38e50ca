"""Answers to the queries that check a whole store, from plain dictionaries."""

from collections.abc import Iterator
from typing import cast

import attrs

from holdfast.ports.json import parse
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
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import MapItems
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.ports.tables import OF_RUNS
from holdfast.ports.unreadable import NO_SUCH_RUN, Unreadable, first_of_each, unreadable_columns
from holdfast.ports.working_set import Tables


def inspected(tables: Tables, query: object) -> object:
    """Return the answer to a query. TypeError for an unknown query."""
    match query:
        case WholeRuns():
            return tuple(_whole_runs(tables, query))
        case UnreadableRows(keys):
            return first_of_each(one for key in set(keys) for one in _unreadable(tables, key))
        case HistoriesOf():
            rows = (row for run in sorted(set(query.runs)) for row in tables.history.get(run, ()))
            after = (row for row in rows if (row.run, row.number) > query.after)
            return tuple(map(_without_inline, after))[: query.limit]
        case RelatedRuns(wanted):
            pairs = set(wanted)
            return tuple(
                key
                for key, run in sorted(tables.runs.items())
                if (run.parent is not None and (run.name, run.parent) in pairs)
                or (tables.newest[run.name] == key and any(name == run.name for name, _ in pairs))
            )
        case OrphanedRows():
            found = {(key, table) for key, table in _keys(tables) if key not in tables.runs}
            return tuple(sorted(pair for pair in found if query.after < pair[0] <= query.upto))[: query.limit]
        case SlotsOverLimit():
            return _slots_over(tables, query)
        case LiveSessions(now):
            sessions = tables.sessions.values()
            return sum(one.state is SessionState.OPEN and one.expires_at > now for one in sessions)
        case StreamPlaces():
            streams = sorted(
                (stream.run, stream) for stream in tables.streams.values() if stream.sink == query.sink
            )
            return tuple(
                StreamPlace(
                    key,
                    one.head_row,
                    one.delivered,
                    one.due_at,
                    tables.runs[key].last_row if key in tables.runs else None,
                )
                for key, one in streams
                if key > query.after
            )[: query.limit]
        case BlobsOf(runs=runs):
            return tuple(sorted(_blobs(tables, set(runs)), key=lambda use: (use.run, use.what, use.blob)))
        case _:
            raise TypeError(f"expected a query of holdfast.ports.queries, got {query!r}")


def _whole_runs(tables: Tables, query: WholeRuns) -> Iterator[WholeRun]:
    if query.keys is None:
        keys = sorted(key for key in tables.runs if key > query.after)[: query.limit]
    else:
        keys = sorted(set(query.keys) & tables.runs.keys())
    for key in keys:
        yield WholeRun(tables.runs[key], tuple(job for _, job in sorted(tables.jobs.get(key, {}).items())))


def _unreadable(tables: Tables, key: str) -> Iterator[Unreadable]:
    run, jobs = tables.runs.get(key), tables.jobs.get(key, {})
    if run is not None:
        found = unreadable_columns(Run, attrs.asdict(run, recurse=False))
        yield from (Unreadable("holdfast_runs", key, column, why) for column, why in found)
    elif jobs:
        yield Unreadable("holdfast_jobs", key, "run", NO_SUCH_RUN)
    for job in jobs.values():
        found = unreadable_columns(Job, attrs.asdict(job, recurse=False))
        yield from (Unreadable("holdfast_jobs", key, column, why) for column, why in found)
    for row in tables.history.get(key, ()):
        payload = row.payload
        values = attrs.asdict(row, recurse=False) | {
            "payload": None if payload is None else payload.inline,
            "blob": None if payload is None else payload.blob,
        }
        found = unreadable_columns(HistoryRow, values)
        yield from (Unreadable("holdfast_history", key, column, why) for column, why in found)
    for page in (page for place, page in tables.pages.items() if place[0] == key):
        found = unreadable_columns(MapItems, attrs.asdict(page, recurse=False))
        yield from (Unreadable("holdfast_map_items", key, column, why) for column, why in found)


def _without_inline(row: HistoryRow) -> HistoryRow:
    return row if row.payload is None or row.payload.blob is not None else attrs.evolve(row, payload=None)


def _keys(tables: Tables) -> Iterator[tuple[str, str]]:
    yield from ((key, "jobs") for key, jobs in tables.jobs.items() if jobs)
    yield from ((key, "history") for key, rows in tables.history.items() if rows)
    for table in OF_RUNS:
        yield from ((key[0], table.name) for key in tables.rows[table])


def _slots_over(tables: Tables, query: SlotsOverLimit) -> tuple[SlotsOver, ...]:
    everyone = tables.runs.values() if query.waiting is Waiting.RUNS else tables.all_jobs()
    limits: dict[SlotPlace, list[int]] = {}
    for one in everyone:
        if one.has_slot and one.concurrency_key is not None:
            for level, limit in _level_limits(one, one.concurrency_key):
                limits.setdefault(SlotPlace(one.namespace, level), []).append(limit)
    return tuple(
        SlotsOver(place, len(found), max(found))
        for place, found in sorted(limits.items())
        if len(found) > max(found)
    )[: query.limit]


def _level_limits(one: Run | Job, key: str) -> Iterator[tuple[str, int]]:
    if isinstance(one, Run):
        yield from zip(levels_of(key), outer_limits_of_waiter(one.concurrency_outer), strict=False)
    yield key, one.concurrency_limit or 0


def _blobs(tables: Tables, runs: set[str]) -> Iterator[BlobUse]:
    for artifact in tables.artifacts.values():
        if artifact.run in runs:
            yield BlobUse(artifact.run, "artifact", artifact.blob)
    for call in tables.ai_calls.values():
        for payload in (call.prompt, call.response) if call.run in runs else ():
            if payload is not None and payload.blob is not None:
                yield BlobUse(call.run, "ai_call", payload.blob)
    for page in tables.pages.values():
        if page.run in runs:
            for _, blob in cast("list[list[str | None]]", parse(page.items)):
                if blob is not None:
                    yield BlobUse(page.run, "item", blob)
