"""The command `holdfast run wait`, the option `--wait`, and the progress that they show on a terminal or as lines."""

import time
from collections.abc import Generator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final, Protocol

import attrs
import click
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from holdfast.hosts.cli.backends import Backend, StoreBackend
from holdfast.hosts.cli.console import Screen, format_length, safe, status_text
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.text_output import progress_text
from holdfast.hosts.inspection.logs import progress_info
from holdfast.hosts.inspection.run_details import RunDetails
from holdfast.hosts.inspection.run_info import RunInfo, RunResult, find_run, read_info
from holdfast.hosts.inspection.values import result_text
from holdfast.hosts.text import counted
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.pipelines.plan import MapPlan, Plan
from holdfast.kernel.pipelines.progress import NodeProgress, progress_from
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.json import parse
from holdfast.ports.queries.history import NotesOf
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import TERMINAL, Run, RunStatus

LOOK_SECONDS: Final = 0.5
"""Interval at which the run's progress is read. The listener reports its end without delay."""
_ENDS: Final = {
    RunStatus.COMPLETED: Exit.OK,
    RunStatus.FAILED: Exit.RUN_FAILED,
    RunStatus.CANCELLED: Exit.RUN_CANCELLED,
}
_DONE: Final = frozenset({"done", "kept"})
_NOT_OPEN: Final = frozenset({"waiting", "not reached"})
_NOTES_PAGE: Final = 1_000
_PAGES_PER_LOOK: Final = 5
_BAR_WIDTH: Final = 30
_OPEN_SHOWN: Final = 10


@engine_command("wait", "[ENGINE] ID", Exit.RUN_FAILED, Exit.NOT_FOUND, Exit.RUN_CANCELLED, Exit.TIMED_OUT)
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="The maximum wait. The run continues."
)
@engine_options
def wait_command(*, screen: Screen, target: Target, timeout: float | None) -> None:
    """Wait until a run ends, and print its result. Progress goes to stderr."""
    with target.backend("ID") as (backend, (run_id,)):
        ended = wait_on(screen, backend, run_id, timeout)
    raise SystemExit(ended)


def wait_on(screen: Screen, backend: Backend, run_id: str, timeout: float | None) -> Exit:
    """Wait until a run ends, show its progress and then its result. Return the exit code for its status."""
    if isinstance(backend, StoreBackend):
        core = backend.engine.core
        return wait_for(screen, core, find_run(core, run_id), timeout)
    until = None if timeout is None else time.monotonic() + timeout
    run = backend.run(run_id)
    details = run.details()
    if details.status in TERMINAL:
        return _print_end_of(screen, backend, details)
    try:
        with display(screen) as shown:
            while details.status not in TERMINAL:
                shown.show(_snapshot(details), backend.now())
                left = LOOK_SECONDS if until is None else min(LOOK_SECONDS, until - time.monotonic())
                if left <= 0:
                    raise _timed_out(run_id, timeout)
                with suppress(TimeoutError, RunFailedError, RunCancelledError):
                    run.result(timeout=left)
                details = run.details()
            shown.show(_snapshot(details), backend.now())
    except KeyboardInterrupt:
        raise _interrupted(run_id) from None
    return _print_end_of(screen, backend, details)


def _print_end_of(screen: Screen, backend: Backend, run: RunDetails) -> Exit:
    is_completed = run.status is RunStatus.COMPLETED
    return _print_end(screen, run, backend.result_text(run.id, run.generation) if is_completed else "null")


def wait_for(screen: Screen, core: Core, run: Run, timeout: float | None) -> Exit:
    """Wait until a run ends, show its progress and then its result. Return the exit code for its status."""
    until = None if timeout is None else core.stores.clock.monotonic() + timeout
    while run.status not in TERMINAL:
        run = _ended(screen, core, run, timeout, until)
        if run.has_successor:  # wait for the next generation as well
            run = find_run(core, run.id)
    result = result_text(core, run) if run.status is RunStatus.COMPLETED else "null"
    return _print_end(screen, read_info(core, run), result)


