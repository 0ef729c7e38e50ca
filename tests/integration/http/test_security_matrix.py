"""Who may do what: every operation of the table with every kind of credential, over the real authenticator.

The decision for each pair is made from the table alone, and compared with that of the server. The rows of the store are
compared after what was refused.
"""

import itertools
import json
import logging
import pickle
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote, unquote

import attrs
import httpx
import pytest

from holdfast import Engine
from holdfast.hosts.client.api_keys import new_key
from holdfast.hosts.http.command_operations import FOR_ALL_NAMESPACES, SCOPES
from holdfast.hosts.http.operations import Access, Hint, Operation, Reach
from holdfast.hosts.http.table import OPERATIONS
from holdfast.http import ALL_NAMESPACES, Scope, asgi_app
from tests.integration.http.api import NAMESPACE
from tests.integration.http.programs import WORKFLOWS, Order, approved
from tests.integration.http.responses import check_response
from tests.integration.http.sample_requests import BODIES, PATHS, RUN_ID, path_of, rows_of
from tests.sizes import IS_FULL, sized

pytestmark = pytest.mark.anyio

SESSION: Final = "/v1/browser-session"


@attrs.frozen
class Holder:
    """Who sends requests: a credential, and what it allows; nothing if it is not valid."""

    name: str
    text: str | None
    scopes: frozenset[Scope] = frozenset()
    namespaces: frozenset[str] = frozenset()
    cookie: str = ""
    """The cookie of a browser session, in place of the text."""
    csrf_token: str = ""

    def reaches(self, namespace: str) -> bool:
        return not self.namespaces.isdisjoint({ALL_NAMESPACES, namespace})


Decision = tuple[int, str] | None
"""The status and the code of a refusal; None: it is not refused."""


def decision_of(operation: Operation, holder: Holder) -> Decision:
    """Return what the table says."""
    if operation.scope is Access.ANYONE:
        return None
    if operation.scope is Access.CREDENTIAL:  # that in the body of the sample is not valid
        return 401, "unauthenticated"
    if not holder.scopes:
        return 401, "unauthenticated"
    if "{namespace}" in operation.path and not holder.reaches(NAMESPACE):
        return 404, "namespace_not_found"
    wanted = operation.scope
    if operation.name == "command.dispatch":
        wanted = SCOPES["run.cancel"]
    if isinstance(wanted, Scope) and wanted not in holder.scopes:
        return 403, "forbidden"
    if operation.reach is Reach.ALL and ALL_NAMESPACES not in holder.namespaces:
        return 403, "forbidden"
    return None


def headers_of(operation: Operation) -> Iterator[dict[str, str]]:
    """Yield the headers of each tempo of an operation: at once, after a wait, as a stream."""
    yield {}
    if operation.can_wait:
        yield {"Prefer": "wait=0"}
    if operation.can_stream:
        yield {"Accept": "text/event-stream"}


