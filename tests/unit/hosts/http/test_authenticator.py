"""Who sends a request: keys, their cache and their use, the limit on failures."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import anyio
import pytest
from starlette.requests import Request

from holdfast.client import Scope
from holdfast.errors import TooManyFailuresError
from holdfast.hosts.client.api_keys import ApiKey, key_from, new_key
from holdfast.hosts.http.authentication.authenticator import Authenticator
from holdfast.hosts.http.authentication.cached_rows import CACHED_SECONDS
from holdfast.hosts.http.authentication.failure_limit import ADDRESSES_MAX, FAILURES_MAX, FailureLimit
from holdfast.hosts.http.principals import Principal
from holdfast.ports.queries.credentials import FindCredential, ListCredentials
from holdfast.testing import World
from tests.unit.hosts.http.requests import a_request, bearer


class Server:
    """An authenticator on a store in memory, whose time passes when a test says so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.keys = world.engine.sync.keys
        self.seconds = 0.0
        self.background: list[Callable[[], None]] = []
        self.authenticator = Authenticator(
            world.engine.core, monotonic=lambda: self.seconds, start=self.background.append
        )

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.world.advance(timedelta(seconds=seconds))

    def ask(self, request: Request) -> Principal | None:
        return anyio.run(self.authenticator, request)

    def key(self, label: str = "ci", **options: Any) -> str:
        text = self.keys.create(label, scopes=["read", "start"], **options).text
        assert text is not None
        return text


@pytest.fixture
def server() -> Iterator[Server]:
    with World([]) as world:
        yield Server(world)


def test_a_key_has_a_principal(server: Server) -> None:
    text = server.key(principal="build", namespaces=["a", "b"])

    assert server.ask(bearer(text)) == Principal(
        id="build",
        kind="key",
        scopes=frozenset({Scope.READ, Scope.START}),
        namespaces=frozenset({"a", "b"}),
    )
    assert server.ask(a_request(("authorization", f"bEARER  {text} "))) is not None


def _with_other_secret(text: str) -> str:
    key = key_from(text)
    assert key is not None
    return ApiKey(key.id, new_key().secret).text


def _authorized(*values: str) -> list[tuple[str, str]]:
    return [("Authorization", value) for value in values]