def _print_end(screen: Screen, run: RunInfo, result: str) -> Exit:
    if screen.as_json:
        fields = {field.name: getattr(run, field.name) for field in attrs.fields(RunInfo)}
        screen.data(RunResult(**fields, result=parse(result)))
        return _ENDS[run.status]
    end = f" after {format_length(run.duration)}"
    line = Text.assemble((safe(run.id), "bold"), " ", status_text(run.status), end)
    screen.note(line.append(f": {safe(run.end_cause)}" if run.end_cause else ""))
    if run.status is RunStatus.COMPLETED:
        screen.value(result)
    return _ENDS[run.status]


def _ended(screen: Screen, core: Core, run: Run, timeout: float | None, until: float | None) -> Run:
    clock = core.stores.clock
    watch = ProgressReader(core, run)
    future = core.listener.when_ended(run.key)
    try:
        with display(screen) as shown:
            while True:
                # The run may have ended before `when_ended` was called.
                view = watch.look()
                shown.show(view, core.clock.now())
                if view.run.status in TERMINAL:
                    return watch.run
                left = LOOK_SECONDS if until is None else min(LOOK_SECONDS, until - clock.monotonic())
                if left <= 0:
                    raise _timed_out(run.id, timeout)
                try:
                    future.result(left)
                except FutureTimeoutError:
                    continue
    except KeyboardInterrupt:
        raise _interrupted(run.id) from None
    finally:
        future.cancel()


def _timed_out(run_id: str, timeout: float | None) -> CliError:
    message = f"run {run_id!r} did not end within {timeout:g} s; it continues"
    return CliError(Exit.TIMED_OUT, "timeout", message)


def _interrupted(run_id: str) -> CliError:
    return CliError(Exit.INTERRUPTED, "interrupted", f"stopped waiting for run {run_id!r}; it continues")


@attrs.frozen
class OpenStage:
    """A stage that is under way. For a map: how many of its items are done."""

    name: str
    done: int | None = None
    total: int | None = None


@attrs.frozen(kw_only=True)
class ProgressSnapshot:
    """The progress of a run at one instant."""

    run: RunInfo
    done: tuple[str, ...]
    """The names of completed stages."""
    open: tuple[OpenStage, ...]
    """Stages that are under way."""
    stages: int
    """The number of stages in the plan."""
    message: str = ""
    """The newest progress of an attempt, as a line of text."""


class ProgressReader:
    """Reads the progress of an active run, repeatedly."""

    def __init__(self, core: Core, run: Run) -> None:
        self._core = core
        self._plan: Plan = core.inputs.plan(run.plan)
        self.run = run
        """The run as it was when it was last read."""
        self._note = ""
        self._message = ""

    def look(self) -> ProgressSnapshot:
        """Return the current progress."""
        (self.run,) = self._core.stores.persistence.read(RunsByKey((self.run.key,)))
        self._listen()
        done, under_way = _stages(self.run, self._plan)
        return ProgressSnapshot(
            run=read_info(self._core, self.run),
            done=done,
            open=under_way,
            stages=len(self._plan.nodes),
            message=self._message,
        )

    def _listen(self) -> None:
        """Read the attempt output since the last call, at most `_PAGES_PER_LOOK` pages of it."""
        for _ in range(_PAGES_PER_LOOK):
            notes = self._core.stores.persistence.read(NotesOf(self.run.key, self._note, _NOTES_PAGE))
            progress_notes = [note for note in notes if note.kind == "progress"]
            if progress_notes:
                self._message = progress_text(progress_info(max(progress_notes, key=lambda note: note.at)))
            if notes:
                self._note = notes[-1].id
            if len(notes) < _NOTES_PAGE:
                return


def _snapshot(run: RunDetails) -> ProgressSnapshot:
    """Return the progress of a run as its details have it."""
    newest = max(run.progress, key=lambda one: one.at, default=None)
    return ProgressSnapshot(
        run=run,
        done=tuple(one.name for one in run.stages if one.state in _DONE),
        open=tuple(
            OpenStage(one.name, one.items_done or 0, one.items_total) if one.mapped else OpenStage(one.name)
            for one in run.stages
            if one.state not in _DONE | _NOT_OPEN
        ),
        stages=len(run.stages),
        message="" if newest is None else progress_text(newest),
    )


