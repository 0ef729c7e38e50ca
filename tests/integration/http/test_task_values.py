"""Large inputs and outputs of tasks: addresses of the blob store, references, and the way through the server."""

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import httpx
import pytest

from holdfast import Engine, Worker, step, workflow
from holdfast.hosts.http import task_values
from holdfast.hosts.http.task_tokens import token_from
from holdfast.hosts.remote.connection import content_digest
from holdfast.ports.blobs import UploadAddress, check_blob_key
from holdfast.ports.json import compact, parse
from holdfast.testing import MemoryBlobStore
from tests.integration.http.api import NAMESPACE, Api

pytestmark = pytest.mark.anyio
BY: Final[dict[str, Any]] = {"by": "work"}
LONG: Final = "x" * 70_000


class AddressedBlobs(MemoryBlobStore):
    """Blobs in memory that have URLs, which nothing serves: a test reads and writes them by their keys."""

    signs = True

    def download_url(self, key: str, lifetime: timedelta, /) -> str | None:
        check_blob_key(key)
        return f"https://blobs.example/{key}?for={lifetime.total_seconds():.0f}" if self.signs else None

    def upload_address(self, key: str, size: int, lifetime: timedelta, /) -> UploadAddress | None:
        url = self.download_url(key, lifetime)
        return None if url is None else UploadAddress(url=url, headers=(("content-length", str(size)),))


def key_in(url: str) -> str:
    """Return the key in a URL of these blobs."""
    return url.removeprefix("https://blobs.example/").partition("?")[0]


@step(queue="tools")
async def shout(text: str) -> str:
    raise AssertionError("only remote workers run it")


@workflow
async def loud(text: str) -> str:
    return await shout(text)


@pytest.fixture
def blobs() -> AddressedBlobs:
    return AddressedBlobs()


@pytest.fixture
def engine(tmp_path: Path, blobs: AddressedBlobs) -> Iterator[Engine]:
    opened = Engine.open("memory://", workflows=[loud], namespace=NAMESPACE, blobs=blobs)
    with opened.sync, Worker(opened, only_queues=["default"]):
        yield opened


async def claimed(api: Api, *, addresses: bool = True) -> dict[str, Any]:
    body = {"steps": ["shout"], "queues": ["tools"]}
    worker = (await api.post("workers", body, **BY))["worker"]
    claim = {"limit": 1, "addresses": addresses}
    headers = {"Prefer": "wait=20"}
    (task,) = (await api.post(f"workers/{worker}/claim", claim, headers=headers, **BY))["tasks"]
    found: dict[str, Any] = task
    return found


async def send(api: Api, task: dict[str, Any], how: str, body: object, by: str = "work") -> httpx.Response:
    return await api.send("POST", f"tasks/{task['token']}/{how}", body, by=by)


