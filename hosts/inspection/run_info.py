"""Runs and history rows as the client returns them, and reading them."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast

import attrs

from holdfast.hosts.inspection.value_previews import ValuePreview, preview_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.scheduled_runs import Scheduled, scheduled_from
from holdfast.kernel.history import events
from holdfast.kernel.history.raised import Raised
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError, UnreadableRowError
from holdfast.ports.events import USER_EVENTS
from holdfast.ports.json import parse
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import job_key
from holdfast.ports.records.run import Run, RunName, RunStatus, attribute_texts
from holdfast.ports.searches import Generations
from holdfast.ports.unreadable import PARSE_ERRORS, unreadable

_log = logging.getLogger("holdfast.runs")

_CANCELS: Final = frozenset(
    event.type for event in (events.RunCancelling, events.RunCancelled, events.RunTerminated)
)


@attrs.frozen(kw_only=True)
class RunError:
    """Why a run failed or was cancelled."""

    text: str
    """The reason in one line, for people."""
    code: str
    """The code of the error, such as `body_error`, `cancelled` or `deadline_exceeded`."""
    message: str
    """The text of the exception, or the reason that was given."""
    type: str | None = None
    """The class of the exception; None if there was none."""
    stage: str | None = None
    """The stage that failed; of a durable function, its name. None if the run did not fail in its code."""
    item: int | None = None
    """The index of the map item that failed; None if the stage is not mapped."""
    attempt: int | None = None
    """The number of the attempt that failed, from 1."""


@attrs.frozen(kw_only=True)
class ParentRun:
    """The generation of a run that waits for the end of a child run."""

    id: str
    """The run id."""
    generation: int
    """The number of its generation, from 1."""


@attrs.frozen(kw_only=True)
class RunInfo:
    """A generation of a run as it was when it was read. Instants are aware, in UTC."""

    id: str
    """The run id."""
    key: str
    """The key of this generation in the store; commands and events name it."""
    generation: int
    """The number of the generation, from 1."""
    namespace: str
    """The namespace of the run."""
    workflow: str
    """The name of its workflow."""
    version: str
    """The version of the workflow's code that it runs."""
    status: RunStatus
    """Its status."""
    queue: str
    """The queue of its jobs, unless a stage has another."""
    priority: int
    """The head start of its jobs in the queue, in minutes."""
    created_at: datetime
    """When it was stored."""
    updated_at: datetime
    """When its row last changed."""
    ended_at: datetime | None
    """When it ended; None if it is active."""
    start_at: datetime | None
    """When it may start; None if it need not wait, or has waited."""
    deadline: datetime | None
    """When it fails if it has not ended; None for no limit."""
    duration: timedelta = attrs.field(eq=False)  # two reads of a run that has not changed are equal
    """From its creation to its end; of an active run to the time of the read."""
    concurrency_key: str | None
    """The key that limits how many runs with the same key are admitted at a time; None for no limit."""
    concurrency_limit: int | None
    """How many that is."""
    attributes: Mapping[str, str]
    """The attributes that it was started with."""
    error: RunError | None
    """Why it failed or was cancelled; None if neither."""
    cursor: str
    """An opaque position; pass it to `runs(after=...)` to list the runs that follow."""
    parent: ParentRun | None
    """The run that waits for its end; None if it is no child run, or the parent was removed."""
    rerun_of: int | None = None
    """The number of the generation that this one reruns; None if it is not a rerun."""
    rerun_from: str | None = None
    """The stage or call that the rerun started from; None for the beginning."""
    is_continued: bool = False
    """Whether it ended by continue-as-new: its status is completed, and it has no result."""
    is_retried: bool = False
    """Whether it failed, and the next generation tries the whole run again."""
    scheduled: Scheduled | None = None
    """Which schedule started it, and for which time; None if none did."""

    @property
    def end_cause(self) -> str:
        """Why it failed or was cancelled, in one line; "" if neither, or if it was cancelled without a reason."""
        return end_cause(self.error)


@attrs.frozen(kw_only=True)
class RunResult(RunInfo):
    """A run that has ended, with its result."""

    result: object
    """The result as JSON data; None also if it has none."""


@attrs.frozen(kw_only=True)
class RunCounts:
    """Numbers of runs."""

    total: int
    """How many runs there are."""
    by_status: Mapping[RunStatus, int]
    """How many of them have each status that was requested."""


@attrs.frozen(kw_only=True)
class RunEvent:
    """An event in the history of a run."""

    number: int
    """The number of the history row, from 1 without gaps."""
    type: str
    """Such as `run.created`, `stage.completed` or `stage.retrying`."""
    at: datetime
    """When it was stored; aware, in UTC."""
    stage: str | None
    """The stage that it is about, if any; of a durable function, its name."""
    item: int | None
    """The index of the map item; None if the stage is not mapped."""
    epoch: int | None
    """The epoch of the attempt that recorded it, if one did."""
    data: Mapping[str, object]
    """Details: the attempt, the error, when its body started and on which host. For an event that a stage published,
    the published object; any other value is wrapped as `{"data": value}`."""
    payload: ValuePreview | None
    """The value that it stores, such as an input, a result or a message; None if it stores none."""


def find_run(core: Core, run_id: str, generation: int | None = None) -> Run:
    """Return a generation of a run, by default the newest. Raises RunNotFoundError."""
    core.connect()
    run = core.stores.persistence.read(FindRun(RunName(core.namespace, run_id), generation))
    if run is None:
        raise RunNotFoundError(run_id, generation)
    return run


