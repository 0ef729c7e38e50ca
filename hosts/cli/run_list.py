"""The command `holdfast run list`."""

from datetime import datetime, timedelta
from typing import Final, cast

import click

from holdfast.hosts.cli.backends import Backend
from holdfast.hosts.cli.console import Screen, format_length, safe, status_text, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.filter_options import filter_options, filters_given
from holdfast.hosts.inspection.filters import (
    CountOptions,
    ListOptions,
    RunListQuery,
    run_filter,
    run_list_query,
)
from holdfast.hosts.inspection.run_info import RunCounts, RunInfo
from holdfast.ports.queries.runs import RunFilter

LIMIT_MAX: Final = 10_000
LIMIT: Final = 20
COUNT_MAX: Final = 10_000
"""At which number a server stops to count."""


@engine_command("list", "[ENGINE]", Exit.NOT_FOUND)
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
def list_command(
    *,
    screen: Screen,
    target: Target,
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
    with target.backend() as (backend, _):
        now = backend.now()
        which: CountOptions = {
            **filters_given(filters, now, utc=screen.zone is not None),
            "all_generations": all_generations,
        }
        if counts:
            run_filter(backend.namespace, which, "run list")  # for an error that names this command
            _count(screen, backend, which)
            return
        options: ListOptions = {
            **which,
            "oldest_first": oldest_first,
            "after": after,
            "limit": limit or LIMIT,
        }
        wanted = run_list_query(backend.namespace, options, "run list")
        _list(screen, backend, options, wanted, now)


def _list(
    screen: Screen, backend: Backend, options: ListOptions, wanted: RunListQuery, now: datetime
) -> None:
    limit = cast("int", wanted.limit)
    one_more: ListOptions = {**options, "limit": limit + 1}
    found = list(backend.api.runs(**one_more))
    runs = found[:limit]
    if screen.as_json:
        screen.data(runs)
    elif not runs:
        is_narrowed = wanted.after is not None or wanted.which != RunFilter(
            namespace=backend.namespace, newest=True
        )
        screen.note("No runs match." if is_narrowed else "There are no runs.")
    else:
        _show(screen, runs, now)
        if len(found) > limit:
            screen.note(f"More runs: --after {found[limit - 1].cursor}")


def _count(screen: Screen, backend: Backend, which: CountOptions) -> None:
    by_status = backend.api.count(**which)
    counts = RunCounts(total=sum(by_status.values()), by_status=by_status)
    if backend.is_server and counts.total >= COUNT_MAX:
        screen.note(f"The server counts {COUNT_MAX:,} runs at most.")
    if screen.as_json:
        screen.data(counts)
        return
    rows = table("status", "runs", right=("runs",))
    for status, number in counts.by_status.items():
        if which.get("status") or number:
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
