"""Single sign-on: the code flow with a provider over real HTTP, and what must not sign anybody in."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx
import jwt
import pytest

from holdfast import Engine
from holdfast.errors import InvalidArgumentError, InvalidUrlError
from holdfast.hosts.http.authentication.failure_limit import FAILURES_MAX
from holdfast.http import Grant, Scope, SingleSignOn, Tokens, asgi_app
from tests.integration.http_auth.provider import CLIENT, SECRET, Provider, provider_at_work
from tests.unit.hosts.http.test_tokens import rsa_key

pytestmark = pytest.mark.anyio

HERE: Final = "http://localhost"
BEGIN: Final = "/ui/sign-in/provider"
RUNS: Final = "/ui/namespaces/shop/runs"


@pytest.fixture
def engine(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> Iterator[Engine]:
    opened = Engine.open(new_sqlite(tmp_path / "holdfast.db"), namespace="shop")
    with opened.sync:
        yield opened


@pytest.fixture
def provider() -> Iterator[Provider]:
    with provider_at_work() as provider:
        yield provider


class Browser:
    """A browser at a server with single sign-on."""

    def __init__(self, client: httpx.AsyncClient, provider: Provider, mount: str) -> None:
        self.client = client
        self.provider = provider
        self.mount = mount

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path if path.startswith("http") else f"{self.mount}{path}")

    async def begin(self, return_to: str = RUNS) -> str:
        """Begin a sign-in, and return the address of the provider to which the browser is led."""
        answer = await self.client.get(f"{self.mount}{BEGIN}", params={"return_to": return_to})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def sign_in(self, return_to: str = RUNS) -> httpx.Response:
        """Sign in, and return the answer to the browser that has come back."""
        return await self.get(self.provider.consent(await self.begin(return_to)))

    async def person(self) -> dict[str, Any] | None:
        """Return who is signed in."""
        answer = await self.get("/v1/browser-session")
        return answer.json() if answer.status_code == 200 else None


def settings(**changes: Any) -> SingleSignOn:
    given: dict[str, Any] = {"client_id": CLIENT, "public_url": "https://holdfast.test", **changes}
    return SingleSignOn(**given)


@asynccontextmanager
async def browsing(
    engine: Engine,
    provider: Provider,
    *,
    mount: str = "",
    base: str = HERE,
    subject: str = "sub",
) -> AsyncGenerator[Browser]:
    tokens = Tokens(
        issuer=provider.url,
        audience="api",
        grants=[Grant.of("groups:shop=read,start@shop"), Grant.of("email:ann@example.com=read@other")],
        subject=subject,
    )
    app = asgi_app(
        engine,
        tokens=tokens,
        single_sign_on=SingleSignOn(
            client_id=CLIENT, client_secret=provider.secret, public_url=f"{base}{mount}"
        ),
    )

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": mount}, receive, send)

    transport = httpx.ASGITransport(app=mounted, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=base) as client:
        yield Browser(client, provider, mount)


def failed(answer: httpx.Response) -> str:
    """Return the page of a sign-in that has failed, which has signed nobody in."""
    assert answer.status_code == 403, answer.text
    assert "sign_in_failed" in answer.text
    assert not any("holdfast-80=" in one for one in answer.headers.get_list("set-cookie"))
    return answer.text


# The way of a person ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mount", ["", "/a/b"])
@pytest.mark.parametrize("base", [HERE, "https://holdfast.test"])
async def test_a_person_signs_in_with_the_provider(
    engine: Engine, provider: Provider, mount: str, base: str
) -> None:
    async with browsing(engine, provider, mount=mount, base=base) as browser:
        refused = await browser.get(RUNS)
        page = await browser.get(refused.headers["location"].removeprefix(mount))
        assert "Sign in with single sign-on" in page.text
        assert f"{mount}{BEGIN}?return_to=" in page.text

        back = await browser.sign_in(f"{RUNS}?status=failed")

        assert (back.status_code, back.headers["location"]) == (303, f"{mount}{RUNS}?status=failed")
        session, ended = back.headers.get_list("set-cookie")
        assert "HttpOnly" in session
        assert "Max-Age=0" in ended
        assert len(browser.client.cookies) == 1
        assert (await browser.get(RUNS)).status_code == 200
        person = await browser.person()
        assert person is not None
        assert (person["principal"], person["kind"]) == ("ann", "user")
        assert (person["scopes"], person["namespaces"]) == (["read", "start"], ["shop"])
    assert [one.action for one in engine.sync.audit()] == ["browser_session.create"]


async def test_the_session_outlives_the_id_token(engine: Engine, provider: Provider) -> None:
    async with browsing(engine, provider) as browser:
        await browser.sign_in()
        person = await browser.person()
    assert person is not None
    assert datetime.fromisoformat(person["expires_at"]) > datetime.now(UTC) + timedelta(days=6)


async def test_the_cookie_of_a_sign_in_is_for_this_server_and_ten_minutes(
    engine: Engine, provider: Provider
) -> None:
    async with browsing(engine, provider, base="https://holdfast.test") as browser:
        answer = await browser.get(BEGIN)
    (cookie,) = answer.headers.get_list("set-cookie")
    name, *attributes = cookie.split("; ")
    assert name.startswith("__Host-holdfast-sign-in=")
    assert attributes == ["Path=/", "Max-Age=600", "HttpOnly", "SameSite=Lax", "Secure"]
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert query["redirect_uri"] == "https://holdfast.test/ui/sign-in/return"
    assert query["scope"] == "openid profile email"
    secret = name.partition("=")[2].partition(".")[0]
    assert len(secret) == 43
    assert secret not in answer.headers["location"]


@pytest.mark.parametrize(
    ("secret", "methods"),
    [
        (SECRET, None),
        (SECRET, ("client_secret_basic", "client_secret_post")),
        (SECRET, ("client_secret_post",)),
        (None, None),
    ],
    ids=["by default", "basic", "post", "public"],
)
async def test_the_client_authenticates_as_the_provider_wants(
    engine: Engine, provider: Provider, secret: str | None, methods: tuple[str, ...] | None
) -> None:
    provider.secret, provider.methods = secret, methods
    async with browsing(engine, provider) as browser:
        assert (await browser.sign_in()).status_code == 303
    (form,) = provider.sent
    assert ("client_secret" in form) is (methods == ("client_secret_post",))


async def test_another_claim_may_name_the_person(engine: Engine, provider: Provider) -> None:
    provider.changes["groups"] = []
    async with browsing(engine, provider, subject="email") as browser:
        await browser.sign_in()
        person = await browser.person()
    assert person is not None
    assert (person["principal"], person["namespaces"]) == ("ann@example.com", ["other"])


@pytest.mark.parametrize(
    "where", ["https://evil.test/", "//evil.test", "/\\evil.test", "runs", "/" + "x" * 1_501]
)
async def test_the_browser_stays_at_this_server(engine: Engine, provider: Provider, where: str) -> None:
    async with browsing(engine, provider) as browser:
        assert (await browser.sign_in(where)).headers["location"] == "/ui"


async def test_another_server_of_the_fleet_completes_a_sign_in(engine: Engine, provider: Provider) -> None:
    async with browsing(engine, provider) as one, browsing(engine, provider) as other:
        back = provider.consent(await one.begin())
        other.client.cookies = one.client.cookies
        assert (await other.get(back)).status_code == 303


async def test_without_a_provider_there_is_only_the_form(engine: Engine) -> None:
    engine.sync.keys.create("ann", scopes=[Scope.READ], namespaces=["*"])
    transport = httpx.ASGITransport(app=asgi_app(engine))
    async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
        assert "Sign in with" not in (await client.get("/ui/sign-in")).text
        assert (await client.get(BEGIN)).status_code == 404
        assert (await client.get("/ui/sign-in/return?code=x&state=y")).status_code == 404


# What signs nobody in -----------------------------------------------------------------------------------------------


async def test_a_code_of_another_sign_in_is_refused_before_it_is_exchanged(
    engine: Engine, provider: Provider
) -> None:
    async with browsing(engine, provider) as victim, browsing(engine, provider) as attacker:
        foreign = provider.consent(await attacker.begin())
        failed(await victim.get(foreign))  # the victim has begun none
        await victim.begin()
        failed(await victim.get(foreign))  # or another one
        failed(await victim.get(foreign.partition("&state=")[0]))
        assert provider.sent == []
        assert (await attacker.get(foreign)).status_code == 303


@pytest.mark.parametrize(
    "query", ["", "?code=x", "?state=y", "?code=x&state=%C3%BC", "?code=&state=", "?error="]
)
async def test_an_answer_that_fits_no_sign_in_is_refused(
    engine: Engine, provider: Provider, query: str
) -> None:
    async with browsing(engine, provider) as browser:
        failed(await browser.get(f"/ui/sign-in/return{query}"))
        await browser.begin()
        failed(await browser.get(f"/ui/sign-in/return{query}"))
    assert provider.sent == []


async def test_a_code_signs_in_once(engine: Engine, provider: Provider) -> None:
    async with browsing(engine, provider) as browser:
        back = provider.consent(await browser.begin())
        cookies = dict(browser.client.cookies)
        assert (await browser.get(back)).status_code == 303
        failed(await browser.get(back))  # its cookie is gone
        browser.client.cookies.update(cookies)
        failed(await browser.get(back))
    assert len(provider.sent) == 2


FORGED: Final[dict[str, dict[str, Any]]] = {
    "another nonce": {"nonce": "x"},
    "no nonce": {"nonce": ...},
    "a nonce that is no text": {"nonce": 7},
    "a nonce that is not ASCII": {"nonce": "ü"},
    "another audience": {"aud": "api"},
    "several audiences": {"aud": [CLIENT, "other"]},
    "another party": {"azp": "other"},
    "another issuer": {"iss": "https://evil.test"},
    "expired": {"exp": 1},
    "no subject": {"sub": ...},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
async def test_an_id_token_of_another_sign_in_is_refused(
    engine: Engine, provider: Provider, changes: dict[str, object]
) -> None:
    provider.changes = changes
    async with browsing(engine, provider) as browser:
        failed(await browser.sign_in())
        assert await browser.person() is None
        provider.changes = {}
        assert (await browser.sign_in()).status_code == 303


def signed(key: Any, algorithm: str) -> Callable[[Any], str]:
    def sign(claims: Any) -> str:
        return jwt.encode(claims, key, algorithm, headers={"kid": "one"})

    return sign


def no_token(_: Any) -> str:
    return "no token"


@pytest.mark.parametrize(
    "sign",
    [signed(rsa_key("other"), "RS256"), signed(SECRET * 4, "HS256"), signed(None, "none"), no_token],
    ids=["another key", "a shared secret", "none", "no token"],
)
async def test_an_id_token_without_the_providers_signature_is_refused(
    engine: Engine, provider: Provider, sign: Callable[[Any], str]
) -> None:
    provider.sign = sign
    async with browsing(engine, provider) as browser:
        failed(await browser.sign_in())


@pytest.mark.parametrize("reply", [{}, {"id_token": 7}, 400, 401])
async def test_an_answer_without_a_token_is_refused(engine: Engine, provider: Provider, reply: Any) -> None:
    provider.reply = reply
    async with browsing(engine, provider) as browser:
        failed(await browser.sign_in())


async def test_a_wrong_secret_is_a_matter_for_an_administrator(
    engine: Engine, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing(engine, provider) as browser:
        provider.secret = "another one"
        assert "refuses this server as a client" in failed(await browser.sign_in())
    assert "invalid_client" in caplog.text
    assert SECRET not in caplog.text


async def test_whom_no_grant_fits_is_not_signed_in(
    engine: Engine, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.changes = {"groups": ["people"], "email": "eve@example.com"}
    async with browsing(engine, provider) as browser:
        assert "nothing is granted to you here" in failed(await browser.sign_in())
    assert "no grant fits 'ann'" in caplog.text


async def test_a_refusal_of_the_provider_is_shown(engine: Engine, provider: Provider) -> None:
    text = "<script>alert(1)</script>"
    provider.refusal = {"error": "access_denied", "error_description": text}
    async with browsing(engine, provider) as browser:
        page = failed(await browser.sign_in())
    assert escape(text, quote=False) in page
    assert text not in page
    assert provider.sent == []


async def test_an_answer_that_names_another_issuer_is_refused(engine: Engine, provider: Provider) -> None:
    async with browsing(engine, provider) as browser:
        back = provider.consent(await browser.begin())
        failed(await browser.get(f"{back}&iss=https%3A%2F%2Fevil.test"))
        assert provider.sent == []
        assert (await browser.get(f"{back}&iss={provider.url}")).status_code == 303


# Faults -------------------------------------------------------------------------------------------------------------


async def test_a_provider_that_is_away_is_a_503(engine: Engine) -> None:
    with provider_at_work() as provider:
        pass
    async with browsing(engine, provider) as browser:
        answer = await browser.get(BEGIN)
    assert answer.status_code == 503
    assert "provider of single sign-on does not answer" in answer.text
    assert "sign in with a key" in answer.text


@pytest.mark.parametrize("reply", [500, 503, ["no", "object"]])
async def test_a_provider_that_fails_at_the_code_is_a_503(
    engine: Engine, provider: Provider, reply: Any
) -> None:
    provider.reply = reply
    async with browsing(engine, provider) as browser:
        assert (await browser.sign_in()).status_code == 503
        provider.reply = None
        assert (await browser.sign_in()).status_code == 303


async def test_who_fails_again_and_again_is_made_to_wait(engine: Engine, provider: Provider) -> None:
    async with browsing(engine, provider) as browser:
        for _ in range(FAILURES_MAX):
            failed(await browser.get("/ui/sign-in/return?code=x&state=y"))
        answer = await browser.get("/ui/sign-in/return?code=x&state=y")
        assert answer.status_code == 429
        assert "retry-after" in answer.headers
        assert (await browser.sign_in()).status_code == 303


# Settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"client_id": ""}, InvalidArgumentError),
        ({"client_id": "a\nb"}, InvalidArgumentError),
        ({"client_secret": ""}, InvalidArgumentError),
        ({"scopes": ("profile",)}, InvalidArgumentError),
        ({"scopes": ("openid", "a b")}, InvalidArgumentError),
        ({"name": " "}, InvalidArgumentError),
        ({"public_url": "http://holdfast.test"}, InvalidUrlError),
        ({"public_url": "https://holdfast.test/?a=1"}, InvalidUrlError),
        ({"public_url": "https://u:p@holdfast.test"}, InvalidUrlError),
        ({"public_url": "holdfast.test"}, InvalidUrlError),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        settings(**change)


def test_a_secret_is_not_shown() -> None:
    made = settings(client_secret=SECRET, public_url="https://holdfast.test/a/")
    assert SECRET not in repr(made)
    assert made.return_url == "https://holdfast.test/a/ui/sign-in/return"


def test_it_needs_the_tokens_whose_grants_it_obeys(engine: Engine) -> None:
    with pytest.raises(InvalidArgumentError, match="needs `tokens`"):
        asgi_app(engine, single_sign_on=settings())