def newest_runs(core: Core, ids: Iterable[str]) -> dict[str, Run]:
    """Return the newest generations of runs, by id, with one query. Runs that do not exist are left out."""
    names = [RunName(core.namespace, id_) for id_ in dict.fromkeys(ids)]
    found = core.stores.persistence.transact(lambda tx: tx.find(Generations(names))) if names else ()
    return {run.id: run for run in found}  # of one id, the newest is the last


def read_info(core: Core, run: Run) -> RunInfo:
    """Return a run as the client returns it. Raises UnreadableRowError."""
    return _info_of(run, _parents_of(core, (run,)), core.clock.now())


def read_infos(core: Core, runs: Iterable[Run]) -> Iterator[RunInfo]:
    """Yield runs as the client returns them. Unreadable rows are logged and left out."""
    page = tuple(runs)
    parents, now = _parents_of(core, page), core.clock.now()
    for run in page:
        try:
            info = _info_of(run, parents, now)
        except UnreadableRowError as error:
            _log.error("run %s is omitted from a list: %s", run.id, error)
        else:
            yield info


def read_events(core: Core, run: str, after: int, limit: int) -> list[RunEvent]:
    """Return the events in the next rows of a run's history, after the row with number `after`."""
    return [event_of(row) for row in core.stores.persistence.read(HistoryOf(run, after, limit))]


def _parents_of(core: Core, runs: Iterable[Run]) -> dict[str, ParentRun]:
    """Return the parents of runs, by their keys."""
    keys = {key for run in runs if (key := _parent_key(run)) is not None}
    found = core.stores.persistence.read(RunsByKey(tuple(sorted(keys)))) if keys else ()
    return {run.key: ParentRun(id=run.id, generation=run.generation) for run in found}


def _parent_key(run: Run) -> str | None:
    try:
        return None if run.parent is None else job_key(run.parent).run
    except ValueError:  # a damaged column
        return None


def _info_of(run: Run, parents: Mapping[str, ParentRun], now: datetime) -> RunInfo:
    try:
        ended_at = _instant(run.ended_at)
        created_at = instant(run.created_at)
        return RunInfo(
            id=run.id,
            key=run.key,
            generation=run.generation,
            namespace=run.namespace,
            workflow=run.workflow,
            version=run.version,
            status=run.status,
            queue=run.queue,
            priority=run.priority,
            created_at=created_at,
            updated_at=instant(run.updated_at),
            ended_at=ended_at,
            start_at=_instant(run.start_at),
            deadline=_instant(run.deadline),
            duration=max(timedelta(), (ended_at or now) - created_at),
            concurrency_key=run.concurrency_key,
            concurrency_limit=run.concurrency_limit,
            attributes=attribute_texts(run.attributes),
            error=error_of(run),
            cursor=run.place.text,
            parent=parents.get(_parent_key(run) or ""),
            # A rerun always starts from the newest generation.
            rerun_of=None if run.rerun_of is None else run.generation - 1,
            rerun_from=run.rerun_from,
            is_continued=run.is_continued,
            is_retried=run.is_retried,
            scheduled=scheduled_from(run.scheduled),
        )
    except (InvalidCommandError, *PARSE_ERRORS) as error:
        raise unreadable(run, error) from None


def _instant(at: int | None) -> datetime | None:
    return None if at is None else instant(at)


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
    """Return a history row as the client returns it. Raises UnreadableRowError."""
    try:
        return RunEvent(
            number=row.number,
            type=row.type,
            at=instant(row.at),
            stage=row.node,
            item=row.item,
            epoch=row.epoch,
            data=_facts(row),
            payload=preview_of(row.payload),
        )
    except PARSE_ERRORS as error:
        raise unreadable(row, error) from None


def _facts(row: HistoryRow) -> Mapping[str, object]:
    if row.type.startswith(USER_EVENTS) and row.payload is not None:
        published = parse(row.payload.inline or "null")
        return cast("dict[str, object]", published) if isinstance(published, dict) else {"data": published}
    return events.shown_facts(row)


def error_of(run: Run) -> RunError | None:
    """Return why a run failed or was cancelled; None if neither."""
    if run.error is None:
        return None
    error = cast("dict[str, Any]", parse(run.error))
    found = RunError(
        text="",
        code=error["code"],
        message=error["message"],
        type=error.get("type") or None,
        stage=error.get("stage"),
        item=error.get("item"),
        attempt=error.get("attempt"),
    )
    return attrs.evolve(found, text=_text_of(found, is_function=bool(error.get("function"))))


def _text_of(error: RunError, *, is_function: bool) -> str:
    if error.stage is None:
        return f"{error.code}: {error.message}" if error.message else error.code
    what = error.message if error.type is None else f"{error.type}: {error.message}"
    if is_function:
        return what
    where = f"stage {error.stage!r}" + ("" if error.item is None else f", item {error.item}")
    return f"{where}, attempt {error.attempt}: {what}"


def error_text(run: Run) -> str | None:
    """Return why a run failed or was cancelled, in one line; None if neither."""
    error = error_of(run)
    return None if error is None else error.text


def end_cause(error: RunError | None) -> str:
    """Return why a run ended, in one line; of a run that was cancelled only the reason that was given."""
    if error is None:
        return ""
    is_cancelled = error.stage is None and error.code == RunStatus.CANCELLED.value
    return error.message if is_cancelled else error.text


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
    error = error_of(run)
    return "" if error is None else error.message
