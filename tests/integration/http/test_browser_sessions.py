"""Browser sessions over HTTP: sign in, act with the cookie and its token, sign out; and who is kept out."""

import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import httpx
import pytest
from starlette.requests import Request

from holdfast import Engine
from holdfast.client import Scope
from holdfast.hosts.http import live_reads
from holdfast.hosts.http.operations import Hint
from holdfast.hosts.http.pages.table import PAGE_OPERATIONS
from holdfast.hosts.http.table import OPERATIONS
from holdfast.http import BrowserSessionSettings, Principal, asgi_app
from tests.integration.http.api import NAMESPACE, PRINCIPALS, Api
from tests.integration.http.live import served, stream
from tests.integration.http.programs import WORKFLOWS, Order, approved
from tests.integration.http.responses import check_response
from tests.integration.http.sample_requests import BODIES, RUN_ID, path_of, rows_of

pytestmark = pytest.mark.anyio

SESSION: Final = "/v1/browser-session"
SIGN_OUT: Final = f"{SESSION}/sign-out"
RUNS: Final = f"/v1/namespaces/{NAMESPACE}/runs"
SINK_EVENTS: Final = f"/v1/namespaces/{NAMESPACE}/sinks/audit/events"
OWN: Final = "http://localhost"


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: that rows are stored alike is in the conformance suite."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE)
    with opened.sync as engine:
        engine.start(approved(Order(1)), id=RUN_ID)
        yield opened


@pytest.fixture
def key(engine: Engine) -> str:
    text = engine.sync.keys.create("ann", scopes=list(Scope), namespaces=["*"]).text
    assert text is not None
    return text


class Browser:
    """A browser: it keeps cookies, and sends the headers that a test wants."""

    def __init__(self, client: httpx.AsyncClient, mount: str = "") -> None:
        self.client = client
        self.mount = mount
        self.token = ""

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        response = await self.client.request(method, f"{self.mount}{path}", **options)
        check_response(response, self.mount)
        return response

    async def sign_in(self, credential: str) -> Any:
        response = await self.send("POST", SESSION, json={"credential": credential})
        assert response.status_code == 200, response.text
        self.token = response.json()["csrf_token"]
        return response.json()

    @property
    def with_token(self) -> dict[str, str]:
        return {"X-CSRF-Token": self.token}


