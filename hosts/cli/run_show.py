"""The command `holdfast run show`."""

from collections.abc import Iterator

import click
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.console import (
    Screen,
    heading,
    one_line,
    safe,
    safe_lines,
    screen_options,
    status_text,
    table,
)
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.cli.json_output import facts_document, note_document, row_document, run_length
from holdfast.hosts.cli.run_facts import (
    RunDetails,
    StageItem,
    StageSummary,
    find_run,
    history_of,
    read_run_details,
    result_text,
)
from holdfast.hosts.cli.step_table import STEPS_SHOWN, steps_table
from holdfast.hosts.cli.text_output import add_history_row, history_table, note_line, place_name
from holdfast.hosts.inspection.run_info import end_cause, error_text
from holdfast.hosts.text import counted, format_duration
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import micros
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.json import compact, parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.queries.history import NotesOf
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.job import Job, JobKind, JobState, limit_of_attempts, step_of
from holdfast.ports.records.run import TERMINAL, Run, RunStatus

JOBS_SHOWN = 20
_PAGE = 1_000


@click.command(
    "show",
    epilog=exits(
        Exit.OK,
        Exit.RUN_FAILED,
        Exit.USAGE,
        Exit.NOT_FOUND,
        Exit.REFUSED,
        Exit.RUN_CANCELLED,
        Exit.UNAVAILABLE,
        Exit.SCHEMA,
    ),
)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--history", is_flag=True, help="Also show the history, row by row.")
@click.option("--log", is_flag=True, help="Also show the log lines of its stages.")
@click.option(
    "--generation",
    type=click.IntRange(min=1),
    metavar="N",
    help="An older generation of a run that was run again.",
)
@click.option("--verbose", "-v", is_flag=True, help="Also show the sessions and epochs of its jobs.")
@click.option(
    "--output",
    is_flag=True,
    help="Show only its result, as JSON. Exits with 1, 4 or 5 if the run has no result.",
)
@engine_options
@screen_options
def show_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    generation: int | None,
    history: bool,
    log: bool,
    verbose: bool,
    output: bool,
) -> None:
    """Show one run: its status, stages or steps, and live jobs, and why it failed or is blocked."""
    if output and (history or log):
        raise click.UsageError("--output shows only the result: omit --history and --log")
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        core = engine.core
        run = find_run(core, run_id, generation)
        if output:
            screen.value(_output(core, run))
            return
        facts = read_run_details(core, run, micros(core.clock.now()))
        if screen.as_json:
            document = facts_document(facts)
            if history:
                document["history"] = [row_document(row) for row in history_of(core, run.key)]
            if log:
                document["log"] = [
                    note_document(note, facts.places.get(note.job)) for note in _notes(core, run)
                ]
            screen.data(document)
            return
        _show(screen, facts, verbose=verbose)
        if history:
            rows = history_table()
            for row in history_of(core, run.key):
                add_history_row(rows, screen, row)
            _section(screen, "History", rows)
        if log:
            _show_log(screen, core, facts)


def _output(core: Core, run: Run) -> str:
    match run.status:
        case RunStatus.COMPLETED if run.is_continued:
            message = (
                f"generation {run.generation} has no result: it continued as generation {run.generation + 1}"
            )
            raise CliError(Exit.REFUSED, "run_continued", message)
        case RunStatus.COMPLETED:
            return result_text(core, run)
        case RunStatus.FAILED:
            raise RunFailedError(run.id, error_text(run) or "")
        case RunStatus.CANCELLED:
            raise RunCancelledError(run.id, _reason(run))
        case status:
            message = (
                f"run {run.id!r} has no result yet: it is {status}; wait for it with `holdfast run wait`"
            )
            raise CliError(Exit.REFUSED, "run_active", message)


def _reason(run: Run) -> str:
    return str(parse(run.error).get("message", "")) if run.error else ""


def _show(screen: Screen, facts: RunDetails, *, verbose: bool) -> None:
    screen.write(_facts_table(screen, facts))
    _show_work(screen, facts)
    if not facts.whole:
        screen.note("The history is long: attempts and times cover only its first rows.")
    if facts.jobs:
        _section(screen, "Jobs", _jobs_table(screen, facts, verbose=verbose))
        if len(facts.jobs) > JOBS_SHOWN:
            screen.write(Text(f"and {len(facts.jobs) - JOBS_SHOWN} more", style="dim"))
    if facts.progress and facts.run.status not in TERMINAL:
        _section(screen, "Progress", _progress_table(screen, facts))
    if facts.published:
        _section(screen, "Published", _published_table(screen, facts))
    if facts.annotations:
        _section(screen, "Annotations", _annotations_table(screen, facts))
    error = facts.blocked or end_cause(facts.run)
    if error:
        style = "red" if facts.run.status is RunStatus.FAILED else "yellow"
        _section(screen, "Error", Text(safe_lines(error), style=style))
    last = next((stage for stage in facts.stages if stage.state == "failed"), None)
    if last is not None and last.traceback:
        screen.write(Text(safe_lines(last.traceback.rstrip()), style="dim"))
    step = next((step for step in reversed(facts.steps or ()) if step.error == error), None)
    if step is not None and step.traceback:
        screen.write(
            Text(f"Step {safe(step.step)!r}, call {step.call}, attempt {step.attempts}:", style="dim")
        )
        screen.write(Text(safe_lines(step.traceback.rstrip()), style="dim"))


