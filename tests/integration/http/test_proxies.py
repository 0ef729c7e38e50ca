"""The server behind nginx, Caddy and Traefik, with the configurations of their page."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from attrs import frozen

from holdfast import Engine
from tests.integration.examples.pages import DOCS, blocks
from tests.integration.http.live import stream
from tests.integration.http.test_serve import SECONDS_MAX, SHOP, free_port, serving

_yaml: Any = import_module("yaml")  # it has no types here
PAGE: Final = DOCS / "howto" / "proxies.md"
RUNS: Final = "/v1/namespaces/default/runs"
PREFIX: Final = "/holdfast"


def shown(language: str, *, below_a_path: bool) -> str:
    """Return the configuration of the page for a whole host, or for a path of one."""
    (code,) = (
        block.code
        for block in blocks(PAGE)
        if block.language == language and (f"{PREFIX}/" in block.code) is below_a_path
    )
    return code


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of this machine, and return its file and that of its key."""
    pem, key = folder / "localhost.pem", folder / "localhost.key"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(pem)),
        ],
        check=True,
        capture_output=True,
    )
    return pem, key


def nginx(folder: Path, port: int, server: int, *, below_a_path: bool) -> list[str]:
    """Write nginx's files, and return its command."""
    pem, key = certificate(folder)
    site = shown("nginx", below_a_path=below_a_path)
    site = site.replace("listen 443", f"listen 127.0.0.1:{port}").replace(
        "127.0.0.1:8080", f"127.0.0.1:{server}"
    )
    site = re.sub(r"/etc/ssl/\S+\.pem", str(pem), re.sub(r"/etc/ssl/\S+\.key", str(key), site))
    temporary = "\n".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""  # the folder of the test is not that of www-data
    (folder / "nginx.conf").write_text(
        f"{user}pid {folder}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\n{site}}}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]


def caddy(folder: Path, port: int, server: int, *, below_a_path: bool) -> list[str]:
    """Write Caddy's file, and return its command. No authority is asked for a certificate."""
    pem, key = certificate(folder)
    site = shown("caddyfile", below_a_path=below_a_path).replace("127.0.0.1:8080", f"127.0.0.1:{server}")
    site = re.sub(r"^\w+\.example\.com \{", f"https://localhost:{port} {{\n    tls {pem} {key}", site)
    options = f"admin off\nskip_install_trust\nauto_https disable_redirects\nstorage file_system {folder}\n"
    (folder / "Caddyfile").write_text(f"{{\n{options}}}\n{site}")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def traefik(folder: Path, port: int, server: int, *, below_a_path: bool) -> list[str]:
    """Write Traefik's files, and return its command. No authority is asked for a certificate."""
    pem, key = certificate(folder)
    static, dynamic = traefik_files()
    static["entryPoints"]["websecure"]["address"] = f"127.0.0.1:{port}"
    static["providers"]["file"]["filename"] = str(folder / "holdfast.yml")
    static["global"] = {"checkNewVersion": False, "sendAnonymousUsage": False}
    del static["certificatesResolvers"]
    (router,) = dynamic["http"]["routers"].values()
    router["rule"] = router["rule"].replace("www.example.com", "localhost")
    router["tls"] = {}
    if not below_a_path:
        router["rule"] = router["rule"].split(" && ")[0]
        del router["middlewares"]
    dynamic["http"]["services"]["holdfast"]["loadBalancer"]["servers"] = [
        {"url": f"http://127.0.0.1:{server}"}
    ]
    dynamic["tls"] = {"certificates": [{"certFile": str(pem), "keyFile": str(key)}]}
    (folder / "traefik.yml").write_text(_yaml.safe_dump(static))
    (folder / "holdfast.yml").write_text(_yaml.safe_dump(dynamic))
    return ["traefik", f"--configFile={folder / 'traefik.yml'}"]


def traefik_files() -> list[Any]:
    """Return the static and the dynamic configuration of the page."""
    return [_yaml.safe_load(block.code) for block in blocks(PAGE) if block.language == "yaml"]


PROXIES: Final[dict[str, Callable[..., list[str]]]] = {"nginx": nginx, "caddy": caddy, "traefik": traefik}


@contextmanager
def running(command: list[str], port: int) -> Generator[None]:
    """Run a proxy until the end of the block, from when it listens."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until = time.monotonic() + SECONDS_MAX
        while process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        assert process.poll() is None, process.communicate()[0]
        yield
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def is_live(client: httpx.Client) -> bool:
    """Return whether the server answers through the proxy. Traefik listens before it has read its files."""
    try:
        return client.get("/livez").status_code == 200
    except httpx.TransportError:
        return False


@frozen
class Site:
    """A server behind a proxy."""

    client: httpx.Client
    """Sends requests to the proxy, with a key."""
    prefix: str
    """The path in front of the server's."""


@pytest.fixture(params=[(name, below) for name in PROXIES for below in (False, True)], ids=str)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Site]:
    """Start a server with a worker, and a proxy in front of it."""
    name: str
    name, below_a_path = request.param
    for needed in (name, "openssl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (tmp_path / "shop.py").write_text(SHOP)
    with Engine.open(f"sqlite:///{tmp_path / 'shop.db'}").sync as engine:
        key = engine.keys.create("me", scopes=["read", "payloads", "start"]).text
    port, server = free_port(), free_port()
    prefix = PREFIX if below_a_path else ""
    options = ("--worker", *(("--root-path", prefix) if prefix else ()))
    command = PROXIES[name](tmp_path, port, server, below_a_path=below_a_path)
    with (
        serving(tmp_path, server, *options),
        running(command, port),
        httpx.Client(
            base_url=f"https://localhost:{port}{prefix}",
            verify=False,  # nobody vouches for the certificate of a test
            headers={"Authorization": f"Bearer {key}"},
            timeout=20,
        ) as client,
    ):
        until = time.monotonic() + SECONDS_MAX
        while not is_live(client):
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Site(client, prefix)


@pytest.mark.slow
def test_requests_waits_and_streams_pass_a_proxy(site: Site) -> None:
    client = site.client
    started = client.post(
        RUNS,
        json={"workflow": "checkout", "input": {"cents": 5}, "id": "one/1"},
        headers={"Prefer": "wait=20"},
    )
    assert (started.status_code, started.json()["result"]) == (201, "charged 5")
    assert started.headers["location"] == f"{site.prefix}{RUNS}/one%2F1"
    assert client.get(f"{RUNS}/one%2F1").json()["id"] == "one/1"
    assert client.get(f"{RUNS}/one%2F1/history?limit=1&after=1").json()["items"][0]["number"] == 2

    missing = client.get(f"{RUNS}/none").json()
    assert missing["type"] == f"{site.prefix}/errors/run_not_found"
    assert client.get(RUNS, headers={"Authorization": "Bearer hf_wrong"}).status_code == 401

    large = client.post(RUNS, json={"workflow": "checkout", "input": {"cents": " " * 1_000_000}})
    assert large.json()["code"] == "invalid_value", "the server has read it"
    too_large = client.post(RUNS, json={"input": " " * 1_100_000})
    assert too_large.json()["code"] == "too_large", "the server has read it to its end"

    client.post(RUNS, json={"workflow": "approved", "input": {"cents": 5}, "id": "two"}).raise_for_status()
    with stream(client, f"{RUNS}/two/history") as events:
        found = [next(events)]  # it comes while the run has not ended: nothing buffers it
        client.post(f"{RUNS}/two/signals/approval", json={"message": True}).raise_for_status()
        found += events
    assert [found[0].type, *(event.type for event in found[-2:])] == ["run.created", "run.completed", "end"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROXIES)
def test_a_server_without_keys_refuses_what_a_proxy_passes_on(name: str, tmp_path: Path) -> None:
    """A stranger who names this machine in `Host` would create the first key."""
    for needed in (name, "openssl"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (tmp_path / "shop.py").write_text(SHOP)
    port, server = free_port(), free_port()
    command = PROXIES[name](tmp_path, port, server, below_a_path=False)
    url, key = f"https://localhost:{port}", {"label": "mine", "namespaces": ["*"], "scopes": ["admin"]}
    with (
        serving(tmp_path, server) as (_, local),
        running(command, port),
        httpx.Client(base_url=url, verify=False, timeout=20) as client,
    ):
        until = time.monotonic() + SECONDS_MAX
        while not is_live(client):
            assert time.monotonic() < until
            time.sleep(0.05)
        for host in ("localhost", f"127.0.0.1:{server}"):
            for method, path in (("POST", "/v1/keys"), ("GET", RUNS)):
                body = key if method == "POST" else None
                answer = client.request(method, path, json=body, headers={"Host": host})
                # Caddy and Traefik have no such site, and answer themselves.
                assert answer.status_code in {401, 404} or not answer.content, answer.text
        assert local.get("/v1/keys").json()["items"] == []


@pytest.mark.parametrize("below_a_path", [False, True])
def test_the_timeout_of_nginx_is_longer_than_a_wait(below_a_path: bool) -> None:
    found = re.search(r"proxy_read_timeout (\d+)s;", shown("nginx", below_a_path=below_a_path))

    assert found is not None
    assert int(found[1]) > 55


def test_the_files_of_traefik_name_what_is_in_them() -> None:
    static, dynamic = traefik_files()
    http: dict[str, Any] = dynamic["http"]
    (router,) = http["routers"].values()

    assert set(router["entryPoints"]) <= set(static["entryPoints"])
    assert set(router["middlewares"]) == set(http["middlewares"])
    assert router["service"] in http["services"]
    assert router["tls"]["certResolver"] in static["certificatesResolvers"]
    assert static["entryPoints"]["websecure"]["transport"]["respondingTimeouts"]["readTimeout"] == "0s"
    assert http["middlewares"]["without-prefix"]["stripPrefix"]["prefixes"] == [PREFIX]
    assert f"PathPrefix(`{PREFIX}/`)" in router["rule"]
