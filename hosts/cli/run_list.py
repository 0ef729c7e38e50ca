"""The command `holdfast run list`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, cast

import click

from holdfast.hosts.cli.console import Screen, format_length, safe, screen_options, status_text, table
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.filter_options import filter_options, instant_of, named_texts
from holdfast.hosts.inspection.filters import (
    CountOptions,
    ListOptions,
    RunListQuery,
    run_filter,
    run_list_query,
)
from holdfast.hosts.inspection.run_info import RunCounts, RunInfo, read_infos
from holdfast.hosts.wiring.services import Core
from holdfast.ports.queries.runs import CountRuns, ListRuns, RunFilter
from holdfast.ports.records.run import RunStatus

LIMIT_MAX: Final = 10_000
LIMIT: Final = 20


@click.command("list", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE]")
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    metavar="N",
    help=f"List at most this many.  [default: {LIMIT}]",
)
@click.option(
    "--after",
    metavar="CURSOR",
    help="The next page: the cursor that the last page printed, or a run's cursor.",
)
@click.option("--oldest-first", is_flag=True, help="List the oldest first.")
@click.option(
    "--all-generations", is_flag=True, help="Also list older generations of runs that were run again."
)
@click.option("--count", "counts", is_flag=True, help="Show only the number of runs per status.")
@engine_options
@screen_options
def list_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    limit: int | None,
    after: str | None,
    oldest_first: bool,
    counts: bool,
    all_generations: bool,
    **filters: object,
) -> None:
    """List runs, newest first."""
    if counts and (limit or after or oldest_first):
        raise click.UsageError("--count counts all runs: omit --limit, --after and --oldest-first")
    attributes = named_texts(cast("tuple[str, ...]", filters["attributes"]))
    annotations = named_texts(cast("tuple[str, ...]", filters["annotations"]), "--annotation")
    spec, _ = target.split(words)
    with target.opened(spec) as engine:
        core = engine.core
        core.connect()
        now = core.clock.now()
        which: CountOptions = {
            "workflow": cast("str | None", filters["workflow"]),
            "status": cast("tuple[str, ...]", filters["statuses"]) or None,
            "attributes": attributes or None,
            "annotations": annotations or None,
            "since": _instant(filters["since"], now, screen),
            "until": _instant(filters["until"], now, screen),
            "ended_before": _instant(filters["ended_before"], now, screen),
            "waiting": cast("bool", filters["waiting"]),
            "all_generations": all_generations,
        }
        if counts:
            _count(screen, core, run_filter(core.namespace, which, "run list"))
            return
        options: ListOptions = {
            **which,
            "oldest_first": oldest_first,
            "after": after,
            "limit": limit or LIMIT,
        }
        _list(screen, core, run_list_query(core.namespace, options, "run list"), now)


def _instant(moment: object, now: datetime, screen: Screen) -> datetime | None:
    return instant_of(cast("datetime | timedelta | None", moment), now, utc=screen.zone is not None)


def _list(screen: Screen, core: Core, wanted: RunListQuery, now: datetime) -> None:
    limit = cast("int", wanted.limit)
    query = ListRuns(wanted.which, after=wanted.after, oldest_first=wanted.oldest_first, limit=limit + 1)
    found = core.stores.persistence.read(query)
    runs = list(read_infos(core, islice(found, limit)))
    if screen.as_json:
        screen.data(runs)
    elif not runs:
        is_narrowed = wanted.after is not None or wanted.which != RunFilter(
            namespace=core.namespace, newest=True
        )
        screen.note("No runs match." if is_narrowed else "There are no runs.")
    else:
        _show(screen, runs, now)
        if len(found) > limit:
            screen.note(f"More runs: --after {found[limit - 1].place.text}")


def _count(screen: Screen, core: Core, which: RunFilter) -> None:
    found: Mapping[RunStatus, int] = core.stores.persistence.read(CountRuns(which))
    statuses = [status for status in RunStatus if not which.statuses or status in which.statuses]
    counts = RunCounts(
        total=sum(found.values()), by_status={status: found.get(status, 0) for status in statuses}
    )
    if screen.as_json:
        screen.data(counts)
        return
    rows = table("status", "runs", right=("runs",))
    for status, number in counts.by_status.items():
        if which.statuses or number:
            rows.add_row(status_text(status), str(number))
    rows.add_row("total", str(counts.total))
    screen.write(rows)


def _show(screen: Screen, runs: list[RunInfo], now: datetime) -> None:
    rows = table("id", "workflow", "status", "age", "duration", right=("age", "duration"))
    for run in runs:
        rows.add_row(
            safe(run.id),
            f"{run.workflow}@{run.version}",
            status_text(run.status),
            format_length(max(timedelta(), now - run.created_at)),
            format_length(run.duration),
        )
    screen.write(rows)
