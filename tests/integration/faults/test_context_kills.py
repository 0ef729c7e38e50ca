"""A worker is killed: the one that resumes the run sees the same context in the function, its steps and its child."""

import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from holdfast import Engine, Worker, step, workflow
from holdfast.plugins import BodyCall, FunctionCall, StartCall

SOON: Final = 120
PROGRAM: Final = """
import sys
from holdfast import Engine, Worker
from tests.integration.faults.test_context_kills import Tenants, below, run

engine = Engine.open(sys.argv[1], workflows=[run, below], interceptors=[Tenants()])
Worker(engine, lease=1, poll_interval=0.1).run()
"""

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Tenants:
    """Sets the tenant of a run from its attributes and its headers. Child runs get one more header."""

    def start(self, call: StartCall) -> StartCall | None:
        return call.with_headers({"below": "/below"}) if call.kind == "child" else None

    @contextmanager
    def function(self, call: FunctionCall) -> Generator[None]:
        token = tenant.set(call.attributes["tenant"] + call.headers["trace"] + call.headers.get("below", ""))
        yield
        tenant.reset(token)

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        token = tenant.set(call.attributes["tenant"] + call.headers["trace"])
        yield
        tenant.reset(token)


@step
def before() -> str:
    return tenant.get()


@step
def hang(folder: str) -> str:
    """Wait for the kill, in the first process."""
    Path(folder, "reached").touch()
    while not Path(folder, "killed").exists():
        time.sleep(0.05)
    return tenant.get()


@workflow
async def below() -> str:
    return tenant.get()


@workflow
async def run(folder: str) -> list[str]:
    first = await before()
    return [first, await hang(folder), tenant.get(), await below()]


def test_a_run_keeps_its_context_when_its_worker_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    engine = Engine.open(url, workflows=[run, below], interceptors=[Tenants()])
    with engine.sync as runs:
        handle = runs.start(run(str(tmp_path)), attributes={"tenant": "acme"}, headers={"trace": "/1"})
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, url])
        try:
            until = time.monotonic() + SOON
            while not (tmp_path / "reached").exists():
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        (tmp_path / "killed").touch()
        with Worker(engine, lease=1, poll_interval=0.1):
            assert handle.result(timeout=SOON) == [*["acme/1"] * 3, "acme/1/below"]