class Display(Protocol):
    """Shows the progress of a run to people."""

    def show(self, view: ProgressSnapshot, now: datetime) -> None:
        """Show a view."""
        ...


def _stages(run: Run, plan: Plan) -> tuple[tuple[str, ...], tuple[OpenStage, ...]]:
    """Return the completed stages of a run, and those under way, as its row has them."""
    progress = progress_from(run.progress)
    done = [node.name for group in plan.groups[: progress.group] for node in group.nodes]
    under_way: list[OpenStage] = []
    has_begun = run.is_admitted and progress.group < len(plan.groups)
    for node in plan.groups[progress.group].nodes if has_begun else ():
        at = progress.nodes.get(node.name, NodeProgress())
        if at.output is not None:
            done.append(node.name)
        elif at.map is not None:
            under_way.append(OpenStage(node.name, at.map.done, at.map.total))
        else:
            under_way.append(OpenStage(node.name, 0 if isinstance(node, MapPlan) else None))
    return tuple(done), tuple(under_way)


class Bars:
    """A display with progress bars, redrawn in place on a terminal."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._spinner = Spinner("dots", style="cyan")

    def show(self, view: ProgressSnapshot, now: datetime) -> None:
        """See `Display.show`."""
        title = Table.grid(padding=(0, 1))
        name = Text(safe(view.run.id), style="bold")
        passed = Text(format_length(view.run.duration), style="dim")
        workflow = f"{view.run.workflow}@{view.run.version}"
        title.add_row(self._spinner, name, workflow, status_text(view.run.status), passed)
        bars = Table.grid(padding=(0, 1))
        bars.add_row("  stages", _bar(len(view.done), view.stages), f"{len(view.done)}/{view.stages}")
        for stage in view.open[:_OPEN_SHOWN]:
            if stage.total is None:
                bars.add_row(f"    {stage.name}", Text("under way", style="dim"))
            else:
                counts = f"{stage.done}/{stage.total} items"
                bars.add_row(f"    {stage.name}", _bar(stage.done or 0, stage.total), counts)
        message = Text(
            f"  {view.message}" if view.message else "", style="dim", no_wrap=True, overflow="ellipsis"
        )
        self._live.update(Group(title, bars, message), refresh=True)


class Lines:
    """A display with a line for each completed stage, and for each tenth of a map."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._done: set[str] = set()
        self._tenths: dict[str, int] = {}
        self._message = ""

    def show(self, view: ProgressSnapshot, now: datetime) -> None:
        """See `Display.show`."""
        for name in view.done:
            if name not in self._done:
                self._done.add(name)
                self._print(now, f"stage {name} is done ({len(self._done)} of {view.stages})")
        for stage in view.open:
            if stage.total:
                tenth = (stage.done or 0) * 10 // stage.total
                if self._tenths.get(stage.name) != tenth:
                    self._tenths[stage.name] = tenth
                    self._print(now, f"stage {stage.name}: {stage.done} of {counted(stage.total, 'item')}")
        if view.message != self._message:
            self._message = view.message
            self._print(now, view.message)

    def _print(self, now: datetime, text: str) -> None:
        self._screen.note(f"{self._screen.instant(now)}  {text}")


@contextmanager
def display(screen: Screen) -> Generator[Display]:
    """Provide a display that suits the screen, until the block ends."""
    if screen.as_json or not screen.err.is_terminal or screen.err.is_dumb_terminal:
        yield Lines(screen)
        return
    with Live(console=screen.err, transient=True, refresh_per_second=10) as live:
        yield Bars(live)


def _bar(done: int, total: int) -> ProgressBar:
    return ProgressBar(
        total=max(total, 1),
        completed=done if total else 1,
        width=_BAR_WIDTH,
        complete_style="cyan",
        finished_style="green",
    )
