"""Each `holdfast ...` line of the pages is one that the command line takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.hosts.cli.app import command_line
from holdfast.hosts.cli.commands import LazyCommand
from tests.integration.examples.pages import PAGES, blocks, prose

INLINE = re.compile(r"`(?:\$ )?holdfast ([^`]+)`")
ENDS = {"|", ">", ">>", "<", "&", "&&", "||", ";", "2>&1", "2>"}
"""What ends a command in a shell."""
LEFT_OUT = {"...", "…"}


def shown_commands(page: Path) -> Iterator[str]:
    """Yield the commands of a page's blocks of code: what follows `holdfast`, lines that go on joined."""
    for block in blocks(page):
        if block.language in {"console", "sh", "bash", "shell", "dockerfile", "yaml"}:
            for line in block.code.replace("\\\n", " ").splitlines():
                match = re.match(
                    r"^(?:\$ |RUN |run: )?(?:[A-Z_]+=\S+ )*(?:timeout \S+ )?(?:\.venv/bin/)?holdfast (.+)$",
                    line.strip(),
                )
                if match:
                    yield match[1]


def mentioned_commands(page: Path) -> Iterator[str]:
    """Yield the commands that the prose of a page mentions: some leave out arguments."""
    for match in INLINE.finditer(prose(page)):
        yield match[1].replace("\n", " ")


def words_of(command: str) -> list[str]:
    """Return the words of a command, up to what a shell takes for itself."""
    words = shlex.split(command, comments=True)
    ends = [number for number, word in enumerate(words) if word in ENDS]
    return words[: ends[0]] if ends else words


def leaf(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command that the first words name, and the others. UsageError if there is none."""
    command: click.Command = command_line
    context = click.Context(command, info_name="holdfast", help_option_names=["-h", "--help"])
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        try:
            name, below, words = command.resolve_command(context, words)
        except click.UsageError:
            raise click.UsageError(f"no such command: {words[0]}") from None
        assert below is not None
        command, context = below, click.Context(below, info_name=name, parent=context)
    return command, context, words


def check(command: str, *, whole: bool) -> None:
    """Parse a command as the real parser does. UsageError if it is refused, or, if `whole`, lacks an argument."""
    found, context, words = leaf(words_of(command))
    if isinstance(found, LazyCommand):
        found = found.load()
    elif isinstance(found, click.Group) and whole and not words:
        raise click.UsageError("a group, without a command")
    options, rest, _ = found.make_parser(context).parse_args([word for word in words if word not in LEFT_OUT])
    if rest:
        raise click.UsageError(f"more than it takes: {rest}")
    if whole:
        for parameter in found.get_params(context):
            if parameter.required and not options.get(parameter.name or ""):
                raise click.UsageError(f"lacks {parameter.human_readable_name}")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(shown_commands(page))], ids=lambda page: page.name
)
def test_a_command_in_a_block_of_code_is_one_that_runs(page: Path) -> None:
    for command in shown_commands(page):
        try:
            check(command, whole=True)
        except click.UsageError as error:
            pytest.fail(f"holdfast {command}: {error.format_message()}")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(mentioned_commands(page))], ids=lambda page: page.name
)
def test_a_command_in_the_prose_has_a_name_and_options_that_exist(page: Path) -> None:
    for command in mentioned_commands(page):
        try:
            check(command, whole=False)
        except click.UsageError as error:
            if isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message:
                continue  # the page names an option, without a value
            pytest.fail(f"holdfast {command}: {error.format_message()}")


def test_there_are_commands_to_check() -> None:
    assert sum(len(list(shown_commands(page))) for page in PAGES) > 40
    assert sum(len(list(mentioned_commands(page))) for page in PAGES) > 100


@pytest.mark.parametrize(
    "command",
    ["run export x", "--store sqlite:///x.db db upgrade", "run start --input 1 app:engine", "run"],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    with pytest.raises(click.UsageError):
        check(command, whole=True)
