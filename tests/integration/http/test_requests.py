"""Requests that are malformed are refused with a typed error, and nothing happens."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.hosts.http import request_bodies
from tests.integration.http.api import NAMESPACE, Api

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: requests are refused before a store is used."""
    return new_sqlite(tmp_path / "holdfast.db")


JSON = {"Content-Type": "application/json"}
START: dict[str, Any] = {"workflow": "report", "input": 1}
DEEP = b'{"workflow":"report","input":' + b"[" * 100 + b"]" * 100 + b"}"
BOMB = b'{"workflow":"report","input":' + b"[" * 200_000 + b"}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not JSON"),
        (b"", "required"),
        (b"[]", "expected an object"),
        (b'"x"', "expected an object"),
        (b'{"workflow":"report","workflow":"report"}', "more than once"),
        (b'{"workflow":"report","input":NaN}', "not JSON"),
        (b'{"workflow":"report","input":1e999}', "too large"),
        (b'{"workflow":"report","input":' + b"9" * 5_000 + b"}", "too large"),
        (b'{"workflow":"report","input":"\\ud800"}', "surrogate"),
        (b'{"workflow":"\\ud800","input":1}', "surrogate"),
        (b'{"workflow":"report","input":"\xff"}', "UTF-8"),
        (b'\xef\xbb\xbf{"workflow":"report"}', "not JSON"),
        (b'{"workflow":"report","input":1}{}', "not JSON"),
        (DEEP, "nested deeper"),
        (BOMB, "nested deeper"),
        (b'{"workflow":"report","input":1,"wokflow":2}', "wokflow"),
        (b'{"workflow":7,"input":1}', "expected str"),
        (b'{"workflow":"report","input":1,"priority":true}', "expected an integer"),
        (b'{"workflow":"report","input":1,"priority":1e3}', "expected an integer"),
        (b'{"workflow":"report","input":1,"priority":' + b"9" * 30 + b"}", "too large"),
        (b'{"workflow":"report","input":1,"start_at":"2026-01-01"}', "offset"),
        (b'{"workflow":"report","input":1,"start_at":"2026-01-01T00:00:00"}', "offset"),
        (b'{"workflow":"report","input":1,"start_at":0}', "expected an instant"),
        (b'{"workflow":"report","input":1,"start_at":"9999-12-31T23:59:59-10:00"}', "year"),
        (b'{"workflow":"report","input":1,"deadline_seconds":"PT1S"}', "expected a number"),
        (b'{"workflow":"report","input":1,"deadline_seconds":1e300}', "too large"),
        (b'{"workflow":"report","input":1,"if_exists":"perhaps"}', "is not one of"),
        (b'{"workflow":"report","input":1,"attributes":["a"]}', "expected an object"),
        (b'{"workflow":"report","input":1,"attributes":{"a":1}}', "expected str"),
    ],
    ids=lambda one: one[:40] if isinstance(one, bytes) else "",
)
async def test_a_body_that_is_not_strict_json_of_its_form_is_refused(
    api: Api, content: bytes, reason: str
) -> None:
    response = await api.send("POST", "runs", content=content, headers=JSON)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_request"), response.text
    assert reason in response.json()["detail"]
    assert (await api.get("runs:count"))["total"] == 0


@pytest.mark.slow
async def test_a_body_that_is_wide_or_has_a_huge_number_is_answered_and_kept_or_refused(api: Api) -> None:
    wide = b'{"workflow":"report","input":[' + b"[]," * 340_000 + b"0]}"
    keys = (
        b'{"workflow":"report","input":{' + b",".join(b'"%d":0' % number for number in range(90_000)) + b"}}"
    )
    for content in (wide, keys):
        response = await api.send("POST", "runs", content=content, headers=JSON)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_value")
        assert len(response.content) < 10_000
    huge = await api.send("POST", "runs", {**START, "input": 10**400, "id": "huge"})
    assert huge.status_code == 201
    assert (await api.get("runs/huge/input"))["value"] == 10**400
    assert (await api.get("runs:count"))["total"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {**START, "id": "\x00"},
        {**START, "id": "a\nb"},
        {**START, "id": "x" * 300},
        {**START, "attributes": {"\x00": "x"}, "id": "\x00"},
        {**START, "priority": 10**9},
        {**START, "queue": ""},
        {**START, "deadline_seconds": -1},
        {**START, "concurrency": {"limit": 1}},
        {**START, "concurrency": {"key": "k", "limit": 0}},
        {**START, "annotations": {"": 1}},
    ],
    ids=lambda body: str(body)[32:70],
)
async def test_a_value_that_can_not_be_is_refused(api: Api, body: object) -> None:
    response = await api.send("POST", "runs", body)

    assert response.status_code == 400, response.text
    assert (await api.get("runs:count"))["total"] == 0


async def test_a_text_with_a_nul_can_not_be_an_input(api: Api) -> None:
    body = {"workflow": "order", "input": {"order": {"number": 1, "note": "\x00"}}}
    response = await api.send("POST", "runs", body)

    assert (response.status_code, response.json()["code"]) == (400, "unstorable_value")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "limit=1&limit=2",
        "limit=" + "9" * 40,
        "unknown=1",
        "after=x",
        "after=" + "9" * 30 + ".a",
        "status=perhaps",
        "waiting=yes",
        "since=2026-01-01",
        "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
        "attributes=x",
        "attributes[a]=1&attributes[a]=2",
        "attributes[]=1",
        "workflow[a]=1",
        "workflow=%00",
        "workflow=a%0Ab",
        "waiting=true&status=failed",
        "&".join(f"attributes[{number}]=x" for number in range(11)),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(api: Api, query: str) -> None:
    response = await api.send("GET", f"runs?{query}")

    assert response.status_code == 400, response.text
    assert response.json()["errors"]


