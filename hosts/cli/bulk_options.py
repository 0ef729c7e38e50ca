"""The options of bulk commands: `--all` applies a command to many runs, and only counts them without `--yes`."""

import functools
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, cast

import attrs
import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe
from holdfast.hosts.cli.engine_options import Target
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.filter_options import filter_options, instant_of, named_texts
from holdfast.hosts.client.bulk_actions import Action, BulkResult, action_filter, apply_to_all, command_for
from holdfast.hosts.inspection.filters import FilterOptions
from holdfast.hosts.text import counted
from holdfast.ports.queries.runs import CountRuns
from holdfast.ports.records.run import RunStatus

_FILTERS: Final = (
    "statuses",
    "workflow",
    "attributes",
    "annotations",
    "since",
    "until",
    "ended_before",
    "waiting",
)
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

    def options(self, now: datetime, screen: Screen) -> FilterOptions:
        """Return the filter of the runs; ages count back from `now`. Raises UsageError."""
        utc = screen.zone is not None
        moments = {
            name: instant_of(cast("datetime | timedelta | None", self.filters[name]), now, utc=utc)
            for name in ("since", "until", "ended_before")
        }
        return {
            "workflow": cast("str | None", self.filters["workflow"]),
            "status": cast("tuple[str, ...]", self.filters["statuses"]) or None,
            "attributes": named_texts(cast("tuple[str, ...]", self.filters["attributes"])) or None,
            "annotations": named_texts(cast("tuple[str, ...]", self.filters["annotations"]), "--annotation")
            or None,
            "since": moments["since"],
            "until": moments["until"],
            "ended_before": moments["ended_before"],
            "waiting": cast("bool", self.filters["waiting"]),
        }


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
        filters = {name: options.pop(name) for name in _FILTERS}
        if not all_runs and (yes or limit is not None or any(filters.values())):
            raise click.UsageError("filters, --limit and --yes need --all")
        many = BulkOptions(filters=filters, limit=limit, yes=yes) if all_runs else None
        body(many=many, **options)

    return with_many


def act_on_many(
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    many: BulkOptions,
    action: Action,
    *,
    reason: str,
    stage: str | None = None,
    version: str | None = None,
) -> None:
    """Apply an action to many runs and print the counts; without `--yes` only count the runs."""
    spec, _ = target.split(words)
    with target.opened(spec) as engine:
        core = engine.core
        core.connect()
        options = many.options(core.clock.now(), screen)
        which = action_filter(core, action, options, f"{action.name} --all")
        if not many.yes:
            _count(screen, action, core.stores.persistence.read(CountRuns(which)), many.limit)
            return
        command = command_for(action, reason=reason, stage=stage, version=version)
        result = apply_to_all(
            engine.client,
            action,
            which,
            command,
            limit=many.limit,
            on_page=lambda so_far: _progress(screen, so_far),
        )
    _print_result(screen, action, result)
    raise SystemExit(Exit.REFUSED if result.refused else Exit.OK)


def _count(screen: Screen, action: Action, found: Mapping[RunStatus, int], limit: int | None) -> None:
    total = sum(found.values())
    number = total if limit is None else min(limit, total)
    if screen.as_json:
        by_status = {status: found[status] for status in RunStatus if status in found}
        screen.data({"would_change": number, "total": total, "by_status": by_status})
        return
    parts = ", ".join(f"{found[status]} {status}" for status in RunStatus if status in found)
    of = f" of {total}" if number < total else ""
    statuses = f" ({parts})" if parts else ""
    runs = f"{number}{of} run{'' if number == 1 and not of else 's'}{statuses}"
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
