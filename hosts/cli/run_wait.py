"""The command `holdfast run wait`, and the option `--wait`."""

from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options, status_text
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.cli.json_output import run_document, run_length
from holdfast.hosts.cli.run_facts import find_run, result_text
from holdfast.hosts.cli.run_progress import ProgressReader, display
from holdfast.hosts.inspection.run_info import end_cause
from holdfast.hosts.text import format_duration
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import micros
from holdfast.ports.json import parse
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.values import Micros

LOOK_SECONDS: Final = 0.5
"""Interval at which the run's progress is read. The listener reports its end without delay."""
_ENDS: Final = {
    RunStatus.COMPLETED: Exit.OK,
    RunStatus.FAILED: Exit.RUN_FAILED,
    RunStatus.CANCELLED: Exit.RUN_CANCELLED,
}


@click.command(
    "wait",
    epilog=exits(
        Exit.OK,
        Exit.RUN_FAILED,
        Exit.USAGE,
        Exit.NOT_FOUND,
        Exit.RUN_CANCELLED,
        Exit.UNAVAILABLE,
        Exit.TIMED_OUT,
        Exit.SCHEMA,
    ),
)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="The maximum wait. The run continues."
)
@engine_options
@screen_options
def wait_command(*, screen: Screen, target: Target, words: tuple[str, ...], timeout: float | None) -> None:
    """Wait until a run ends, and print its result. Progress goes to stderr."""
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        core = engine.core
        ended = wait_for(screen, core, find_run(core, run_id), timeout)
    raise SystemExit(ended)


def wait_for(screen: Screen, core: Core, run: Run, timeout: float | None) -> Exit:
    """Wait until a run ends, show its progress and then its result. Return the exit code for its status."""
    until = None if timeout is None else core.stores.clock.monotonic() + timeout
    while run.status not in TERMINAL:
        run = _ended(screen, core, run, timeout, until)
        if run.is_continued:  # wait for the next generation as well
            run = find_run(core, run.id)
    now = micros(core.clock.now())
    if screen.as_json:
        result = parse(result_text(core, run)) if run.status is RunStatus.COMPLETED else None
        screen.data({**run_document(run, now), "result": result})
    else:
        _show_end(screen, core, run, now)
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
                shown.show(view, micros(core.clock.now()))
                if view.run.status in TERMINAL:
                    return view.run
                left = LOOK_SECONDS if until is None else min(LOOK_SECONDS, until - clock.monotonic())
                if left <= 0:
                    raise CliError(
                        Exit.TIMED_OUT,
                        "timeout",
                        f"run {run.id!r} did not end within {timeout:g} s; it continues",
                    )
                try:
                    future.result(left)
                except FutureTimeoutError:
                    continue
    except KeyboardInterrupt:
        raise CliError(
            Exit.INTERRUPTED, "interrupted", f"stopped waiting for run {run.id!r}; it continues"
        ) from None
    finally:
        future.cancel()


def _show_end(screen: Screen, core: Core, run: Run, now: Micros) -> None:
    length = format_duration(run_length(run, now))
    line = Text.assemble((safe(run.id), "bold"), " ", status_text(run.status), f" after {length}")
    if run.status is RunStatus.COMPLETED:
        screen.note(line)
        screen.value(result_text(core, run))
        return
    cause = end_cause(run)
    screen.note(Text.assemble(line, f": {safe(cause)}" if cause else ""))