@asynccontextmanager
async def browsing(app: Any, *, address: str = "127.0.0.1", base: str = OWN) -> AsyncGenerator[Browser]:
    transport = httpx.ASGITransport(app=app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield Browser(client)


async def test_a_person_signs_in_acts_and_signs_out(engine: Engine, key: str) -> None:
    async with browsing(asgi_app(engine)) as browser:
        assert (await browser.send("GET", RUNS)).status_code == 401
        session = await browser.sign_in(key)
        assert (session["principal"], session["kind"], session["namespaces"]) == ("ann", "key", ["*"])
        assert session["created_at"] < session["ends_at"] < session["expires_at"]
        assert len((await browser.send("GET", RUNS)).json()["items"]) == 1
        again = (await browser.send("GET", SESSION)).json()
        assert again["csrf_token"] != session["csrf_token"]
        browser.token = again["csrf_token"]
        cancelled = await browser.send("POST", f"{RUNS}/{RUN_ID}/cancel", json={}, headers=browser.with_token)
        assert cancelled.status_code == 200
        history = await browser.send("GET", f"{RUNS}/{RUN_ID}/history")
        assert '"actor":{"id":"ann","kind":"key"}' in history.text

        out = await browser.send("POST", SIGN_OUT, json={}, headers=browser.with_token)
        assert out.json() == {"ended": 1}
        assert not browser.client.cookies
        assert (await browser.send("GET", RUNS)).status_code == 401
    entries = [*engine.sync.audit()][:2]
    assert [one.action for one in entries] == ["browser_session.delete", "browser_session.create"]
    assert all(one.request_id and one.actor and one.actor.id == "ann" for one in entries)


async def test_a_form_needs_no_script(engine: Engine, key: str) -> None:
    """The answers send the browser on, below the mount of the server."""
    server = asgi_app(engine)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await server({**scope, "root_path": "/a/b"}, receive, send)

    async with browsing(mounted) as browser:
        browser.mount = "/a/b"
        signed_in = await browser.send("POST", SESSION, data={"credential": key, "return_to": "/runs?a=b"})
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/a/b/runs?a=b")
        assert "Path=/a/b;" in signed_in.headers["set-cookie"]
        token = (await browser.send("GET", SESSION)).json()["csrf_token"]
        assert (await browser.send("POST", SIGN_OUT, data={"everywhere": "true"})).status_code == 403
        form = {"everywhere": "true", "csrf_token": token}
        signed_out = await browser.send("POST", SIGN_OUT, data=form)
        assert (signed_out.status_code, signed_out.headers["location"]) == (303, "/a/b/")
        assert (await browser.send("GET", SESSION)).status_code == 401


@pytest.mark.parametrize(
    "place",
    [
        "//evil.test",
        "/\\evil.test",
        "https://evil.test",
        "evil",
        "",
        "/a\r\nSet-Cookie: a=b",
        "/\t/evil.test",
        "/é",
    ],
)
async def test_a_form_leads_to_no_other_site(engine: Engine, key: str, place: str) -> None:
    async with browsing(asgi_app(engine)) as browser:
        for given in ({"data": {"credential": key, "return_to": place}},):
            response = await browser.send("POST", SESSION, **given)
            assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
            assert "set-cookie" not in response.headers


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"credential", b"a=b", b"credential=a&credential=b", b"credential=%FF", b"credential=\xff"),
        b"&".join(b"f%d=" % number for number in range(200)),
    ],
)
async def test_a_form_that_can_not_be_read_is_refused(engine: Engine, content: bytes) -> None:
    async with browsing(asgi_app(engine)) as browser:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        response = await browser.send("POST", SESSION, content=content, headers=headers)
        assert response.status_code == 400


async def test_wrong_credentials_count_as_failures(engine: Engine, key: str) -> None:
    """And a cookie that is not valid does not: browsers send those of sessions that have ended."""
    async with browsing(asgi_app(engine), address="10.0.0.9") as browser:
        for _ in range(12):
            stale = await browser.send("GET", RUNS, headers={"Cookie": f"holdfast-80={'a' * 12}_{'A' * 43}"})
            assert stale.status_code == 401
        statuses = [
            (await browser.send("POST", SESSION, json={"credential": f"hf_{number}"})).status_code
            for number in range(11)
        ]
        assert statuses == [401] * 10 + [429]
        assert (await browser.sign_in(key))["principal"] == "ann"


async def test_a_server_that_only_reads_signs_people_in_and_out(engine: Engine, key: str) -> None:
    async with browsing(asgi_app(engine, read_only=True)) as browser:
        await browser.sign_in(key)
        refused = await browser.send("POST", f"{RUNS}/{RUN_ID}/cancel", json={}, headers=browser.with_token)
        assert refused.json()["code"] == "read_only"
        assert (await browser.send("POST", SIGN_OUT, headers=browser.with_token)).status_code == 200


async def test_a_key_ends_all_sessions_of_its_principal(engine: Engine, key: str) -> None:
    app = asgi_app(engine)
    async with browsing(app) as one, browsing(app) as other:
        await one.sign_in(key)
        await other.sign_in(key)
        program = {"Authorization": f"Bearer {key}"}
        async with browsing(app) as api:
            assert (await api.send("POST", SIGN_OUT, json={}, headers=program)).json() == {"ended": 0}
            ended = await api.send("POST", SIGN_OUT, json={"everywhere": True}, headers=program)
        assert ended.json() == {"ended": 2}
        for browser in (one, other):
            assert (await browser.send("GET", RUNS)).status_code == 401


