"""The options of bulk commands: `--all` applies a command to many runs, and only counts them without `--yes`."""

import functools
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import click
from rich.text import Text

from holdfast.hosts.cli.backends import RunCounts
from holdfast.hosts.cli.console import Screen, safe
from holdfast.hosts.cli.engine_options import Target
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.filter_options import FILTERS, filter_options, filters_given
from holdfast.hosts.client.bulk_actions import Action, BulkResult
from holdfast.hosts.text import counted
from holdfast.ports.records.run import RunStatus

_DONE: Final[Mapping[str, str]] = {
    "cancel": "cancelled",
    "terminate": "terminated",
    "pause": "paused",
    "resume": "resumed",
    "remove": "removed",
    "run again": "run again",
}


@attrs.frozen(kw_only=True)
class BulkOptions:
    """The values of `--all`, its filters, `--limit` and `--yes`."""

    filters: Mapping[str, object]
    """Filter options by the names of their parameters, unparsed."""
    limit: int | None
    """The maximum number of runs; None without `--limit`."""
    yes: bool
    """Whether to act. If False, the runs are only counted."""


def many_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add `--all`, its filters, `--limit` and `--yes` to a command. Its body gets `many`: None without `--all`."""

    @click.option(
        "--all", "all_runs", is_flag=True, help="Act on all runs that match the filters, instead of ID."
    )
    @filter_options
    @click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="With --all: act on at most this many runs."
    )
    @click.option("--yes", is_flag=True, help="With --all: act. Without it the runs are only counted.")
    @functools.wraps(body)
    def with_many(*, all_runs: bool, limit: int | None, yes: bool, **options: object) -> None:
        filters = {name: options.pop(name) for name in FILTERS}
        if not all_runs and (yes or limit is not None or any(filters.values())):
            raise click.UsageError("filters, --limit and --yes need --all")
        many = BulkOptions(filters=filters, limit=limit, yes=yes) if all_runs else None
        body(many=many, **options)

    return with_many


def act_on_many(
    screen: Screen,
    target: Target,
    many: BulkOptions,
    action: Action,
    *,
    reason: str,
    stage: str | None = None,
    version: str | None = None,
) -> None:
    """Apply an action to many runs and print the counts; without `--yes` only count the runs."""
    with target.backend() as (backend, _):
        which = filters_given(many.filters, backend.now(), utc=screen.zone is not None)
        if not many.yes:
            _count(screen, action, backend.count_all(action, which), many.limit)
            return
        result = backend.act_on_all(
            action,
            which,
            reason=reason,
            stage=stage,
            version=version,
            limit=many.limit,
            on_page=lambda so_far: _progress(screen, so_far),
        )
    _print_result(screen, action, result)
    raise SystemExit(Exit.REFUSED if result.refused else Exit.OK)


def _count(screen: Screen, action: Action, counts: RunCounts, limit: int | None) -> None:
    found = counts.by_status
    total = sum(found.values())
    number = total if limit is None else min(limit, total)
    if screen.as_json:
        by_status = {status: found[status] for status in RunStatus if status in found}
        screen.data({"would_change": number, "total": total, "by_status": by_status})
        return
    parts = ", ".join(f"{found[status]} {status}" for status in RunStatus if status in found)
    of = f" of {total}" if number < total else ""
    statuses = f" ({parts})" if parts else ""
    more = "more than " if counts.more and number == total else ""
    runs = f"{more}{number}{of} run{'' if number == 1 and not of else 's'}{statuses}"
    screen.write(f"{runs} would be {_DONE[action.name]}")
    if total:
        screen.note("Nothing was changed: add --yes to act.")


def _progress(screen: Screen, so_far: BulkResult) -> None:
    if not screen.as_json:
        screen.note(Text(counted(so_far.seen, "run"), style="dim"))


def _print_result(screen: Screen, action: Action, result: BulkResult) -> None:
    if screen.as_json:
        screen.data(result)
        return
    for refusal in result.refusals:
        screen.note(Text.assemble((safe(refusal.id), "bold"), f": {safe(refusal.message)}"))
    if result.refused > len(result.refusals):
        screen.note(f"and {result.refused - len(result.refusals)} more")
    verb = "was" if result.changed == 1 else "were"
    line = f"{result.changed} run{'' if result.changed == 1 else 's'} {verb} {_DONE[action.name]}"
    if result.unchanged:
        line += f", {result.unchanged} unchanged"
    if result.refused:
        line += f", {result.refused} refused"
    screen.write(line)
