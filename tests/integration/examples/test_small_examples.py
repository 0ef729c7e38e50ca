"""The small examples are run as their users run them."""

import os
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


def test_hello_says_so_and_says_it_again(tmp_path: Path) -> None:
    for _ in range(2):
        done = run("hello.py", folder=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "HELLO, WORLD!\n", "")
    assert (tmp_path / "hello.db").exists()


def test_word_count_counts_though_every_first_attempt_fails(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the rain, the RAIN")
    (tmp_path / "b.txt").write_text("It's the end")
    done = run("word_count.py", "a.txt", "b.txt", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "the", "2", "rain", "1", "end", "1", "it's"]


def test_word_count_gives_up_on_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run("word_count.py", "missing.txt", folder=tmp_path)
    assert done.returncode == 1
    assert "RunFailedError" in done.stderr
    assert "stage 'count', item 0, attempt 2: FileNotFoundError" in done.stderr


@pytest.mark.parametrize("example", ["hello.py", "word_count.py"])
def test_the_small_examples_stay_small(example: str) -> None:
    assert len((EXAMPLES / example).read_text().splitlines()) < 60
