"""Several worker processes under one supervisor, on one SQLite file: killed, stopped, left alone, watched."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.integration.cli.test_processes import SECONDS_MAX, SHOP, Shop

LEASE = "600"
"""No lease expires in these tests: what is taken over was freed."""

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    (tmp_path / "shop.py").write_text(SHOP)
    os.mkfifo(tmp_path / "reached")
    return Shop(tmp_path)


@contextmanager
def supervisor(shop: Shop, *options: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run two worker processes until the block ends; provide the supervisor and the URL of its metrics."""
    arguments = ("worker", "--json", "--processes", "2", "--lease", LEASE, "--metrics-port", "0", *options)
    with shop.process(*arguments) as process:
        assert process.stdout is not None
        url: str = json.loads(process.stdout.readline())["url"]
        for _ in range(2):
            assert json.loads(process.stdout.readline())["event"] == "started"
        until(lambda: health(url)[0] == 200)
        yield process, url


def until(is_so: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def health(url: str, path: str = "/health") -> tuple[int, list[Mapping[str, Any]]]:
    """Return the status of `/health` or `/livez`, and the states of the processes."""
    try:
        with urllib.request.urlopen(url.replace("/metrics", path), timeout=SECONDS_MAX) as answer:
            return answer.status, json.load(answer)["processes"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["processes"]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def holder_of(shop: Shop, run: str) -> int:
    """Return the process that holds the job of a run."""
    (job,) = shop.json("run", "show", run)["jobs"]
    return int(cast("str", job["host"]).rpartition(":")[2])


def test_a_killed_process_is_replaced_and_its_jobs_do_not_wait_for_its_lease(shop: Shop) -> None:
    with supervisor(shop) as (process, url):
        shop.start("SURVIVE", "hard")
        shop.wait_until_reached()
        pid = holder_of(shop, "hard")
        os.kill(pid, signal.SIGKILL)
        waited = shop.run("run", "wait", "hard", "--timeout", "120")
        assert (waited.returncode, waited.stdout) == (0, '"attempt 2"\n'), waited.stderr
        until(lambda: health(url)[0] == 200)
        states = health(url)[1]
        assert sorted(state["restarts"] for state in states) == [0, 1]
        assert pid not in {state["pid"] for state in states}
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
            shown = answer.read().decode()
        process.terminate()
        _, err = process.communicate(timeout=SECONDS_MAX)
    (stage,) = shop.json("run", "show", "hard")["stages"]
    assert (stage["state"], stage["attempts"], stage["lost_attempts"]) == ("done", 2, 1)
    assert "holdfast_worker_processes 2.0" in shown
    assert 'holdfast_attempts_total{outcome="completed",process=' in shown
    assert shown.count("\nholdfast_store_up 1.0") == 1
    assert process.returncode == 0, err
    assert "ended with SIGKILL" in err


def test_a_process_that_hangs_is_killed_and_replaced(shop: Shop) -> None:
    with supervisor(shop, "--lease", "1") as (process, url):
        hanging = health(url)[1][1]["pid"]
        os.kill(hanging, signal.SIGSTOP)
        until(lambda: not is_alive(hanging))
        until(lambda: health(url)[0] == 200)
        states = health(url)[1]
        process.terminate()
        _, err = process.communicate(timeout=SECONDS_MAX)
    assert [state["restarts"] for state in states] == [0, 1]
    assert f"worker process 1 (pid {hanging}) has not answered for 1" in err
    assert process.returncode == 0, err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_process_whose_event_loop_is_blocked_is_neither_well_nor_alive(shop: Shop, processes: str) -> None:
    arguments = ("worker", "--json", "--processes", processes, "--lease", "1", "--metrics-port", "0")
    with shop.process(*arguments) as process:
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline()) for _ in range(1 + int(processes))]
        (url,) = (event["url"] for event in events if event["event"] == "metrics")
        until(lambda: health(url)[0] == 200)
        assert health(url, "/livez")[0] == 200
        shop.start("BLOCKING", "block")
        shop.wait_until_reached()
        until(lambda: health(url)[0] == 503)
        assert [state["phase"] for state in health(url)[1]].count("blocked") == 1
        assert health(url, "/livez")[0] == 503
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
            shown = answer.read().decode()
        (shop.folder / "open").touch()
        until(lambda: health(url)[0] == 200)
        assert health(url, "/livez")[0] == 200
    lines = [line for line in shown.splitlines() if line.startswith("holdfast_worker_blocked_seconds")]
    assert max(float(line.rpartition(" ")[2]) for line in lines) > 1


def test_a_stop_drains_all_processes(shop: Shop) -> None:
    with supervisor(shop) as (process, url):
        shop.start("GATE", "slow")
        shop.wait_until_reached()
        pids = [state["pid"] for state in health(url)[1]]
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "draining" not in process.stderr.readline():
            pass
        (shop.folder / "open").touch()
        out, _ = process.communicate(timeout=SECONDS_MAX)
    stopped = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert sum(one["settled"] for one in stopped) == 1
    assert sorted(one["process"] for one in stopped) == [0, 1]
    assert not any(map(is_alive, pids))


def test_processes_whose_supervisor_was_killed_drain(shop: Shop) -> None:
    with supervisor(shop) as (process, url):
        shop.start("GATE", "slow")
        shop.wait_until_reached()
        pids = [state["pid"] for state in health(url)[1]]
        process.kill()
        process.wait(SECONDS_MAX)
        (shop.folder / "open").touch()
        until(lambda: not any(map(is_alive, pids)))
    assert shop.json("run", "show", "slow")["status"] == "completed"


def test_what_keeps_one_process_from_starting_is_reported_once(shop: Shop) -> None:
    found = shop.run("worker", "nowhere:engine", "--processes", "4")
    assert found.returncode == 2
    assert found.stderr.count("nowhere") == 1


def test_a_module_of_the_shop_may_be_called_as_one_of_the_standard_library(shop: Shop) -> None:
    (shop.folder / "queue.py").write_text("raise ImportError('this is the queue of the shop')\n")
    with supervisor(shop) as (_, url):
        assert health(url)[0] == 200


def test_processes_have_the_options_of_their_interpreter(shop: Shop) -> None:
    (shop.folder / "curious.py").write_text(
        "import sys\nraise ValueError([sys.flags.optimize, sys.flags.utf8_mode, sys.warnoptions])\n"
    )
    options = ("-O", "-X", "utf8", "-W", "ignore::ImportWarning")
    words = shop.command("worker", "curious:engine", "--processes", "2")[1:]
    found = subprocess.run(
        [sys.executable, *options, *words], cwd=shop.folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert "ValueError: [1, 1, ['ignore::ImportWarning']]" in found.stderr


def test_a_store_in_memory_is_refused(shop: Shop) -> None:
    (shop.folder / "forgetful.py").write_text(
        "from holdfast import Engine\nengine = Engine.open('memory://')\n"
    )
    found = shop.run("worker", "forgetful:engine", "--processes", "2")
    assert found.returncode == 2
    assert "a store in memory belongs to one process" in found.stderr


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many", "257"])
def test_a_number_that_is_none_is_refused(shop: Shop, number: str) -> None:
    found = shop.run("worker", "--processes", number)
    assert found.returncode == 2
    assert "neither a number from 1 to 256 nor auto" in found.stderr
