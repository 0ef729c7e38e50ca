"""Where a command writes: answers to stdout, all else to stderr; for people, or as JSON for programs."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import ClassVar, Final, TextIO

import click
from attrs import evolve
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from holdfast.hosts.cli.exit_codes import Exit, Problem
from holdfast.hosts.text import shown
from holdfast.ports.json import compact, parse
from holdfast.ports.records import Micros
from holdfast.ports.texts import escape_line, escape_text
from holdfast.ports.urls import hide

STATUS_STYLES: Final[Mapping[str, str]] = {
    "completed": "green",
    "done": "green",
    "kept": "green",
    "running": "cyan",
    "leased": "cyan",
    "failed": "bold red",
    "blocked": "bold red",
    "cancelled": "yellow",
    "cancelling": "yellow",
    "stopped": "yellow",
    "retrying": "yellow",
    "sleeping": "yellow",
    "paused": "magenta",
    "held": "magenta",
    "limited": "magenta",
}
_WIDTH_ELSEWHERE: Final = 10_000
"""How wide a line may get where no terminal bounds it: a pipe's reader wants whole lines."""


class Screen:
    """The two streams of one command. In `json` mode stdout gets JSON only, and stderr errors as JSON."""

    secrets: ClassVar[Sequence[str]] = ()
    """What this process was given to reach stores and sinks with: errors and logs are written without it."""

    def __init__(self, *, as_json: bool = False, utc: bool = False) -> None:
        self.as_json = as_json
        self.zone: tzinfo | None = UTC if utc else None
        self.out = _console(sys.stdout)
        self.err = _console(sys.stderr)

    def write(self, *parts: RenderableType) -> None:
        """Write an answer for people."""
        if self.out.is_terminal:
            self.out.print(*parts, highlight=False)
            return
        with self.out.capture() as written:
            self.out.print(*parts, highlight=False, soft_wrap=True)
        # What fills a table's last column up would only be in the way of other programs.
        lines = written.get().split("\n")
        _write("\n".join(line.rstrip() for line in lines))

    def note(self, text: str | Text) -> None:
        """Write what is beside the answer, for people only, to stderr."""
        if not self.as_json:
            written = Text(safe_lines(text)) if isinstance(text, str) else text
            self.err.print(written, highlight=False, soft_wrap=True)

    def data(self, value: object) -> None:
        """Write an answer for programs: one JSON document."""
        _write(json.dumps(value, indent=2) + "\n")

    def line(self, value: object) -> None:
        """Write one of several answers for programs: a line of JSON."""
        _write(compact(value) + "\n")

    def document(self, text: str) -> None:
        """Write a text as it is, wherever it goes."""
        _write(text)

    def value(self, text: str) -> None:
        """Write a stored value: as it is stored, or laid out if a person looks at it."""
        if self.out.is_terminal and not self.as_json:
            laid_out = json.dumps(parse(text), indent=2, ensure_ascii=False)
            # JSON may hold these only inside strings, where the escape means the same.
            self.out.print(JSONHighlighter()(escape_text(laid_out)), soft_wrap=True)
        else:
            _write(text + "\n")

    def problem(self, problem: Problem) -> None:
        """Write why a command did not do what it was asked to, without the secrets that it was given."""
        problem = evolve(
            problem,
            message=hide(problem.message, self.secrets),
            problems=tuple(hide(one, self.secrets) for one in problem.problems),
            detail=hide(problem.detail, self.secrets),
        )
        if self.as_json:
            error: dict[str, object] = {
                "code": problem.code,
                "message": problem.message,
                "exit_code": problem.exit,
            }
            if problem.problems:
                error["problems"] = list(problem.problems)
            if problem.detail:
                error["detail"] = problem.detail
            sys.stderr.write(compact({"error": error}) + "\n")
            return
        self.note(Text.assemble(("holdfast: ", "bold red"), safe_lines(problem.message)))
        for one in problem.problems:
            self.note(Text.assemble(("  - ", "red"), safe(one)))
        if problem.detail:
            self.note(Text(safe_lines(problem.detail.rstrip()), style="dim"))

    def instant(self, at: Micros, *, fine: bool = False) -> str:
        """Return an instant as people read it here."""
        return shown(at, self.zone, fine=fine)


def safe(text: str) -> str:
    """Return a text that may come from anywhere as part of a line: it commands no terminal, and begins no line."""
    return escape_line(text)


def safe_lines(text: str) -> str:
    """Return a text of several lines, as `safe`; all but the first are indented, and so pass for none of ours."""
    return escape_text(text).replace("\n", "\n  ")


def one_line(text: str, most: int = 200) -> str:
    """Return the first line of a text, not longer than `most`."""
    lines = text.strip().splitlines() or [""]
    first = lines[0].rstrip()
    is_cut = len(lines) > 1 or len(first) > most
    return escape_line(first[:most] + ("…" if is_cut else ""))


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, style=STATUS_STYLES.get(status, ""))


def heading(text: str) -> Text:
    """Return the title of a section."""
    return Text(text, style="bold")


def table(*columns: str, right: Iterable[str] = (), wraps: Iterable[str] = ()) -> Table:
    """Return an empty table. Columns keep their lines whole but for those named in `wraps`."""
    made = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for column in columns:
        wrapping = column in wraps
        made.add_column(
            column.upper(),
            justify="right" if column in right else "left",
            no_wrap=not wrapping,
            overflow="fold" if wrapping else "ellipsis",
        )
    return made


def screen_options(body: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--json` and `--utc`, and its body the `screen` that they ask for."""

    @click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs; errors too, to stderr.")
    @click.option(
        "--utc", is_flag=True, help="Show times in UTC, not in the local zone. JSON always is in UTC."
    )
    @functools.wraps(body)
    def with_screen(*, as_json: bool, utc: bool, **options: object) -> None:
        body(screen=Screen(as_json=as_json, utc=utc), **options)

    return with_screen


def _write(text: str) -> None:
    """Write to stdout. If nobody reads it any more, end without a word, as other programs do."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):
            # What is still in the buffer is written when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.BROKEN_PIPE) from None


class _Escaped:
    """What is printed, without what would command a terminal, however it came to be in it."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(escape_text(segment.text), segment.style)


class _Escaping(RenderHook):
    @override
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(one) for one in renderables]


def _console(stream: TextIO) -> Console:
    console = Console(
        file=stream, width=None if stream.isatty() else _WIDTH_ELSEWHERE, emoji=False, markup=False
    )
    console.push_render_hook(_Escaping())
    return console
