"""Starts over HTTP by two other servers, beside ours: Prefect's API on the same PostgreSQL, and Restate."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psycopg

from tests.benchmarks.peers.environments import program_of, python_of
from tests.benchmarks.server.clients import Client, at_once
from tests.benchmarks.server.measures import CLIENTS, Row

RESTATE_SERVER: Final = "@restatedev/restate-server@1.7.12"
SECONDS_MAX: Final = 120.0
"""How long a server may take until it answers."""
_HAS_EXTENSION: Final = "SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm'"
_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "peers"


def prefect_starts(postgres_url: str, number: int) -> Iterator[Row]:
    """Create flow runs at Prefect's API, which has this database. No worker runs them."""
    with psycopg.connect(postgres_url) as connection:
        if connection.execute(_HAS_EXTENSION).fetchone() is None:
            print(
                "Prefect is not measured: this PostgreSQL lacks the extension pg_trgm, so pass --postgres-url",
                file=sys.stderr,
            )
            return
    port = _free_port()
    with tempfile.TemporaryDirectory() as home:
        settings = {
            "PREFECT_HOME": home,
            "PREFECT_API_DATABASE_CONNECTION_URL": postgres_url.replace("://", "+asyncpg://", 1),
            "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        command = ("-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui")
        with _server([str(python_of("prefect")), *command], settings, f"http://127.0.0.1:{port}/api/health"):
            with Client(f"http://127.0.0.1:{port}") as client:
                flow = client.json("POST", "/api/flows/", {"name": "one"})["id"]

            def start(client: Client, place: int) -> None:
                new = {"flow_id": flow, "parameters": {"number": place}, "state": {"type": "SCHEDULED"}}
                client.send("POST", "/api/flow_runs/", new)

            yield _row("Prefect", f"http://127.0.0.1:{port}", start, number, "without a worker")


def restate_starts(number: int) -> Iterator[Row]:
    """Send invocations to Restate, which keeps a log of its own. A service in a process of its own runs them."""
    npm = shutil.which("npm")
    if npm is None:
        print("Restate is not measured: its server is a package of npm, which is not here", file=sys.stderr)
        return
    folder = _CACHE / "restate-server"
    binary = folder / "node_modules" / ".bin" / "restate-server"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run((npm, "install", "--silent", "--prefix", folder, RESTATE_SERVER), check=True)
    ingress, admin, node, service = (_free_port() for _ in range(4))
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory())
        program = program_of("restate")
        command = ("-m", "hypercorn", "--bind", f"127.0.0.1:{service}", f"{program.stem}:app")
        stack.enter_context(
            _server(
                [str(python_of("restate")), *command],
                {"PYTHONPATH": str(program.parent)},
                f"http://127.0.0.1:{service}/health",
            )
        )
        settings = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "DO_NOT_TRACK": "1",
        }
        stack.enter_context(
            _server(
                [str(binary), "--base-dir", data],
                settings,
                f"http://127.0.0.1:{admin}/health",
                f"http://127.0.0.1:{ingress}/restate/health",
            )
        )
        with Client(f"http://127.0.0.1:{admin}") as client:
            client.send("POST", "/deployments", {"uri": f"http://127.0.0.1:{service}"})
        with Client(f"http://127.0.0.1:{ingress}") as client:
            assert client.json("POST", "/adding/one", 1) == 2

        def start(client: Client, place: int) -> None:
            client.send("POST", "/adding/one/send", place, headers={"idempotency-key": uuid.uuid4().hex})

        about = "with a log of its own, and a service in a process of its own"
        yield _row("Restate", f"http://127.0.0.1:{ingress}", start, number, about)


def _row(who: str, url: str, start: Callable[[Client, int], None], number: int, about: str) -> Row:
    at_once(url, CLIENTS, start, max(1, number // 20))
    took = at_once(url, CLIENTS, start, number)
    return Row(
        name=f"the same by {who}, single",
        value=number / took,
        unit="runs/s",
        about=f"{CLIENTS} connections, {about}",
    )


@contextlib.contextmanager
def _server(command: Sequence[str], settings: Mapping[str, str], *urls: str) -> Generator[None]:
    """Run a server until the end of the block, from the moment when all of these answer."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        try:
            for url in urls:
                _wait_for(process, url)
            yield
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.terminate()
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a process of it that is still there


def _wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    server, slash, path = url.removeprefix("http://").partition("/")
    until = time.monotonic() + SECONDS_MAX
    while process.poll() is None and time.monotonic() < until:
        try:
            with Client(f"http://{server}") as client:
                client.send("GET", slash + path)
        except (OSError, RuntimeError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{url} does not answer")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
