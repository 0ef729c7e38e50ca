"""`make demo`, with a real kill -9, over fewer files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.examples.pages import DOCS

DEMO = DOCS / "examples" / "stdlib_report" / "demo.py"

pytestmark = pytest.mark.slow


def test_the_demo_loses_its_worker_and_nothing_else_twice_in_a_row(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(DEMO), "--limit", "120"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.findall(r"^  (\D+?) +(\d+)\b", done.stdout, re.MULTILINE)
        counts = {name: int(number) for name, number in found}
        assert counts["stage bodies to run"] == 124
        assert counts["results stored"] == 124
        assert counts["stage bodies that ran"] == 124 + counts["of these, repeated"]
        assert done.stdout.count("  yes  ") == 3
        assert "kill -9" in done.stdout
        assert "\r" not in done.stdout
        page = (tmp_path / "demo-output" / "report.html").read_text()
        assert page.startswith("<!doctype html>")
        assert (
            len((tmp_path / "demo-output" / "bodies.log").read_text().splitlines())
            == counts["stage bodies that ran"]
        )
        assert (tmp_path / "demo-output" / ".gitignore").read_text() == "*\n"
