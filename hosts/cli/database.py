"""The commands `holdfast db upgrade` and `holdfast db status`."""

from pathlib import Path

from rich.text import Text

from holdfast.hosts.cli.console import Screen, fact_table, safe, status_text
from holdfast.hosts.cli.engine_options import Target, engine_command, schema_there, store_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.schedule_control import print_applied
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.stores import MEMORY, newest_schema, schema_refusal
from holdfast.ports.queries.store import CountAll, StoreCounts
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus


@engine_command("upgrade", "[URL|ENGINE]")
@store_options
def upgrade_command(*, screen: Screen, target: Target) -> None:
    """Create a store's tables, or migrate them to this version. Safe to repeat and to run concurrently.

    With an engine, also apply the schedules and triggers that its code declares, as `holdfast schedule apply` and
    `holdfast trigger apply` do.
    """
    with target.opened(checks_schema=False) as (engine, _):
        _check_folder(engine.core.stores.file)
        before = schema_there(engine)
        engine.core.stores.persistence.setup()
        after = schema_there(engine)
        applied = engine.sync.apply_schedules()
        engine.sync.apply_triggers()
    text = f"Upgraded the tables from version {before} to {after}"
    if before in (None, after):
        what = "Created the tables" if before is None else "The tables are up to date"
        text = f"{what}: version {after}"
    screen.answer({"before": before, "after": after, "changed": before != after, "schedules": applied}, text)
    if applied and not screen.as_json:
        screen.write("Applied the schedules that the code declares:")
        print_applied(screen, applied)


def _check_folder(file: Path | None) -> None:
    """Raise CliError if the folder of a store's file does not exist: a retry would not help."""
    if file is not None and not file.absolute().parent.is_dir():
        raise CliError(Exit.USAGE, "file", f"{file} cannot be created: its folder does not exist")


@engine_command("status", "[URL|ENGINE]")
@store_options
def status_command(*, screen: Screen, target: Target) -> None:
    """Show the version of the tables, and the numbers of runs and jobs."""
    with target.opened(checks_schema=False) as (engine, _):
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
    rows = fact_table()
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
        (there, "bold red"), f", but this package needs {here}: `holdfast db upgrade` upgrades it"
    )


def _counts_text(counts: dict[str, int], order: list[str]) -> Text:
    parts = [Text.assemble(f"{counts[name]} ", status_text(name)) for name in order if counts.get(name)]
    return Text(", ").join(parts) if parts else Text("none", style="dim")
