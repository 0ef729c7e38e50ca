"""The commands that change runs: `holdfast run cancel`, `terminate`, `pause`, `resume`, `rerun`, `remove`, `wake`."""

from collections.abc import Iterator
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.bulk_options import BulkOptions, act_on_many, many_options
from holdfast.hosts.cli.console import Screen, safe, screen_options, status_text
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.client.bulk_actions import (
    CANCEL,
    PAUSE,
    REMOVE,
    RERUN,
    RESUME,
    TERMINATE,
    Action,
    build_command,
)
from holdfast.hosts.client.client import Client
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.text import counted
from holdfast.kernel.commands import Command, RunPaused, RunRemove, RunRerun, RunRerunFrom, RunStopped
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.ports.records.run import TERMINAL, RunStatus, end_of

_EXITS: Final = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


def _command(action: Action, help: str) -> click.Command:
    @click.command(action.name, help=help, epilog=_EXITS)
    @click.argument("words", nargs=-1, metavar="[ENGINE] ID")
    @click.option(
        "--reason", default="", metavar="TEXT", help="Your reason; it is stored in the run's history."
    )
    @many_options
    @engine_options
    @screen_options
    def change(
        *, screen: Screen, target: Target, words: tuple[str, ...], reason: str, many: BulkOptions | None
    ) -> None:
        if many is not None:
            act_on_many(screen, target, words, many, action, reason=reason)
            return
        spec, (run_id,) = target.split(words, "ID")
        with target.opened(spec) as engine:
            command = build_command(action, namespace=engine.core.namespace, run_id=run_id, reason=reason)
            _carry_out(screen, engine.client, run_id, command)

    return change


cancel_command: Final = _command(
    CANCEL, "End a run as cancelled, after its cleanup. Refused if it has completed or failed."
)
terminate_command: Final = _command(
    TERMINATE, "End a run as cancelled at once, without its cleanup. Refused if it has completed or failed."
)
pause_command: Final = _command(
    PAUSE,
    "Pause a run: nothing new starts until it is resumed, and running bodies end as usual. Refused if it has ended.",
)
resume_command: Final = _command(
    RESUME, "Resume a paused or blocked run where it is. Refused if it has ended."
)


def _carry_out(screen: Screen, client: Client, run_id: str, command: Command[RunStopped | RunPaused]) -> None:
    now = client.dispatch(command)
    wanted = {RunStatus.CANCELLED} if isinstance(now, RunStopped) else frozenset[RunStatus]()
    if not now.changed and now.status in TERMINAL - wanted:
        raise CliError(Exit.REFUSED, "run_ended", f"run {run_id!r} {end_of(now.status)}: nothing was changed")
    if screen.as_json:
        screen.data({"id": run_id, "status": now.status.value, "changed": now.changed})
        return
    before = "" if now.changed else "already "
    screen.write(Text.assemble(safe(run_id), f" is {before}", status_text(now.status)))


@click.command("rerun", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option(
    "--from",
    "stage",
    metavar="POINT",
    help="Start from this stage; for a durable function from this step, such as charge or charge#2, or from a call of"
    " it, such as 3.1.  [default: where the run failed or stopped; the start if it completed]",
)
@click.option(
    "--row",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Start from this row of the history of a durable function.",
)
@click.option("--version", metavar="VERSION", help="Use this version of the code.")
@click.option("--preview", is_flag=True, help="Only show what would run again and what would be kept.")
@click.option("--reason", default="", metavar="TEXT", help="Your reason; it is stored in the run's history.")
@many_options
@engine_options
@screen_options
def rerun_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    stage: str | None,
    row: int | None,
    version: str | None,
    preview: bool,
    reason: str,
    many: BulkOptions | None,
) -> None:
    """Run a run again from a stage or a step, as a new generation.

    What comes before that point is kept. If the run is still active, its present generation is terminated.
    """
    if many is not None:
        if preview:
            raise click.UsageError("--preview needs one run; with --all, omit --yes to count the runs")
        if row is not None:
            raise click.UsageError("--row needs one run: each run has its own history")
        act_on_many(screen, target, words, many, RERUN, reason=reason, stage=stage, version=version)
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        command = RunRerunFrom(
            namespace=engine.core.namespace,
            run_id=run_id,
            stage=stage,
            row=row,
            version=version,
            reason=reason,
        )
        if preview:
            _show_preview(
                screen, preview_rerun(engine.core.stores.persistence, engine.core.kernel.workflows, command)
            )
        else:
            _print_rerun(screen, engine.client.dispatch(command))


