"""The small examples, run as users run them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.examples.pages import DOCS

EXAMPLES = DOCS / "examples"


def run(example: str, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ}, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.slow
@pytest.mark.parametrize("example", ["hello.py", pytest.param("hello_pipeline.py", marks=pytest.mark.slow)])
def test_hello_says_so_and_says_it_again(example: str, tmp_path: Path) -> None:
    for _ in range(2):
        done = run(example, folder=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "HELLO, WORLD!\n", "")
    assert [file.suffix for file in tmp_path.iterdir()].count(".db") == 1


class TripWorker:
    """A worker of the trips in this folder, with the output of its bodies."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "holdfast.hosts.cli.main", "worker", "trip:engine", "--lease", "1"]
        self._process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._out = self._process.stdout

    def read_until(self, text: str) -> list[str]:
        """Return the lines up to the one that contains this text."""
        lines: list[str] = []
        for line in self._out:
            lines.append(line.rstrip())
            if text in line:
                return lines
        raise AssertionError(lines)

    def kill(self) -> None:
        """End it with `kill -9`."""
        self._process.kill()
        self._process.wait()
        self._out.close()


@pytest.mark.slow
def test_a_trip_goes_on_after_kill_9(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "trip.py", tmp_path)
    start = ("run", "start", "trip:engine", "trip", '{"city": "Rome", "wait": 1}', "--id", "rome")
    subprocess.run(
        [sys.executable, "-m", "holdfast.hosts.cli.main", *start], cwd=tmp_path, check=True, timeout=100
    )
    first = TripWorker(tmp_path)
    try:
        first.read_until("mail: We have booked 2 nights in Rome and a flight to Rome.")
    finally:
        first.kill()
    second = TripWorker(tmp_path)
    try:
        lines = second.read_until("mail: Pack your bags!")
    finally:
        second.kill()
    assert not [line for line in lines if line.startswith("looking")]


@pytest.mark.slow
def test_word_count_counts_though_every_first_attempt_fails(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the rain, the RAIN")
    (tmp_path / "b.txt").write_text("It's the end")
    done = run("word_count.py", "a.txt", "b.txt", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "the", "2", "rain", "1", "end", "1", "it's"]


@pytest.mark.slow
def test_word_count_gives_up_on_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run("word_count.py", "missing.txt", folder=tmp_path)
    assert done.returncode == 1
    assert "RunFailedError" in done.stderr
    assert "stage 'count', item 0, attempt 2: FileNotFoundError" in done.stderr


@pytest.mark.parametrize("example", ["hello.py", "hello_pipeline.py", "trip.py", "word_count.py"])
def test_the_small_examples_stay_small(example: str) -> None:
    assert len((EXAMPLES / example).read_text().splitlines()) < 60
