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
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential, CredentialKind
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.limits import (
    FairKey,
    FairKeyName,
    LimitRow,
    RateName,
    RateWindow,
    SlotName,
    WhenFull,
)
from holdfast.ports.records.outbox import Sink, Stream, StreamHead, StreamState
from holdfast.ports.records.run import ClosePolicy, Run, RunStatus, outer_limits_of_waiter
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import LeaderLease, Session, SessionState
from holdfast.ports.records.topic import GroupRow, ReturnedRow, SubscriptionRow, TopicMessageRow
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import IdempotencyReply, MapItems, Payload, PlanRow
from holdfast.ports.searches import (
    CompletedRow,
    NodeRows,
    OpenRunsOfKey,
    PartTurn,
    QueuePart,
    SlotPlace,
    TurnsAround,
    WaitedFor,
    WaitingTurn,
)
from holdfast.ports.structs import evolve, maker
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
SCHEDULE: Final = COLUMNS[ScheduleRow].columns
TRIGGER: Final = COLUMNS[TriggerRow].columns
TOPIC_MESSAGE: Final = COLUMNS[TopicMessageRow].columns
SUBSCRIPTION: Final = COLUMNS[SubscriptionRow].columns
GROUP: Final = COLUMNS[GroupRow].columns
SINK: Final = COLUMNS[Sink].columns
STREAM: Final = COLUMNS[Stream].columns
STREAM_HEAD: Final = ("sink", "run", "head_row", "delivered", "state", "due_at", "attempts")
SLOT: Final = COLUMNS[SlotName].columns
RATE: Final = COLUMNS[RateWindow].columns
LIMIT: Final = COLUMNS[LimitRow].columns
CREDENTIAL: Final = COLUMNS[Credential].columns
BROWSER_SESSION: Final = COLUMNS[BrowserSession].columns
AUDIT_ENTRY: Final = COLUMNS[AuditEntry].columns
NOTE: Final = COLUMNS[OutputRow].columns
ANNOTATION: Final = COLUMNS[Annotation].columns
ARTIFACT: Final = COLUMNS[Artifact].columns
AI_CALL: Final = COLUMNS[AiCall].columns

_STATUS: Final = {status.value: status for status in RunStatus}
_CLOSE_POLICY: Final = {policy.value: policy for policy in ClosePolicy}
_WHEN_FULL: Final[Mapping[str | None, WhenFull | None]] = {
    None: None,
    **{full.value: full for full in WhenFull},
}
_STATE: Final = {state.value: state for state in JobState}
_KIND: Final = {kind.value: kind for kind in JobKind}
_run: Final = maker(
    Run, COLUMNS[Run].fields, status=_STATUS, close_policy=_CLOSE_POLICY, concurrency_full=_WHEN_FULL
)
_job: Final = maker(Job, COLUMNS[Job].fields, kind=_KIND, state=_STATE)
_HISTORY_HEAD: Final = attrgetter(*COLUMNS[HistoryRow].fields[:7])
_AI_CALL_HEAD: Final = attrgetter(*COLUMNS[AiCall].fields[:16])
COST_PART: Final = 1_000_000
BIGINT_MAX: Final = 2**63 - 1


def run_from(row: Row) -> Run:
    """Return the run in a row of `RUN`. UnreadableRowError."""
    try:
        run = _run(row)
        if run.last_row < 0:  # new history rows would sort before the existing ones
            raise KeyError("last_row")
    except (KeyError, TypeError):
        fields = fields_of(Run, row)
        raise _unreadable(Run, fields["key"], unreadable_columns(Run, fields)) from None
    return run


def job_from(row: Row) -> Job:
    """Return the job in a row of `JOB`. UnreadableRowError."""
    try:
        return _job(row)
    except (KeyError, TypeError):
        fields = fields_of(Job, row)
        raise _unreadable(Job, fields["run"], unreadable_columns(Job, fields)) from None


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


def session_from(row: Row) -> Session:
    """Return the session in a row of `SESSION`.

    A session in an unknown state counts as dead: its jobs go to other sessions, which write under new epochs.
    """
    fields = replace_unreadable(Session, fields_of(Session, row))
    fields["state"] = SessionState(fields["state"])
    return Session(**fields)


def browser_session_from(row: Row) -> BrowserSession:
    """Return the browser session in a row of `BROWSER_SESSION`. One that can't be read has ended."""
    return BrowserSession(**replace_unreadable(BrowserSession, fields_of(BrowserSession, row)))


def credential_from(row: Row) -> Credential:
    """Return the credential in a row of `CREDENTIAL`. One that can't be read has expired."""
    fields = replace_unreadable(Credential, fields_of(Credential, row))
    fields["kind"] = CredentialKind(fields["kind"])
    return Credential(**fields)


def schedule_from(row: Row) -> ScheduleRow:
    """Return the schedule in a row of `SCHEDULE`."""
    return ScheduleRow(**replace_unreadable(ScheduleRow, fields_of(ScheduleRow, row)))


def trigger_from(row: Row) -> TriggerRow:
    """Return the trigger in a row of `TRIGGER`."""
    return TriggerRow(**replace_unreadable(TriggerRow, fields_of(TriggerRow, row)))


def topic_message_from(row: Row) -> TopicMessageRow:
    """Return the message in a row of `TOPIC_MESSAGE`."""
    return TopicMessageRow(**replace_unreadable(TopicMessageRow, fields_of(TopicMessageRow, row)))


