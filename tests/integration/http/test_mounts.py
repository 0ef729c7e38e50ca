"""The server in other applications, under any path, and behind a proxy that removes it."""

from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Engine
from holdfast.http import asgi_app
from tests.integration.examples.pages import DOCS, blocks
from tests.integration.http.api import Api, authenticate

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: requests are refused before a store is used."""
    return new_sqlite(tmp_path / "holdfast.db")


def in_fastapi(app: Any) -> Any:
    outer = FastAPI()
    outer.mount("/a/b", app)
    return outer


def in_starlette(app: Any) -> Any:
    return Starlette(routes=[Mount("/a", routes=[Mount("/b", app=app)])])


def in_front_of_another_application(app: Any) -> Any:
    """What the page of the server has for frameworks without mounts."""
    (code,) = (one.code for one in blocks(DOCS / "howto" / "server.md") if "def in_front(" in one.code)
    scope: dict[str, Any] = {"server": app}
    exec(code, scope)
    return scope["in_front"](Starlette())


def behind_a_proxy(app: Any) -> Any:
    """A proxy that removes the prefix, and a server that was started with it: as `uvicorn --root-path /a/b`."""

    async def call(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await app({**scope, "root_path": "/a/b"}, receive, send)

    return call


def in_an_application_that_removes_the_mount(app: Any) -> Any:
    """The convention before ASGI said otherwise: the path is that below the mount, and there is no raw path."""

    async def call(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        inner = {**scope, "root_path": "/a/b", "path": scope["path"].removeprefix("/a/b")}
        del inner["raw_path"]
        await app(inner, receive, send)

    return call


@pytest.mark.parametrize(
    "mounted",
    [
        *(in_fastapi, in_starlette, behind_a_proxy, in_an_application_that_removes_the_mount),
        in_front_of_another_application,
    ],
)
async def test_links_are_below_the_mount(engine: Engine, mounted: Any) -> None:
    mount = "/holdfast" if mounted is in_front_of_another_application else "/a/b"
    api = Api(engine, mount=mount, app=mounted(asgi_app(engine, authenticate=authenticate)))
    run_id = "one" if mounted is in_an_application_that_removes_the_mount else "one/1"
    escaped = run_id.replace("/", "%2F")

    started = await api.send("POST", "runs", {"workflow": "report", "input": 1, "id": run_id})
    missing = await api.send("GET", "runs/two")

    place = started.headers["location"]
    assert place == f"{mount}/v1/namespaces/shop/runs/{escaped}"
    assert (await api.get(place.removeprefix(mount)))["id"] == run_id
    assert missing.json()["type"] == f"{mount}/errors/run_not_found"
    assert (await api.get("/errors/run_not_found"))["status"] == 404
    assert (await api.get("/openapi.json"))["servers"] == [{"url": mount}]
    assert (await api.send("GET", "/v1/unknown")).status_code == 404


@pytest.mark.parametrize(
    ("kind", "incoming", "outgoing"),
    [
        (
            "lifespan",
            ("lifespan.startup", "lifespan.shutdown"),
            ("lifespan.startup.complete", "lifespan.shutdown.complete"),
        ),
        ("websocket", ("websocket.connect",), ("websocket.close",)),
    ],
)
async def test_other_protocols_than_http_are_answered(
    engine: Engine, kind: str, incoming: tuple[str, ...], outgoing: tuple[str, ...]
) -> None:
    messages = list(incoming)
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": messages.pop(0)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message["type"])

    await asgi_app(engine)({"type": kind, "path": "/v1", "headers": []}, receive, send)

    assert tuple(sent) == outgoing