class Client:
    """Sends requests, each from another address: an address has few wrong credentials a minute."""

    def __init__(self, app: Any) -> None:
        self._transport = httpx.ASGITransport(app=app)
        self._client = httpx.AsyncClient(transport=self._transport, base_url="http://localhost")
        self._numbers = itertools.count()

    async def send(
        self,
        method: str,
        path: str,
        holder: Holder,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        number = next(self._numbers)
        self._transport.client = (f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 1)
        given = dict(headers or {})
        if holder.cookie:
            given |= {"Cookie": holder.cookie, "X-CSRF-Token": holder.csrf_token}
        elif holder.text is not None:
            given["Authorization"] = f"Bearer {holder.text}"
        response = await self._client.request(method, path, headers=given, json=body)
        self._client.cookies.clear()
        check_response(response)
        return response

    async def signed_in(self, holder: Holder) -> Holder:
        """Return a browser that was signed in with the credential of a holder."""
        response = await self.send("POST", SESSION, holder, {"credential": holder.text})
        assert response.status_code == 200, holder.name
        cookie = response.headers["set-cookie"].partition(";")[0]
        token = response.json()["csrf_token"]
        return attrs.evolve(holder, name=f"{holder.name}-session", cookie=cookie, csrf_token=token)


@pytest.fixture
def url(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """One store is enough: rights are decided before a store is used."""
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    opened = Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE)
    with opened.sync as engine:
        engine.start(approved(Order(1)), id=RUN_ID)
        engine.in_namespace("elsewhere").start(approved(Order(2)), id="theirs")
        yield opened


@pytest.fixture
def holders(engine: Engine, url: str) -> dict[str, Holder]:
    """Holders of each kind of credential, by name."""
    keys = engine.sync.keys

    def holder(name: str, scopes: Iterator[Scope] | list[Scope], namespace: str, **options: Any) -> Holder:
        granted = frozenset(scopes)
        key = keys.create(name, scopes=granted, namespaces=[namespace], **options)
        return Holder(name, key.text, granted, frozenset({namespace}))

    found = [holder(scope.value, [scope], NAMESPACE) for scope in Scope]
    found += [holder(f"{scope.value}-of-all", [scope], ALL_NAMESPACES) for scope in Scope]
    found += [holder("shop", list(Scope), NAMESPACE), holder("foreign", list(Scope), "elsewhere")]
    found += [holder("super", list(Scope), ALL_NAMESPACES)]
    revoked = holder("revoked", list(Scope), ALL_NAMESPACES)
    keys.revoke("revoked")
    later = datetime.now(UTC) + timedelta(days=1)
    expired = holder("expired", list(Scope), ALL_NAMESPACES, expires_at=later)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as store, store:
        store.execute("UPDATE holdfast_credentials SET expires_at = 1 WHERE label = 'expired'")
    found += [Holder("none", None), Holder("unknown", new_key().text), Holder("malformed", "hf_x")]
    found += [Holder(one.name, one.text) for one in (revoked, expired)]
    return {one.name: one for one in found}


def in_order() -> list[Operation]:
    """The operations, with those at the end that destroy what others need, and last the sign-out."""
    return sorted(
        OPERATIONS,
        key=lambda one: (
            one.name == "browser_session.delete",
            one.hint is Hint.DESTROYS,
            one.method == "DELETE",
        ),
    )


@pytest.mark.slow
@pytest.mark.sized
async def test_every_operation_is_decided_by_the_table(
    engine: Engine, url: str, holders: dict[str, Holder]
) -> None:
    client = Client(asgi_app(engine))
    for name in ("super", "shop", "foreign", *Scope) if IS_FULL else ("read", "foreign"):
        session = await client.signed_in(holders[name])
        holders[session.name] = session
    before = rows_of(url)
    refused = 0
    usual = [holders[name] for name in ("none", "unknown", "expired", "revoked", "foreign", "shop", *Scope)]
    usual += [one for one in holders.values() if one.cookie]
    for operation in OPERATIONS:
        for holder in holders.values() if IS_FULL else usual:
            decision = decision_of(operation, holder)
            # A stream that is allowed does not end before its run.
            for headers in headers_of(operation) if decision is not None else ():
                body = BODIES.get(operation.name)
                response = await client.send(operation.method, path_of(operation), holder, body, headers)
                found = (response.status_code, response.json().get("code"))
                assert found == decision, (operation.name, holder.name, headers)
                refused += 1
        assert rows_of(url) == before, operation.name
    assert refused > sized(600, 1_000)
    for operation in in_order():
        for holder in holders.values() if IS_FULL else [holders["super"]]:
            if decision_of(operation, holder) is None:
                body = BODIES.get(operation.name)
                response = await client.send(operation.method, path_of(operation), holder, body)
                assert response.status_code not in {401, 403}, (operation.name, holder.name)
                assert '"code":"namespace_not_found"' not in response.text, (operation.name, holder.name)
    assert rows_of(url) != before


@pytest.mark.slow
async def test_a_read_only_server_changes_nothing(
    engine: Engine, url: str, holders: dict[str, Holder]
) -> None:
    client = Client(asgi_app(engine, read_only=True))
    before = rows_of(url)
    for operation in OPERATIONS:
        body = BODIES.get(operation.name)
        response = await client.send(operation.method, path_of(operation), holders["super"], body)
        code = response.json().get("code") if response.content else None
        changes = operation.hint is not Hint.READS and not operation.in_read_only
        assert (code == "read_only") is changes, operation.name
        assert not changes or response.status_code == 403
        anonymous = await client.send(operation.method, path_of(operation), holders["none"], body)
        assert (anonymous.status_code == 401) is (operation.scope is not Access.ANYONE), operation.name
    assert rows_of(url) == before


STARTS: Final = (
    "",
    "/",
    "/.",
    "/x/..",
    "/%2e",
    "/%2E%2E",
    "/%2F",
    "\\",
    "/..;",
    "/%00",
    "/;",
    "/%20",
    "/v1/..",
    *("/%5C", "%2F", "%2e", "x"),
)
ENDS: Final = (
    *(
        "",
        "/",
        "//",
        "/.",
        "/..",
        "/%2e",
        "%2F",
        "%00",
        "%20",
        ";a=b",
        "%3Fx=1",
        "%23",
        ".json",
        "~",
        "%0A",
        "\\",
    ),
    "%5C",
)
INSIDE: Final[tuple[Callable[[str], str], ...]] = (
    str.upper,
    str.title,
    lambda path: path.replace("/v1", "/V1"),
    lambda path: path.replace("/v1", "/v01"),
    lambda path: path.replace("/", "//", 2),
    lambda path: path.replace("/", "%2F"),
    lambda path: path.replace("/", "%252F"),
    lambda path: path.replace("/", "\\"),
    lambda path: path.replace("/v1", "/%76%31"),
    lambda path: path.replace("/v1", "/%2576%2531"),
    lambda path: path.replace("v1", "v1/."),
    lambda path: path.replace("v1", "v1/x/.."),
    lambda path: path.replace("1", "\u0661"),
    lambda path: path.replace("o", "%C0%AF"),
    lambda path: path.replace("shop", "%73hop"),
    lambda path: path.replace("shop", "shop%00"),
    lambda path: path.replace("shop", "shop "),
    lambda path: path.replace("shop", "SHOP"),
    lambda path: path.replace("shop", "elsewhere/../shop"),
    lambda path: path.replace("shop", "*"),
)
"""Spellings of a path that a server or a proxy may take for the same."""


def spellings(path: str) -> list[str]:
    """Return more than 200 spellings of a path, but not the path itself."""
    around = [f"{start}{path}{end}" for start in STARTS for end in ENDS if start or end]
    return [*around, *(change(path) for change in INSIDE)]


@pytest.mark.slow
@pytest.mark.sized
async def test_a_path_has_no_spelling_that_avoids_its_rights(
    engine: Engine, url: str, holders: dict[str, Holder]
) -> None:
    """It is not found, or decided as the plain path is."""
    app = asgi_app(engine)
    before = rows_of(url)
    number = itertools.count()
    every = sized(61, 5)
    for operation in OPERATIONS:
        if operation.scope is Access.ANYONE:
            continue
        plain = path_of(operation)
        paths = spellings(plain)
        assert len(set(paths)) >= 200
        for holder in (holders["none"], holders["work"], holders["foreign"]):
            if decision_of(operation, holder) is None:
                continue
            usual = await status_of(app, operation.method, plain, holder)
            for path in paths[next(number) % every :: every]:
                status = await status_of(app, operation.method, path, holder)
                assert status in {usual, 404, 405}, (operation.name, holder.name, path)
    assert rows_of(url) == before


async def status_of(app: Any, method: str, path: str, holder: Holder) -> int:
    """Return the status of an answer, without a client that would tidy up the path."""
    raw, _, query = path.partition("?")
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    if holder.text is not None:
        headers.append((b"authorization", f"Bearer {holder.text}".encode()))
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("10.0.0.1", 1),
    }
    await app(scope, receive, send)
    return statuses[0]