async def test_a_body_that_is_not_json_or_too_large_is_refused(api: Api) -> None:
    text = json.dumps(START).encode()
    for kind in ("text/plain", "multipart/form-data", "application/json; charset=latin-1", ""):
        response = await api.send("POST", "runs", content=text, headers={"Content-Type": kind})
        assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type"), kind
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await api.send("POST", "runs", content=text, headers=form)).json()["code"] == "invalid_request"
    large = await api.send("POST", "runs", content=b" " * 1_048_577 + text, headers=JSON)
    assert (large.status_code, large.json()["code"]) == (413, "too_large")
    fits = await api.send(
        "POST", "runs", content=text, headers={"Content-Type": "Application/JSON; charset=UTF-8"}
    )
    assert fits.status_code == 201
    with_body = await api.send("GET", "runs", content=b"{}", headers=JSON)
    assert with_body.status_code == 400


@pytest.mark.parametrize(
    ("header", "blocks_read"),
    [
        ((b"content-length", b"2"), 17 + 513),  # the most that is taken, and the most that is discarded
        ((b"content-length", b"40000000"), 0),  # too much to discard
        ((b"expect", b"100-continue"), 17),  # the client sends no more after the answer
    ],
    ids=str,
)
async def test_a_body_that_does_not_end_is_cut_off(
    api: Api, header: tuple[bytes, bytes], blocks_read: int
) -> None:
    """The length may be a lie, and a body that is sent in chunks has no length that could be checked before."""
    sent = 0

    async def receive() -> dict[str, object]:
        nonlocal sent
        sent += 1
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/v1/namespaces/{NAMESPACE}/runs",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer all"), header, (b"content-type", b"application/json")],
    }
    with anyio.fail_after(60):
        await api.server(scope, receive, send)

    assert answers[0]["status"] == 413
    assert sent == blocks_read


async def test_a_refused_body_that_does_not_arrive_is_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_bodies, "DISCARD_SECONDS", 0.02)

    async def drip() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.sleep(0.2)
        yield b"}"

    response = await api.send("POST", "none", content=drip(), headers=JSON)

    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_a_body_that_does_not_arrive_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "BODY_SECONDS", 0.02)

    async def drip() -> AsyncIterator[bytes]:
        yield b'{"commands": '
        await anyio.sleep(0.2)
        yield b"[]}"

    response = await api.send("POST", "commands", content=drip(), headers=JSON)

    assert (response.status_code, response.json()["code"]) == (408, "too_slow")
    assert response.headers["connection"] == "close"


async def test_headers_that_an_operation_does_not_obey_are_refused(api: Api) -> None:
    for method, path, headers in (
        ("GET", "runs", {"Idempotency-Key": "x"}),
        ("POST", "runs", {"If-Match": '"g1"'}),
        ("POST", "runs/one/cancel", {"If-Match": "W/1"}),
        ("POST", "runs/one/cancel", {"Idempotency-Key": "x" * 256}),
    ):
        response = await api.send(
            method, path, START if path == "runs" and method == "POST" else None, headers=headers
        )
        assert (response.status_code, response.json()["code"]) == (400, "invalid_request"), headers
    stream = await api.send("GET", "/v1", headers={"Accept": "text/event-stream"})
    assert (stream.status_code, stream.json()["code"]) == (406, "not_acceptable")


async def test_paths_and_methods_that_do_not_exist_are_not_found(api: Api) -> None:
    for path in (
        "/v1/",
        "/v2",
        "/v1/namespaces/shop/runs/",
        "/v1/namespaces/shop//runs",
        "/V1",
        "/v1/%2e%2e/v1",
    ):
        response = await api.send("GET", path)
        assert (response.status_code, response.json()["code"]) == (404, "not_found"), path
    for path in ("runs/a%00b", "runs/a%0ab", "runs/one/../one"):
        assert (await api.send("GET", path)).status_code == 404, path
    wrong = await api.send("PATCH", "runs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")
    head = await api.send("HEAD", "runs")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0


async def test_a_bug_is_answered_without_its_text(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the password is x")

    monkeypatch.setattr(api.engine.sync.core.stores.persistence, "read", fail)
    response = await api.send("GET", "runs")

    assert response.status_code == 500
    assert "password" not in response.text
    assert response.json()["request_id"] in caplog.text


@pytest.mark.slow
async def test_a_store_that_is_away_is_a_503_without_its_address(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.errors import UnavailableError

    def fail(*_: object) -> None:
        raise UnavailableError("the server at 10.0.0.7 does not answer")

    monkeypatch.setattr(api.engine.sync.core.stores.persistence, "read", fail)
    response = await api.send("GET", "/readyz", by=None)

    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert response.headers["retry-after"] == "2"
    assert "10.0.0.7" not in response.text
    assert (await api.send("GET", "/livez", by=None)).json() == {"status": "ok"}
