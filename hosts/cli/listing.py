"""`holdfast run list`."""

import click

from holdfast.hosts.cli.documents import run_document, run_length
from holdfast.hosts.cli.exits import Exit
from holdfast.hosts.cli.help import exits
from holdfast.hosts.cli.screen import Screen, safe, screen_options, status_text, table
from holdfast.hosts.cli.spans import span
from holdfast.hosts.cli.target import Target, engine_options
from holdfast.hosts.core import Core
from holdfast.ports.clock import micros
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.persistence import FindRun, ListRuns, RunsByKey
from holdfast.ports.records import Micros, Run, RunName, RunStatus

LIMIT_MAX = 10_000


@click.command("list", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE]")
@click.option("--status", type=click.Choice([status.value for status in RunStatus], case_sensitive=False))
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=20,
    show_default=True,
    help="How many at most.",
)
@click.option("--before", metavar="RUN", help="Only runs started before this one, for the next page.")
@engine_options
@screen_options
def list_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    status: str | None,
    workflow: str | None,
    limit: int,
    before: str | None,
) -> None:
    """List runs, newest first."""
    spec, _ = target.split(words)
    with target.opened(spec) as engine:
        core = engine.core
        core.connect()
        query = ListRuns(
            namespace=core.namespace,
            workflow=workflow,
            status=None if status is None else RunStatus(status),
            before=None if before is None else _key_of(core, before),
            limit=limit + 1,
        )
        found = core.stores.persistence.read(query)
        runs, has_more = found[:limit], len(found) > limit
        now = micros(core.clock.now())
        if screen.as_json:
            screen.data([run_document(run, now) for run in runs])
        elif not runs:
            screen.note("There are no such runs." if status or workflow or before else "There are no runs.")
        else:
            _show(screen, runs, now)
            if has_more:
                screen.note(f"There are more: --before {runs[-1].key}")


def _key_of(core: Core, name: str) -> str:
    """Return the key of a run that is named by its key, as JSON has it, or by its id."""
    read = core.stores.persistence.read
    found = read(RunsByKey((name,))) or (read(FindRun(RunName(core.namespace, name))),)
    if found[0] is None:
        raise RunNotFoundError(name)
    return found[0].key


def _show(screen: Screen, runs: tuple[Run, ...], now: Micros) -> None:
    rows = table("id", "workflow", "status", "age", "duration", right=("age", "duration"))
    for run in runs:
        rows.add_row(
            safe(run.id),
            f"{run.workflow}@{run.version}",
            status_text(run.status),
            span(max(0, now - run.created_at)),
            span(run_length(run, now)),
        )
    screen.say(rows)
