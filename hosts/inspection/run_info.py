"""Public forms of runs and history rows."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.history import events
from holdfast.kernel.history.raised import Raised
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.events import USER_EVENTS
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus, attribute_texts
from holdfast.ports.unreadable import PARSE_ERRORS, unreadable

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_log = logging.getLogger("holdfast.runs")

_CANCELS: Final = frozenset(
    event.type for event in (events.RunCancelling, events.RunCancelled, events.RunTerminated)
)


@attrs.frozen(kw_only=True)
class RunInfo:
    """A run as it was when it was read. Instants are aware, in UTC.

    Attributes:
        updated_at: When its row last changed.
        ended_at: When it ended; None if it is active.
        error: Why it failed or was cancelled, for people; None if neither.
        attributes: The attributes that it was started with.
        cursor: An opaque position; pass it to `runs(after=...)` to list the runs that follow.
        rerun_of: The number of the generation that this one reruns; None if it is not a rerun.
        rerun_from: The stage or call that the rerun started from; None for the beginning.
        is_continued: Whether it ended by continue-as-new: its status is completed, and it has no result.
        is_retried: Whether it failed, and the next generation tries the whole run again.
    """

    id: str
    generation: int
    workflow: str
    version: str
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    error: str | None
    attributes: dict[str, str]
    cursor: str
    rerun_of: int | None = None
    rerun_from: str | None = None
    is_continued: bool = False
    is_retried: bool = False


@attrs.frozen(kw_only=True)
class RunEvent:
    """An event in the history of a run.

    Attributes:
        number: The number of the history row, from 1 without gaps.
        type: Such as `run.created`, `stage.completed` or `stage.retrying`.
        at: When it was stored; aware, in UTC.
        stage: The stage that it is about, if any.
        item: The index of the map item; None if the stage is not mapped.
        data: Details: the attempt, the error, when its body started and on which host. For an event that a stage
            published, the published object; any other value is wrapped as `{"data": value}`.
    """

    number: int
    type: str
    at: datetime
    stage: str | None
    item: int | None
    data: Mapping[str, object]


def infos_of(runs: Iterable[Run]) -> Iterator[RunInfo]:
    """Yield the public forms of runs. Unreadable rows are logged and left out."""
    for run in runs:
        try:
            info = info_of(run)
        except UnreadableRowError as error:
            _log.error("run %s is omitted from a list: %s", run.id, error)
        else:
            yield info


def info_of(run: Run) -> RunInfo:
    """Return the public form of a run. Raises UnreadableRowError."""
    try:
        return _info_of(run)
    except PARSE_ERRORS as error:
        raise unreadable(run, error) from None


def _info_of(run: Run) -> RunInfo:
    return RunInfo(
        id=run.id,
        generation=run.generation,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        created_at=instant(run.created_at),
        updated_at=instant(run.updated_at),
        ended_at=None if run.ended_at is None else instant(run.ended_at),
        error=error_text(run),
        attributes=attribute_texts(run.attributes),
        cursor=run.place.text,
        # A rerun always starts from the newest generation.
        rerun_of=None if run.rerun_of is None else run.generation - 1,
        rerun_from=run.rerun_from,
        is_continued=run.is_continued,
        is_retried=run.is_retried,
    )


def canceller_of(rows: Sequence[HistoryRow]) -> Actor | None:
    """Return who cancelled or terminated a run with these history rows; None if unknown."""
    for row in reversed(rows):
        match events.event_of(row) if row.type in _CANCELS else None:
            case events.RunTerminated(actor=actor):
                return actor
            case events.RunCancelling(actor=actor) | events.RunCancelled(actor=actor) if actor is not None:
                return actor
            case _:
                pass
    return None


def event_of(row: HistoryRow) -> RunEvent:
    """Return the public form of a history row. Raises UnreadableRowError."""
    try:
        at, data = instant(row.at), _facts(row)
    except PARSE_ERRORS as error:
        raise unreadable(row, error) from None
    return RunEvent(number=row.number, type=row.type, at=at, stage=row.node, item=row.item, data=data)


def _facts(row: HistoryRow) -> Mapping[str, object]:
    if row.type.startswith(USER_EVENTS) and row.payload is not None:
        published = parse(row.payload.inline or "null")
        return cast("dict[str, object]", published) if isinstance(published, dict) else {"data": published}
    return events.shown_facts(row)


def error_text(run: Run) -> str | None:
    """Return why a run failed or was cancelled, in one line; None if neither."""
    if run.error is None:
        return None
    error = cast("dict[str, Any]", parse(run.error))
    if "stage" not in error:
        return f"{error['code']}: {error['message']}" if error["message"] else str(error["code"])
    what = f"{error['type']}: {error['message']}" if error["type"] else str(error["message"])
    if error.get("function"):
        return what
    where = f"stage {error['stage']!r}" + (f", item {error['item']}" if "item" in error else "")
    return f"{where}, attempt {error['attempt']}: {what}"


def end_cause(run: Run) -> str:
    """Return the text of `error_text`; "" if it only repeats that the run was cancelled, without a reason."""
    text = error_text(run) or ""
    return "" if run.status is RunStatus.CANCELLED and text == run.status.value else text


def raised_of(run: Run) -> Raised | None:
    """Return the exception that a run failed with, if it was stored."""
    error = cast("dict[str, Any]", parse(run.error or "{}"))
    if "arguments" not in error:
        return None
    return Raised(
        type=error["type"], message=error["message"], arguments=error["arguments"], code=error["code"]
    )


def ended_reason(run: Run) -> str:
    """Return the reason that was given when the run was cancelled."""
    return str(cast("dict[str, Any]", parse(run.error))["message"]) if run.error else ""
