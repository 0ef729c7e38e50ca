"""Forms of a browser carry out operations, and are refused as other requests are."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from holdfast import Engine
from holdfast.client import Scope
from holdfast.hosts.http.operations import Hint
from holdfast.hosts.http.principals import Scope as ScopeName
from holdfast.hosts.http.table import OPERATIONS
from holdfast.http import asgi_app
from tests.integration.http.api import NAMESPACE, authenticate
from tests.integration.http.programs import WORKFLOWS, Order, approved
from tests.integration.http.sample_requests import RUN_ID, path_of, rows_of

pytestmark = pytest.mark.anyio

SESSION: Final = "/v1/browser-session"
RUN: Final = f"/v1/namespaces/{NAMESPACE}/runs/{RUN_ID}"
LIMIT: Final = f"/v1/namespaces/{NAMESPACE}/limits/queue:fast"
OVERVIEW: Final = f"/ui/namespaces/{NAMESPACE}"
BROWSER: Final = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FORM: Final = "application/x-www-form-urlencoded"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE)
    with opened.sync as engine:
        engine.start(approved(Order(1)), id=RUN_ID)
        yield opened


class Person:
    """Someone who has signed in, and sends forms."""

    def __init__(self, client: httpx.AsyncClient, mount: str) -> None:
        self.client = client
        self.mount = mount
        self.token = ""

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.get(f"{self.mount}{path}", headers=BROWSER, **options)

    async def submit(self, path: str, *, token: str | None = "", **fields: str) -> httpx.Response:
        """Send a form with the token of the session, with another one, or without one."""
        sent = self.token if token == "" else token
        data = fields if sent is None else {"csrf_token": sent, **fields}
        return await self.client.post(f"{self.mount}{path}", data=data, headers=BROWSER)


@asynccontextmanager
async def signed_in(engine: Engine, *scopes: Scope, mount: str = "") -> AsyncGenerator[Person]:
    key = engine.sync.keys.create("ann", scopes=list(scopes or Scope), namespaces=["*"]).text
    server = asgi_app(engine)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await server({**scope, "root_path": mount}, receive, send)

    transport = httpx.ASGITransport(app=app if mount else server, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        person = Person(client, mount)
        session = await client.post(f"{mount}{SESSION}", json={"credential": key})
        person.token = session.json()["csrf_token"]
        yield person


def status_of(engine: Engine) -> str:
    return next(iter(engine.sync.runs())).status.value


@pytest.mark.parametrize("mount", ["", "/a/b"])
async def test_a_form_cancels_a_run_and_leads_back(engine: Engine, mount: str) -> None:
    async with signed_in(engine, mount=mount) as person:
        back = f"{OVERVIEW}?a=b"
        answer = await person.submit(f"{RUN}/cancel", reason="no longer wanted", return_to=back)
        assert (answer.status_code, answer.headers["location"]) == (303, f"{mount}{back}")
        history = (await person.get(f"{RUN}/history")).text
        assert "no longer wanted" in history
        assert '"id":"ann"' in history
    assert status_of(engine) in {"cancelling", "cancelled"}


async def test_a_form_without_a_body_sends_its_fields_as_the_query(engine: Engine) -> None:
    engine.sync.limits.set("queue:fast", paused=True)
    async with signed_in(engine) as person:
        assert 'name="reason"' in (await person.get(f"{OVERVIEW}/queues")).text
        answer = await person.submit(f"{LIMIT}?_method=DELETE", reason="it is fast again", return_to=OVERVIEW)
        assert answer.status_code == 303
        refused = await person.submit(f"{LIMIT}?_method=DELETE", because="it is fast again")
        assert refused.status_code == 400
        assert "there is no query parameter" in refused.text
    change, *_ = engine.sync.audit()
    assert (change.action, change.details) == ("limit.clear", {"reason": "it is fast again"})


async def test_a_form_that_starts_a_run_leads_to_its_page(engine: Engine) -> None:
    async with signed_in(engine, mount="/a/b") as person:
        fields = {"workflow": "report", "input/number": "1", "id": "two/1", "idempotency_key": "k"}
        answer = await person.submit(f"/v1/namespaces/{NAMESPACE}/runs", **fields)
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"] == f"/a/b{OVERVIEW}/runs/two%2F1"


@pytest.mark.parametrize("place", ["//evil.test", "https://evil.test/", "/\\evil.test", "evil", "/a\r\nb: c"])
async def test_a_form_that_leads_to_another_site_does_nothing(engine: Engine, url: str, place: str) -> None:
    async with signed_in(engine) as person:
        before = rows_of(url)
        answer = await person.submit(f"{RUN}/cancel", return_to=place)
        assert (answer.status_code, "location" in answer.headers) == (400, False)
        assert rows_of(url) == before


async def test_a_form_names_a_method(engine: Engine) -> None:
    async with signed_in(engine) as person:
        put = await person.submit(f"{LIMIT}?_method=PUT", paused="true", return_to=OVERVIEW)
        assert put.status_code == 303, put.text
        assert '"paused":true' in (await person.get(LIMIT)).text.replace("is_paused", "paused")
        cleared = await person.submit(f"{LIMIT}?_method=DELETE", return_to=OVERVIEW)
        assert cleared.status_code == 303
        for unknown in ("PATCH", "put", "", "GET"):
            assert (await person.submit(f"{LIMIT}?_method={unknown}")).status_code in {400, 405}


async def test_only_a_form_names_a_method(engine: Engine, url: str) -> None:
    async with signed_in(engine) as person:
        before = rows_of(url)
        headers = {"X-CSRF-Token": person.token}
        for path in (RUN, LIMIT):
            answer = await person.client.post(f"{path}?_method=DELETE", json={}, headers=headers)
            assert answer.status_code == 405
        answer = await person.client.post(f"{RUN}/cancel?_method=POST", json={}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert (await person.get(f"{RUN}?_method=DELETE")).status_code == 400
        assert rows_of(url) == before


@pytest.mark.parametrize("token", [None, "wrong", "é"])
async def test_no_form_changes_anything_without_the_token(
    engine: Engine, url: str, token: str | None
) -> None:
    async with signed_in(engine) as person:
        before, checked = rows_of(url), 0
        for one in OPERATIONS:
            if not one.takes_form or one.name == "browser_session.create":
                continue
            target = path_of(one) if one.method == "POST" else f"{path_of(one)}?_method={one.method}"
            answer = await person.submit(target, token=token, return_to="/ui")
            assert answer.status_code == 403, one.name
            assert "csrf_failed" in answer.text, one.name
            checked += 1
        assert rows_of(url) == before
        assert checked > 20


@pytest.mark.parametrize(
    "site",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.test"}],
    ids=str,
)
async def test_a_form_of_another_site_is_refused_with_any_credential(
    engine: Engine, url: str, site: dict[str, str]
) -> None:
    """A browser adds the credentials of HTTP authentication to forms of all sites."""
    before = rows_of(url)
    transport = httpx.ASGITransport(asgi_app(engine, authenticate=authenticate), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        headers = {**BROWSER, "Authorization": "Bearer all"}
        refused = await client.post(f"{RUN}/cancel", data={"return_to": "/ui"}, headers={**headers, **site})
        assert (refused.status_code, "foreign_origin" in refused.text) == (403, True)
        assert rows_of(url) == before
        own = {**headers, "Sec-Fetch-Site": "same-origin"}
        assert (await client.post(f"{RUN}/cancel", data={"return_to": "/ui"}, headers=own)).status_code == 303


async def test_a_form_needs_the_rights_of_its_operation(engine: Engine, url: str) -> None:
    async with signed_in(engine, Scope.READ) as person:
        before = rows_of(url)
        for path in (
            f"{RUN}/cancel",
            f"{LIMIT}?_method=PUT",
            f"{LIMIT}?_method=DELETE",
            f"{RUN}?_method=DELETE",
        ):
            answer = await person.submit(path, paused="true") if "PUT" in path else await person.submit(path)
            assert answer.status_code == 403, path
            assert "forbidden" in answer.text
        assert rows_of(url) == before


async def test_what_workers_send_is_no_form(engine: Engine, url: str) -> None:
    async with signed_in(engine) as person:
        before, checked = rows_of(url), 0
        for one in OPERATIONS:
            if one.scope is not ScopeName.WORK or one.hint is Hint.READS or one.method == "GET":
                continue
            assert not one.takes_form
            target = path_of(one) if one.method == "POST" else f"{path_of(one)}?_method={one.method}"
            answer = await person.submit(target, label="x")
            assert answer.status_code in {400, 403, 404, 405, 415}, one.name
            checked += 1
        assert rows_of(url) == before
        assert checked > 5


async def test_a_browser_gets_a_problem_as_a_page(engine: Engine) -> None:
    async with signed_in(engine) as person:
        page = await person.submit(f"{RUN}/cancel", unknown="<b>x</b>")
        assert page.status_code == 400
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<h1>" in page.text
        assert "<b>x" not in page.text
        form = {"csrf_token": person.token, "unknown": "x"}
        program = await person.client.post(f"{RUN}/cancel", data=form, headers={"Accept": "*/*"})
        assert program.status_code == 400
        assert program.headers["content-type"] == "application/problem+json"
        missing = await person.get("/ui/nothing")
        assert (missing.status_code, missing.headers["content-type"].partition(";")[0]) == (404, "text/html")
        assert 'role="alert"' not in missing.text  # there is nothing to say beside the title
        assert 'role="alert"' in page.text


@pytest.mark.parametrize("mount", ["", "/a/b"])
async def test_a_page_asks_a_stranger_to_sign_in(engine: Engine, mount: str) -> None:
    async with signed_in(engine, mount=mount) as person:
        person.client.cookies.clear()
        answer = await person.get(f"{OVERVIEW}?a=b%26c")
        assert answer.status_code == 303
        place = urlsplit(answer.headers["location"])
        assert place.path == f"{mount}/ui/sign-in"
        assert parse_qs(place.query) == {"return_to": [f"{OVERVIEW}?a=b%26c"]}
        form = await person.get(place._replace(path="/ui/sign-in").geturl())
        assert f'value="{OVERVIEW}?a=b%26c"' in form.text


async def test_the_head_of_a_page_has_no_body(engine: Engine) -> None:
    async with signed_in(engine) as person:
        whole = await person.get(OVERVIEW)
        head = await person.client.head(OVERVIEW, headers=BROWSER)
        assert (whole.status_code, head.status_code, head.content) == (200, 200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
        assert head.headers["content-security-policy"] == whole.headers["content-security-policy"]