@pytest.mark.slow
def test_an_open_stream_ends_when_its_session_does(
    engine: Engine, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reads, "CHECK_SECONDS", 0.05)
    with served(asgi_app(engine)) as url, httpx.Client(base_url=url, timeout=20) as client:
        token = client.post(SESSION, json={"credential": key}).json()["csrf_token"]
        with stream(client, f"{RUNS}/{RUN_ID}/history") as events:
            next(events)
            assert client.post(SIGN_OUT, headers={"X-CSRF-Token": token}).json() == {"ended": 1}
            assert "end" not in {one.type for one in events}


async def test_an_application_that_authenticates_requests_signs_people_in_itself(api: Api) -> None:
    for method, path, body in (
        ("POST", SESSION, {"credential": "x"}),
        ("GET", SESSION, None),
        ("POST", SIGN_OUT, {}),
    ):
        response = await api.send(method, path, body)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_a_cookie_is_sent_without_tls_only_if_that_is_wanted(engine: Engine, key: str) -> None:
    for secure in (True, False):
        app = asgi_app(engine, browser_sessions=BrowserSessionSettings(secure=secure))
        async with browsing(app, base="http://holdfast.test") as browser:
            await browser.sign_in(key)
            assert (await browser.send("GET", RUNS)).status_code == (401 if secure else 200)


SITES: Final = (None, "same-origin", "none", "same-site", "cross-site", "")
ORIGINS: Final = (None, OWN, "https://localhost", "http://localhost:81", "http://evil.test", "null")
BODIES_SENT: Final[tuple[tuple[str | None, bytes], ...]] = (
    (None, b""),
    ("application/json", b"{}"),
    ("text/plain", b"{}"),
    ("application/x-www-form-urlencoded", b"reason=x"),
)


def is_own(site: str | None, origin: str | None) -> bool:
    """Return whether a request with these headers comes from a page of the server itself."""
    if site is not None:
        return site in {"same-origin", "none"}
    return origin in {None, OWN, "https://localhost"}


@pytest.mark.slow
async def test_only_a_page_of_the_server_with_its_token_changes_anything(
    engine: Engine, url: str, key: str
) -> None:
    """All combinations of where a request comes from, its token and its type; the rows are compared."""
    app = asgi_app(engine)
    path = f"{RUNS}/{RUN_ID}/pause"
    async with browsing(app) as browser, browsing(app) as other:
        await other.sign_in(key)
        await browser.sign_in(key)
        before = rows_of(url)
        tokens = (None, other.token, browser.token)
        allowed: list[dict[str, str]] = []
        for site, origin, token, (kind, content) in itertools.product(SITES, ORIGINS, tokens, BODIES_SENT):
            named = {"Sec-Fetch-Site": site, "Origin": origin, "X-CSRF-Token": token, "Content-Type": kind}
            headers = {name: value for name, value in named.items() if value is not None}
            if not is_own(site, origin):
                expected = "foreign_origin"
            elif kind == "text/plain":
                expected = "unsupported_media_type"
            elif token != browser.token:
                expected = "csrf_failed"
            else:
                allowed.append(headers)
                continue
            response = await browser.send("POST", path, content=content, headers=headers)
            assert response.json()["code"] == expected, headers
        assert rows_of(url) == before
        assert len(allowed) == (2 * len(ORIGINS) + 3) * 3
        contents: dict[str | None, bytes] = dict(BODIES_SENT)
        for headers in allowed:
            kind = headers.get("Content-Type")
            response = await browser.send("POST", path, content=contents[kind], headers=headers)
            assert response.status_code == (303 if kind == "application/x-www-form-urlencoded" else 200)
        assert rows_of(url) != before