@pytest.mark.slow
async def test_commands_reach_nothing_of_another_namespace(
    engine: Engine, url: str, holders: dict[str, Holder]
) -> None:
    client = Client(asgi_app(engine))
    path = f"/v1/namespaces/{NAMESPACE}/commands"
    before = rows_of(url)
    shop = holders["shop"]
    for kind in sorted({*SCOPES, *FOR_ALL_NAMESPACES}):
        for more in ({"namespace": "elsewhere"}, {"namespace": ALL_NAMESPACES}, {"namespace": None}):
            own = {"type": "run.cancel", "run_id": RUN_ID}
            for atomic in (False, True):
                batch = {"commands": [own, {"type": kind, "run_id": "theirs", **more}], "atomic": atomic}
                response = await client.send("POST", path, shop, batch)
                assert response.status_code in {400, 403}, (kind, more)
    for kind in ("run.cancel", "run.terminate", "run.pause", "run.resume", "run.remove"):
        response = await client.send("POST", path, shop, {"commands": [{"type": kind, "run_id": "theirs"}]})
        assert response.json()["answers"][0]["problem"]["code"] == "run_not_found", kind
    forged = {"type": "run.cancel", "run_id": RUN_ID, "request_id": "x"}
    assert (await client.send("POST", path, shop, {"commands": [forged]})).status_code == 400
    for operation in OPERATIONS:
        if "{run_id}" in operation.path:
            theirs = path_of(operation).replace(f"/{RUN_ID}", "/theirs")
            response = await client.send(operation.method, theirs, shop, BODIES.get(operation.name))
            assert response.status_code in {400, 404, 409}, operation.name
    assert rows_of(url) == before


