"""Help without importing the engine: it equals that of the commands, and is fast."""

import subprocess
import sys
from importlib import import_module
from typing import Final

import click
import pytest

from holdfast.hosts.cli.app import command_line
from holdfast.hosts.cli.commands import COMMANDS, DESCRIPTIONS
from tools.commands import descriptions

HEAVY: Final = (
    "anyio",
    "asyncio",
    "cattrs",
    "rich",
    "sqlalchemy",
    "holdfast.hosts.client.engine",
    "holdfast.kernel",
)


def test_what_is_written_down_of_the_commands_is_what_they_say() -> None:
    written = DESCRIPTIONS.read_text(encoding="utf-8")

    assert written == descriptions(COMMANDS), "`python -m tools.commands` writes it anew"


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_is_that_of_the_command_itself(path: str) -> None:
    module, _, name = COMMANDS[path].partition(":")
    real: click.Command = getattr(import_module(module), name)
    late: click.Command = command_line
    for word in (path,) if path in command_line.commands else path.split():
        assert isinstance(late, click.Group)
        late = late.commands[word]
    with click.Context(command_line, info_name="holdfast", help_option_names=["-h", "--help"]) as parent:
        assert late.get_help(click.Context(late, parent, path)) == real.get_help(
            click.Context(real, parent, path)
        )


@pytest.mark.slow
def test_no_help_no_version_and_no_completion_imports_the_engine() -> None:
    asked = [[*path.split(), "--help"] for path in COMMANDS]
    groups = {path.split()[0] for path in COMMANDS if " " in path}
    asked += [[group, "-h"] for group in sorted(groups)]
    asked += [["--help"], ["-h"], ["--version"]]
    program = f"""
import contextlib, io, os, sys
from holdfast.hosts.cli.main import main
for arguments in {asked!r}:
    with contextlib.redirect_stdout(io.StringIO()) as written:
        assert main(arguments) == 0, arguments
    assert written.getvalue(), arguments
for words in ("holdfast ", "holdfast run ", "holdfast run list --st"):
    os.environ.update(_HOLDFAST_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    written = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(written)):
        main([])
        sys.stdout.flush()
    assert written.getvalue().split(), words
print(*sorted(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stderr, done.stdout.strip()) == ("", "")
