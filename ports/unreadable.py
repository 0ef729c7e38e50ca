"""Checks that find the columns of stored rows that can't be read: damaged, or written by a newer version.

Rows are decoded without checking each column, which would cost every step. These checks run after a row could not be
decoded, and when an operator checks a whole store (docs/decisions/0062).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args

import attrs

from holdfast.ports.actors import Actor
from holdfast.ports.blobs import is_blob_key
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential, CredentialKind
from holdfast.ports.records.gatherings import gathered_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind
from holdfast.ports.records.limits import FairKey, LimitRow, RateWindow
from holdfast.ports.records.outbox import Sink, Stream, StreamState
from holdfast.ports.records.run import Run, outer_limits_from
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.topic import GroupRow, ReturnedRow, SubscriptionRow, TopicMessageRow, TopicRow
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.records.values import MapItems
from holdfast.ports.references import Reference, kept_rows_from, reference_from, references_from
from holdfast.ports.texts import escape_line

INSTANT_MAX: Final = 253_402_300_800_000_000
"""The end of the year 9999, the last instant that a datetime can hold."""
NUMBER_MAX: Final = 2**60
"""The largest number that every database can still count up from, or add to an instant."""
_WHY_MAX: Final = 200

PARSE_ERRORS: Final = (
    OverflowError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RecursionError,
    AssertionError,
)
"""The errors that decoding damaged data can raise."""


class Unreadable(NamedTuple):
    """A column of a row that can't be read, and why."""

    table: str
    run: str
    """The key of the run that the row belongs to; "" if it belongs to none."""
    column: str
    why: str

    @classmethod
    def of(cls, error: UnreadableRowError) -> "Unreadable":
        """Return the column that an error is about."""
        return cls(error.table, error.run, error.column, error.why)

    @property
    def error(self) -> UnreadableRowError:
        """The error to raise for this column."""
        return UnreadableRowError(self.table, self.run, self.column, self.why)


NO_SUCH_RUN: Final = "there is no row of this run"


def first_of_each(found: Iterable[Unreadable]) -> tuple[Unreadable, ...]:
    """Return the first entry of each table, run and column, sorted."""
    each = {one[:3]: one for one in sorted(found, reverse=True)}
    return tuple(each[place] for place in sorted(each))


def unreadable(record: Run | HistoryRow, error: Exception) -> UnreadableRowError:
    """Return the error for a record that could not be decoded, naming the first unreadable column."""
    table = "holdfast_runs" if isinstance(record, Run) else "holdfast_history"
    columns = attrs.asdict(record, recurse=False)
    if isinstance(record, HistoryRow):
        columns |= {"payload": None, "blob": None}
    column, why = next(unreadable_columns(type(record), columns), ("*", f"{type(error).__name__}: {error}"))
    return UnreadableRowError(table, record.key if isinstance(record, Run) else record.run, column, why)


class RunOutline(NamedTuple):
    """The columns of a run that can be read even if others can't."""

    key: str
    namespace: str
    id: str
    workflow: str
    version: str
    status: str
    """The stored text, which may not be a RunStatus."""
    last_row: int
    """The highest number of a history row; 0 for an empty history."""


_Check: TypeAlias = Callable[[Any], str | None]
"""Returns what is wrong with a value; None if it is valid."""

_INSTANTS: Final = frozenset(
    (
        *(
            "at",
            "created_at",
            "deadline",
            "due_at",
            "ended_at",
            "ends_at",
            "expires_at",
            "failed_at",
            "first_claimed_at",
            "handled_until",
            "next_at",
        ),
        *(
            "give_up_at",
            "heartbeat_by",
            "leased_at",
            "opened_at",
            "dead_lettered_at",
            "retry_at",
            "since",
            "start_at",
        ),
        *("succeeded_at", "updated_at", "wake_at", "wakes_at", "swept_at"),
    )
)


