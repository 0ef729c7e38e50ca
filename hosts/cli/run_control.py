"""The commands that change runs: `holdfast run cancel`, `terminate`, `pause`, `resume`, `rerun`, `remove`, `wake`."""

from collections.abc import Iterator
from typing import Final

import click
from rich.text import Text

from holdfast.hosts.cli.backends import Backend
from holdfast.hosts.cli.bulk_options import BulkOptions, act_on_many, many_options
from holdfast.hosts.cli.console import Screen, fact_table, safe, status_text
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
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
from holdfast.hosts.text import counted
from holdfast.kernel.commands import (
    Command,
    RunPaused,
    RunRemove,
    RunRerun,
    RunRerunFrom,
    RunStopped,
    StageWake,
)
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.errors import NothingToWakeError
from holdfast.ports.records.run import TERMINAL, RunStatus, end_of


def _command(action: Action, help: str) -> click.Command:
    @engine_command(action.name, "[ENGINE] ID", Exit.NOT_FOUND, Exit.REFUSED, help=help)
    @click.option(
        "--reason", default="", metavar="TEXT", help="Your reason; it is stored in the run's history."
    )
    @many_options
    @engine_options
    def change(*, screen: Screen, target: Target, reason: str, many: BulkOptions | None) -> None:
        if many is not None:
            act_on_many(screen, target, many, action, reason=reason)
            return
        with target.backend("ID") as (backend, (run_id,)):
            command = build_command(action, namespace=backend.namespace, run_id=run_id, reason=reason)
            _carry_out(screen, backend, run_id, command)

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


def _carry_out(
    screen: Screen, backend: Backend, run_id: str, command: Command[RunStopped | RunPaused]
) -> None:
    now = backend.dispatch(command)
    wanted = {RunStatus.CANCELLED} if isinstance(now, RunStopped) else frozenset[RunStatus]()
    if not now.changed and now.status in TERMINAL - wanted:
        raise CliError(Exit.REFUSED, "run_ended", f"run {run_id!r} {end_of(now.status)}: nothing was changed")
    before = "" if now.changed else "already "
    screen.answer(
        {"id": run_id, "status": now.status.value, "changed": now.changed},
        Text.assemble(safe(run_id), f" is {before}", status_text(now.status)),
    )


@engine_command("rerun", "[ENGINE] ID", Exit.NOT_FOUND, Exit.REFUSED)
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
def rerun_command(
    *,
    screen: Screen,
    target: Target,
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
        act_on_many(screen, target, many, RERUN, reason=reason, stage=stage, version=version)
        return
    with target.backend("ID") as (backend, (run_id,)):
        command = RunRerunFrom(
            namespace=backend.namespace,
            run_id=run_id,
            stage=stage,
            row=row,
            version=version,
            reason=reason,
        )
        if preview:
            _show_preview(screen, backend.preview(command))
        else:
            _print_rerun(screen, backend.dispatch(command))


def _show_preview(screen: Screen, preview: RerunPreview) -> None:
    if screen.as_json:
        screen.data(preview)
        return
    begin = "from the start" if preview.stage is None else f"from {safe(preview.stage)}"
    screen.write(f"{safe(preview.run_id)} would run again {begin}, as generation {preview.generation}")
    rows = fact_table()
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
    begin = "from the start" if answer.stage is None else f"from {safe(answer.stage)}"
    line = Text(f"{safe(answer.run_id)} runs again {begin}, as generation {answer.generation}")
    if answer.terminated:
        line.append(f"; generation {answer.rerun_of} was terminated")
    screen.answer(answer, line)


@engine_command("remove", "[ENGINE] ID", Exit.NOT_FOUND, Exit.REFUSED)
@many_options
@engine_options
def remove_run_command(*, screen: Screen, target: Target, many: BulkOptions | None) -> None:
    """Delete an ended run, with its generations, history and blobs.

    Refused until its result is delivered to its parent run and its events to all sinks.
    """
    if many is not None:
        act_on_many(screen, target, many, REMOVE, reason="")
        return
    with target.backend("ID") as (backend, (run_id,)):
        removed = backend.dispatch(RunRemove(namespace=backend.namespace, run_id=run_id)).removed
    screen.answer({"id": run_id, "removed": removed}, f"{safe(run_id)} was removed")


@engine_command("wake", "[ENGINE] ID|KEY", Exit.NOT_FOUND, Exit.REFUSED)
@click.option("--stage", metavar="NAME", help="ID is a run: check the external work of this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="With --stage: only this item.")
@engine_options
def wake_command(*, screen: Screen, target: Target, stage: str | None, item: int | None) -> None:
    """Check external work now. ID|KEY is the key of the work or, with --stage, a run."""
    if item is not None and stage is None:
        raise click.UsageError("--item needs --stage")
    with target.backend("ID|KEY") as (backend, (named,)):
        command = (
            StageWake(namespace=backend.namespace, key=named)
            if stage is None
            else StageWake(namespace=backend.namespace, run_id=named, stage=stage, item=item)
        )
        try:
            woken = backend.dispatch(command)
        except NothingToWakeError:
            if stage is not None:
                backend.run(named).info()  # if there is no such run, that is the error
            raise
    early = f", {woken.early} as soon as it is suspended" if woken.early else ""
    text = Text.assemble((safe(named), "bold"), f": {woken.woken} checked now{early}")
    screen.answer({"woken": woken.woken, "early": woken.early}, text)
