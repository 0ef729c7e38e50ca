"""Artifacts, calls of AI models, progress and whole values over HTTP."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from holdfast import Engine, Pipeline, StageContext, Worker, stage
from holdfast.hosts.http import download_responses, downloads
from holdfast.hosts.http.download_responses import DownloadResponse, Downloads
from holdfast.hosts.http.downloads import Download, safe_media_type
from holdfast.hosts.http.problems import HttpError
from tests.integration.http.api import NAMESPACE, Api

pytestmark = pytest.mark.anyio

PAGE: Final = b"<script>alert(1)</script>"
LONG: Final = "x" * 100_000


@stage
def drawn(ctx: StageContext, number: int) -> str:
    ctx.artifacts.put("page.html", PAGE, content_type="text/html")
    ctx.artifacts.put("notes/read me.txt", "für Ann".encode(), content_type="text/plain")
    ctx.artifacts.put("evil\r\nX-Evil: 1", b"1", content_type="text/plain\r\nX-Evil: 1")
    ctx.ai.record(topic="check.page", model="large-1", input_tokens=number, prompt="hello", response="there")
    ctx.ai.record(topic="check.text", model="small-1", input_tokens=number)
    ctx.progress(1, of=2, message="half")
    return LONG


@stage
def drawn_again(ctx: StageContext, text: str) -> int:
    ctx.artifacts.put("page.html", b"", content_type="image/png")
    return len(text)


drawing = Pipeline("drawing", input=int).pipe(drawn).pipe(drawn_again)


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: the engine's own tests have the others."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=[drawing], namespace=NAMESPACE)
    with opened.sync as engine:
        with Worker(opened):
            engine.run(drawing(7), id="one")
        yield opened


async def test_artifacts_are_listed_and_read(api: Api) -> None:
    page = await api.get("runs/one/artifacts?limit=2")
    rest = await api.get(f"runs/one/artifacts?after={page['next']}")
    named = await api.get("runs/one/artifacts?name=page.html&stage=drawn")

    names = [one["name"] for one in (*page["items"], *rest["items"])]
    assert sorted(names) == ["evil\r\nX-Evil: 1", "notes/read me.txt", "page.html", "page.html"]
    assert (len(page["items"]), rest["next"]) == (2, None)
    assert [one["content_type"] for one in named["items"]] == ["text/html"]
    text = await api.send("GET", "runs/one/artifacts/notes%2Fread%20me.txt")
    assert (text.content, text.headers["content-type"]) == ("für Ann".encode(), "text/plain; charset=utf-8")
    assert text.headers["content-disposition"] == "inline; filename*=UTF-8''read%20me.txt"
    etag = text.headers["etag"]
    same = await api.send("GET", "runs/one/artifacts/notes%2Fread%20me.txt", headers={"If-None-Match": etag})
    assert (same.status_code, same.content) == (304, b"")
    head = await api.send("HEAD", "runs/one/artifacts/notes%2Fread%20me.txt")
    assert (head.headers["content-length"], head.content) == ("8", b"")


async def test_what_a_browser_could_run_is_a_file_to_be_saved(api: Api) -> None:
    page = await api.send("GET", "runs/one/artifacts/page.html?stage=drawn")

    assert page.content == PAGE
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"] == "attachment; filename*=UTF-8''page.html"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in page.headers["content-security-policy"]


async def test_names_and_types_of_user_code_are_in_no_header_as_they_are(api: Api) -> None:
    evil = await api.send("GET", "runs/one/artifacts/evil%0D%0AX-Evil:%201")

    assert "x-evil" not in evil.headers
    assert evil.status_code == 404  # a path has no control characters


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("image/png", "image/png"),
        ("TEXT/CSV; charset=UTF-8", "text/csv; charset=utf-8"),
        ("text/plain; charset=utf-7", "application/octet-stream"),
        ("image/svg+xml", "application/octet-stream"),
        ("application/pdf", "application/octet-stream"),
        ("text/plain\r\nX: 1", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
async def test_media_types_that_browsers_only_show_are_kept(given: str, sent: str) -> None:
    assert safe_media_type(given) == sent


async def test_an_artifact_that_is_not_named_clearly_is_refused(api: Api) -> None:
    for path, code in (
        ("artifacts/page.html", "artifact_missing"),
        ("artifacts/other", "artifact_missing"),
        ("results/drawn_twice", "result_missing"),
        ("history/99/value", "not_found"),
        ("history/x/value", "not_found"),
        ("history/0/value", "not_found"),
    ):
        refused = await api.send("GET", f"runs/one/{path}")
        assert (refused.status_code, refused.json()["code"]) == (404, code), path


async def test_large_values_are_sent_whole(api: Api) -> None:
    result = await api.send("GET", "runs/one/results/drawn")
    rows = (await api.get("runs/one/history"))["items"]
    number = next(row["number"] for row in rows if row["type"] == "stage.completed")
    value = await api.send("GET", f"runs/one/history/{number}/value")

    assert result.json() == value.json() == LONG
    assert result.headers["content-type"] == "application/json"


async def test_what_is_larger_than_the_bound_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "SIZE_MAX", 10)
    for path in ("artifacts/page.html?stage=drawn", "results/drawn"):
        refused = await api.send("GET", f"runs/one/{path}")
        assert (refused.status_code, refused.json()["code"]) == (422, "value_too_large")
    assert (await api.send("GET", "runs/one/artifacts/notes%2Fread%20me.txt")).status_code == 200


async def test_calls_of_ai_models_are_listed_and_added_up(api: Api) -> None:
    first = await api.get("runs/one/ai-calls?limit=1")
    second = await api.get(f"runs/one/ai-calls?limit=1&after={first['next']}")
    texts = await api.get("runs/one/ai-calls?texts=true&topic=check.page")
    totals = await api.get("runs/one/ai-totals?by=topic")

    assert [one["topic"] for page in (first, second) for one in page["items"]] == ["check.page", "check.text"]
    assert (first["items"][0]["prompt"], second["next"]) == (None, None)
    assert [(one["prompt"], one["response"]) for one in texts["items"]] == [("hello", "there")]
    assert (totals["calls"], totals["input_tokens"]) == (2, 14)
    assert [part["name"] for part in totals["parts"]] == ["check.page", "check.text"]
    refused = await api.send("GET", "runs/one/ai-totals?by=price")
    assert refused.status_code == 400


async def test_progress_is_listed(api: Api) -> None:
    assert [one["message"] for one in (await api.get("runs/one/progress"))["items"]] == ["half"]


async def test_what_user_code_wrote_needs_the_scope_payloads(api: Api) -> None:
    for path in (
        "artifacts",
        "artifacts/page.html?stage=drawn",
        "ai-calls",
        "ai-totals",
        "progress",
        "results/drawn",
        "history/1/value",
    ):
        assert (await api.send("GET", f"runs/one/{path}", by="read")).status_code == 403
        assert (await api.send("GET", f"runs/one/{path}", by="payloads")).status_code == 200


@pytest.mark.parametrize("is_deep", [False, True])
async def test_references_to_blobs_are_refused(api: Api, is_deep: bool) -> None:
    """A body that gets one reads the blob, of whatever run and namespace."""
    sha256 = "0" * 64
    reference: object = {"key": f"elsewhere/run/stage/1/{sha256}", "sha256": sha256, "size": 1}
    reference = {"input": [{"deep": reference}]} if is_deep else reference
    sent: list[tuple[str, Any]] = [
        ("runs", {"workflow": "drawing", "input": reference}),
        ("runs/one/signals/approval", {"message": reference}),
        (
            "commands",
            {
                "commands": [
                    {"type": "run.create", "workflow": "drawing", "input": {"inline": json.dumps(reference)}}
                ]
            },
        ),
    ]
    for path, body in sent:
        refused = await api.send("POST", path, body)
        assert refused.status_code == 400, path
        assert "blob" in refused.text


async def test_a_reader_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_responses, "SEND_SECONDS", 0.05)
    download = Download(content=b"x" * 1_000_000, media_type="", filename="x", sha256="0" * 64)
    sent: list[int] = []

    async def send(message: Any) -> None:
        sent.append(len(message.get("body", b"")))
        if len(sent) == 3:
            await anyio.sleep_forever()

    async def receive() -> Any:
        await anyio.sleep_forever()

    with anyio.fail_after(60):
        await DownloadResponse(download, {})({"type": "http", "method": "GET"}, receive, send)
    assert sent == [0, 262_144, 262_144]


async def test_there_is_a_bound_to_what_is_being_sent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that do not read fill no more than so much memory."""
    monkeypatch.setattr(download_responses, "SENDING_MAX", 150_000)
    counted = Downloads()
    with counted.counted(100_000):
        counted.check(50_000)
        with pytest.raises(HttpError, match="too_many_streams"):
            counted.check(50_001)
    counted.check(200_000)  # alone, whatever its size is

    def refuse(_: object, size: int) -> None:
        raise HttpError("too_many_streams", str(size))

    monkeypatch.setattr(Downloads, "check", refuse)
    refused = await api.send("GET", "runs/one/results/drawn")
    assert (refused.status_code, refused.json()["code"]) == (503, "too_many_streams")
