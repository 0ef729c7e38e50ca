"""The commands `holdfast run show` and `holdfast run children`."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.backends import Backend, refuse_over_http
from holdfast.hosts.cli.console import (
    Screen,
    fact_table,
    format_length,
    heading,
    one_line,
    safe,
    safe_lines,
    status_text,
    table,
)
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.text_output import (
    history_table,
    log_text,
    place_name,
    preview_text,
    schedule_text,
    share_text,
    step_table,
)
from holdfast.hosts.inspection.children import ChildInfo
from holdfast.hosts.inspection.run_details import JobDetails, RunDetails
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.values import part_result_text
from holdfast.hosts.text import counted
from holdfast.kernel.limits.concurrency import shared_slots
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.json import compact
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.records.limits import levels_of
from holdfast.ports.records.run import TERMINAL, RunStatus

ENTRIES_SHOWN: Final = 20
"""How many steps, jobs and entries of progress are shown to people."""
CHILDREN_LISTED: Final = 100
"""How many child runs are listed by default."""
_generation = click.option(
    "--generation",
    type=click.IntRange(min=1),
    metavar="N",
    help="An older generation of a run that was run again.",
)


@engine_command("show", "[ENGINE] ID", Exit.RUN_FAILED, Exit.NOT_FOUND, Exit.REFUSED, Exit.RUN_CANCELLED)
@click.option("--history", is_flag=True, help="Also show the history, row by row.")
@click.option("--log", is_flag=True, help="Also show the log lines of its stages.")
@_generation
@click.option("--verbose", "-v", is_flag=True, help="Also show the sessions and epochs of its jobs.")
@click.option("--input", "wants_input", is_flag=True, help="Show only its input, as JSON.")
@click.option(
    "--output",
    is_flag=True,
    help="Show only its result, as JSON. Exits with 1, 4 or 5 if the run has no result.",
)
@click.option(
    "--result-of",
    "point",
    metavar="POINT",
    help="Show only the result of this stage, as JSON; for a durable function of this step, such as charge or charge#2,"
    " or of a call of it, such as 3.1.",
)
@engine_options
def show_command(
    *,
    screen: Screen,
    target: Target,
    generation: int | None,
    history: bool,
    log: bool,
    verbose: bool,
    wants_input: bool,
    output: bool,
    point: str | None,
) -> None:
    """Show one run: its status, stages or steps, jobs and child runs, and why it failed or is blocked."""
    if wants_input + output + (point is not None) + (history or log) > 1:
        raise click.UsageError(
            "--input, --output and --result-of each show only one value: omit the others, and --history and --log"
        )
    if point is not None:
        _show_result_of(screen, target, generation, point)
        return
    with target.backend("ID") as (backend, (run_id,)):
        if wants_input:
            screen.value(backend.input_text(run_id, generation))
        elif output:
            screen.value(_output(backend, run_id, generation))
        else:
            details = backend.details(run_id, generation, history=history, log=log)
            if screen.as_json:
                screen.data(details)
            else:
                _show(screen, details, backend.now(), verbose=verbose)


def _show_result_of(screen: Screen, target: Target, generation: int | None, point: str) -> None:
    spec, (run_id,) = target.split("ID")
    if target.server_at(spec) is not None:
        raise refuse_over_http("--result-of")
    with target.engine_at(spec) as engine:
        screen.value(part_result_text(engine.core, find_run(engine.core, run_id, generation), point))


def _output(backend: Backend, run_id: str, generation: int | None) -> str:
    run = backend.run(run_id).info(generation=generation)
    match run.status:
        case RunStatus.COMPLETED if run.is_continued:
            message = (
                f"generation {run.generation} has no result: it continued as generation {run.generation + 1}"
            )
            raise CliError(Exit.REFUSED, "run_continued", message)
        case RunStatus.COMPLETED:
            return backend.result_text(run_id, run.generation)
        case RunStatus.FAILED:
            raise RunFailedError(run.id, "" if run.error is None else run.error.text)
        case RunStatus.CANCELLED:
            raise RunCancelledError(run.id, "" if run.error is None else run.error.message)
        case status:
            message = (
                f"run {run.id!r} has no result yet: it is {status}; wait for it with `holdfast run wait`"
            )
            raise CliError(Exit.REFUSED, "run_active", message)


@engine_command("children", "[ENGINE] ID", Exit.NOT_FOUND)
@_generation
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=CHILDREN_LISTED,
    metavar="N",
    help=f"List at most this many.  [default: {CHILDREN_LISTED}]",
)
@click.option("--after", metavar="CURSOR", help="The next page: the cursor that the last page printed.")
@engine_options
def children_command(
    *, screen: Screen, target: Target, generation: int | None, limit: int, after: str | None
) -> None:
    """List the child runs that a run started, newest first, with their statuses."""
    with target.backend("ID") as (backend, (run_id,)):
        handle = backend.run(run_id)
        found = list(handle.children(generation=generation, after=after, limit=limit + 1))
    children = found[:limit]
    if screen.as_json:
        screen.data(children)
    elif not children:
        screen.note("No child runs.")
    else:
        screen.write(_children_table(screen, children))
        if len(found) > limit:
            screen.note(f"More child runs: --after {children[-1].cursor}")


def _show(screen: Screen, run: RunDetails, now: datetime, *, verbose: bool) -> None:
    screen.write(_facts_table(screen, run, now))
    _show_work(screen, run, now)
    if not run.is_whole:
        screen.note("The history is long: attempts and times cover only its first rows.")
    if run.jobs:
        _section(screen, "Jobs", _jobs_table(screen, run, now, verbose=verbose))
        if run.job_count > ENTRIES_SHOWN:
            screen.write(Text(f"and {run.job_count - ENTRIES_SHOWN} more", style="dim"))
    if run.children:
        _section(screen, "Child runs", _children_table(screen, run.children))
        if run.has_more_children:
            screen.write(Text("and earlier ones: `holdfast run children` lists all", style="dim"))
    if run.progress and run.status not in TERMINAL:
        _section(screen, "Progress", _progress_table(screen, run))
    if run.published:
        _section(screen, "Published", _published_table(screen, run))
    if run.annotations:
        _section(screen, "Annotations", _annotations_table(screen, run))
    _show_error(screen, run)
    if run.history is not None:
        _section(screen, "History", history_table(screen, run.history))
    if run.log is not None:
        _section(screen, "Log", *(log_text(screen, line, level=False) for line in run.log))
        if not run.log:
            screen.write(Text("No log lines.", style="dim"))


def _show_error(screen: Screen, run: RunDetails) -> None:
    error = run.blocked or run.end_cause
    if error:
        style = "red" if run.status is RunStatus.FAILED else "yellow"
        _section(screen, "Error", Text(safe_lines(error), style=style))
    stage = next((stage for stage in run.stages if stage.state == "failed"), None)
    if stage is not None and stage.traceback:
        screen.write(Text(safe_lines(stage.traceback.rstrip()), style="dim"))
    step = next((step for step in reversed(run.steps or ()) if step.error == error), None)
    if step is not None and step.traceback:
        where = f"Step {safe(step.step)!r}, call {step.call}, attempt {step.attempts}:"
        screen.write(Text(where, style="dim"))
        screen.write(Text(safe_lines(step.traceback.rstrip()), style="dim"))


def _show_work(screen: Screen, run: RunDetails, now: datetime) -> None:
    """Show the stages of a pipeline, or the steps of a durable function."""
    if run.steps is None:
        _section(screen, "Stages", _stages_table(run))
    elif not run.steps:
        none = "It ran no step." if run.status in TERMINAL else "No step has started yet."
        _section(screen, "Steps", Text(none, style="dim"))
    else:
        _section(screen, "Steps", step_table(screen, run.steps[-ENTRIES_SHOWN:], now))
        if run.step_count > ENTRIES_SHOWN:
            earlier = f"and {run.step_count - ENTRIES_SHOWN:,} earlier steps: --history shows all"
            screen.write(Text(earlier, style="dim"))


def _section(screen: Screen, title: str, *parts: Table | Text) -> None:
    screen.write("")
    screen.write(heading(title))
    for part in parts:
        screen.write(part)


def _facts_table(screen: Screen, run: RunDetails, now: datetime) -> Table:
    rows = fact_table()
    rows.add_row("Run", Text(safe(run.id), style="bold"))
    if run.generation > 1:
        rows.add_row("Generation", f"{run.generation}{_origin(run)}")
    if run.parent is not None:
        rows.add_row("Parent", f"{safe(run.parent.id)}, generation {run.parent.generation}")
    rows.add_row("Workflow", f"{run.workflow}@{run.version}")
    rows.add_row("Status", status_text(run.status))
    if run.is_continued:
        rows.add_row("Continued", f"as generation {run.generation + 1}")
    if run.attempt is not None:
        most = ", no limit" if run.max_attempts is None else f" of {run.max_attempts}"
        rows.add_row("Attempt", f"{run.attempt}{most}")
    if run.is_retried:
        rows.add_row("Retried", f"as generation {run.generation + 1}")
    if run.status is RunStatus.PENDING:
        rows.add_row("Waits for", _waits(screen, run, now))
    age = format_length(max(timedelta(), now - run.created_at))
    rows.add_row("Created", f"{screen.instant(run.created_at)}  ({age} ago)")
    if run.scheduled is not None:
        rows.add_row("Started by", safe(schedule_text(screen, run.scheduled)))
    elif run.started_by is not None:
        rows.add_row("Started by", safe(run.started_by.text))
    if run.ended_at is not None:
        rows.add_row("Ended", screen.instant(run.ended_at))
    if run.cancelled_by is not None:
        rows.add_row("Cancelled by", safe(run.cancelled_by.text))
    rows.add_row("Duration", format_length(run.duration) + ("" if run.ended_at else " so far"))
    if run.deadline is not None:
        rows.add_row("Deadline", screen.instant(run.deadline))
    rows.add_row("Queue", run.queue + (f", priority {run.priority}" if run.priority else ""))
    if run.attributes:
        attributes = ", ".join(f"{name}={text}" for name, text in run.attributes.items())
        rows.add_row("Attributes", safe(attributes))
    if run.headers:
        headers = ", ".join(f"{name}={text}" for name, text in run.headers.items())
        rows.add_row("Headers", safe(headers))
    rows.add_row("History", counted(run.history_rows, "row"))
    if run.unread:
        rows.add_row("Messages", f"{len(run.unread):,} not received; `holdfast run messages` lists them")
    return rows


def _waits(screen: Screen, run: RunDetails, now: datetime) -> str:
    """Return what a pending run waits for."""
    parts: list[str] = []
    if run.start_at is not None:
        left = run.start_at - now
        when = f"in {format_length(left)}" if left > timedelta() else "due"
        parts.append(f"its start at {screen.instant(run.start_at)} ({when})")
    if run.concurrency_key is not None and run.slots_used is not None:
        taken = f"{run.slots_used or 0} of {run.slots_in_force} in use{_planned(run)}"
        if len(levels_of(run.concurrency_key)) > 1:
            taken = "each level needs room; `holdfast why` names the full one"
        parts.append(f"a slot of concurrency key {safe(run.concurrency_key)} ({taken})")
    if run.waits_for_rate is not None:
        parts.append(f"the rate of starts {safe(run.waits_for_rate)}")
    return ", then ".join(parts)


def _planned(one: RunDetails | JobDetails) -> str:
    """Return a remark on the limit of the plan, if an operator has set another one; else ""."""
    is_changed = one.slots_in_force != one.concurrency_limit
    return f"; the plan says {one.concurrency_limit}" if is_changed else ""


def _origin(run: RunDetails) -> str:
    before = run.generation - 1
    if run.continues is not None:
        return f", continued from generation {before} (shown by --generation {before})"
    if run.rerun_of is None:
        return ""
    begin = "from the start" if run.rerun_from is None else f"from {safe(run.rerun_from)}"
    return f", a rerun of generation {before} {begin}"


def _stages_table(run: RunDetails) -> Table:
    names = ("stage", "state", "items", "attempts", "duration", "")
    rows = table(*names, right=("items", "attempts", "duration"), wraps=("",))
    for stage in run.stages:
        rows.add_row(
            stage.name,
            status_text(stage.state),
            _items(stage),
            str(stage.attempts) if stage.attempts else "",
            "" if stage.duration is None else format_length(stage.duration),
            Text(_remark(stage), style="dim"),
        )
    return rows


def _items(stage: StageDetails) -> str:
    if not stage.mapped or stage.kept_of is not None:
        return ""
    return f"{stage.items_done or 0}/{'?' if stage.items_total is None else stage.items_total}"


def _remark(stage: StageDetails) -> str:
    """Return a remark on a stage: where its output is from, failed and lost attempts."""
    parts: list[str] = []
    if stage.kept_of is not None:
        parts.append(f"from generation {stage.kept_of}")
    if stage.failed_attempts and stage.state != "failed":
        parts.append(f"{stage.failed_attempts} failed, last: {one_line(stage.error or '', 80)}")
    if stage.lost_attempts:
        parts.append(f"{stage.lost_attempts} lost with their worker")
    return "; ".join(parts)


def _jobs_table(screen: Screen, run: RunDetails, now: datetime, *, verbose: bool) -> Table:
    epoch = ("epoch",) if verbose else ()
    rows = table("job", "stage", "state", *epoch, "attempts", "", right=("job", "epoch", "attempts"))
    for job in run.jobs[:ENTRIES_SHOWN]:
        what = place_name(job.stage, job.item) if job.step is None else f"{job.step} (call {job.stage})"
        what += f" ({job.kind})" if job.kind in (JobKind.EXPAND_MAP, JobKind.CANCEL) else ""
        rows.add_row(
            str(job.number),
            what,
            status_text(job.state),
            *((str(job.epoch),) if verbose else ()),
            _attempts_of(job),
            Text(_whereabouts(screen, job, now, verbose=verbose), style="dim"),
        )
    return rows


def _attempts_of(job: JobDetails) -> str:
    """Return the attempts of a job and their limit, if it has one; "" for a job that drives a function."""
    if job.kind is JobKind.WORKFLOW:
        return ""
    return (
        f"{job.attempts}"
        if job.max_attempts is None
        else f"{job.attempts}/{job.max_attempts + job.lost_attempts}"
    )


def _whereabouts(screen: Screen, job: JobDetails, now: datetime, *, verbose: bool) -> str:
    if job.state is JobState.SLEEPING and job.wake_at is not None:
        left = job.wake_at - now
        at = screen.instant(job.wake_at)
        return f"wakes in {format_length(left)}, at {at}" if left > timedelta() else "due"
    if job.state is JobState.LEASED:
        who = "a worker" if job.host is None else safe(job.host)
        who += f", session {job.session}" if verbose else ""
        length = timedelta() if job.leased_at is None else max(timedelta(), now - job.leased_at)
        since = "" if job.leased_at is None else f" for {format_length(length)}"
        return f"held by {who}{since}{' (lost, released soon)' if job.is_lost else ''}"
    if job.slots_used is not None:
        return f"{job.slots_used} of {job.slots_in_force} slots of {_slots_of(job)} in use{_planned(job)}"
    return f"in queue {job.queue}" if job.state is JobState.QUEUED else ""


def _slots_of(job: JobDetails) -> str:
    shared = shared_slots(job.concurrency_key or "")
    if shared is None:
        return "this stage" if job.step is None else "this step"
    name, text = shared
    return safe(repr(name) + ("" if text is None else f" for {text!r}"))


def _children_table(screen: Screen, children: Iterable[ChildInfo]) -> Table:
    rows = table("id", "workflow", "status", "started", "ended", "by")
    for child in children:
        version = "" if child.version is None else f"@{child.version}"
        by = f"call {child.call}" if child.stage is None else place_name(child.stage, child.item)
        rows.add_row(
            safe(child.id),
            f"{child.workflow or ''}{version}",
            status_text(child.status or "removed"),
            screen.instant(child.started_at),
            "" if child.ended_at is None else screen.instant(child.ended_at),
            Text(f"{by} {safe(child.site)}".rstrip(), style="dim"),
        )
    return rows


def _progress_table(screen: Screen, run: RunDetails) -> Table:
    """Return a table of the progress of attempts, the newest first."""
    rows = table("stage", "progress", "", "at", right=("progress",), wraps=("",))
    newest = sorted(run.progress, key=lambda one: one.at, reverse=True)
    for one in islice(newest, ENTRIES_SHOWN):
        place = place_name(one.stage, one.item) if one.stage else f"epoch {one.epoch}"
        rows.add_row(place, share_text(one), Text(one_line(one.message, 100)), screen.instant(one.at))
    return rows


def _published_table(screen: Screen, run: RunDetails) -> Table:
    rows = table("name", "value", "at", wraps=("value",))
    for one in run.published:
        value = "null" if one.value is None else preview_text(one.value, 200)
        rows.add_row(safe(one.name), value, screen.instant(one.at))
    return rows


def _annotations_table(screen: Screen, run: RunDetails) -> Table:
    rows = table("name", "value", "of", "by", "at", "", wraps=("value", ""))
    for annotation in run.annotations:
        value = annotation.value if isinstance(annotation.value, str) else compact(annotation.value)
        of = place_name(annotation.stage, annotation.item) if annotation.stage else "run"
        actor = annotation.actor
        rows.add_row(
            safe(annotation.name),
            one_line(value, 100),
            of,
            safe(":".join(part for part in (actor.kind, actor.id, actor.version) if part)),
            screen.instant(annotation.at),
            Text(safe(annotation.reason), style="dim"),
        )
    return rows
