"""The web application example, run as readers run it, with a worker in its own process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.examples.pages import DOCS, blocks

PAGE = DOCS / "howto" / "web-application.md"
FOLDER = DOCS / "examples" / "web"


class Shop:
    """The application behind a real HTTP server, and a way to start its worker."""

    def __init__(self, folder: Path, server: "subprocess.Popen[str]", url: str) -> None:
        self._folder = folder
        self._server = server
        self.client = httpx.Client(base_url=url, timeout=20)

    def worker(self) -> "subprocess.Popen[str]":
        """Start a worker."""
        return _start(self._folder, "holdfast.hosts.cli.main", "worker", "shop:engine")

    def wait(self, id: str, status: str) -> dict[str, Any]:
        """Poll an order until it has this status."""
        while (shown := self.client.get(f"/orders/{id}").json())["status"] != status:
            pass
        return dict(shown)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    server = _start(tmp_path, "uvicorn", "app:app", "--port", "0", "--app-dir", str(FOLDER))
    assert server.stderr is not None
    try:
        url = next(
            line.rpartition(" on ")[2].split()[0] for line in server.stderr if "Uvicorn running on" in line
        )
        shop = Shop(tmp_path, server, url)
        with shop.client:
            yield shop
    finally:
        server.terminate()
        server.communicate(timeout=20)


def _start(folder: Path, *command: str) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_an_order_goes_through_the_application_and_its_worker(shop: Shop) -> None:
    order = {"customer": "Ann", "cents": 500}
    for _ in range(2):  # the same request twice is one order
        placed = shop.client.put("/orders/7", json=order)
        assert (placed.status_code, placed.json()["status"]) == (202, "running")
    worker = shop.worker()
    try:
        while (
            "message in channel 'approval'"
            not in (shop.client.get("/orders/7").json()["waits_for"] or [""])[0]
        ):
            pass
        worker.kill()  # the next one goes on
        worker.communicate()
        worker = shop.worker()
        answer = shop.client.post("/orders/7/approval", json={"approved": True, "by": "Bob"})
        assert answer.status_code == 202
        assert shop.wait("7", "completed")["result"] == "Ann paid 5.00"
        late = shop.client.post("/orders/7/approval", json={"approved": True, "by": "Bob"})
        assert (late.status_code, late.json()["code"]) == (409, "signal_refused")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


@pytest.mark.slow
def test_what_is_wrong_with_a_request_is_a_status(shop: Shop) -> None:
    missing = shop.client.get("/orders/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "run_not_found")
    wrong = shop.client.put(f"/orders/{'x' * 3_000}", json={"customer": "Ann", "cents": 1})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_argument")
    assert shop.client.put("/orders/1", json={"customer": "Ann", "cents": 0}).status_code == 422


def test_the_page_shows_the_programs_word_for_word() -> None:
    python = [block.code for block in blocks(PAGE) if block.language == "python"]
    assert python == [(FOLDER / "shop.py").read_text()]
    app = (FOLDER / "app.py").read_text()
    shown = next(block.code for block in blocks(PAGE) if block.language == "py")
    assert all(part.strip() in app for part in shown.split("\n\n\n"))
