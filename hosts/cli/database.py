"""The commands `holdfast db upgrade` and `holdfast db status`."""

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options, status_text
from holdfast.hosts.cli.engine_options import Target, engine_options, schema_there
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.stores import MEMORY, newest_schema, schema_refusal
from holdfast.ports.queries.store import CountAll, StoreCounts
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.group("db")
def database() -> None:
    """Create, upgrade and inspect a store's tables."""


@database.command("upgrade", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[URL|ENGINE]")
@engine_options
@screen_options
def upgrade_command(*, screen: Screen, target: Target, words: tuple[str, ...]) -> None:
    """Create a store's tables, or migrate them to this version. Safe to repeat and to run concurrently."""
    spec, _ = target.split(words)
    with target.opened(spec, checks_schema=False) as engine:
        _check_folder(engine.core.stores.file)
        before = schema_there(engine)
        engine.core.stores.persistence.setup()
        after = schema_there(engine)
    if screen.as_json:
        screen.data({"before": before, "after": after, "changed": before != after})
    elif before == after:
        screen.write(f"The tables are up to date: version {after}")
    elif before is None:
        screen.write(f"Created the tables: version {after}")
    else:
        screen.write(f"Upgraded the tables from version {before} to {after}")


def _check_folder(file: Path | None) -> None:
    """Raise CliError if the folder of a store's file does not exist: a retry would not help."""
    if file is not None and not file.absolute().parent.is_dir():
        raise CliError(Exit.USAGE, "file", f"{file} cannot be created: its folder does not exist")


@database.command("status", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[URL|ENGINE]")
@engine_options
@screen_options
def status_command(*, screen: Screen, target: Target, words: tuple[str, ...]) -> None:
    """Show the version of the tables, and the numbers of runs and jobs."""
    spec, _ = target.split(words)
    with target.opened(spec, checks_schema=False) as engine:
        there = schema_there(engine)
        here = MEMORY if there == MEMORY else newest_schema()
        counts = (
            engine.core.stores.persistence.read(CountAll(engine.core.namespace)) if there == here else None
        )
        if screen.as_json:
            _print_json(screen, engine, there, here, counts)
        else:
            _print_table(screen, engine, there, here, counts)
    raise SystemExit(Exit.OK if there == here else Exit.SCHEMA)


def _print_json(
    screen: Screen, engine: Engine, there: str | None, here: str, counts: StoreCounts | None
) -> None:
    screen.data(
        {
            "url": engine.core.stores.url,
            "namespace": engine.core.namespace,
            "schema": {"stored": there, "required": here, "current": there == here},
            "runs": None if counts is None else counts.runs,
            "jobs": None if counts is None else counts.jobs,
        }
    )


def _print_table(
    screen: Screen, engine: Engine, there: str | None, here: str, counts: StoreCounts | None
) -> None:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("Store", safe(engine.core.stores.url or "custom adapters of the engine"))
    rows.add_row("Namespace", safe(engine.core.namespace))
    rows.add_row("Schema", _schema_text(there, here))
    if counts is not None:
        rows.add_row("Runs", _counts_text(counts.runs, [status.value for status in RunStatus]))
        rows.add_row("Jobs", _counts_text(counts.jobs, [state.value for state in JobState]))
    screen.write(rows)


def _schema_text(there: str | None, here: str) -> Text:
    if there == here:
        return Text.assemble(here, (" up to date", "green"))
    if there is None:
        return Text.assemble(("none", "yellow"), f"; `holdfast db upgrade` creates version {here}")
    refusal = schema_refusal(there)
    if refusal is not None:
        return Text.assemble((there, "bold red"), f", {refusal.why}: {refusal.remedy}")
    return Text.assemble(
        (there, "bold red"),
        f", but this package needs {here}: `holdfast db upgrade` upgrades it",
    )


def _counts_text(counts: dict[str, int], order: list[str]) -> Text:
    parts = [Text.assemble(f"{counts[name]} ", status_text(name)) for name in order if counts.get(name)]
    return Text(", ").join(parts) if parts else Text("none", style="dim")
