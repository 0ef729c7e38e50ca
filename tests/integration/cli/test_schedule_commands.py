"""One life of schedules, as processes on one SQLite file: declared, fired by a worker, changed by an operator."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

pytestmark = pytest.mark.slow

MODULE = """
from pathlib import Path
from holdfast import Cron, Engine, Every, Schedule, scheduled, step, workflow

@step
def keep(text: str) -> str:
    return text

@workflow
async def report(region: str) -> str:
    started = scheduled()
    return await keep(f"{region} {started.kind}" if started else region)

OFTEN = Schedule("often", report("emea"), when=Every(1), overlap="allow")
NIGHTLY = Schedule("nightly", report("us"), when=Cron("30 2 * * *"))
URL = f"sqlite:///{Path(__file__).parent}/shop.db"
engine = Engine.open(URL, workflows=[report], schedules=[OFTEN, NIGHTLY])
old = Engine.open(URL, workflows=[report], schedules=[Schedule("often", report("old"), when=Every(3600))])
"""
SECONDS_MAX = 200


@attrs.frozen
class Shop:
    """A folder with a module, and commands that run in it."""

    folder: Path

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "holdfast.hosts.cli.main", *arguments]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return {**kept, "HOLDFAST_ENGINE": "shop:engine", "HOLDFAST_ACTOR": "ann"}

    @contextmanager
    def worker(self) -> Generator[None]:
        """Run a worker beside the block, and drain it at the end."""
        process = subprocess.Popen(
            self.command("worker"), cwd=self.folder, env=self.environment(), stderr=subprocess.DEVNULL
        )
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
            process.wait()

    def until_started(self, name: str, number: int) -> None:
        """Wait until a schedule has started so many runs."""
        end = time.monotonic() + SECONDS_MAX
        while self.json("schedule", "show", name)["runs_started"] < number:
            assert time.monotonic() < end


def test_the_life_of_schedules(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE)
    shop = Shop(tmp_path)
    url = f"sqlite:///{tmp_path}/shop.db"

    upgraded = shop("db", "upgrade")
    assert upgraded.endswith(
        "Applied the schedules that the code declares:\noften: created\nnightly: created\n"
    )
    assert shop("schedule", "apply") == "often: unchanged\nnightly: unchanged\n"
    assert "say when" in shop("schedule", "create", "x", "report", '{"region": "a"}', code=2)
    with shop.worker():
        shop.until_started("often", 3)
        runs = shop.json("run", "list", "--workflow", "report")
        assert {run["scheduled"]["name"] for run in runs} == {"often"}
        assert len({run["id"] for run in runs}) == len(runs)
        why = shop("why", runs[-1]["id"])
        assert why.startswith("Started by schedule often, due at ")

        # Commands of an older checkout leave what is stored.
        assert shop("schedule", "pause", "shop:old", "often", "--reason", "enough") == "often is paused\n"
        paused = shop.json("schedule", "show", "--url", url, "often")
        assert (paused["state"], paused["when"], paused["paused_by"]) == ("paused", ["every 1s"], "user ann")

        manual = shop("schedule", "trigger", "often").strip()
        shop("run", "wait", manual)
        assert shop("run", "show", manual, "--output").strip() == '"emea manual"'
        dry = shop("schedule", "backfill", "--url", url, "nightly", "--from", "3d", "--dry-run").split()
        filled = shop("schedule", "backfill", "nightly", "--from", "3d").split()
        assert filled == dry
        assert len(filled) == 3
        shop("run", "wait", filled[-1])
        assert shop("run", "show", filled[-1], "--output").strip() == '"us backfill"'

    assert "by user ann, because 'enough'" in shop("schedule", "why", "often")
    assert "did you mean 'often'" in shop("schedule", "why", "oftn", code=3)
    assert shop("schedule", "remove", "--url", url, "often") == "often was removed\n"
    assert [one["name"] for one in shop.json("schedule", "list")] == ["nightly"]
    assert shop("schedule", "apply", "--dry-run") == "often: would be created\nnightly: unchanged\n"
