"""Conversion between rows, which are plain tuples in the order of a table's columns, and records."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from holdfast.adapters.sql.schema.columns import COLUMNS
from holdfast.ports.attempt_output import AiCall, AiCallKind, AiTotal, Annotation, AnnotationScope, Artifact
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.limits import RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, Stream, StreamHead, StreamState
from holdfast.ports.records.run import ClosePolicy, Run, RunStatus
from holdfast.ports.records.session import LeaderLease, Session, SessionState
from holdfast.ports.records.values import IdempotencyReply, MapItems, Payload, PlanRow
from holdfast.ports.searches import CompletedRow, NodeRows, SlotPlace, WaitedFor
from holdfast.ports.unreadable import RunOutline, replace_unreadable, shown, unreadable_columns

Row: TypeAlias = tuple[Any, ...]
E = TypeVar("E", bound=StrEnum)
K = TypeVar("K", bound=tuple[Any, ...])


RUN: Final = COLUMNS[Run].columns
JOB: Final = COLUMNS[Job].columns
HISTORY: Final = COLUMNS[HistoryRow].columns
ITEMS: Final = COLUMNS[MapItems].columns
PLAN: Final = COLUMNS[PlanRow].columns
SESSION: Final = COLUMNS[Session].columns
REPLY: Final = COLUMNS[IdempotencyReply].columns
LEADER: Final = COLUMNS[LeaderLease].columns
ATTRIBUTE: Final = ("pair", "created_at", "run")
SINK: Final = COLUMNS[Sink].columns
STREAM: Final = COLUMNS[Stream].columns
STREAM_HEAD: Final = ("sink", "run", "head_row", "delivered", "state", "due_at", "attempts")
SLOT: Final = COLUMNS[SlotName].columns
RATE: Final = COLUMNS[RateWindow].columns
NOTE: Final = COLUMNS[OutputRow].columns
ANNOTATION: Final = COLUMNS[Annotation].columns
ARTIFACT: Final = COLUMNS[Artifact].columns
AI_CALL: Final = COLUMNS[AiCall].columns

_STATUS: Final = {status.value: status for status in RunStatus}
_CLOSE_POLICY: Final = {policy.value: policy for policy in ClosePolicy}
_STATE: Final = {state.value: state for state in JobState}
_KIND: Final = {kind.value: kind for kind in JobKind}
_HISTORY_HEAD: Final = attrgetter(*COLUMNS[HistoryRow].fields[:7])
_AI_CALL_HEAD: Final = attrgetter(*COLUMNS[AiCall].fields[:16])
COST_PART: Final = 1_000_000
BIGINT_MAX: Final = 2**63 - 1


def run_from(row: Row) -> Run:
    """Return the run in a row of `RUN`. UnreadableRowError."""
    fields = fields_of(Run, row)
    try:
        fields["status"] = _STATUS[fields["status"]]
        fields["close_policy"] = _CLOSE_POLICY[fields["close_policy"]]
        if fields["last_row"] < 0:  # new history rows would sort before the existing ones
            raise KeyError("last_row")
    except (KeyError, TypeError):
        raise _unreadable(Run, fields["key"], unreadable_columns(Run, fields)) from None
    return Run(**fields)


def job_from(row: Row) -> Job:
    """Return the job in a row of `JOB`. UnreadableRowError."""
    fields = fields_of(Job, row)
    try:
        fields["kind"] = _KIND[fields["kind"]]
        fields["state"] = _STATE[fields["state"]]
    except KeyError:
        raise _unreadable(Job, fields["run"], unreadable_columns(Job, fields)) from None
    return Job(**fields)


def job_key_from(row: Row) -> JobKey:
    """Return the key in a row of a run and a number."""
    return JobKey(*row)


def payload_from(inline: str | None, blob: str | None) -> Payload | None:
    """Return the payload in a pair of columns; None if both are NULL."""
    return None if inline is None and blob is None else Payload(inline=inline, blob=blob)


def history_from(row: Row) -> HistoryRow:
    """Return the history row in a row of `HISTORY`. UnreadableRowError."""
    run, number, type_, at, node, item, epoch, inline, blob, data = row
    try:
        payload = None if inline is None and blob is None else Payload(inline=inline, blob=blob)
    except ValueError as error:
        raise _unreadable(HistoryRow, run, [("blob", str(error))]) from None
    # Positional arguments: keywords take twice as long, and a replay reads thousands.
    return HistoryRow(run, number, type_, at, node, item, epoch, payload, data)


def history_values(record: HistoryRow) -> Row:
    """Return a history row as a row of `HISTORY`."""
    payload = record.payload
    if payload is None:
        return (*_HISTORY_HEAD(record), None, None, record.data)
    return (*_HISTORY_HEAD(record), payload.inline, payload.blob, record.data)


def plan_from(row: Row) -> PlanRow:
    """Return the plan in a row of `PLAN`."""
    return PlanRow(**fields_of(PlanRow, row))


def session_from(row: Row) -> Session:
    """Return the session in a row of `SESSION`.

    A session in an unknown state counts as dead: its jobs go to other sessions, which write under new epochs.
    """
    fields = replace_unreadable(Session, fields_of(Session, row))
    fields["state"] = SessionState(fields["state"])
    return Session(**fields)


def sink_from(row: Row) -> Sink:
    """Return the sink in a row of `SINK`."""
    return Sink(**replace_unreadable(Sink, fields_of(Sink, row)))


def stream_from(row: Row) -> Stream:
    """Return the stream in a row of `STREAM`."""
    fields = replace_unreadable(Stream, fields_of(Stream, row))
    fields["state"] = StreamState(fields["state"])
    return Stream(**fields)


def stream_head_from(row: Row) -> StreamHead:
    """Return the head in a row of sink, run, row number and instant."""
    sink, run, head_row, at = row
    return StreamHead(sink=sink, run=run, head_row=head_row, at=at)


def stream_head_values(record: StreamHead) -> Row:
    """Return a head as a row of `STREAM_HEAD`, which is a new stream if none exists."""
    return (record.sink, record.run, record.head_row, 0, StreamState.READY.value, record.at, 0)


def note_from(row: Row) -> OutputRow:
    """Return the attempt output in a row of `NOTE`."""
    return OutputRow(**fields_of(OutputRow, row))


def annotation_from(row: Row) -> Annotation:
    """Return the annotation in a row of `ANNOTATION`."""
    fields = fields_of(Annotation, row)
    fields["scope"] = _known(AnnotationScope, Annotation, fields, "scope")
    return Annotation(**fields)


def artifact_from(row: Row) -> Artifact:
    """Return the artifact in a row of `ARTIFACT`."""
    return Artifact(**fields_of(Artifact, row))


def ai_call_from(row: Row) -> AiCall:
    """Return the AI call in a row of `AI_CALL`."""
    fields = fields_of(AiCall, row)
    fields["kind"] = _known(AiCallKind, AiCall, fields, "kind")
    for name in ("prompt", "response"):
        fields[name] = payload_from(fields[name], fields.pop(f"{name}_blob"))
    return AiCall(**fields)


def ai_call_values(record: AiCall) -> Row:
    """Return an AI call as a row of `AI_CALL`."""
    prompt, response = record.prompt, record.response
    return (
        *_AI_CALL_HEAD(record),
        *((None, None) if prompt is None else (prompt.inline, prompt.blob)),
        *((None, None) if response is None else (response.inline, response.blob)),
        record.error,
        record.metadata,
    )


VALUES: Final[Mapping[type, Callable[[Any], Row]]] = {HistoryRow: history_values, AiCall: ai_call_values}
"""How records become rows whose fields are not all columns; for other records see `values_of`."""


def ai_total_from(row: Row) -> AiTotal:
    """Return the totals in a row of name, counts and sums. Costs are summed in two parts, so that no sum overflows."""
    name, *counts, high, low, duration = row
    calls, failed, unpriced, input_tokens, output_tokens = (int(count or 0) for count in counts)
    return AiTotal(
        name=name,
        calls=calls,
        failed=failed,
        unpriced=unpriced,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost=int(high or 0) * COST_PART + int(low or 0),
        duration=int(duration or 0),
    )


def slot_from(row: Row) -> SlotName:
    """Return the concurrency limit in a row of `SLOT`."""
    return SlotName(*row)


def waited_for_from(row: Row) -> WaitedFor:
    """Return the concurrency key in a row of namespace, key, limits and used slots."""
    namespace, key, limit, rate_limit, rate_period, used = row
    # The limits are those of the first that waits. If they are damaged, it must still be found, so that others proceed.
    limits = (one if one is None or isinstance(one, int) else 1 for one in (limit, rate_limit, rate_period))
    limit, rate_limit, rate_period = limits
    return WaitedFor(SlotPlace(namespace, key), limit, used, rate_limit, rate_period)


def rate_from(row: Row) -> RateWindow:
    """Return the rate limit in a row of `RATE`."""
    return RateWindow(**replace_unreadable(RateWindow, fields_of(RateWindow, row)))


def completed_from(row: Row) -> CompletedRow:
    """Return the record in a row of run, number, node, item and type."""
    run, number, node, item, type_ = row
    return CompletedRow(run, number, node or "", item, type_)


def node_rows_from(row: Row) -> NodeRows:
    """Return the record in a row of run, node, type, first and last number, and count."""
    return NodeRows(*row)


def outline_from(row: Row) -> RunOutline:
    """Return the outline in a row of its fields."""
    return RunOutline(*row)


_RECORD_FROM: Final[Mapping[type, Callable[[Row], Any]]] = {
    Run: run_from,
    Job: job_from,
    HistoryRow: history_from,
    Session: session_from,
    Sink: sink_from,
    Stream: stream_from,
    Annotation: annotation_from,
    AiCall: ai_call_from,
    SlotName: slot_from,
    RateWindow: rate_from,
}


def record_of(record: type[Any]) -> Callable[[Row], Any]:
    """Return the function that returns the record in a row of its columns. It may raise UnreadableRowError."""
    return _RECORD_FROM.get(record) or (lambda row: record(**fields_of(record, row)))


def fields_of(record: type[attrs.AttrsInstance], row: Row) -> dict[str, Any]:
    """Return the values in a row of a record's columns, by field."""
    return dict(zip(COLUMNS[record].fields, row, strict=True))


