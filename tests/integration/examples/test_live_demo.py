"""`make serve`: a shop with runs in every state, and the lines that it prints."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.examples.pages import ROOT
from tests.integration.http.test_serve import SECONDS_MAX, free_port

pytestmark = pytest.mark.slow


@contextmanager
def shop(folder: Path, port: int) -> Generator[list[str]]:
    """Serve the shop from another folder, as from a fresh clone, and provide the lines that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "docs.examples.live_demo", "--port", str(port)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "Listening at" in line:
                break
        else:
            pytest.fail(f"the server did not start: {process.stdout.read()}")
        lines = [process.stdout.readline() for _ in range(15)]
        yield lines
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.communicate()


def curls(lines: list[str]) -> list[str]:
    """Return the commands among the lines, those of several lines joined."""
    text = "".join(lines).replace("\\\n", " ")
    return re.findall(r"^ {4}(curl .*)$", text, re.MULTILINE)


def runs(client: httpx.Client) -> dict[str, Any]:
    return {run["id"]: run for run in client.get("runs?limit=100").raise_for_status().json()["items"]}


def test_the_shop_has_runs_in_every_state_and_the_lines_that_it_prints_work(tmp_path: Path) -> None:
    port = free_port()
    api = f"http://localhost:{port}/v1/namespaces/default/"
    with shop(tmp_path, port) as lines, httpx.Client(base_url=api, timeout=20) as client:
        wanted = {
            "order-1": "completed",
            "order-2": "failed",
            "refund-1": "running",
            "invoice-1": "running",
            "price-1": "blocked",
            "export-january": "running",
            "export-february": "pending",
            "letter-5": "pending",
        }
        until = time.monotonic() + SECONDS_MAX
        while not any(run["parent"] for run in runs(client).values()):
            assert time.monotonic() < until, "no order came in"
            time.sleep(0.2)
        while (found := {name: runs(client)[name]["status"] for name in wanted}) != wanted:
            assert time.monotonic() < until, found
            time.sleep(0.2)
        why = {name: client.get(f"runs/{name}/why").json()["reasons"][0]["code"] for name in wanted}
        assert why["refund-1"] == "waiting"
        assert why["price-1"] == "blocked"
        assert why["export-february"] == "concurrency_key"
        assert why["letter-5"] == "rate_limit"
        (gathered,) = (run for run in runs(client).values() if run["workflow"] == "reindex")
        assert gathered["status"] == "pending"
        order = client.get("runs/order-1").json()
        assert [stage["name"] for stage in order["stages"]] == ["check", "pack", "ship"]
        history = client.get("runs/order-1/history?limit=1000").json()["items"]
        assert "stage.retrying" in {row["type"] for row in history}
        assert {one["name"] for one in client.get("schedules").json()["items"]} == {"traffic", "nightly"}

        commands = curls(lines)
        assert len(commands) == 8
        answers: list[str] = []
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", f"API={api[:-1]}; {command.replace('curl ', 'curl -sf --max-time 2 ', 1)}"],
                capture_output=True,
                text=True,
                check=False,
            )
            # The stream of a run that goes on does not end by itself.
            assert done.returncode == (28 if "-N" in command else 0), (command, done)
            assert done.stdout.startswith("retry:" if "-N" in command else "{"), command
            answers.append(done.stdout)
        assert json.loads(answers[-1])["result"] == "tea in paper"