async def test_wrong_credentials_of_one_address_lock_out_no_other(
    engine: Engine, holders: dict[str, Holder]
) -> None:
    app = asgi_app(engine)
    answers: list[httpx.Response] = []
    transport = httpx.ASGITransport(app=app, client=("10.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        path = f"/v1/namespaces/{NAMESPACE}/runs"
        known = {"Authorization": f"Bearer {holders['read'].text}"}
        assert (await client.get(path, headers=known)).status_code == 200
        for _ in range(11):
            unknown = {"Authorization": f"Bearer {new_key().text}"}
            answers.append(await client.get(path, headers=unknown))
            check_response(answers[-1])
        assert [one.status_code for one in answers] == [401] * 10 + [429]
        assert answers[-1].json()["code"] == "too_many_failures"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert (await client.get(path, headers=known)).status_code == 200
    other = await Client(app).send("GET", path, holders["start"])
    assert other.status_code == 403


OTHER_TYPES: Final = (
    *("application/x-python-pickle", "application/octet-stream", "application/yaml", "text/yaml"),
    *("application/xml", "text/xml", "text/plain", "multipart/form-data; boundary=x", "text/html"),
    *(
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "application/jsonp",
        "*/*",
        "",
    ),
)
FORMS: Final = frozenset({"browser_session.create", "browser_session.delete"})


@pytest.mark.slow
async def test_only_json_is_ever_read(
    engine: Engine, url: str, holders: dict[str, Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of another type is refused by its type, and nothing is unpickled."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    transport = httpx.ASGITransport(app=asgi_app(engine), client=("10.0.0.1", 1))
    bodies = (pickle.dumps(Order(1)), b"!!python/object:x {}", b"<!DOCTYPE x><x/>")
    before = rows_of(url)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for operation in OPERATIONS:
            if operation.method not in {"POST", "PUT", "PATCH"}:
                continue
            for kind, body in zip(OTHER_TYPES, itertools.cycle(bodies), strict=False):
                is_form = kind == "application/x-www-form-urlencoded"
                if operation.name in FORMS and is_form:
                    continue
                headers = {"Authorization": f"Bearer {holders['super'].text}", "Content-Type": kind}
                response = await client.request(
                    operation.method, path_of(operation), content=body, headers=headers
                )
                check_response(response)
                expected = 400 if is_form and operation.takes_form else 415
                assert response.status_code == expected, (operation.name, kind)
    assert rows_of(url) == before


TRAVERSALS: Final = (
    *("..", "../../etc/passwd", "/etc/passwd", "..\\..\\windows", "file:///etc/passwd", "....//etc/passwd"),
    *("http://169.254.169.254/latest", "..;/x", "%2e%2e/x", "\u2024\u2024/x", "C:\\x", "~root"),
)


@pytest.mark.slow
async def test_no_part_of_a_path_leads_to_a_file_or_another_server(
    engine: Engine, url: str, holders: dict[str, Holder]
) -> None:
    """Names are keys of rows, and nothing else: each is refused, or answered as any name that nothing has."""
    client = Client(asgi_app(engine))
    before = rows_of(url)

    async def answer_with(operation: Operation, part: str, text: str) -> tuple[int, str]:
        escaped = quote(text, safe="").replace(".", "%2e")  # the client would tidy up dots
        parts = {**{f"{{{name}}}": value for name, value in PATHS.items()}, part: escaped}
        path = "/".join(parts.get(one, one) for one in operation.path.split("/"))
        response = await client.send("GET", path, holders["super"])
        return response.status_code, response.text.replace(json.dumps(text)[1:-1], "...")

    for operation in OPERATIONS:
        if operation.method != "GET":
            continue
        for part in (one for one in operation.path.split("/") if one.startswith("{")):
            usual = await answer_with(operation, part, "nothing")
            for text in TRAVERSALS:
                found = await answer_with(operation, part, text)
                assert found[0] in {400, 404} or found == usual, (operation.name, part, text)
    assert rows_of(url) == before


async def test_secrets_are_shown_once_and_stored_and_logged_never(
    engine: Engine, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of keys and of browser sessions: the whole file of the database and all logs are searched."""
    caplog.set_level(logging.DEBUG)
    client = Client(asgi_app(engine))
    text = engine.sync.keys.create("root", scopes=list(Scope), namespaces=["*"]).text
    root = Holder("root", text)
    body = {"label": "ci", "scopes": ["read"], "namespaces": [NAMESPACE]}
    created = await client.send("POST", "/v1/keys", root, body)
    again = await client.send("POST", "/v1/keys", root, body)
    rotated = await client.send("POST", "/v1/keys/ci/rotate", root, {})
    session = await client.signed_in(Holder("ci", rotated.json()["text"]))
    wrong = f"{created.json()['text'][:-1]}x"
    refused = await client.send("POST", SESSION, root, {"credential": wrong})

    secrets = [one.json()["text"].split("_", 2)[2] for one in (created, rotated)]
    secrets += [session.cookie.partition("=")[2].partition("_")[2], session.csrf_token, wrong]
    assert again.json()["text"] is None
    assert (refused.status_code, len(set(secrets))) == (401, 5)
    answers = [await client.send("GET", path, root) for path in ("/v1/keys", "/v1/audit", "/v1")]
    answers += [refused, await client.send("GET", SESSION, session)]
    stored = "".join(
        file.read_bytes().decode("latin-1") for file in Path(url.removeprefix("sqlite:///")).parent.iterdir()
    )
    assert "credential.rotate" in stored
    for secret in secrets:
        assert secret not in stored
        assert secret not in "".join(one.text for one in answers)
        assert secret not in "".join(str(vars(one)) for one in caplog.records)


async def test_a_limit_on_requests_refuses_one_principal_and_no_other(
    engine: Engine, holders: dict[str, Holder]
) -> None:
    client = Client(asgi_app(engine, rate_limit=0.01))
    path = f"/v1/namespaces/{NAMESPACE}/runs"
    statuses = [(await client.send("GET", path, holders["read"])).status_code for _ in range(2)]
    refused = await client.send("GET", path, holders["read"])

    assert statuses == [200, 429]
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert 90 <= int(refused.headers["retry-after"]) <= 100
    assert (
        await client.send("POST", SESSION, holders["read"], {"credential": holders["read"].text})
    ).status_code == 429
    assert (await client.send("GET", path, holders["shop"])).status_code == 200
    assert (await client.send("GET", "/livez", holders["none"])).status_code == 200


@pytest.mark.slow
async def test_what_a_proxy_may_forge_changes_nothing(engine: Engine, holders: dict[str, Holder]) -> None:
    """Neither links, nor the cookie, nor whose failures are counted."""
    forged = {
        "X-Forwarded-Host": "evil.test",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-For": "203.0.113.9",
        "Forwarded": "host=evil.test;proto=https;for=203.0.113.9",
    }
    client = Client(asgi_app(engine))
    body = {"workflow": "report", "input": 1, "id": "forwarded"}
    started = await client.send("POST", f"/v1/namespaces/{NAMESPACE}/runs", holders["shop"], body, forged)
    assert started.headers["location"] == f"/v1/namespaces/{NAMESPACE}/runs/forwarded"
    missing = await client.send("GET", f"/v1/namespaces/{NAMESPACE}/runs/x", holders["shop"], None, forged)
    assert missing.json()["type"] == "/errors/run_not_found"
    signed_in = await client.send(
        "POST", SESSION, holders["none"], {"credential": holders["shop"].text}, forged
    )
    assert "Secure" in signed_in.headers["set-cookie"]
    assert "evil.test" not in str(signed_in.headers)
