"""Conversion of a batch's net changes to the rows of each statement, keys ascending."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import attrs

from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.narrow_updates import LockedRows, job_updates, run_updates
from holdfast.adapters.sql.queries.runs import annotation_pair, annotation_text_rows, attribute_rows
from holdfast.adapters.sql.rows import Row, ai_call_values, history_values, stream_head_values, values_of
from holdfast.adapters.sql.statements import Writes
from holdfast.ports.attempt_output import Annotation, Artifact, annotation_text
from holdfast.ports.changes import NetChanges
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import RateWindow
from holdfast.ports.records.outbox import Sink, Stream
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, MapItems, PlanRow

K = TypeVar("K")
V = TypeVar("V")

WritePlan: TypeAlias = Sequence[tuple[Write, Sequence[Row]]]
"""Statements in their order, each with the rows that it writes."""


def write_plan(net: NetChanges, writes: Writes, known: LockedRows) -> WritePlan:
    """Return the statements for a batch, in the order of the fields of `NetChanges`.

    Cancelling external work changes jobs before they are updated, so `known` is of no use then.
    """
    if net.cancelled_work:
        known = LockedRows()
    removed = [(key,) for key in sorted(net.removed_runs)]
    steps: list[tuple[Write, Sequence[Row]]] = [
        *((write, removed) for write in writes.removed_runs),
        (writes.removed_streams, sorted(net.removed_streams)),
        (writes.new_runs, _by_key(Run, net.new_runs, writes.new_runs)),
        (writes.attributes, _attributes(net)),
        (
            writes.annotation_texts,
            sorted({row for annotation in net.annotations for row in annotation_text_rows(annotation, net)}),
        ),
        *run_updates(writes.runs, net.runs, known),
        (
            writes.blocked_runs,
            [
                (one.at, one.last_row, run)
                for run, one in sorted(net.blocked_runs.items())
                if one.last_row is not None
            ],
        ),
        (writes.held_jobs, [(run,) for run in sorted(net.blocked_runs)]),
        (writes.cancelled_work, [(most, *place) for place, most in sorted(net.cancelled_work.items())]),
        (writes.closed_runs, [(run,) for run in sorted(net.closed_runs)]),
        (writes.closed_nodes, sorted(net.closed_nodes)),
        (writes.closed_jobs, sorted(net.closed_jobs)),
        (writes.new_jobs, _by_key(Job, net.new_jobs, writes.new_jobs)),
        *job_updates(writes.jobs, net.jobs, known),
        (writes.history, _sorted(net.history, "run", "number", values=history_values)),
        (writes.pages, _by_fields(MapItems, net.pages, writes.pages, "run", "node", "page")),
        (writes.plans, _by_key(PlanRow, net.plans, writes.plans)),
        (writes.replies, _by_fields(IdempotencyReply, net.replies, writes.replies, "namespace", "key")),
        (writes.sessions, _by_key(Session, net.sessions, writes.sessions)),
        (writes.new_leaders, _by_key(LeaderLease, net.new_leaders, writes.new_leaders)),
        (writes.leaders, _by_key(LeaderLease, net.leaders, writes.leaders)),
        (writes.notes, _by_fields(OutputRow, net.notes, writes.notes, "run", "id")),
        (writes.new_sinks, _by_key(Sink, net.new_sinks, writes.new_sinks)),
        (writes.sinks, _by_key(Sink, net.sinks, writes.sinks)),
        (writes.removed_sinks, [(key,) for key in sorted(net.removed_sinks)]),
        (writes.streams, _by_key(Stream, net.streams, writes.streams)),
        (
            writes.stream_heads,
            [stream_head_values(net.stream_heads[key]) for key in sorted(net.stream_heads)],
        ),
        (writes.annotations, _by_fields(Annotation, net.annotations, writes.annotations, "run", "at", "id")),
        (
            writes.artifacts,
            _by_fields(Artifact, net.artifacts, writes.artifacts, "run", "job", "epoch", "call", "name"),
        ),
        (writes.ai_calls, _sorted(net.ai_calls, "run", "at", "id", values=ai_call_values)),
        (writes.slots, sorted(net.slots)),
        (writes.new_rates, _by_key(RateWindow, net.new_rates, writes.new_rates)),
        (writes.rates, _by_key(RateWindow, net.rates, writes.rates)),
    ]
    return [(write, rows) for write, rows in steps if rows]


def is_sure(plan: WritePlan, net: NetChanges, writes: Writes, known: LockedRows) -> bool:
    """Whether all rows that a plan updates certainly exist: locked rows can't be deleted by others."""
    if net.cancelled_work or not (
        net.runs.keys() <= known.runs.keys() and net.jobs.keys() <= known.jobs.keys()
    ):
        return False
    of_known = (*writes.runs, *writes.jobs)
    return all(not write.hits_all or write in of_known for write, _ in plan)


def _attributes(net: NetChanges) -> Sequence[Row]:
    """Return the index entries of new runs, including those for annotations in the same batch."""
    found = {row for run in net.new_runs.values() for row in attribute_rows(run)}
    for annotation in net.annotations:
        run = net.new_runs.get(annotation.run)
        if run is not None and (text := annotation_text(annotation)) is not None:
            found.add((annotation_pair(run.namespace, annotation.name, text), run.created_at, run.key))
    return sorted(found)


def _by_key(record: type[attrs.AttrsInstance], records: Mapping[Any, object], write: Write) -> Sequence[Row]:
    if not records:
        return ()
    values = values_of(record, write.columns)
    return [values(records[key]) for key in sorted(records)]


def _sorted(records: Sequence[V], *key: str, values: Callable[[V], Row]) -> Sequence[Row]:
    return [values(record) for record in sorted(records, key=attrgetter(*key))] if records else ()


def _by_fields(
    record: type[attrs.AttrsInstance], records: Sequence[Any], write: Write, *key: str
) -> Sequence[Row]:
    return _sorted(records, *key, values=values_of(record, write.columns)) if records else ()
