"""`holdfast completion`: the script of each shell, and what it completes, in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from holdfast.hosts.cli.app import command_line
from tests.unit.hosts.cli.conftest import CommandLine

COMPLETED = """
eval "$(holdfast completion bash)"
complete -p holdfast
COMP_WORDS=(holdfast run list --st); COMP_CWORD=3
_holdfast_completion holdfast
echo "${COMPREPLY[@]}"
"""


def completions(*words: str) -> set[str]:
    """Return what the last word may become."""
    *args, incomplete = words
    shell = BashComplete(command_line, {}, "holdfast", "_HOLDFAST_COMPLETE")
    return {one.value for one in shell.get_completions(list(args), incomplete)}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_an_option() -> None:
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETED],
        env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    registered, completed = done.stdout.splitlines()

    assert registered == "complete -o nosort -F _holdfast_completion holdfast"
    assert completed == "--status"
    assert done.stderr == ""


def test_commands_groups_options_and_their_choices_are_completed() -> None:
    assert {"run", "worker", "serve", "completion"} <= completions("")
    assert completions("run", "sh") == {"show"}
    assert "--port" in completions("serve", "--")
    assert "blocked" in completions("run", "list", "--status", "")
    assert completions("completion", "") == {"bash", "zsh", "fish"}


def test_a_command_below_another_one_is_completed_after_it() -> None:
    assert completions("work") == {"worker", "workflow"}
    assert completions("worker", "") == {"list"}
    assert "--after" in completions("worker", "list", "--")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(holdfast: CommandLine, shell: str) -> None:
    text = holdfast("completion", shell).out

    assert f"_HOLDFAST_COMPLETE={shell}_complete" in text
    assert holdfast("completion", shell, "--json").json == {"shell": shell, "script": text[:-1]}


def test_another_shell_is_refused_with_the_names_of_those_that_there_are(holdfast: CommandLine) -> None:
    answer = holdfast("completion", "powershell")

    assert answer.code == 2
    assert "'bash', 'zsh', 'fish'" in answer.err
