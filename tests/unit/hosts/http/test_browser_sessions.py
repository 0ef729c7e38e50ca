"""Browser sessions: opened with a key, ended by time, sign-out and the end of their key; their cookie and tokens."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import anyio
import attrs
import pytest
from starlette.requests import Request

from holdfast.errors import InvalidArgumentError
from holdfast.hosts.http.authentication.authenticator import Authenticator
from holdfast.hosts.http.authentication.browser_sessions import BrowserSessionSettings
from holdfast.hosts.http.authentication.cached_rows import CACHED_SECONDS
from holdfast.hosts.http.authentication.cookies import OriginCookie
from holdfast.hosts.http.authentication.csrf import csrf_token, is_csrf_token
from holdfast.hosts.http.authentication.tokens import Grant, Tokens
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.principals import Principal, Scope
from holdfast.ports.queries.credentials import FindBrowserSession
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.testing import World
from tests.unit.hosts.http.requests import a_request, bearer

PUBLIC: Final = ("Host", "holdfast.example")
PERSON: Final = Principal(
    id="ann", scopes=frozenset({Scope.READ}), namespaces=frozenset({"default"}), kind="user"
)
"""The subject of a token."""


def over(scheme: str, root: str, *headers: tuple[str, str]) -> Request:
    """Return a request with TLS or without it, to a server below a path."""
    request = a_request(*headers)
    request.scope.update({"scheme": scheme, "root_path": root, "server": ("127.0.0.1", 80)})
    return request


class Browser:
    """A browser that signs in to a server on a store in memory, whose time passes when a test says so."""

    def __init__(self, world: World, settings: BrowserSessionSettings, tokens: Tokens | None = None) -> None:
        self.world = world
        self.keys = world.engine.sync.keys
        self.seconds = 0.0
        self.background: list[Callable[[], None]] = []
        self.authenticator = Authenticator(
            world.engine.core,
            tokens=tokens,
            browser_sessions=settings,
            monotonic=lambda: self.seconds,
            start=self.background.append,
        )
        self.cookie = ""

    def wait(self, length: timedelta) -> None:
        self.seconds += length.total_seconds()
        self.world.advance(length)

    def request(self, *headers: tuple[str, str]) -> Request:
        cookie = [("Cookie", self.cookie)] if self.cookie else []
        return over("https", "", PUBLIC, *cookie, *headers)

    def sign_in(self, credential: str | VerifiedCredential) -> Principal:
        verified: VerifiedCredential | None
        if isinstance(credential, str):
            verified = anyio.run(self.authenticator.verify, self.request(), credential)
        else:
            verified = credential
        assert verified is not None
        client = self.world.engine.sync.client
        session, header = self.authenticator.sessions.open(client, self.request(), verified)
        self.cookie = header.partition(";")[0]
        return attrs.evolve(verified.principal, session=session)

    def sign_out(self, principal: Principal, *, everywhere: bool = False) -> int:
        client = self.world.engine.sync.client
        number, _ = self.authenticator.sessions.close(
            client, self.request(), principal, everywhere=everywhere
        )
        return number

    def row(self) -> BrowserSession | None:
        query = FindBrowserSession(self.cookie.partition("=")[2][:12])
        return self.world.engine.core.stores.persistence.read(query)

    def ask(self, request: Request | None = None) -> Principal | None:
        return anyio.run(self.authenticator, request or self.request())

    def note_uses(self) -> None:
        while self.background:
            self.background.pop()()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with World([]) as world:
        yield Browser(
            world, BrowserSessionSettings(idle=timedelta(minutes=10), lifetime=timedelta(minutes=30))
        )


def a_key(browser: Browser, label: str = "ann", **options: Any) -> str:
    text = browser.keys.create(label, scopes=["read", "start"], **options).text
    assert text is not None
    return text


def test_a_session_has_the_principal_of_its_key(browser: Browser) -> None:
    text = a_key(browser, namespaces=["a", "b"], principal="build")
    signed_in = browser.sign_in(text)

    found = browser.ask()
    assert found == signed_in == browser.ask(bearer(text))
    assert found is not None
    assert found.session is not None
    assert found.session.id in browser.cookie
    assert browser.cookie.partition("=")[2].partition("_")[2] not in repr((found, found.session))


def test_the_store_has_the_hash_of_the_secret_alone(browser: Browser) -> None:
    browser.sign_in(a_key(browser))
    secret = browser.cookie.partition("=")[2].partition("_")[2]

    assert len(secret) == 43
    row = browser.row()
    assert row is not None
    assert secret not in repr(row)
    assert row.hash == hashlib.sha256(secret.encode()).hexdigest()


def test_a_credential_in_the_header_counts_and_not_the_cookie(browser: Browser) -> None:
    text = a_key(browser)
    browser.sign_in(text)
    other = a_key(browser, "bob")

    assert browser.ask(browser.request(("Authorization", f"Bearer {other}"))) == browser.ask(bearer(other))
    assert browser.ask(browser.request(("Authorization", "Bearer hf_x"))) is None


CHANGED: Final[dict[str, Callable[[str], str]]] = {
    "another secret": lambda cookie: cookie[:-1] + ("A" if cookie[-1] != "A" else "B"),
    "longer": lambda cookie: f"{cookie}A",
    "malformed": lambda cookie: cookie.replace("_", "."),
    "without the prefix": lambda cookie: cookie.replace("__Host-holdfast", "holdfast-80"),
    "another name": lambda cookie: cookie.replace("__Host-holdfast", "__Host-Holdfast"),
    "twice": lambda cookie: f"{cookie}; {cookie}",
    "beside another": lambda cookie: f"{cookie}; {cookie.partition('=')[0]}=x",
    "empty": lambda _: "__Host-holdfast=",
    "unknown": lambda _: f"__Host-holdfast={'a' * 12}_{'A' * 43}",
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_another_cookie_has_no_principal(browser: Browser, change: Callable[[str], str]) -> None:
    browser.sign_in(a_key(browser))
    assert browser.ask() is not None
    browser.cookie = change(browser.cookie)

    assert browser.ask() is None


def test_a_session_ends_when_it_is_not_used(browser: Browser) -> None:
    browser.sign_in(a_key(browser))
    browser.wait(timedelta(minutes=9))
    assert browser.ask() is not None
    browser.note_uses()
    browser.wait(timedelta(minutes=9))
    assert browser.ask() is not None
    browser.note_uses()
    browser.wait(timedelta(minutes=10))

    assert browser.ask() is None


def test_a_session_ends_at_its_age_however_much_it_is_used(browser: Browser) -> None:
    browser.sign_in(a_key(browser))
    for _ in range(3):
        browser.wait(timedelta(minutes=9))
        assert browser.ask() is not None
        browser.note_uses()
    browser.wait(timedelta(minutes=3))

    assert browser.ask() is None


def test_the_use_of_a_session_and_of_its_key_is_noted_once_a_minute(browser: Browser) -> None:
    browser.sign_in(a_key(browser))
    browser.background.clear()
    browser.wait(timedelta(minutes=1))
    for _ in range(3):
        assert browser.ask() is not None
    assert len(browser.background) == 2
    browser.note_uses()

    row = browser.row()
    assert row is not None
    assert row.used_at == row.created_at + 60_000_000
    assert browser.keys.list()[0].used_at == browser.world.now


ENDS: Final[dict[str, Callable[[Browser], object]]] = {
    "revoked": lambda browser: browser.keys.revoke("ann"),
    "rotated": lambda browser: browser.keys.rotate("ann", grace=timedelta()),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_session_ends_with_the_secret_of_its_key(
    browser: Browser, end: Callable[[Browser], object]
) -> None:
    browser.sign_in(a_key(browser))
    assert browser.ask() is not None
    end(browser)
    browser.wait(timedelta(seconds=CACHED_SECONDS))

    assert CACHED_SECONDS < 5
    assert browser.ask() is None


def test_a_session_lasts_for_the_grace_of_a_rotated_key_and_ends_with_it(browser: Browser) -> None:
    browser.sign_in(a_key(browser))
    browser.keys.rotate("ann", grace=timedelta(minutes=5))
    browser.wait(timedelta(minutes=4))
    assert browser.ask() is not None
    browser.wait(timedelta(minutes=1))

    assert browser.ask() is None


def test_a_session_ends_when_its_key_expires(browser: Browser) -> None:
    browser.sign_in(a_key(browser, expires_at=browser.world.now + timedelta(minutes=2)))
    browser.wait(timedelta(minutes=2))

    assert browser.ask() is None


def test_a_session_ends_with_its_token_and_with_the_acceptance_of_tokens(browser: Browser) -> None:
    """A token has no row: what it allowed is in that of the session."""
    until = int((browser.world.now + timedelta(minutes=2)).timestamp() * 1_000_000)
    tokens = Tokens(issuer="https://issuer.test", audience="a", grants=[Grant.of("groups:shop=read@*")])
    accepting = Browser(browser.world, BrowserSessionSettings(), tokens)
    accepting.sign_in(VerifiedCredential(principal=PERSON, expires_at=until))
    browser.cookie = accepting.cookie

    assert accepting.ask() == PERSON
    assert browser.ask() is None
    accepting.wait(timedelta(minutes=2))
    assert accepting.ask() is None


def test_each_sign_in_has_a_new_secret_and_ends_the_former_session(browser: Browser) -> None:
    """So a cookie that somebody has planted in the browser, or stolen from it, is worth nothing afterwards."""
    text = a_key(browser)
    browser.sign_in(text)
    former = browser.cookie
    browser.sign_in(text)

    assert browser.cookie != former
    assert browser.ask() is not None
    browser.cookie = former
    assert browser.ask() is None


def test_a_cookie_without_the_secret_ends_no_session(browser: Browser) -> None:
    """Whoever knows the id of a session can't sign its browser out by signing in."""
    text = a_key(browser)
    browser.sign_in(text)
    mine = browser.cookie
    browser.cookie = f"__Host-holdfast={mine.partition('=')[2][:12]}_{'A' * 43}"
    browser.sign_in(text)
    browser.cookie = mine

    assert browser.ask() is not None


