"""The command line: its groups of commands, and the conversion of errors to exit codes.

`--help` does not import the engine, which takes several times as long as the rest. Stderr may be a closed pipe, as in
`holdfast worker 2>&1 | head -1`.
"""

import errno
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import click
from click.core import ParameterSource
from typing_extensions import override

from holdfast.hosts.cli.commands import COMMANDS, load_lazy_commands
from holdfast.hosts.cli.configuration import (
    ARGUMENTS,
    FILE_NAME,
    PYPROJECT,
    VARIABLE,
    Configuration,
    load_configuration,
)
from holdfast.hosts.cli.exit_codes import Exit, exits

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.hosts.cli.console import Screen

_GROUPS: Final = {
    "run": "Start, inspect, wait for, pause, end and rerun runs.",
    "schedule": "Create, inspect, pause, trigger and backfill schedules.",
    "trigger": "Inspect, pause and apply triggers, by which messages of topics start runs.",
    "limit": "Read and change limits and pause queues, while the system runs.",
    "key": "Create, list, rotate and revoke the API keys of the server.",
    "queue": "See what waits in queues and who serves it, and pause them.",
    "workflow": "See which workflows there are, and what they take.",
    "topic": "Publish messages to topics, and see how far they were delivered.",
    "namespace": "Create, list and delete namespaces, and give them quotas.",
    "history": "Show, follow and export the histories of runs.",
    "sink": "Register the sinks that receive events.",
    "dead-letter": "List the dead-lettered streams of sinks, and replay them.",
    "db": "Create, upgrade and inspect a store's tables.",
}
_HELP: Final = """Durable workflows: run workers, start runs, inspect them.

ENGINE is MODULE:ENGINE, such as shop.workflows:engine: an Engine in a module that can be imported from the current
folder. Commands that do not need your code also take a URL, such as sqlite:///runs.db. The default is HOLDFAST_ENGINE
or HOLDFAST_URL, or else what the configuration file names.

Most commands can go to a server instead, over HTTP: --server URL or HOLDFAST_SERVER, with its key in HOLDFAST_KEY.
"""
_READER_GONE: Final = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})
"""Errors of a stream that will never work again: its pipe is broken, its terminal is gone, or it is closed."""
_WITHOUT_CONFIGURATION: Final = frozenset({"completion", "openapi"})
"""A shell runs these in any folder, whatever file is there."""


class _Group(click.Group):
    """A group of commands. The error for an unknown command names commands of other groups."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        path = " ".join(args[:2])  # of a command beside one of its first word, such as `worker list`
        if len(args) > 1 and (command := self.commands.get(path)) is not None:
            return path, command, args[2:]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            elsewhere = [f"`holdfast {path}`" for path in COMMANDS if name in path.split()]
            if elsewhere:
                ctx.fail(
                    f"there is no command `{ctx.command_path} {name}`; did you mean {' or '.join(elsewhere)}?"
                )
        return super().resolve_command(ctx, args)

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the names of commands and options; of `worker list` only the first word."""
        return [one for one in super().shell_complete(ctx, incomplete) if " " not in one.value]


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("holdfast")
    except PackageNotFoundError:
        found = "(not installed)"
    click.echo(f"holdfast, version {found}")
    context.exit()