async def test_a_cookie_authorises_no_request_of_another_origin(engine: Engine, key: str) -> None:
    """Whatever the method is; and no answer allows another origin to read it."""
    async with browsing(asgi_app(engine)) as browser:
        await browser.sign_in(key)
        for site in ("cross-site", "same-site"):
            for method in ("GET", "HEAD"):
                response = await browser.send(method, RUNS, headers={"Sec-Fetch-Site": site})
                assert response.status_code == 403
        for origin in ORIGINS:
            headers = {} if origin is None else {"Origin": origin}
            for response in (
                await browser.send("GET", RUNS, headers=headers),
                await browser.send(
                    "OPTIONS", RUNS, headers={**headers, "Access-Control-Request-Method": "POST"}
                ),
            ):
                assert (response.status_code in {200, 405}) is is_own(
                    None, origin
                ) or response.status_code == 405
                assert not [name for name in response.headers if name.startswith("access-control")]


async def test_a_link_of_another_site_leads_to_a_page_and_to_nothing_else(engine: Engine, key: str) -> None:
    """A frame, an image or a script of that site gets nothing, and neither does a link to an operation of the API."""
    page = f"/ui/namespaces/{NAMESPACE}/runs"
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with browsing(asgi_app(engine)) as browser:
        await browser.sign_in(key)
        assert (await browser.send("GET", page, headers=link)).status_code == 200
        assert (await browser.send("GET", RUNS, headers=link)).status_code == 403
        for other in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}):
            assert (await browser.send("GET", page, headers={**link, **other})).status_code == 403


def test_a_page_changes_nothing() -> None:
    page = next(one for one in PAGE_OPERATIONS if one.is_page)
    for change in ({"method": "POST"}, {"hint": Hint.CHANGES}):
        with pytest.raises(ValueError, match="a page is a GET"):
            attrs.evolve(page, **change)


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.test"}], ids=str
)
async def test_a_request_of_another_site_can_not_sign_in(
    engine: Engine, key: str, headers: dict[str, str]
) -> None:
    """Else it could sign a visitor in as somebody whose actions it sees."""
    async with browsing(asgi_app(engine)) as browser:
        response = await browser.send("POST", SESSION, data={"credential": key}, headers=headers)
        assert (response.status_code, response.json()["code"]) == (403, "foreign_origin")
        assert "set-cookie" not in response.headers


@pytest.mark.slow
async def test_every_operation_that_changes_anything_needs_the_token(
    engine: Engine, url: str, key: str
) -> None:
    async with browsing(asgi_app(engine)) as browser:
        await browser.sign_in(key)
        before = rows_of(url)
        checked = 0
        for operation in OPERATIONS:
            is_safe = operation.method == "GET" and operation.hint is Hint.READS
            if is_safe or operation.name == "browser_session.create":
                continue
            body = BODIES.get(operation.name) if operation.method not in {"GET", "DELETE"} else None
            response = await browser.send(operation.method, path_of(operation), json=body)
            assert response.json()["code"] == "csrf_failed", operation.name
            checked += 1
        assert rows_of(url) == before
        assert checked > 30


async def test_the_cookie_of_an_application_is_not_used_by_other_sites(engine: Engine, url: str) -> None:
    """Of an application that authenticates requests by a cookie of its own."""

    async def authenticate(request: Request) -> Principal | None:
        return PRINCIPALS["all"] if request.cookies.get("shop") == "ann" else None

    async with browsing(asgi_app(engine, authenticate=authenticate)) as browser:
        browser.client.cookies.set("shop", "ann")
        before = rows_of(url)
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.test"}):
            for method, path in (
                ("POST", f"{RUNS}/{RUN_ID}/pause"),
                ("GET", SINK_EVENTS),
            ):  # both change something
                response = await browser.send(method, path, headers=headers)
                assert response.json()["code"] == "foreign_origin"
        assert rows_of(url) == before
        for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": OWN}, {}):
            response = await browser.send("POST", f"{RUNS}/{RUN_ID}/pause", headers=headers)
            assert response.status_code == 200