def _show_preview(screen: Screen, preview: RerunPreview) -> None:
    if screen.as_json:
        screen.data(preview)
        return
    begin = "from the start" if preview.stage is None else f"from {safe(preview.stage)}"
    screen.write(f"{safe(preview.run_id)} would run again {begin}, as generation {preview.generation}")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    again = set(preview.again)
    runs = [f"{safe(name)} (completed before)" if name in again else safe(name) for name in preview.runs]
    kept = [f"{safe(name)} (from generation {number})" for name, number in preview.keeps.items()]
    rows.add_row("Workflow", f"{preview.workflow}@{preview.version}")
    rows.add_row("Runs", ", ".join(runs) if runs else "what the code calls")
    rows.add_row("Keeps", ", ".join(kept) if kept else "nothing")
    for name, what in _of_function(preview):
        rows.add_row(name, what)
    if preview.terminates:
        rows.add_row("Terminates", f"generation {preview.generation - 1}, which is active")
    screen.write(rows)


def _of_function(preview: RerunPreview) -> Iterator[tuple[str, str]]:
    """Yield the rows about a durable function's timers, children, messages and compensations."""
    if preview.timers:
        yield "Waits", f"again for {counted(len(preview.timers), 'timer')}: {safe(', '.join(preview.timers))}"
    if preview.starts:
        yield "Starts", f"new child runs in place of {safe(', '.join(preview.starts))}"
    if preview.children:
        yield "Takes over", safe(", ".join(preview.children))
    if preview.messages:
        yield "Receives", f"again the messages and updates that arrived later: {preview.messages:,}"
    if preview.undone:
        yield "Compensated", f"{safe(', '.join(preview.undone))}: the compensated steps run again"


def _print_rerun(screen: Screen, answer: RunRerun) -> None:
    if screen.as_json:
        screen.data(answer)
        return
    begin = "from the start" if answer.stage is None else f"from {safe(answer.stage)}"
    line = Text(f"{safe(answer.run_id)} runs again {begin}, as generation {answer.generation}")
    if answer.terminated:
        line.append(f"; generation {answer.rerun_of} was terminated")
    screen.write(line)


@click.command("remove", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@many_options
@engine_options
@screen_options
def remove_run_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], many: BulkOptions | None
) -> None:
    """Delete an ended run, with its generations, history and blobs.

    Refused until its result is delivered to its parent run and its events to all sinks.
    """
    if many is not None:
        act_on_many(screen, target, words, many, REMOVE, reason="")
        return
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        removed = engine.client.dispatch(RunRemove(namespace=engine.core.namespace, run_id=run_id)).removed
    if screen.as_json:
        screen.data({"id": run_id, "removed": removed})
    else:
        screen.write(f"{safe(run_id)} was removed")


@click.command("wake", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID|KEY")
@click.option("--stage", metavar="NAME", help="ID is a run: check the external work of this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="With --stage: only this item.")
@engine_options
@screen_options
def wake_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], stage: str | None, item: int | None
) -> None:
    """Check external work now. ID|KEY is the key of the work or, with --stage, a run."""
    if item is not None and stage is None:
        raise click.UsageError("--item needs --stage")
    spec, (named,) = target.split(words, "ID|KEY")
    with target.opened(spec) as engine:
        if stage is None:
            woken = engine.sync.wake(named)
        else:
            handle: SyncRunHandle[object] = SyncRunHandle(engine.client, named, object)
            woken = handle.wake(stage, item=item)
    if screen.as_json:
        screen.data({"woken": woken.woken, "early": woken.early})
        return
    early = f", {woken.early} as soon as it is suspended" if woken.early else ""
    screen.write(Text.assemble((safe(named), "bold"), f": {woken.woken} checked now{early}"))