@click.group(
    cls=_Group,
    help=_HELP,
    epilog=exits(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option(
    "--config",
    envvar=VARIABLE,
    metavar="FILE",
    help=f"The configuration file. [{VARIABLE}]  [default: {FILE_NAME}, or [tool.holdfast] in {PYPROJECT}]",
)
def command_line(*, config: str | None) -> None:  # `_run` reads it before a command
    """Run the command line."""


def _add_commands() -> None:
    groups = {name: _Group(name, help=text) for name, text in _GROUPS.items()}
    for path, command in load_lazy_commands(COMMANDS):
        group, _, _ = path.rpartition(" ")
        if group in COMMANDS:
            command_line.add_command(command, path)
            continue
        owner = groups[group] if group else command_line
        if group and group not in command_line.commands:
            command_line.add_command(owner)
        owner.add_command(command)


_add_commands()


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command, show its error if it raises one, and return the exit code."""
    with _existing_output():
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        with _tolerant_stderr():
            return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    configured = Configuration()
    began: list[Callable[[], None]] = []

    def screen() -> "Screen":
        return _screen(arguments, configured.secrets)

    def begin(context: click.Context, path: str) -> Mapping[str, object]:
        from holdfast.hosts.cli.process_logs import log_holdfast, stop_logging

        nonlocal configured
        context.meta[ARGUMENTS] = tuple(arguments)
        if path not in _WITHOUT_CONFIGURATION:
            configured = load_configuration(context, context.find_root().params["config"])
        log_holdfast(screen())
        began.append(stop_logging)
        return configured.options(path)

    try:
        command_line.main(args=list(arguments), prog_name="holdfast", standalone_mode=False, obj=begin)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else Exit.OK
    except BaseException as error:  # noqa: BLE001  # every error becomes an exit code
        if isinstance(error, click.BadParameter):
            error = _with_origin(error, configured)
        return _failed(screen(), error)
    finally:
        for end in began:
            end()
    return Exit.OK


def _with_origin(error: click.BadParameter, configured: Configuration) -> click.BadParameter:
    """Return the error of a configured value with its key or variable; other errors as they are."""
    context, parameter = error.ctx, error.param
    if context is None or parameter is None:
        return error
    if context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT_MAP:
        return error
    origin = configured.origin(context.info_name or "", parameter.name)
    return click.BadParameter(f"{error.message} ({origin})", context, parameter, error.param_hint)


def _screen(arguments: Sequence[str], configured: Sequence[str]) -> "Screen":
    from holdfast.hosts.cli.console import Screen, secrets_given

    Screen.secrets = (*secrets_given(arguments, os.environ), *configured)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return Screen(as_json="--json" in options, utc="--utc" in options)


def _failed(screen: "Screen", error: BaseException) -> int:
    from traceback import format_exception

    from holdfast.hosts.cli.exit_codes import Problem, problem_of

    problem = problem_of(error)
    if problem is None:
        detail = "".join(format_exception(error))
        message = f"unexpected error: {type(error).__name__}: {error}"
        problem = Problem(exit=Exit.BUG, code="unexpected", message=message, detail=detail)
    screen.problem(problem)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        screen.note(f"See `{error.ctx.command_path} --help`.")
    return problem.exit


class _TolerantStream(TextIOWrapper):
    """A text stream that never raises: it discards all output once its reader is gone, and a line if its disk is full.

    The buffer below it keeps some of the lines that could not be written, and writes them before the next ones.
    """

    @override
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up_without_reader(error)
            return len(text)

    @override
    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up_without_reader(error)

    def flush_at_end(self) -> None:
        """Flush the stream, or else discard what it has kept: Python flushes again at exit, which must not fail."""
        try:
            super().flush()
        except OSError:
            self._discard_output()

    def _give_up_without_reader(self, error: OSError) -> None:
        if error.errno in _READER_GONE:
            self._discard_output()

    def _discard_output(self) -> None:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


@contextmanager
def _existing_output() -> Generator[None]:
    """Open a stream to nowhere for stdout or stderr if it was closed when the program began: then Python has None."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, stack.enter_context(Path(os.devnull).open("w")))
                stack.callback(setattr, sys, name, None)
        yield


@contextmanager
def _tolerant_stderr() -> Generator[None]:
    """Replace stderr by a tolerant stream for the length of the block, if it is a real stream."""
    stderr = sys.stderr
    if not isinstance(stderr, TextIOWrapper):  # replaced, for example by a test
        yield
        return
    stderr.flush()
    real = cast("TextIOWrapper[BinaryIO]", stderr)
    sys.stderr = tolerant = _TolerantStream(
        real.buffer, encoding=stderr.encoding, errors="backslashreplace", line_buffering=True
    )
    try:
        yield
    finally:
        tolerant.flush_at_end()
        tolerant.detach()
        sys.stderr = stderr