def subscription_from(row: Row) -> SubscriptionRow:
    """Return the subscription in a row of `SUBSCRIPTION`."""
    return SubscriptionRow(**replace_unreadable(SubscriptionRow, fields_of(SubscriptionRow, row)))


def group_from(row: Row) -> GroupRow:
    """Return the group in a row of `GROUP`."""
    return GroupRow(**replace_unreadable(GroupRow, fields_of(GroupRow, row)))


def returned_message_from(row: Row) -> ReturnedRow:
    """Return the message that went back to its group."""
    return ReturnedRow(**replace_unreadable(ReturnedRow, fields_of(ReturnedRow, row)))


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


def annotation_from(row: Row) -> Annotation:
    """Return the annotation in a row of `ANNOTATION`."""
    fields = fields_of(Annotation, row)
    fields["scope"] = _known(AnnotationScope, Annotation, fields, "scope")
    return Annotation(**fields)


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
    """Return the concurrency key in a row of namespace, key, limits, rank, used slots, and whether limits changed."""
    namespace, key, limit, rate_limit, rate_period, outer, position, used, has_limits = row
    # The limits are those of the first that waits. If they are damaged, it must still be found, so that others proceed.
    limits = (one if one is None or isinstance(one, int) else 1 for one in (limit, rate_limit, rate_period))
    limit, rate_limit, rate_period = limits
    return WaitedFor(
        SlotPlace(namespace, key),
        limit,
        used,
        rate_limit,
        rate_period,
        bool(has_limits),
        outer_limits_of_waiter(outer),
        position if isinstance(position, int) else 0,
    )


def open_runs_from(found: Iterable[Row]) -> Mapping[SlotPlace, OpenRunsOfKey]:
    """Return the open runs of each key in rows of namespace, key, run, whether it waits, its place, and numbers."""
    answer: dict[SlotPlace, OpenRunsOfKey] = {}
    for namespace, key, run, run_id, waits, place, most, total, age, slots in found:
        place_of = SlotPlace(namespace, key)
        known = answer.get(place_of) or OpenRunsOfKey(slots=slots if isinstance(slots, int) else None)
        named = (run,) if place <= most else ()
        if waits:
            known = evolve(known, waiting=total, oldest_waiting=(*known.oldest_waiting, *named))
        else:
            known = evolve(known, under_way=total, oldest_under_way=(*known.oldest_under_way, *named))
        answer[place_of] = evolve(known, newest=run, newest_id=run_id) if age == 1 else known
    return answer


def rate_name_from(row: Row) -> RateName:
    """Return the name of a rate limit in a row of it."""
    return RateName(*row)


def rate_from(row: Row) -> RateWindow:
    """Return the rate limit in a row of `RATE`."""
    return RateWindow(**replace_unreadable(RateWindow, fields_of(RateWindow, row)))


def fair_key_from(row: Row) -> FairKey:
    """Return the key in a row of its columns."""
    return FairKey(**replace_unreadable(FairKey, fields_of(FairKey, row)))


def _waiting_turn(turn: object, since: object) -> WaitingTurn | None:
    # A damaged row is no neighbour: the start next to it must not fail.
    return WaitingTurn(turn, since) if isinstance(turn, int) and isinstance(since, int) else None


def first_turns_from(found: Iterable[Row]) -> Mapping[QueuePart, WaitingTurn]:
    """Return the first turns in rows of a part, a turn and an instant."""
    turns = ((QueuePart(*part), _waiting_turn(turn, since)) for *part, turn, since in found)
    return {part: turn for part, turn in turns if turn is not None}


def neighbouring_turns_from(found: Iterable[Row]) -> Mapping[PartTurn, TurnsAround]:
    """Return the neighbours in rows of a part, a turn, and turn and instant before and after it."""
    return {
        PartTurn(QueuePart(*part), turn): TurnsAround(_waiting_turn(*before), _waiting_turn(*after))
        for *part, turn, before, after in ((*row[:4], row[4:6], row[6:]) for row in found)
    }


def highest_turns_from(found: Iterable[Row]) -> Mapping[FairKeyName, int]:
    """Return the highest turns in rows of a namespace, a line and a turn."""
    return {
        FairKeyName(namespace, line, ""): turn for namespace, line, turn in found if isinstance(turn, int)
    }


def limit_from(row: Row) -> LimitRow:
    """Return the changed limit in a row of `LIMIT`."""
    return LimitRow(**replace_unreadable(LimitRow, fields_of(LimitRow, row)))


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
    ScheduleRow: schedule_from,
    TriggerRow: trigger_from,
    TopicMessageRow: topic_message_from,
    SubscriptionRow: subscription_from,
    GroupRow: group_from,
    ReturnedRow: returned_message_from,
    Sink: sink_from,
    Stream: stream_from,
    Annotation: annotation_from,
    AiCall: ai_call_from,
    SlotName: slot_from,
    RateWindow: rate_from,
    FairKey: fair_key_from,
    LimitRow: limit_from,
    Credential: credential_from,
    BrowserSession: browser_session_from,
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
    return sorted([key for key in set(keys) if _is_key(key)])


def _is_key(key: tuple[str | int, ...]) -> bool:
    for part in key:
        if isinstance(part, int):
            if part > BIGINT_MAX:
                return False
        elif not is_askable(part):
            return False
    return True
