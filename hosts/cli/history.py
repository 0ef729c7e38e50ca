"""The commands `holdfast history show` and `export`, and the reader of the history files that other commands take."""

import time
from pathlib import Path
from typing import Final

import click

from holdfast.hosts.cli.backends import Run
from holdfast.hosts.cli.console import Screen, read_stdin, safe, write_new
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options, store_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.text_output import history_line
from holdfast.hosts.functions.history_document import RunHistory, read_history
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.text import counted
from holdfast.ports.errors import InvalidHistoryError
from holdfast.ports.records.run import TERMINAL

LOOK_SECONDS: Final = 0.5
"""How often a history is read that is followed."""
_ROWS: Final = 1_000


@engine_command("show", "[ENGINE] ID", Exit.NOT_FOUND)
@click.option("--follow", "-f", is_flag=True, help="Wait for more rows until the run ends.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only rows after this one.")
@click.option(
    "--generation",
    type=click.IntRange(min=1),
    metavar="N",
    help="An older generation of the run; with --follow, the first one to show.",
)
@engine_options
def show_command(*, screen: Screen, target: Target, follow: bool, after: int, generation: int | None) -> None:
    """Show the history of a run, row by row. With --json each row is a separate object.

    With --follow it goes on with the next generation, if the run continues as one or is run again before it is read.
    """
    with target.backend("ID") as (backend, (run_id,)):
        run = backend.run(run_id)
        shown = run.info(generation=generation).generation
        while True:
            # The status is read before the rows: what ended the run is among the rows that are read afterwards.
            status = run.info(generation=shown).status
            after = _show_rows(screen, run, shown, after)
            if not follow:
                return
            if status not in TERMINAL:
                time.sleep(LOOK_SECONDS)
            elif run.info().generation > shown:
                shown, after = shown + 1, 0
                screen.note(f"Generation {shown}")
            else:
                return


def _show_rows(screen: Screen, run: Run, generation: int, after: int) -> int:
    """Write the rows of a generation after one of them, and return the number of the last."""
    while rows := run.history(after=after, limit=_ROWS, generation=generation):
        for row in rows:
            if screen.as_json:
                screen.line(row)
            else:
                screen.write(history_line(screen, row))
        after = rows[-1].number
    return after


@engine_command("export", "[ENGINE] ID", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file, which must not exist.  [default: stdout]",
)
@click.option("--generation", type=click.IntRange(min=1), metavar="N", help="An older generation of the run.")
@store_options
def export_command(*, screen: Screen, target: Target, output: Path | None, generation: int | None) -> None:
    """Write a run's inputs and whole history as one JSON document.

    `holdfast replay` and `holdfast debug` take it. It holds all values, including any secrets in inputs and results.
    """
    with target.opened("ID") as (engine, (run_id,)):
        history = read_history(engine.core, find_run(engine.core, run_id, generation))
    text = history.to_json()
    if output is None:
        screen.document(text)
        return
    write_new(output, text.encode(), "-o")
    screen.answer(
        {"id": history.id, "file": str(output), "rows": len(history.rows), "status": history.status},
        f"{safe(str(output))}: {counted(len(history.rows), 'row')}",
    )


def read_file(file: str) -> RunHistory:
    """Return the history in a file; `-` is stdin. Raises CliError."""
    try:
        text = read_stdin() if file == "-" else Path(file).read_text(encoding="utf-8")
        return RunHistory.from_json(text)
    except UnicodeDecodeError:
        raise CliError(Exit.USAGE, "invalid_history", f"{file} is not a text file") from None
    except OSError as error:
        raise CliError(Exit.USAGE, "file", f"{file} cannot be read: {error.strerror}") from None
    except InvalidHistoryError as error:
        raise CliError(Exit.USAGE, error.code, f"{file}: {error}") from None
