"""`holdfast serve` as a process: started, used, stopped with open streams, and killed."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import pytest

from holdfast import Engine
from holdfast.hosts.cli.serve import listening_at
from holdfast.hosts.http.live_reads import SEND_SECONDS
from holdfast.hosts.worker.garbage_collection import YOUNG_MAX
from tests.integration.http.live import stream
from tests.integration.http_auth.provider import CLIENT, SECRET, provider_at_work

SHOP = """
import gc

from holdfast import Channel, Engine, step, workflow

approval = Channel("approval", bool)

@step
def charge(cents: int) -> str:
    return f"charged {cents}"

@workflow
async def checkout(cents: int) -> str:
    return await charge(cents)

@workflow
async def approved(cents: int) -> str:
    await approval.receive()
    return await charge(cents)

@step
def threshold() -> int:
    return gc.get_threshold()[0]

@workflow
async def collector() -> int:
    return await threshold()

engine = Engine.open("sqlite:///shop.db", workflows=[checkout, approved, collector])
"""
RUNS = "/v1/namespaces/default/runs"
SECONDS_MAX = 200

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.hosts.cli.main", "serve", *arguments]


@contextmanager
def serving(folder: Path, port: int, *options: str) -> Generator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Start a server, and wait until it answers. It is killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        command("shop:engine", "--port", str(port), *options),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            _wait_until_up(process, client)
            yield process, client
    finally:
        process.kill()
        process.communicate()


def _wait_until_up(process: subprocess.Popen[str], client: httpx.Client) -> None:
    until = time.monotonic() + SECONDS_MAX
    while True:
        assert process.poll() is None, process.communicate()
        try:
            client.get("/readyz").raise_for_status()
        except httpx.TransportError:
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


def start(client: httpx.Client, workflow: str, id: str, wait: int) -> Any:
    body = {"workflow": workflow, "input": {"cents": 5}, "id": id}
    answer = client.post(RUNS, json=body, headers={"Prefer": f"wait={wait}"})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_requests_that_offer_an_upgrade_or_are_no_http_leave_no_warnings(folder: Path) -> None:
    with serving(folder, free_port()) as (process, client):
        upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AA"}
        assert client.get(RUNS, headers=upgrade).status_code == 200
        with socket.create_connection((client.base_url.host, client.base_url.port or 80), 20) as other:
            other.sendall(b"nothing of the kind\r\n\r\n")
            assert other.recv(1_000).startswith(b"HTTP/1.1 400")
        process.terminate()
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()

    assert any("run.list 200" in line for line in lines)
    assert [line for line in lines if "uvicorn" in line or "WARNING" in line] == []


def test_its_process_makes_garbage_collections_rare(folder: Path) -> None:
    with serving(folder, free_port(), "--worker") as (_, client):
        started = client.post(RUNS, json={"workflow": "collector"}, headers={"Prefer": "wait=20"})

    assert started.json()["result"] == YOUNG_MAX


def test_a_server_with_a_worker_runs_what_is_started(folder: Path) -> None:
    with serving(folder, free_port(), "--worker", "--root-path", "/a") as (process, client):
        assert start(client, "checkout", "one", 20)["result"] == "charged 5"
        assert client.get(f"{RUNS}/two").json()["type"] == "/a/errors/run_not_found"
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
        assert "Listening at http://127.0.0.1:" in (process.stderr.read() if process.stderr else "")


def test_open_streams_and_waits_end_soon_after_a_signal(folder: Path) -> None:
    with serving(folder, free_port()) as (process, client):
        start(client, "approved", "one", 0)
        with stream(client, f"{RUNS}/one/history") as events:
            found = [next(events)]
            process.send_signal(signal.SIGTERM)
            found += events
            assert process.wait(SECONDS_MAX) == 0
        log = process.stderr.read() if process.stderr else ""
        assert "graceful shutdown exceeded" not in log, "the answers did not end by themselves"

    assert [(one.id, one.type) for one in found] == [("1/1", "run.created")]


def test_a_stream_continues_after_its_server_was_killed(folder: Path) -> None:
    port = free_port()
    with serving(folder, port) as (process, client):
        start(client, "approved", "one", 0)
        with stream(client, f"{RUNS}/one/history") as events:
            found = [next(events)]
            process.kill()
            with pytest.raises(httpx.RemoteProtocolError):
                list(events)
    with serving(folder, port, "--worker") as (_, client):
        client.post(f"{RUNS}/one/signals/approval", json={"message": True}).raise_for_status()
        with stream(client, f"{RUNS}/one/history", found[-1].id) as events:
            found += events
        rows = client.get(f"{RUNS}/one/history?limit=1000").json()["items"]

    assert [one.id for one in found[:-1]] == [f"1/{row['number']}" for row in rows]
    assert found[-1].type == "end"


SIGN_ON: Final = ("--oidc-issuer", "https://x.test", "--oidc-map", "groups:team=read@*")
SIGN_ON_CLIENT: Final = ("--oidc-client-id", "holdfast", "--public-url", "https://x.test")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--host", "0.0.0.0"), "everyone who reaches 0.0.0.0"),
        (("--host", "::"), "everyone who reaches ::"),
        (("--host", "example.com"), "everyone who reaches example.com"),
        (("--oidc-audience", "holdfast"), "tokens need --oidc-issuer"),
        (("--oidc-issuer", "https://x.test", "--oidc-audience", "a", "--oidc-map", "x"), "is not a grant"),
        (("--oidc-issuer", "http://x.test", "--oidc-audience", "a", "--oidc-map", "g:v=read@*"), "https"),
        (("--oidc-client-id", "holdfast"), "tokens need --oidc-issuer"),
        (
            (*SIGN_ON, "--oidc-client-id", "holdfast"),
            "single sign-on needs --oidc-issuer, --oidc-client-id and",
        ),
        ((*SIGN_ON, "--oidc-audience", "a", "--public-url", "https://x.test"), "single sign-on needs"),
        (
            (*SIGN_ON, "--oidc-client-id", "holdfast", "--public-url", "http://x.test"),
            "not the URL of a server",
        ),
        (
            (*SIGN_ON, *SIGN_ON_CLIENT, "--oidc-client-secret-file", "missing"),
            "--oidc-client-secret-file: [Errno 2]",
        ),
        ((*SIGN_ON, *SIGN_ON_CLIENT, "--oidc-scopes", "profile"), "one is openid"),
        (("--insecure-no-auth",), "No such option"),
        (("--root-path", "a/"), "begins with a slash"),
    ],
)
def test_a_server_that_others_could_reach_does_not_start(
    folder: Path, options: tuple[str, ...], reason: str
) -> None:
    done = subprocess.run(
        command("shop:engine", *options),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 2
    assert reason in done.stderr


def test_metrics_are_served_beside_the_interface_and_at_a_port_of_their_own(folder: Path) -> None:
    port = free_port()
    with serving(folder, free_port(), "--worker", "--metrics-port", str(port)) as (_, client):
        start(client, "checkout", "one", 20)
        at_port = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20).text
        there = client.get("/metrics").text

    for text in (at_port, there):
        assert 'holdfast_attempts_total{outcome="completed"} 1.0' in text
        assert "holdfast_worker_settled_total 1.0" in text
        assert "holdfast_store_up 1.0" in text
    assert 'holdfast_http_request_seconds_count{operation="server.ready",status="2xx"}' in there


def test_a_port_for_metrics_that_is_in_use_is_refused(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = subprocess.run(
            command("shop:engine", "--port", "0", "--metrics-port", port),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    assert done.returncode == 2
    assert "can't serve metrics at 127.0.0.1" in done.stderr


def test_a_server_with_a_key_listens_elsewhere_and_only_reads_if_wanted(folder: Path) -> None:
    with Engine.open(f"sqlite:///{folder / 'shop.db'}").sync as engine:
        key = engine.keys.create("me", scopes=["read", "start"]).text
        other = engine.keys.create("ann", scopes=["read"]).text
    options = ("--read-only", "--rate-limit", "0.01", "--browser-session-lifetime", "1h")
    with serving(folder, free_port(), "--host", "0.0.0.0", *options) as (process, client):
        assert client.get(RUNS).status_code == 401
        signed_in = client.post("/v1/browser-session", json={"credential": other})
        assert "Max-Age=3600;" in signed_in.headers["set-cookie"]
        assert client.get(RUNS).json()["code"] == "too_many_requests"
        client.headers["Authorization"] = f"Bearer {key}"
        refused = client.post(RUNS, json={"workflow": "checkout", "input": {"cents": 5}})
        assert (refused.status_code, refused.json()["code"]) == (403, "read_only")
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
        assert "There is no key" not in (process.stderr.read() if process.stderr else "")


def test_people_sign_in_with_the_provider_of_the_options(folder: Path) -> None:
    (folder / "client").write_text(f"{SECRET}\n")
    port = free_port()
    with provider_at_work() as provider:
        options = (
            *("--oidc-issuer", provider.url, "--oidc-map", "groups:shop=read@*", "--oidc-subject", "email"),
            *("--oidc-client-id", CLIENT, "--oidc-client-secret-file", "client"),
            *("--public-url", f"http://127.0.0.1:{port}", "--oidc-name", "Example"),
        )
        with serving(folder, port, *options) as (_, client):
            assert "Sign in with Example" in client.get("/ui/sign-in").text
            begun = client.get("/ui/sign-in/provider", params={"return_to": "/ui/namespaces/default/runs"})
            back = client.get(provider.consent(begun.headers["location"]))
            assert (back.status_code, back.headers["location"]) == (303, "/ui/namespaces/default/runs")
            person = client.get("/v1/browser-session").json()
    assert (person["principal"], person["scopes"]) == ("ann@example.com", ["read"])


def test_a_server_with_an_issuer_that_is_away_starts_and_refuses_tokens_for_now(folder: Path) -> None:
    issuer = f"http://127.0.0.1:{free_port()}"
    options = ("--oidc-issuer", issuer, "--oidc-audience", "holdfast", "--oidc-map", "groups:team=read@*")
    token = jwt.encode({"sub": "ann"}, "x" * 32, algorithm="HS256")
    rsa = f"{jwt_part({'alg': 'RS256', 'kid': 'one'})}.{jwt_part({'sub': 'ann'})}.AA"
    with serving(folder, free_port(), *options) as (_, client):
        assert client.get(RUNS).status_code == 401
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get(RUNS).status_code == 401
        client.headers["Authorization"] = f"Bearer {rsa}"
        away = client.get(RUNS)
        assert (away.status_code, away.json()["code"], away.headers["retry-after"]) == (
            503,
            "unavailable",
            "2",
        )
        assert issuer not in away.text


def jwt_part(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def test_a_port_that_is_in_use_is_refused(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = subprocess.run(
            command("shop:engine", "--port", port),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    assert done.returncode == 2
    assert "can't listen at 127.0.0.1" in done.stderr


def test_the_last_events_of_a_stream_are_not_cut_off(folder: Path) -> None:
    with serving(folder, free_port(), "--worker") as (_, client):
        start(client, "checkout", "one", 20)
        with stream(client, f"{RUNS}/one/history") as events:
            assert list(islice(events, 100))[-1].type == "end"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such time limit")
def test_a_client_that_does_not_read_loses_its_connection() -> None:
    """The system closes it: asyncio would wait until the client has read what was sent so far."""
    with (
        listening_at("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        seconds = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1_000
    assert seconds == SEND_SECONDS


def test_an_idle_connection_is_closed_after_the_time_of_the_option(folder: Path) -> None:
    with (
        serving(folder, port := free_port(), "--keep-alive", "1"),
        socket.create_connection(("127.0.0.1", port), timeout=100) as client,
    ):
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while part := client.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" not in answer.lower()


@pytest.mark.parametrize(("path", "status"), [(RUNS, 413), ("/v1/none", 404), ("/livez", 405)])
def test_a_client_that_sends_a_refused_body_reads_the_refusal(folder: Path, path: str, status: int) -> None:
    """A server that closes a connection with bytes unread resets it, and the answer is lost."""
    body = b" " * 8_000_000
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with serving(folder, port := free_port()):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                client.sendall(head.encode())
                client.sendall(body)
                answer = b""
                while part := client.recv(65_536):
                    answer += part
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