def unreadable_columns(
    kind: type[Run] | type[Job] | type[HistoryRow] | type[MapItems], columns: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Yield the columns of a row that can't be read, each with the reason.

    `columns` holds the stored value of each field of the record; of a history row, of `payload` and `blob` too.
    """
    for name, check in _CHECKS[kind].items():
        problem = check(columns[name])
        if problem is not None:
            yield name, problem
    if kind is Job and (problem := _wrong_input(columns["kind"], columns["input"])) is not None:
        yield "input", problem
    if kind is HistoryRow and columns["payload"] is not None and columns["blob"] is not None:
        yield "blob", "the row has a value, too"


def replace_unreadable(
    kind: type[ScheduleRow]
    | type[TriggerRow]
    | type[Stream]
    | type[Sink]
    | type[RateWindow]
    | type[FairKey]
    | type[LimitRow]
    | type[Session]
    | type[Credential]
    | type[BrowserSession]
    | type[TopicRow]
    | type[TopicMessageRow]
    | type[SubscriptionRow]
    | type[GroupRow]
    | type[ReturnedRow],
    columns: Mapping[str, object],
) -> dict[str, Any]:
    """Return the columns of a row with harmless values in place of those that can't be read.

    For rows that many runs share, where a refusal would stop them all: a stream is delivered again, a sink gets more
    event types, or refuses the cursor of the client that reads it, a rate limit and a key with turns count from zero, a
    session counts as dead and its jobs go to others, a schedule or trigger that can't be read does not fire, and says
    so, a changed limit is again as plans say, a credential or browser session that can't be read has expired, and a
    message that can't be read is skipped by those who get it.
    """
    checks, harmless = _CHECKS[kind], _HARMLESS[kind]
    return {
        name: harmless[name] if name in harmless and checks[name](value) is not None else value
        for name, value in columns.items()
    }


def shown(value: object) -> str:
    """Return a stored value for a message: one line of limited length."""
    text = escape_line(repr(value))
    return text if len(text) <= _WHY_MAX else f"{text[:_WHY_MAX]}..."


def _of_enum(kind: type[StrEnum]) -> _Check:
    known = frozenset(one.value for one in kind)

    def check(value: object) -> str | None:
        if isinstance(value, str) and value in known:
            return None
        return f"it is {shown(value)}, which this version does not know"

    return check


def _number(low: int, high: int) -> _Check:
    def check(value: object) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"it is {shown(value)}, not a number from {low} to {high}"

    return check


def _text(value: object) -> str | None:
    return None if isinstance(value, str) else f"it is {shown(value)}, not a text"


def _optional(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _that(reads: Callable[[str], object], what: str) -> _Check:
    """Return a check that passes if `reads` accepts the text."""

    def check(value: object) -> str | None:
        try:
            reads(cast("str", value))
        except PARSE_ERRORS:
            return f"it is {shown(value)}, not a {what}"
        return None

    return check


def _object(text: str) -> dict[str, object]:
    found: object = parse(text)
    if not isinstance(found, dict):
        raise TypeError("it is not an object")
    return cast("dict[str, object]", found)


def _texts(text: str) -> None:
    if not all(isinstance(one, str) for one in _object(text).values()):
        raise TypeError("not all are texts")


def _kept(text: str) -> None:
    kept_rows_from(text)
    for reference in references_from(text).values():
        _check_reference(reference)


def _options(text: str) -> None:
    options = _object(text)
    Actor.of(options.pop("actor", {}))
    for names in cast("dict[str, list[object]]", options).values():
        if not all(isinstance(name, str) for name in names):
            raise TypeError("not all are texts")


def _batch(text: str) -> None:
    found = _object(text)
    numbers: list[object] = [found["number"], found["read_at"], found.get("passed_over", 0)]
    for run, after, last, skipped in cast("list[list[object]]", found["streams"]):
        numbers += [after, last]
        if not isinstance(run, str) or not isinstance(skipped, str | None):
            raise TypeError("a run and its skipped rows are texts")
    if any(_number(0, NUMBER_MAX)(one) for one in numbers):
        raise TypeError("not all are numbers")


def _skips(text: str) -> None:
    for skip in cast("dict[str, dict[str, object]]", _object(text)).values():
        Actor.of(skip.get("actor", {}))
        if not isinstance(skip["reason"], str):
            raise TypeError("not all have a reason")


def _items(text: str) -> None:
    for inline, blob in cast("list[tuple[object, object]]", parse(text)):
        is_inline = isinstance(inline, str) and blob is None
        if not is_inline and not (inline is None and isinstance(blob, str) and is_blob_key(blob)):
            raise TypeError("it is neither a text nor the key of a blob")


def _reference(text: str) -> None:
    _check_reference(reference_from(text))


def _check_reference(reference: Reference) -> None:
    """Raise TypeError unless this is a valid reference (see `holdfast.ports.references`)."""
    match reference:
        case bool():
            raise TypeError("it is not a number")
        case int() if 0 <= reference <= NUMBER_MAX:
            return
        case ("item", str(), int(), int()) | ("map" | "failures" | "partial", str(), int(), int()):
            return
        case ("list", *parts):
            for part in parts:
                _check_reference(cast("Reference", part))
        case ("of", str(), there):
            _check_reference(cast("Reference", there))
        case _:
            raise TypeError("it is not a reference")


def _wrong_input(kind: object, text: object) -> str | None:
    """Return what is wrong with a job's input: a reference or, for a delivery, the id of the receiving job."""
    if kind == JobKind.DELIVER or text == "null":
        return _that(parse, "JSON text")(text)
    return _that(_reference, "reference to a value")(text)


def _blob_key(value: object) -> str | None:
    return (
        None if isinstance(value, str) and is_blob_key(value) else f"{shown(value)} is not the key of a blob"
    )


_OWN_CHECKS: Final[Mapping[type, Mapping[str, _Check]]] = {
    Run: {
        "progress": _that(_object, "JSON object"),
        "result": _optional(_that(_reference, "reference to a value")),
        "error": _optional(_that(_object, "JSON object")),
        "attributes": _optional(_that(_texts, "JSON object of texts")),
        "headers": _optional(_that(_texts, "JSON object of texts")),
        "inherited": _optional(_that(_kept, "list of rows, and no object of references")),
        "mailbox": _optional(_that(mailbox_from, "mailbox")),
        "scheduled": _optional(_that(_object, "JSON object")),
        "concurrency_outer": _optional(_that(outer_limits_from, "JSON list of limits")),
        "gathered": _optional(_that(gathered_from, "JSON object of gathered starts")),
        "queue_position": _number(-NUMBER_MAX, NUMBER_MAX),
        "priority": _number(-NUMBER_MAX, NUMBER_MAX),
    },
    Job: dict.fromkeys(("queue_position", "priority"), _number(-NUMBER_MAX, NUMBER_MAX)),
    HistoryRow: {"payload": _optional(_text), "data": _optional(_that(_object, "JSON object"))},
    MapItems: {"items": _that(_items, "list of items")},
    Stream: {"skipped_rows": _optional(_that(_skips, "JSON object of objects with a reason"))},
    Sink: {
        "options": _optional(_that(_options, "JSON object of lists, and an actor")),
        "batch": _optional(_that(_batch, "JSON object of a batch")),
    },
    ScheduleRow: {},
    TriggerRow: {},
    RateWindow: {},
    FairKey: {},
    LimitRow: {},
    Credential: {},
    BrowserSession: {},
    Session: {},
    TopicRow: {},
    TopicMessageRow: {},
    SubscriptionRow: {},
    GroupRow: {},
    ReturnedRow: {},
}

_HARMLESS: Final[Mapping[type, Mapping[str, object]]] = {
    ScheduleRow: {
        **dict.fromkeys(
            ("workflow", "start", "timing", "policy", "zones", "recent", "changes", "open_runs"), ""
        ),
        **dict.fromkeys(
            (
                "started",
                "skipped",
                "missed",
                "failures",
                "next_at",
                "handled_until",
                "created_at",
                "updated_at",
            ),
            0,
        ),
        **dict.fromkeys(("last_local", "paused", "problem", "declared")),
    },
    TriggerRow: {
        **dict.fromkeys(("topic", "selection", "workflow", "start", "recent", "changes"), ""),
        "next_number": NUMBER_MAX,  # no message has it, so nothing is started
        **dict.fromkeys(("since", "started", "refused", "created_at", "updated_at"), 0),
        **dict.fromkeys(("paused", "problem", "declared")),
    },
    Stream: {
        "head_row": 0,
        "delivered": 0,
        "state": StreamState.READY.value,
        "attempts": 0,
        "due_at": 0,
        **dict.fromkeys(("holder", "refused_row", "failed_at", "dead_lettered_at", "error", "skipped_rows")),
    },
    Sink: {
        "since": 0,
        "created_at": 0,
        "failures": 0,
        "batch": '{"number":0,"read_at":4102444800000000,"streams":[]}',
        **dict.fromkeys(("options", "retry_at", "succeeded_at", "swept_at", "error")),
    },
    RateWindow: {"wakes_at": None, "admits_at": None, "updated_at": 0},
    FairKey: {"next_turn": 0, "weight": 1, "updated_at": 0},
    LimitRow: {
        **dict.fromkeys(("slots", "rate_limit", "rate_period")),
        **dict.fromkeys(("reason", "actor_kind", "actor_id", "actor_version"), ""),
        **dict.fromkeys(("is_paused", "updated_at"), 0),
    },
    Session: {
        "state": SessionState.DEAD.value,
        "expires_at": 0,
        "namespace": "",
        "principal": None,
        "is_registered": 0,
    },
    Credential: {
        "kind": CredentialKind.KEY.value,
        **dict.fromkeys(("label", "principal", "scopes", "namespaces", "hash"), ""),
        **dict.fromkeys(("unique_label", "previous_hash", "previous_until", "used_at")),
        **dict.fromkeys(("created_at", "expires_at", "revoked_at"), 0),
    },
    BrowserSession: {
        **dict.fromkeys(("hash", "kind", "principal", "scopes", "namespaces"), ""),
        # It was opened with a key that does not exist, not with a token: then it would outlive the key.
        **dict.fromkeys(("credential", "credential_hash"), ""),
        **dict.fromkeys(("created_at", "used_at", "idle", "expires_at", "ends_at"), 0),
    },
    TopicRow: {"after_subscription": None, "kept_from": 0},
    TopicMessageRow: {
        "payload": "null",
        "attributes": "{}",
        **dict.fromkeys(("number", "sender", "keep_last")),
        **dict.fromkeys(("at", "checked", "sender_row", "expires_at"), 0),
    },
    SubscriptionRow: {
        "selection": "{}",
        **dict.fromkeys(("topic", "digest"), ""),
        **dict.fromkeys(("next_number", "since"), 0),
        **dict.fromkeys(("group_key", "waits_since", "holds")),
    },
    GroupRow: {
        "selection": "{}",
        "next_number": NUMBER_MAX,  # no message has it, so nothing is handed out
        "name": "",
        **dict.fromkeys(("since", "used_at"), 0),
    },
    ReturnedRow: {},
}
"""The replacement values for unreadable columns of shared rows."""


def _check_of(name: str, kind: object) -> _Check:
    parts = get_args(kind) or (kind,)
    (plain,) = (part for part in parts if part is not NoneType)
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        check = _of_enum(plain)
    elif plain is int:
        check = _number(0, INSTANT_MAX if name in _INSTANTS else NUMBER_MAX)
    else:
        check = _text
    return _optional(check) if NoneType in parts else check


_CHECKS: Final[Mapping[type, Mapping[str, _Check]]] = {
    kind: {
        **{
            field.name: own.get(field.name) or _check_of(field.name, field.type)
            for field in attrs.fields(cast("type[attrs.AttrsInstance]", kind))
        },
        **({"blob": _optional(_blob_key)} if kind is HistoryRow else {}),
    }
    for kind, own in _OWN_CHECKS.items()
}
