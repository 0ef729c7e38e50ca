"""Conversion of a batch's net changes to the rows of each statement, keys ascending."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.narrow_updates import LockedRows
from holdfast.adapters.sql.queries.runs import annotation_rows, attribute_rows, pairs_of_annotation
from holdfast.adapters.sql.rows import Row, stream_head_values
from holdfast.adapters.sql.statements import ColumnUpdate, Writes
from holdfast.ports.changes import NetChanges
from holdfast.ports.records.history import LOG
from holdfast.ports.tables import ANNOTATIONS, JOBS, OUTPUT, RUNS, STREAMS

WritePlan: TypeAlias = Sequence[tuple[Write, Sequence[Row]]]
"""Statements in their order, each with the rows that it writes."""


def write_plan(net: NetChanges, writes: Writes, known: LockedRows) -> WritePlan:
    """Return the statements for a batch, in the order that `NetChanges` demands.

    Cancelling external work changes jobs before they are updated, so `known` is of no use then.
    """
    if net.cancelled_work:
        known = LockedRows()
    steps: list[tuple[Write, Sequence[Row]]] = []
    if net.removed_runs:
        steps += ((write, _key_rows(net.removed_runs)) for write in writes.removed_runs)
    for table, of_table in writes.tables.items():
        if table is JOBS:
            steps += _writes_of_sets_of_jobs(net, writes)
        if deleted := net.deleted.get(table):
            steps.append((of_table.delete, _key_rows(deleted)))
        if table is OUTPUT and writes.log_locks is not None:
            steps.append((writes.log_locks, _logged_runs(net)))
        if inserted := net.inserted.get(table):
            keys = _in_order_of_lines(net) if table is OUTPUT else sorted(inserted)
            steps.append((of_table.insert, [of_table.values(inserted[key]) for key in keys]))
        if table is RUNS:
            steps += (
                (writes.attributes, _attributes(net)),
                (writes.annotation_texts, _annotation_texts(net)),
            )
        if updated := net.updated.get(table):
            steps += _updates(of_table.updates, updated, known.of(table))
        if table is RUNS and net.blocked_runs:
            steps.append((writes.blocked_runs, _blocked_runs(net)))
        elif table is STREAMS and net.stream_heads:
            heads = [stream_head_values(net.stream_heads[key]) for key in sorted(net.stream_heads)]
            steps.append((writes.stream_heads, heads))
    return [(write, rows) for write, rows in steps if rows]


def is_sure(net: NetChanges, known: LockedRows) -> bool:
    """Whether all rows that changes update certainly exist: locked rows can't be deleted by others."""
    if net.cancelled_work:
        return False
    return all(not rows or rows.keys() <= known.of(table).keys() for table, rows in net.updated.items())


def _writes_of_sets_of_jobs(net: NetChanges, writes: Writes) -> Iterable[tuple[Write, Sequence[Row]]]:
    return (
        (writes.held_jobs, _key_rows(net.blocked_runs)),
        (writes.cancelled_work, [(most, *place) for place, most in sorted(net.cancelled_work.items())]),
        (writes.closed_runs, _key_rows(net.closed_runs)),
        (writes.closed_nodes, _key_rows(net.closed_nodes)),
    )


def _in_order_of_lines(net: NetChanges) -> Sequence[tuple[str, str]]:
    """Return the keys of new output, in the order in which log lines are numbered that are stored together."""
    notes = net.inserted.get(OUTPUT, {})
    return sorted(notes, key=lambda key: (notes[key].run, notes[key].at, notes[key].id))


def _logged_runs(net: NetChanges) -> Sequence[Row]:
    """Return the runs to which log lines are added."""
    return [
        (run,)
        for run in sorted({one.run for one in net.inserted.get(OUTPUT, {}).values() if one.kind == LOG})
    ]


def _blocked_runs(net: NetChanges) -> Sequence[Row]:
    return [
        (one.at, one.last_row, run)
        for run, one in sorted(net.blocked_runs.items())
        if one.last_row is not None
    ]


def _key_rows(keys: Iterable[Any]) -> Sequence[Row]:
    """Return keys as rows, ascending."""
    return [(key,) if isinstance(key, str) else tuple(key) for key in sorted(keys)]


def _updates(
    updates: Sequence[ColumnUpdate], changed: Mapping[Any, object], known: Mapping[Any, object]
) -> list[tuple[Write, list[Row]]]:
    """Return the updates of a table. Rows that were not locked are written by the last one, which has all columns."""
    made: list[tuple[Write, list[Row]]] = [(update.write, []) for update in updates]
    for key in sorted(changed):
        after, before = changed[key], known.get(key)
        for update, (_, rows) in zip(updates, made, strict=True):
            others = update.others
            if others is None or (before is not None and others(before) == others(after)):
                rows.append(update.values(after))
                break
    return made


def _attributes(net: NetChanges) -> Sequence[Row]:
    """Return the index entries of new runs, including those for annotations in the same batch."""
    new_runs = net.inserted.get(RUNS)
    if not new_runs:
        return ()
    found = {row for run in new_runs.values() for row in attribute_rows(run)}
    for annotation in net.inserted.get(ANNOTATIONS, {}).values():
        run = new_runs.get(annotation.run)
        if run is not None:
            found |= {(pair, run.created_at, run.key) for pair in pairs_of_annotation(annotation)}
    return sorted(found)


def _annotation_texts(net: NetChanges) -> Sequence[Row]:
    annotations = net.inserted.get(ANNOTATIONS, {}).values()
    return sorted({row for annotation in annotations for row in annotation_rows(annotation, net)})
