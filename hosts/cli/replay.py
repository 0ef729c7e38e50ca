"""The commands `holdfast replay` and `holdfast check-upgrade`: replay recorded runs with the current code."""

import contextlib
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Final, cast

import attrs
import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, default_engine, load_code
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.history import read_file
from holdfast.hosts.functions.upgrade_check import (
    RUNS_CHECKED_DEFAULT,
    Sample,
    UpgradeCheck,
    UpgradeVerdict,
    check_upgrade,
    judge_history,
)
from holdfast.hosts.wiring.stores import check_schema
from holdfast.ports.queries.runs import CountRuns, RunFilter
from holdfast.ports.records.run import ACTIVE

_STYLES: Final = {UpgradeVerdict.COMPATIBLE: "green", UpgradeVerdict.NO_CODE: "yellow"}
_WORDS: Final = {UpgradeVerdict.NO_CODE: "no code"}


@click.command("replay", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.DIVERGED))
@click.argument("files", nargs=-1, required=True, metavar="HISTORY.json...")
@click.option(
    "--module",
    "-m",
    "modules",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Where the workflows are: a module, or an engine or a workflow in it. May be repeated.  [HOLDFAST_ENGINE]",
)
@screen_options
def replay_history_command(*, screen: Screen, files: tuple[str, ...], modules: tuple[str, ...]) -> None:
    """Replay recorded histories with the current code.

    HISTORY.json is a file from `holdfast history export`; - is stdin. Prints the outcome of each. No step runs, and
    no store is needed.
    """
    code = load_code(modules)
    found: list[UpgradeCheck] = []
    for file in files:
        history = read_file(file)
        with _no_breakpoints():
            upgrade = judge_history(history, code.find_workflow(history.workflow, history.version))
        found.append(upgrade)
        if not screen.as_json:
            _print_upgrade(screen, upgrade, f"{file}: run ")
    if screen.as_json:
        screen.data(
            [{"file": file, **attrs.asdict(upgrade)} for file, upgrade in zip(files, found, strict=True)]
        )
    raise SystemExit(_exit(found))


@click.command(
    "check-upgrade",
    epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA, Exit.DIVERGED),
)
@click.argument("spec", required=False, metavar="[MODULE:ENGINE]")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow, of any version.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=RUNS_CHECKED_DEFAULT,
    metavar="N",
    help=f"Check at most this many runs; 0 means all.  [default: {RUNS_CHECKED_DEFAULT:,}]",
)
@click.option(
    "--sample",
    type=click.Choice(["both", "newest", "oldest"]),
    default="both",
    help="Which runs to check, if there are more: the newest, the oldest, or half of each.  [default: both]",
)
@click.option(
    "--known-only", is_flag=True, help="Skip runs of workflows that the engine does not have in any version."
)
@screen_options
def check_upgrade_command(
    *, screen: Screen, spec: str | None, workflow: str | None, limit: int, sample: str, known_only: bool
) -> None:
    """Check whether open runs can continue with this code. Run it before you deploy the code.

    It replays the histories of durable functions, and checks that the code has the stages of pipelines. No step
    runs, and nothing is written.
    """
    with Target().engine_at(spec or default_engine()) as engine:
        core = engine.core
        check_schema(engine.core.stores)
        which = RunFilter(namespace=core.namespace, workflow=workflow, statuses=ACTIVE, newest=True)
        there = sum(core.stores.persistence.read(CountRuns(which)).values())
        found: list[UpgradeCheck] = []
        upgrades = check_upgrade(
            core, workflow=workflow, limit=limit or None, sample=cast("Sample", sample), known_only=known_only
        )
        with _no_breakpoints():
            for upgrade in upgrades:
                found.append(upgrade)
                if not screen.as_json and not upgrade.is_compatible:
                    _print_upgrade(screen, upgrade)
    counts = Counter(upgrade.verdict for upgrade in found)
    if screen.as_json:
        screen.data(
            {
                "compatible": _exit(found) == Exit.OK,
                "runs": there,
                "checked": len(found),
                "counts": {verdict.value: counts[verdict] for verdict in UpgradeVerdict if counts[verdict]},
                "found": found,
            }
        )
    else:
        summary = (
            ", ".join(f"{counts[one]:,} {_word(one)}" for one in UpgradeVerdict if counts[one]) or "none"
        )
        screen.write(
            f"{len(found):,} of {there:,} open runs: {summary}" if there else "There are no open runs."
        )
    raise SystemExit(_exit(found))


@contextlib.contextmanager
def _no_breakpoints() -> Generator[None]:
    """Disable `breakpoint()`: a debugger without a terminal raises in the code that it stops."""

    def go_on(*_: object, **__: object) -> None:
        pass

    hook, sys.breakpointhook = sys.breakpointhook, go_on
    try:
        yield
    finally:
        sys.breakpointhook = hook


def _exit(found: Sequence[UpgradeCheck]) -> Exit:
    verdicts = {upgrade.verdict for upgrade in found} - {UpgradeVerdict.COMPATIBLE}
    if not verdicts:
        return Exit.OK
    return Exit.NOT_FOUND if verdicts == {UpgradeVerdict.NO_CODE} else Exit.DIVERGED


def _print_upgrade(screen: Screen, upgrade: UpgradeCheck, what: str = "") -> None:
    style = _STYLES.get(upgrade.verdict, "bold red")
    named = f"{upgrade.workflow}@{upgrade.version}"
    rows = f"{upgrade.rows:,} row{'s' if upgrade.rows != 1 else ''}"
    at = "" if upgrade.row is None else f" at row {upgrade.row}"
    screen.write(
        Text.assemble(
            (f"{_word(upgrade.verdict)}{at}", style),
            f" {safe(what)}{safe(upgrade.run_id)} of {safe(named)}, {rows}: {safe(upgrade.message)}",
        )
    )


def _word(verdict: UpgradeVerdict) -> str:
    return _WORDS.get(verdict, verdict.value)
