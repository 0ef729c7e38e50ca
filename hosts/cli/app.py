"""The command line itself: its groups, and what becomes of errors."""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper

import click

from holdfast.hosts.cli.ai import ai_command
from holdfast.hosts.cli.annotating import annotate_command
from holdfast.hosts.cli.artifacts import artifacts_command
from holdfast.hosts.cli.database import database
from holdfast.hosts.cli.debugging import debug_command
from holdfast.hosts.cli.doctor import doctor_command
from holdfast.hosts.cli.exits import Exit, Problem, problem_of
from holdfast.hosts.cli.exposed import query_command, update_command
from holdfast.hosts.cli.hearing import logs_command
from holdfast.hosts.cli.help import exits
from holdfast.hosts.cli.histories import export_command
from holdfast.hosts.cli.letters import letters_command, replay_command
from holdfast.hosts.cli.linting import lint_command
from holdfast.hosts.cli.listing import list_command
from holdfast.hosts.cli.logs import log_holdfast, stop_logging
from holdfast.hosts.cli.removing import remove_run_command
from holdfast.hosts.cli.replaying import check_upgrade_command, replay_history_command
from holdfast.hosts.cli.rerunning import rerun_command
from holdfast.hosts.cli.screen import Screen
from holdfast.hosts.cli.showing import show_command
from holdfast.hosts.cli.signalling import signal_command
from holdfast.hosts.cli.sinks import add_command, remove_command, sinks_command
from holdfast.hosts.cli.starting import start_command
from holdfast.hosts.cli.steering import (
    cancel_command,
    pause_command,
    resume_command,
    terminate_command,
)
from holdfast.hosts.cli.target import ENGINE_VARIABLE, URL_VARIABLE
from holdfast.hosts.cli.waiting import wait_command
from holdfast.hosts.cli.waking import wake_command
from holdfast.hosts.cli.why import why_command
from holdfast.hosts.cli.working import worker_command

_HELP = f"""Durable workflows: run workers, start runs, look at them.

ENGINE is MODULE:ENGINE, as in shop.workflows:engine: an Engine in a module that can be imported from here. Commands
that need none of your code also take a URL, as in sqlite:///runs.db. What is left out is taken from {ENGINE_VARIABLE}
or {URL_VARIABLE}.
"""


def _version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "(not installed)"


@click.group(
    help=_HELP,
    epilog=exits(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(_version(), prog_name="holdfast")
def command_line() -> None:
    """Run the command line."""


@click.group("run")
def runs() -> None:
    """Start runs, look at them, wait for them, pause and end them, run them again."""


_of_runs = (
    *(start_command, list_command, show_command, wait_command),
    *(logs_command, annotate_command, artifacts_command, ai_command),
    *(pause_command, resume_command, cancel_command, terminate_command),
    *(rerun_command, remove_run_command, wake_command),
    *(signal_command, query_command, update_command),
)
for _command in _of_runs:
    runs.add_command(_command)


@click.group("sink")
def sinks() -> None:
    """Say where events go."""


for _command in (add_command, remove_command, sinks_command):
    sinks.add_command(_command)


@click.group("dead-letter")
def dead_letters() -> None:
    """Look at the events that a sink refuses, and let them go on."""


for _command in (letters_command, replay_command):
    dead_letters.add_command(_command)


@click.group("history")
def histories() -> None:
    """Write the histories of runs as documents."""


histories.add_command(export_command)
_of_code = (lint_command, replay_history_command, check_upgrade_command, debug_command)
for _command in (
    *(worker_command, runs, why_command, doctor_command, histories),
    *(*_of_code, sinks, dead_letters, database),
):
    command_line.add_command(_command)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command. Return its exit code; errors are shown by then."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    screen = Screen(as_json="--json" in options, utc="--utc" in options)
    log_holdfast(screen)
    try:
        command_line.main(args=list(arguments), prog_name="holdfast", standalone_mode=False)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else Exit.OK
    except BaseException as error:  # noqa: BLE001  # every error becomes an exit code
        return _failed(screen, error)
    finally:
        stop_logging()
    return Exit.OK


def _failed(screen: Screen, error: BaseException) -> int:
    problem = problem_of(error)
    if problem is None:
        detail = "".join(traceback.format_exception(error))
        message = f"an error that nobody expected: {type(error).__name__}: {error}"
        problem = Problem(exit=Exit.BUG, code="unexpected", message=message, detail=detail)
    screen.problem(problem)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        screen.note(f"See `{error.ctx.command_path} --help`.")
    return problem.exit
