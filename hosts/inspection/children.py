"""Child runs of a run: listed from its history, with their present states."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TypedDict, cast

import attrs

from holdfast.hosts.functions.published_values import newest_rows
from holdfast.hosts.inspection.bounds import CHILDREN_PAGE
from holdfast.hosts.inspection.filters import check_names, number_option, text_option
from holdfast.hosts.inspection.run_info import newest_runs
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus


class ChildOptions(TypedDict, total=False):
    """Paging of the child runs of a run.

    Attributes:
        after: Start after this position: the `cursor` of a `ChildInfo`.
        limit: The maximum number, at least 1; no limit if omitted.
    """

    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class ChildInfo:
    """A child run as it was when it was read. Instants are aware, in UTC."""

    id: str
    """The run id of the child."""
    generation: int | None
    """The number of its newest generation; None if it was removed."""
    workflow: str | None
    """The name of its workflow; None if it was removed and the parent's history does not name it."""
    version: str | None
    """The version of its workflow; None if it was removed."""
    status: RunStatus | None
    """Its status; None if it was removed."""
    started_at: datetime
    """When its parent started it."""
    ended_at: datetime | None
    """When it ended; None if it is active or was removed."""
    stage: str | None
    """The stage of the parent that it is; None if a durable function started it."""
    item: int | None
    """The index of the map item that it is; None if the stage is not mapped."""
    call: str | None
    """The call of the durable function that started it, such as `2` or `3.1`; None if it is a stage."""
    site: str
    """The call's place in the source code; "" if it is a stage."""
    cursor: str
    """An opaque position; pass it to `children(after=...)` to list the child runs that follow."""


def children_of(core: Core, run: Run, options: ChildOptions) -> Iterator[ChildInfo]:
    """Return the child runs that a generation started, newest first, read page by page. Options are checked at once.

    A function that was rerun also has those started in the history that it kept.

    Raises InvalidFilterError or InvalidArgumentError.
    """
    given = cast("dict[str, object]", options)
    check_names(given, ChildOptions, "children")
    before, limit = _row_option(given), number_option(given, "limit", 1)
    return islice(_children(core, run, before, min(limit or CHILDREN_PAGE, CHILDREN_PAGE)), limit)


def _row_option(given: Mapping[str, object]) -> int | None:
    value = text_option(given, "after")
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 10):
        raise InvalidFilterError("after", f"is {value!r}; it must be a cursor from an earlier list")
    return int(value)


def _children(core: Core, run: Run, before: int | None, page: int) -> Iterator[ChildInfo]:
    is_function = core.inputs.plan(run.plan).function is not None
    kind = (events.ChildStarted if is_function else events.StageStarted).type
    rows = newest_rows(core.stores.persistence, run, kind, page, before)
    seen: set[str] = set()  # a stage whose job was repaired starts its child again
    while found := list(islice(rows, page)):
        yield from _infos(core, found, seen)


def children_in(core: Core, rows: Iterable[HistoryRow]) -> list[ChildInfo]:
    """Return the child runs of a durable function that were started in these history rows, in their order."""
    return list(_infos(core, [row for row in rows if row.type == events.ChildStarted.type], set()))


def _infos(core: Core, rows: Sequence[HistoryRow], seen: set[str]) -> Iterator[ChildInfo]:
    started = [(row, cast("events.ChildStarted | events.StageStarted", events.event_of(row))) for row in rows]
    runs = newest_runs(core, (event.run for _, event in started))
    for row, event in started:
        if event.run not in seen:
            seen.add(event.run)
            yield _info(row, event, runs.get(event.run))


def _info(row: HistoryRow, event: events.ChildStarted | events.StageStarted, child: Run | None) -> ChildInfo:
    call = event if isinstance(event, events.ChildStarted) else None
    return ChildInfo(
        id=event.run,
        generation=None if child is None else child.generation,
        workflow=child.workflow if child is not None else None if call is None else call.workflow,
        version=None if child is None else child.version,
        status=None if child is None else child.status,
        started_at=instant(row.at),
        ended_at=None if child is None or child.ended_at is None else instant(child.ended_at),
        stage=row.node if call is None else None,
        item=row.item,
        call=None if call is None else call.call,
        site="" if call is None else call.site,
        cursor=str(row.number),
    )
