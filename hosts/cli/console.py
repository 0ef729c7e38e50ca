"""Output of commands: results on stdout, all else on stderr, as text for people or as JSON for programs. Also stdin.

Credentials in the arguments and the environment of the process are masked in errors and logs.
"""

import contextlib
import errno
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import ClassVar, Final, TextIO

import click
from attrs import evolve
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from holdfast.hosts.cli.exit_codes import CliError, Exit, Problem
from holdfast.hosts.inspection.json_form import json_form
from holdfast.hosts.text import format_duration, format_instant
from holdfast.ports.clock import micros
from holdfast.ports.json import compact, parse
from holdfast.ports.texts import escape_line, escape_text
from holdfast.ports.urls import hide, secrets_of

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
    "limited": "magenta",
}
_WIDTH_ELSEWHERE: Final = 10_000
"""Line width without a terminal: programs that read a pipe need whole lines."""
WEBHOOK_SECRETS: Final = "HOLDFAST_WEBHOOK_SECRETS_"
"""Prefix of the environment variables with the signing secrets of webhooks. The suffix is the sink's name."""
_VARIABLES: Final = ("HOLDFAST_ENGINE", "HOLDFAST_URL", "HOLDFAST_SERVER")
_PASSWORDS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HOLDFAST_KEY", "PGPASSWORD")
_URL: Final = re.compile(
    r"\s*(?P<option>-[\w-]+=)?(?P<name>[^=:/@]*=)??"
    r"(?P<url>[A-Za-z0-9+.-]*:?//.*"
    r"|(postgres|postgresql|nats|tls|https?|s3|sqs|sns|eventbridge)\b.*@.*"
    r"|[^/@:]*:.*@.*/.*)",
    re.DOTALL,
)
"""An argument that contains a URL, or a misspelt one."""


class Screen:
    """The output streams of one command. With `--json`, stdout gets only JSON, and errors are JSON on stderr."""

    secrets: ClassVar[Sequence[str]] = ()
    """Passwords and other credentials of this process. They are masked in errors and logs."""

    def __init__(self, *, as_json: bool = False, utc: bool = False) -> None:
        self.as_json = as_json
        self.zone: tzinfo | None = UTC if utc else None
        self.out = _console(sys.stdout)
        self.err = _console(sys.stderr)

    def write(self, *parts: RenderableType) -> None:
        """Write a result for people."""
        if self.out.is_terminal:
            self.out.print(*parts, highlight=False)
            return
        with self.out.capture() as written:
            self.out.print(*parts, highlight=False, soft_wrap=True)
        # rich pads the last column with spaces, which other programs would have to strip.
        lines = written.get().split("\n")
        _write("\n".join(line.rstrip() for line in lines))

    def note(self, text: str | Text) -> None:
        """Write a remark for people to stderr; nothing with `--json`."""
        if not self.as_json:
            written = Text(safe_lines(text)) if isinstance(text, str) else text
            self.err.print(written, highlight=False, soft_wrap=True)

    def data(self, value: object) -> None:
        """Write a result for programs: one JSON document. See `json_form`."""
        _write(json.dumps(json_form(value), indent=2) + "\n")

    def answer(self, value: object, text: RenderableType) -> None:
        """Write `value` as JSON with `--json`, and otherwise `text`."""
        if self.as_json:
            self.data(value)
        else:
            self.write(text)

    def line(self, value: object) -> None:
        """Write one of several results for programs: a line of JSON."""
        _write(compact(json_form(value)) + "\n")

    def document(self, text: str) -> None:
        """Write a text unchanged."""
        _write(text)

    def value(self, text: str) -> None:
        """Write a stored JSON value: indented and coloured on a terminal, unchanged elsewhere."""
        if self.out.is_terminal and not self.as_json:
            laid_out = json.dumps(parse(text), indent=2, ensure_ascii=False)
            # JSON may hold these characters only inside strings, where the escape means the same.
            self.out.print(JSONHighlighter()(escape_text(laid_out)), soft_wrap=True)
        else:
            _write(text + "\n")

    def problem(self, problem: Problem) -> None:
        """Write the error of a command to stderr, with secrets masked."""
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

    def instant(self, at: datetime, *, fine: bool = False) -> str:
        """Return an instant as local time, or as UTC with `--utc`. `fine` adds fractions of a second."""
        return format_instant(micros(at), self.zone, fine=fine)


def safe(text: str) -> str:
    """Return untrusted text as part of a line: without line breaks and terminal control characters."""
    return escape_line(text)


def safe_lines(text: str) -> str:
    """Return untrusted text of several lines. All but the first are indented, so they cannot imitate our own output."""
    return escape_text(text).replace("\n", "\n  ")


def one_line(text: str, most: int = 200) -> str:
    """Return the first line of a text, shortened to `most` characters."""
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
    """Return an empty table. Only columns in `wraps` wrap their lines; those in `right` are aligned to the right."""
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


def fact_table() -> Table:
    """Return a table without a header: a name and a value in each row."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    return rows


def read_stdin() -> str:
    """Return all text of stdin. OSError if it cannot be read."""
    if sys.stdin is None:  # it was closed when the program began
        raise OSError(errno.EBADF, "stdin is closed")
    return sys.stdin.read()


def write_new(path: Path, content: bytes, option: str) -> None:
    """Write a file that does not exist yet. `option` names another file. Raises CliError."""
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        message = f"{path} exists; write to another file with {option}"
        raise CliError(Exit.REFUSED, "file_exists", message) from None
    except OSError as error:
        raise CliError(Exit.USAGE, "file", f"{path} cannot be written: {error.strerror}") from None


def screen_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add `--json` and `--utc` to a command. Its body gets a `screen`."""

    @click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs; errors too, to stderr.")
    @click.option(
        "--utc", is_flag=True, help="Show times in UTC instead of the local zone. JSON is always in UTC."
    )
    @functools.wraps(body)
    def with_screen(*, as_json: bool, utc: bool, **options: object) -> None:
        body(screen=Screen(as_json=as_json, utc=utc), **options)

    return with_screen


def format_length(length: timedelta) -> str:
    """Return a duration as text, in at most two units."""
    return format_duration(length // timedelta(microseconds=1))


def secrets_given(arguments: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """Return the credentials in the arguments and the environment of a process."""
    return tuple(dict.fromkeys(_secrets(arguments, environment)))


def _secrets(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    for text in (*arguments, *(environment.get(name, "") for name in _VARIABLES)):
        found = _URL.fullmatch(text)
        if found is not None:
            yield from secrets_of(found["url"])
    for name, value in environment.items():
        if name.startswith(WEBHOOK_SECRETS):
            yield from value.split()
        elif name in _PASSWORDS and value:
            yield value


def _write(text: str) -> None:
    """Write to stdout. Exit silently if the reader has closed the pipe, as other programs do."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):
            # Python flushes the buffer at exit, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.BROKEN_PIPE) from None


class _Escaped:
    """A renderable without terminal control characters, whatever text it was made from."""

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
