"""A command respects what its parent has set up: streams that are closed, signals that are ignored."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

PROGRAM = """
from holdfast import Engine, workflow

@workflow
async def echo(text: str) -> str:
    return text

engine = Engine.open("sqlite:///runs.db", workflows=[echo])
"""
COMMAND = (sys.executable, "-P", "-m", "holdfast.hosts.cli.main")

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


def run(folder: Path, *words: str, shell: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects its streams."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *COMMAND, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_the_exit_code_does_not_depend_on_a_closed_stdout(folder: Path, closed: str) -> None:
    for words in (
        ("run", "start", "app:engine", "echo", '{"text": "a"}', "--id", "a"),
        ("run", "list", "app:engine", "--json"),
        ("--version",),
    ):
        done = run(folder, *words, shell=closed)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "Traceback" not in done.stderr
    assert run(folder, "run", "show", "app:engine", "nobody", shell=closed).returncode == 3


@pytest.mark.parametrize(
    "words", [("run", "start", "app:engine", "echo", "--input-file", "-"), ("replay", "-", "-m", "app")]
)
def test_input_from_a_closed_stdin_is_wrong_usage(folder: Path, words: tuple[str, ...]) -> None:
    done = run(folder, *words, shell="<&-")
    assert done.returncode == 2
    assert "stdin is closed" in done.stderr


@pytest.mark.parametrize(
    "words", [("worker",), ("worker", "--processes", "2"), ("serve", "--port", "0", "--worker")]
)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_does_not_stop_a_command(
    folder: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    """`nohup` lets a command ignore SIGHUP, and a shell its background jobs SIGINT."""
    with subprocess.Popen(
        ["sh", "-c", f'trap "" {number.name[3:]}; exec "$@"', "sh", *COMMAND, *words, "app:engine", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            begun = json.loads(process.stdout.readline())
            if begun["event"] == "listening":  # what it says before it handles signals
                urllib.request.urlopen(begun["url"], timeout=60).close()
            process.send_signal(number)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            process.terminate()
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert number.name not in err