def wanted(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


async def test_values_go_by_the_urls_of_the_blob_store(api: Api, blobs: AddressedBlobs) -> None:
    run = await api.engine.start(loud(LONG))
    task = await claimed(api)
    address = task["input_address"]
    assert (task["input"], address["lifetime_seconds"]) == (None, 900.0)
    assert parse(blobs.get(key_in(address["url"])).decode()) == {"text": LONG}

    data = compact(LONG.upper()).encode()
    upload = (await send(api, task, "upload", wanted(data))).json()
    assert (upload["headers"], upload["expires_at"][-1]) == ({"content-length": str(len(data))}, "Z")
    early = await send(api, task, "complete", {"reference": upload["reference"]})
    assert (early.status_code, early.json()["code"]) == (400, "invalid_request")
    assert "nothing was sent" in early.json()["detail"]

    blobs.put(key_in(upload["url"]), data)
    first, again = [
        (await send(api, task, "complete", {"reference": upload["reference"]})).json() for _ in range(2)
    ]
    assert first == again == {"status": "settled", "retry_at": None}
    assert await run.result() == LONG.upper()


async def test_small_inputs_have_no_address_and_neither_has_a_claim_that_wants_none(api: Api) -> None:
    for text, addresses in (("hi", True), (LONG, False)):
        await api.engine.start(loud(text))
        task = await claimed(api, addresses=addresses)
        assert (task["input"], task["input_address"]) == ({"text": text}, None)


async def test_without_signed_urls_values_go_through_the_server(api: Api, blobs: AddressedBlobs) -> None:
    """The input in a read of its own, and the output in `complete`, both with their hash."""
    blobs.signs = False
    run = await api.engine.start(loud(LONG * 20))
    task = await claimed(api)
    assert task["input_address"]["url"] == f"tasks/{task['token']}/input"
    answer = await api.send("GET", task["input_address"]["url"], **BY)
    assert answer.headers["content-digest"] == content_digest(answer.content)
    assert parse(answer.text) == {"text": LONG * 20}
    head = await api.send("HEAD", task["input_address"]["url"], **BY)
    assert (head.status_code, head.content) == (200, b"")

    assert (await send(api, task, "upload", wanted(b"1"))).json() == {
        "url": None,
        "headers": {},
        "reference": None,
        "expires_at": None,
    }
    body = compact({"output": LONG * 20}).encode()  # larger than other bodies may be
    wrong = {"Content-Type": "application/json", "Content-Digest": content_digest(b"another")}
    path = f"tasks/{task['token']}/complete"
    refused = await api.send("POST", path, content=body, headers=wrong, **BY)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    right = {**wrong, "Content-Digest": content_digest(body)}
    assert (await api.send("POST", path, content=body, headers=right, **BY)).status_code == 200
    assert await run.result() == LONG * 20


async def test_a_value_that_is_too_large_is_refused(api: Api) -> None:
    await api.engine.start(loud("hi"))
    task = await claimed(api)
    headers = {"Content-Type": "application/json", "Content-Length": str(17 * 1024 * 1024)}
    refused = await api.send("POST", f"tasks/{task['token']}/complete", content=b"{}", headers=headers, **BY)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    refused = await send(api, task, "upload", {"sha256": "0" * 64, "size": 17 * 1024 * 1024})
    assert refused.status_code == 400


@pytest.mark.parametrize(
    "data", [b"[1", b'{"a":1,"a":2}', b"NaN", b"\xff", b"5"], ids=["cut", "twice", "NaN", "bytes", "type"]
)
async def test_an_output_in_the_blob_store_is_checked_as_one_in_a_body(
    api: Api, blobs: AddressedBlobs, data: bytes
) -> None:
    run = await api.engine.start(loud("hi"))
    task = await claimed(api)
    upload = (await send(api, task, "upload", wanted(data))).json()
    blobs.put(key_in(upload["url"]), data)
    refused = await send(api, task, "complete", {"reference": upload["reference"]})
    assert refused.status_code == 400
    await send(api, task, "complete", {"output": "HI"})
    assert await run.result() == "HI"


async def test_a_reference_is_of_one_attempt_and_expires(
    api: Api, blobs: AddressedBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no blob: with one of another task, or one that it made up, a worker reaches nothing."""
    runs = [await api.engine.start(loud("hi")) for _ in range(2)]
    own, other = await claimed(api), await claimed(api)
    data = compact("HI").encode()
    upload = (await send(api, other, "upload", wanted(data))).json()
    blobs.put(key_in(upload["url"]), data)
    made = task_values.reference_from(upload["reference"], token_from(other["token"]))
    foreign = attrs.evolve(made, token=token_from(own["token"]))
    for reference in (upload["reference"], foreign.text, key_in(upload["url"]), "é", ""):
        refused = await send(api, own, "complete", {"reference": reference})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), reference
    both = await send(api, other, "complete", {"reference": upload["reference"], "output": "HO"})
    assert both.status_code == 400
    for how, body in (("upload", wanted(data)), ("complete", {"reference": upload["reference"]})):
        stolen = await send(api, other, how, body, by="all")
        assert (stolen.status_code, stolen.json()["code"]) == (409, "lease_lost")
    assert (await api.send("GET", f"tasks/{other['token']}/input", by="all")).status_code == 409

    monkeypatch.setattr(task_values, "ADDRESS_LIFETIME", timedelta(seconds=-1))
    late = (await send(api, own, "upload", wanted(data))).json()
    refused = await send(api, own, "complete", {"reference": late["reference"]})
    assert "expired" in refused.json()["detail"]
    assert (await send(api, other, "complete", {"reference": upload["reference"]})).status_code == 200
    assert await runs[1].result() == "HI"
    for how, body in (("upload", wanted(data)), ("release", {})):
        ended = await send(api, other, how, body)
        assert (ended.status_code, ended.json()["code"]) == (409, "lease_lost")