def _show_work(screen: Screen, facts: RunDetails) -> None:
    """Show the stages of a pipeline, or the steps of a durable function."""
    steps = facts.steps
    if steps is None:
        _section(screen, "Stages", _stages_table(facts))
        return
    if not steps:
        none = "It ran no step." if facts.run.status in TERMINAL else "No step has started yet."
        _section(screen, "Steps", Text(none, style="dim"))
        return
    _section(screen, "Steps", steps_table(screen, steps, facts.now))
    if len(steps) > STEPS_SHOWN:
        screen.write(
            Text(f"and {len(steps) - STEPS_SHOWN:,} earlier steps: --history shows all", style="dim")
        )


def _section(screen: Screen, title: str, what: Table | Text) -> None:
    screen.write("")
    screen.write(heading(title))
    screen.write(what)


def _published_table(screen: Screen, facts: RunDetails) -> Table:
    rows = table("name", "value", "at", wraps=("value",))
    for one in facts.published:
        rows.add_row(safe(one.name), one_line(one.text), screen.instant(micros(one.at)))
    return rows


def _facts_table(screen: Screen, facts: RunDetails) -> Table:
    run = facts.run
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("Run", Text(safe(run.id), style="bold"))
    if run.generation > 1:
        rows.add_row("Generation", f"{run.generation}{_origin(facts)}")
    rows.add_row("Workflow", f"{run.workflow}@{run.version}")
    rows.add_row("Status", status_text(run.status))
    if run.is_continued:
        rows.add_row("Continued", f"as generation {run.generation + 1}")
    if facts.attempt is not None:
        most = limit_of_attempts(facts.plan.run_attempts)
        rows.add_row(
            "Attempt", f"{facts.attempt}, no limit" if most is None else f"{facts.attempt} of {most}"
        )
    if run.is_retried:
        rows.add_row("Retried", f"as generation {run.generation + 1}")
    if run.status is RunStatus.PENDING:
        rows.add_row("Waits for", _waits(screen, facts))
    rows.add_row(
        "Created",
        f"{screen.instant(run.created_at)}  ({format_duration(max(0, facts.now - run.created_at))} ago)",
    )
    if facts.starter is not None:
        rows.add_row("Started by", safe(facts.starter.text))
    if run.ended_at is not None:
        rows.add_row("Ended", screen.instant(run.ended_at))
    if facts.canceller is not None:
        rows.add_row("Cancelled by", safe(facts.canceller.text))
    rows.add_row(
        "Duration", format_duration(run_length(run, facts.now)) + ("" if run.ended_at else " so far")
    )
    if run.deadline is not None:
        rows.add_row("Deadline", screen.instant(run.deadline))
    rows.add_row("Queue", run.queue + (f", priority {run.priority}" if run.priority else ""))
    if run.attributes:
        attributes: dict[str, str] = parse(run.attributes)
        rows.add_row("Attributes", safe(", ".join(f"{name}={text}" for name, text in attributes.items())))
    rows.add_row("History", counted(run.last_row, "row"))
    if unread := len(mailbox_from(run.mailbox).unread):
        rows.add_row("Messages", f"{unread:,} not received; `holdfast run messages` lists them")
    return rows


def _waits(screen: Screen, facts: RunDetails) -> str:
    """Return what a pending run waits for."""
    run = facts.run
    parts: list[str] = []
    if run.start_at is not None:
        left = run.start_at - facts.now
        when = f"in {format_duration(left)}" if left > 0 else "due"
        parts.append(f"its start at {screen.instant(run.start_at)} ({when})")
    if run.slot is not None:
        taken = f"{facts.slots_used.get(run.slot, 0)} of {run.concurrency_limit} in use"
        parts.append(f"a slot of concurrency key {safe(run.concurrency_key or '')} ({taken})")
    return ", then ".join(parts)


def _origin(facts: RunDetails) -> str:
    run = facts.run
    if facts.continues:
        return (
            f", continued from generation {run.generation - 1} (shown by --generation {run.generation - 1})"
        )
    if run.rerun_of is None:
        return ""
    begin = "from the start" if run.rerun_from is None else f"from {safe(run.rerun_from)}"
    return f", a rerun of generation {run.generation - 1} {begin}"


def _stages_table(facts: RunDetails) -> Table:
    rows = table(
        "stage",
        "state",
        "items",
        "attempts",
        "duration",
        "",
        right=("items", "attempts", "duration"),
        wraps=("",),
    )
    for stage in facts.stages:
        length = stage.length(facts.now)
        rows.add_row(
            stage.name,
            status_text(stage.state),
            _items(stage),
            str(stage.attempts) if stage.attempts else "",
            format_duration(length) if length is not None else "",
            Text(_remark(stage), style="dim"),
        )
    return rows