def test_a_sign_out_ends_the_session_at_once(browser: Browser) -> None:
    principal = browser.sign_in(a_key(browser))
    assert browser.ask() is not None
    assert browser.sign_out(principal) == 1

    assert browser.ask() is None


def test_a_sign_out_everywhere_ends_every_session_of_the_principal(browser: Browser) -> None:
    text, other = a_key(browser), a_key(browser, "bob")
    cookies: list[str] = []
    principal = PERSON
    for credential in (other, text, text):
        browser.cookie = ""
        principal = browser.sign_in(credential)
        cookies.append(browser.cookie)
        assert browser.ask() == principal
    assert browser.sign_out(principal, everywhere=True) == 2

    found: list[bool] = []
    for cookie in cookies:
        browser.cookie = cookie
        found.append(browser.ask() is not None)
    assert found == [True, False, False]


@pytest.mark.parametrize("name", ["idle", "lifetime"])
@pytest.mark.parametrize("length", [timedelta(seconds=59), timedelta(days=91)])
def test_a_duration_that_no_session_can_have_is_refused(name: str, length: timedelta) -> None:
    lengths: dict[str, Any] = {name: length}
    with pytest.raises(InvalidArgumentError, match=name):
        BrowserSessionSettings(**lengths)


@pytest.mark.parametrize(
    ("scheme", "root", "headers", "start", "path", "secure"),
    [
        ("https", "", [PUBLIC], "__Host-holdfast=", "/", True),
        ("http", "", [PUBLIC], "__Host-holdfast=", "/", True),
        ("https", "/a/b", [PUBLIC], "__Secure-holdfast-", "/a/b", True),
        ("http", "", [("Host", "localhost:8080")], "holdfast-8080=", "/", False),
        ("http", "", [("Host", "127.0.0.1")], "holdfast-80=", "/", False),
        ("http", "", [("Host", "[::1]:8080")], "holdfast-8080=", "/", False),
        ("http", "/a b;", [("Host", "localhost:8080")], "holdfast-8080-", "/a%20b%3B", False),
        ("https", "", [("Host", "localhost:8443")], "__Host-holdfast=", "/", True),
        # A proxy with TLS on the same machine, which passes its own name on
        (
            "http",
            "",
            [("Host", "127.0.0.1:8080"), ("Origin", "https://shop.example")],
            "__Host-holdfast=",
            "/",
            True,
        ),
        ("http", "", [("Host", "localhost"), ("Origin", "null")], "__Host-holdfast=", "/", True),
        ("http", "", [("Host", "localhost"), ("X-Forwarded-For", "10.0.0.7")], "__Host-holdfast=", "/", True),
        ("http", "", [("Host", "localhost:1"), ("Origin", "http://localhost:1")], "holdfast-1=", "/", False),
    ],
)
def test_a_cookie_is_bound_to_its_origin(
    scheme: str, root: str, headers: list[tuple[str, str]], start: str, path: str, secure: bool
) -> None:
    cookies = OriginCookie(secure=True)
    header = cookies.set_header(over(scheme, root, *headers), "value", 60)
    parts = header.split("; ")

    assert parts[0].startswith(start)
    assert parts[1:5] == [f"Path={path}", "Max-Age=60", "HttpOnly", "SameSite=Lax"]
    assert parts[5:] == (["Secure"] if secure else [])
    assert cookies.read(over(scheme, root, *headers, ("Cookie", f"a=b; {parts[0]}"))) == "value"