WRONG: Final[dict[str, Callable[[str], list[tuple[str, str]]]]] = {
    "no header": lambda _: [],
    "another header": lambda text: [("X-Api-Key", text)],
    "no scheme": _authorized,
    "another scheme": lambda text: _authorized(f"Basic {text}"),
    "no key": lambda _: _authorized("Bearer"),
    "longer": lambda text: _authorized(f"Bearer {text}x"),
    "two in one": lambda text: _authorized(f"Bearer {text}, Bearer {text}"),
    "twice": lambda text: _authorized(f"Bearer {text}", f"Bearer {text}"),
    "unknown": lambda _: _authorized(f"Bearer {new_key().text}"),
    "another secret": lambda text: _authorized(f"Bearer {_with_other_secret(text)}"),
    "huge": lambda text: _authorized(f"Bearer {text}{'x' * 9_000}"),
    "a token": lambda _: _authorized("Bearer eyJhbGciOiJub25lIn0.e30."),
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_valid_key_has_no_principal(
    server: Server, headers: Callable[[str], list[tuple[str, str]]]
) -> None:
    text = server.key()
    assert server.ask(a_request(*headers(text))) is None
    assert server.ask(bearer(text)) is not None


def test_a_revoked_key_is_refused_within_five_seconds(server: Server) -> None:
    text = server.key()
    assert server.ask(bearer(text)) is not None
    server.keys.revoke("ci")
    server.wait(CACHED_SECONDS)

    assert CACHED_SECONDS < 5
    assert server.ask(bearer(text)) is None


def test_a_key_is_not_read_again_while_it_is_cached(server: Server) -> None:
    text = server.key()
    assert server.ask(bearer(text)) is not None
    server.keys.revoke("ci")
    server.wait(CACHED_SECONDS / 2)

    assert server.ask(bearer(text)) is not None


@pytest.mark.parametrize("kind", [FindCredential, ListCredentials])
def test_many_requests_at_once_read_the_store_once(
    server: Server, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each open stream checks its key again and again."""
    request = bearer(server.key()) if kind is FindCredential else None
    persistence = server.world.engine.core.stores.persistence
    read, reads = persistence.read, list[object]()

    def counted(query: Any) -> Any:
        reads.append(query)
        return read(query)

    async def ask_often() -> None:
        async def ask() -> None:
            if request is None:
                await server.authenticator.has_credentials()
            else:
                await server.authenticator(request)

        await ask()
        server.wait(CACHED_SECONDS)
        monkeypatch.setattr(persistence, "read", counted)
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(ask)

    anyio.run(ask_often)
    assert [type(one) for one in reads] == [kind]


def test_an_expired_key_is_refused_at_once(server: Server) -> None:
    text = server.key(expires_at=server.world.now + timedelta(seconds=1))
    assert server.ask(bearer(text)) is not None
    server.wait(1)

    assert server.ask(bearer(text)) is None


def test_both_secrets_of_a_rotated_key_are_accepted_until_the_grace_is_over(server: Server) -> None:
    old = server.key()
    new = server.keys.rotate("ci", grace=timedelta(seconds=60)).text
    assert new is not None
    assert [server.ask(bearer(text)) is not None for text in (old, new)] == [True, True]
    server.wait(60)

    assert [server.ask(bearer(text)) is not None for text in (old, new)] == [False, True]


def test_the_use_of_a_key_is_noted_once_a_minute_after_the_answer(server: Server) -> None:
    text = server.key()
    for _ in range(3):
        assert server.ask(bearer(text)) is not None
    assert server.keys.list()[0].used_at is None
    (touch,) = server.background
    touch()
    assert server.keys.list()[0].used_at == server.world.now

    server.wait(59)
    server.ask(bearer(text))
    assert len(server.background) == 1
    server.wait(1)
    server.ask(bearer(text))
    server.background[1]()
    assert server.keys.list()[0].used_at == server.world.now


def test_a_use_that_can_not_be_noted_is_logged_and_nothing_else(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    text = server.key()
    assert server.ask(bearer(text)) is not None
    server.world.engine.core.close()
    (touch,) = server.background
    touch()

    assert "was not noted" in caplog.text
    assert text not in caplog.text


def test_the_eleventh_failure_of_an_address_within_a_minute_has_an_error(server: Server) -> None:
    for _ in range(FAILURES_MAX):
        assert server.ask(bearer(new_key().text)) is None
        server.wait(1)
    with pytest.raises(TooManyFailuresError) as caught:
        server.ask(bearer(new_key().text))

    assert caught.value.retry_after == 50
    assert server.ask(bearer(new_key().text, address="203.0.113.8")) is None
    server.wait(50)
    assert server.ask(bearer(new_key().text)) is None


def test_a_limited_address_may_use_valid_keys(server: Server) -> None:
    """Also one that this process has not seen: behind a proxy, all clients have one address."""
    known, unseen = server.key(), server.key("other")
    assert server.ask(bearer(known)) is not None
    for _ in range(FAILURES_MAX):
        server.ask(bearer(new_key().text))

    assert server.ask(bearer(known)) is not None
    assert server.ask(bearer(unseen)) is not None
    with pytest.raises(TooManyFailuresError):
        server.ask(bearer(new_key().text))
    assert server.ask(bearer(new_key().text, address="203.0.113.8")) is None


def test_a_request_without_a_credential_is_no_failure(server: Server) -> None:
    for _ in range(2 * FAILURES_MAX):
        assert server.ask(a_request()) is None
    assert server.ask(bearer(new_key().text)) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
        ("fe80::1%eth0", "fe80::2", True),
        ("203.0.113.7", "203.0.113.8", False),
        ("", "testclient", False),
    ],
)
def test_addresses_of_one_customer_count_together(one: str, other: str, same: bool) -> None:
    limit = FailureLimit(lambda: 0.0)
    for _ in range(FAILURES_MAX):
        limit.note_failure(one)
    assert (limit.wait(other) > 0) is same


def test_a_bounded_number_of_addresses_is_remembered() -> None:
    limit = FailureLimit(lambda: 0.0)
    for _ in range(FAILURES_MAX):
        limit.note_failure("first")
    for number in range(ADDRESSES_MAX):
        limit.note_failure(str(number))
    assert limit.wait("first") == 0