def _items(stage: StageSummary) -> str:
    if not stage.mapped or stage.kept_of is not None:
        return ""
    return f"{stage.done}/{'?' if stage.total is None else stage.total}"


def _remark(stage: StageSummary) -> str:
    """Return a remark on a stage: where its output is from, failed and lost attempts."""
    parts: list[str] = []
    if stage.kept_of is not None:
        parts.append(f"from generation {stage.kept_of}")
    if stage.failed and stage.state != "failed":
        parts.append(f"{stage.failed} failed, last: {one_line(stage.error or '', 80)}")
    if stage.lost:
        parts.append(f"{stage.lost} lost with their worker")
    return "; ".join(parts)


def _jobs_table(screen: Screen, facts: RunDetails, *, verbose: bool) -> Table:
    epoch = ("epoch",) if verbose else ()
    rows = table("job", "stage", "state", *epoch, "attempts", "", right=("job", "epoch", "attempts"))
    for job in facts.jobs[:JOBS_SHOWN]:
        step = step_of(job.definition)
        what = place_name(job.node, job.item) if step is None else f"{step} (call {job.node})"
        what += f" ({job.kind})" if job.kind in (JobKind.EXPAND_MAP, JobKind.CANCEL) else ""
        rows.add_row(
            str(job.number),
            what,
            status_text(job.state),
            *((str(job.epoch),) if verbose else ()),
            _attempts_of(job),
            Text(_whereabouts(screen, facts, job, verbose=verbose), style="dim"),
        )
    return rows


def _attempts_of(job: Job) -> str:
    """Return the attempts of a job and their limit, if it has one; "" for a job that drives a function."""
    if job.kind is JobKind.WORKFLOW:
        return ""
    most = limit_of_attempts(job.max_attempts + job.lost_attempts)
    return str(job.attempts) if most is None else f"{job.attempts}/{most}"


def _whereabouts(screen: Screen, facts: RunDetails, job: Job, *, verbose: bool) -> str:
    if job.state is JobState.SLEEPING and job.wake_at is not None:
        left = job.wake_at - facts.now
        return f"wakes in {format_duration(left)}, at {screen.instant(job.wake_at)}" if left > 0 else "due"
    if job.state is JobState.LEASED:
        holder = facts.holders.get(job.session or "")
        who = "a worker" if holder is None else safe(holder.host)
        who += f", session {job.session}" if verbose else ""
        since = "" if job.leased_at is None else f" for {format_duration(max(0, facts.now - job.leased_at))}"
        dead = " (lost, released soon)" if holder is not None and holder.state != "open" else ""
        return f"held by {who}{since}{dead}"
    if job.state is JobState.LIMITED and job.slot is not None:
        return f"{facts.slots_used.get(job.slot, 0)} of {job.concurrency_limit} slots of this stage in use"
    return f"in queue {job.queue}" if job.state is JobState.QUEUED else ""


def _progress_table(screen: Screen, facts: RunDetails) -> Table:
    """Return a table of the progress of attempts, the newest first."""
    rows = table("stage", "progress", "", "at", right=("progress",), wraps=("",))
    for progress in sorted(facts.progress, key=lambda one: one.at, reverse=True)[:JOBS_SHOWN]:
        share = f"{progress.done / progress.of:.0%}" if progress.of else f"{progress.done:g}"
        place = place_name(progress.stage, progress.item) if progress.stage else f"epoch {progress.epoch}"
        rows.add_row(place, share, Text(one_line(progress.message, 100)), screen.instant(micros(progress.at)))
    return rows


def _annotations_table(screen: Screen, facts: RunDetails) -> Table:
    rows = table("name", "value", "of", "by", "at", "", wraps=("value", ""))
    for annotation in facts.annotations:
        value = annotation.value if isinstance(annotation.value, str) else compact(annotation.value)
        of = place_name(annotation.stage, annotation.item) if annotation.stage else "run"
        actor = ":".join(
            part for part in (annotation.actor.kind, annotation.actor.id, annotation.actor.version) if part
        )
        rows.add_row(
            safe(annotation.name),
            one_line(value, 100),
            of,
            safe(actor),
            screen.instant(micros(annotation.at)),
            Text(safe(annotation.reason), style="dim"),
        )
    return rows


def _show_log(screen: Screen, core: Core, facts: RunDetails) -> None:
    screen.write("")
    screen.write(heading("Log"))
    is_empty = True
    for note in _notes(core, facts.run):
        if note.kind == "log":
            is_empty = False
            screen.write(note_line(screen, note, _place(facts, note)))
    if is_empty:
        screen.write(Text("No log lines.", style="dim"))


def _place(facts: RunDetails, note: OutputRow) -> StageItem | None:
    return facts.places.get(note.job)


def _notes(core: Core, run: Run) -> Iterator[OutputRow]:
    """Yield the attempt output of a run, page by page, each page in order of time."""
    after = ""
    while notes := core.stores.persistence.read(NotesOf(run.key, after, _PAGE)):
        yield from sorted(notes, key=lambda note: (note.at, note.id))
        after = notes[-1].id
        if len(notes) < _PAGE:
            return