@lru_cache
def values_of(record: type, columns: tuple[str, ...]) -> Callable[[object], Row]:
    """Return a function that returns the values of a record for these columns, of which there are several."""
    return attrgetter(*COLUMNS[record].fields_of(columns))


def _known(kind: type[E], record: type[Annotation] | type[AiCall], fields: Mapping[str, str], name: str) -> E:
    try:
        return kind(fields[name])
    except ValueError:
        why = f"it is {shown(fields[name])}, which this version does not know"
        raise _unreadable(record, fields["run"], [(name, why)]) from None


def _unreadable(
    record: type[attrs.AttrsInstance], run: str, fields: Iterable[tuple[str, str]]
) -> UnreadableRowError:
    """Return the error for the first of these unreadable fields, of which at least one exists."""
    field, why = next(iter(fields))
    return UnreadableRowError(COLUMNS[record].table.name, run, COLUMNS[record].column_of(field), why)


def is_askable(text: str) -> bool:
    """Whether a database can be queried for this text. Other texts can't be stored either."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))


def askable(texts: Iterable[str]) -> list[str]:
    """Return the distinct texts that a database can be queried for, ascending."""
    return sorted(filter(is_askable, set(texts)))


def askable_keys(keys: Iterable[K]) -> list[K]:
    """Return those of these keys, tuples of texts and numbers, that a row can have, ascending."""
    return sorted(
        key
        for key in set(keys)
        if all(part <= BIGINT_MAX if isinstance(part, int) else is_askable(part) for part in key)
    )