def test_a_cookie_without_tls_is_accepted_from_other_machines_only_if_that_is_wanted() -> None:
    request = over("http", "", PUBLIC)
    header = OriginCookie(secure=False).set_header(request, "value", 60)
    assert header.startswith("holdfast-80=value;")
    assert "Secure" not in header

    sent = over("http", "", PUBLIC, ("Cookie", "holdfast-80=value"))
    assert OriginCookie(secure=False).read(sent) == "value"
    assert OriginCookie(secure=True).read(sent) is None
    assert OriginCookie(secure=False).read(over("https", "", *sent.headers.items())) is None


def test_servers_below_different_paths_have_different_cookies() -> None:
    cookies = OriginCookie(secure=True)
    headers = [cookies.set_header(over("https", root, PUBLIC), "v", 1) for root in ("", "/a", "/a/b")]

    assert len({header.partition("=")[0] for header in headers}) == 3


def test_a_csrf_token_looks_different_each_time_and_is_of_one_session() -> None:
    tokens = {csrf_token("one") for _ in range(5)}

    assert len(tokens) == 5
    assert all(is_csrf_token(token, "one") for token in tokens)
    assert not any(is_csrf_token(token, "two") for token in tokens)


@pytest.mark.parametrize("text", ["", "x", "é", "A" * 86, "A" * 85, "=" * 86, "A" * 8_192, "\ud800"])
def test_what_is_not_a_csrf_token_is_refused(text: str) -> None:
    assert not is_csrf_token(text, "one")
