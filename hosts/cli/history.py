"""The command `holdfast history export`, and the reader of the history files that other commands take."""

import sys
from pathlib import Path

import click

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import CliError, Exit, exits
from holdfast.hosts.functions.history_document import RunHistory, read_history
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.text import counted
from holdfast.ports.errors import InvalidHistoryError

_EXITS = exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.REFUSED, Exit.UNAVAILABLE, Exit.SCHEMA)


@click.command("export", epilog=_EXITS)
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file, which must not exist.  [default: stdout]",
)
@click.option("--generation", type=click.IntRange(min=1), metavar="N", help="An older generation of the run.")
@engine_options
@screen_options
def export_command(
    *, screen: Screen, target: Target, words: tuple[str, ...], output: Path | None, generation: int | None
) -> None:
    """Write a run's inputs and whole history as one JSON document.

    `holdfast replay` and `holdfast debug` take it. It holds all values, including any secrets in inputs and results.
    """
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        history = read_history(engine.core, find_run(engine.core, run_id, generation))
    text = history.to_json()
    if output is None:
        screen.document(text)
        return
    try:
        with output.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise CliError(
            Exit.REFUSED, "file_exists", f"{output} exists; write to another file with -o"
        ) from None
    except OSError as error:
        raise CliError(Exit.USAGE, "file", f"{output} cannot be written: {error.strerror}") from None
    if screen.as_json:
        screen.data(
            {"id": history.id, "file": str(output), "rows": len(history.rows), "status": history.status}
        )
    else:
        screen.write(f"{safe(str(output))}: {counted(len(history.rows), 'row')}")


def read_file(file: str) -> RunHistory:
    """Return the history in a file; `-` is stdin. Raises CliError."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return RunHistory.from_json(text)
    except UnicodeDecodeError:
        raise CliError(Exit.USAGE, "invalid_history", f"{file} is not a text file") from None
    except OSError as error:
        raise CliError(Exit.USAGE, "file", f"{file} cannot be read: {error.strerror}") from None
    except InvalidHistoryError as error:
        raise CliError(Exit.USAGE, error.code, f"{file}: {error}") from None
