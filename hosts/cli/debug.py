"""The command `holdfast debug`: replays a recorded run of a durable function under pdb."""

import os
import pdb  # noqa: T100  # this is what the command is
import sys
from collections.abc import Callable
from inspect import currentframe
from types import CodeType
from typing import Any, Final, cast

import click
from typing_extensions import override

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import load_code
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.cli.history import read_file
from holdfast.hosts.functions.replay_check import ReplayResult, replay_here, workflow_of
from holdfast.hosts.text import counted
from holdfast.kernel.authoring.functions import Workflow

_OURS: Final = sys.stdlib_module_names | {"holdfast", "attr", "attrs", "cattr", "cattrs", "typing_extensions"}
"""Packages that the debugger steps over, so that `next` goes from line to line of the user's code."""


@click.command("debug", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.DIVERGED))
@click.argument("file", metavar="HISTORY.json")
@click.option(
    "--module",
    "-m",
    "modules",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Where the workflow is: a module, or an engine or a workflow in it. May be repeated.  [HOLDFAST_ENGINE]",
)
@screen_options
def debug_command(*, screen: Screen, file: str, modules: tuple[str, ...]) -> None:
    """Step through a recorded run under pdb, from the first line of the durable function.

    HISTORY.json is a file from `holdfast history export`. `next` also steps over an await, which returns the recorded
    value. Breakpoints in the code, such as `breakpoint()`, work. No step runs, and no store is needed.
    """
    if file == "-":
        raise click.UsageError("pass the history as a file: the debugger reads stdin")
    history = read_file(file)
    workflow = workflow_of(history, load_code(modules).workflows)
    screen.note(
        f"Run {safe(history.id)} of {safe(history.definition)}, {counted(len(history.rows), 'row')}: each await returns"
        " the recorded value, and no step runs."
    )
    debugger = _Debugger()
    replayed = debugger.run_from(_code_of(workflow), lambda: replay_here(history, workflow))
    if replayed is None:
        return
    screen.answer(
        {"id": history.id, "ended": replayed.ended is not None, "message": str(replayed)}, safe(str(replayed))
    )


class _Debugger(pdb.Pdb):
    """A pdb debugger that stops first at the start of a function, and steps over Holdfast and the standard library."""

    def __init__(self) -> None:
        super().__init__(skip=("holdfast.*",))  # see also `is_skipped_module`
        self._was_left = False

    def run_from(self, code: CodeType, call: Callable[[], ReplayResult]) -> ReplayResult | None:
        """Make a call, and stop at the first line of `code`. Returns None if the user quits. Raises CliError."""
        problem = self.set_break(code.co_filename, code.co_firstlineno, temporary=True, funcname=code.co_name)
        if problem:
            raise CliError(Exit.USAGE, "no_source", f"cannot step through the code: {problem}")

        def go_on() -> ReplayResult:
            self.set_continue()  # continue to the breakpoint
            return call()

        hook = sys.breakpointhook
        if "PYTHONBREAKPOINT" not in os.environ:  # an explicit choice of `breakpoint()` wins
            sys.breakpointhook = self._break_here
        try:
            replayed: ReplayResult | None = self.runcall(go_on)
        except Exception:
            if self._was_left:  # the function may turn pdb's BdbQuit into any error of its own
                return None
            raise
        finally:
            sys.breakpointhook = hook
        return None if self._was_left else replayed

    @override
    def is_skipped_module(self, module_name: str | None) -> bool:
        return module_name is not None and module_name.partition(".")[0] in _OURS

    @override
    def set_quit(self) -> None:
        self._was_left = True
        super().set_quit()

    @override
    def do_run(self, arg: str) -> None:
        """Refuse pdb's `run` and `restart`: a replay cannot be restarted from inside."""
        self.error("quit with q, and start holdfast debug again")

    do_restart = do_run

    def _break_here(self, *_: object, **__: object) -> None:
        frame = currentframe()
        self.set_trace(None if frame is None else frame.f_back)


def _code_of(workflow: Workflow[..., object]) -> CodeType:
    (stage,) = workflow.bodies.values()
    return cast("Any", stage.body).__code__  # type: ignore[no-any-return]
