"""Open access from this machine: only without credentials, only by its own names, and never through a proxy."""

from collections.abc import Iterator

import anyio
import pytest

from holdfast.errors import ForeignOriginError, UnprotectedAddressError
from holdfast.hosts.http.authentication.authenticator import Authenticator
from holdfast.hosts.http.authentication.cached_rows import CACHED_SECONDS
from holdfast.hosts.http.authentication.loopback import LOCAL, LoopbackAccess, check_address, is_loopback
from holdfast.hosts.http.principals import Scope
from holdfast.testing import World
from tests.unit.hosts.http.requests import a_request, bearer

HERE = ("Host", "localhost:8080")
ACCESS = LoopbackAccess(["Holdfast.test"])


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "holdfast.test"],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1"])
def test_a_request_from_this_machine_may_do_everything(host: str, address: str) -> None:
    principal = ACCESS.principal(a_request(("Host", host), address=address))
    assert principal == LOCAL
    assert principal is not None
    assert all(principal.may(scope, "any") for scope in Scope)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Host", "")],
        [("Host", "evil.test")],
        [("Host", "localhost.evil.test")],
        [("Host", "evil.test:8080")],
        [("Host", "localhost:80@evil.test")],
        [("Host", "localhost:")],
        [("Host", "localhost:x")],
        [("Host", "::1")],
        [("Host", "localhost"), ("Host", "evil.test")],
        [HERE, ("Origin", "null")],
        [HERE, ("Origin", "")],
        [HERE, ("Origin", "https://evil.test")],
        [HERE, ("Origin", "http://localhost:3000")],
        [HERE, ("Origin", "http://localhost:8080.evil.test")],
        [HERE, ("Origin", "http://user@localhost:8080")],
        [HERE, ("Origin", "http://localhost:8080/path")],
        [HERE, ("Origin", "file://localhost:8080")],
        [HERE, ("Origin", "http://[localhost:8080")],
        [HERE, ("Origin", "http://localhost:8080"), ("Origin", "https://evil.test")],
    ],
    ids=str,
)
def test_a_request_that_names_another_site_has_an_error(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(ForeignOriginError):
        ACCESS.principal(a_request(*headers, address="127.0.0.1"))


def test_a_page_of_the_server_itself_is_allowed() -> None:
    request = a_request(HERE, ("Origin", "http://LOCALHOST:8080"), address="127.0.0.1")
    assert ACCESS.principal(request) == LOCAL


@pytest.mark.parametrize("address", ["203.0.113.7", "10.0.0.1", "::ffff:203.0.113.7", "", "testclient", None])
def test_a_request_from_another_machine_has_no_principal(address: str | None) -> None:
    assert ACCESS.principal(a_request(HERE, address=address)) is None


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
)
def test_a_request_through_a_proxy_of_this_machine_has_no_principal(header: str) -> None:
    assert ACCESS.principal(a_request(HERE, (header, "127.0.0.1"), address="127.0.0.1")) is None


def test_a_request_of_a_proxy_that_adds_no_header_has_no_principal() -> None:
    """Nginx speaks HTTP/1.0 to its servers, unless it is configured otherwise."""
    request = a_request(HERE, address="127.0.0.1")
    request.scope["http_version"] = "1.0"
    assert ACCESS.principal(request) is None


@pytest.fixture
def world() -> Iterator[World]:
    with World([]) as world:
        yield world


def test_open_access_ends_with_the_first_key(world: World) -> None:
    seconds = [0.0]
    authenticator = Authenticator(
        world.engine.core, loopback=ACCESS, monotonic=lambda: seconds[0], start=lambda _: None
    )
    request = a_request(HERE, address="127.0.0.1")
    assert anyio.run(authenticator, request) == LOCAL
    assert not anyio.run(authenticator.has_credentials)

    key = world.engine.sync.keys.create("me", scopes=["admin"])
    seconds[0] = CACHED_SECONDS
    assert anyio.run(authenticator, request) is None
    assert key.text is not None
    assert anyio.run(authenticator, bearer(key.text)) is not None
    world.engine.sync.keys.revoke("me")
    seconds[0] = 1_000
    assert anyio.run(authenticator, request) is None
    assert anyio.run(authenticator.has_credentials)


def test_a_wrong_key_from_this_machine_is_refused_without_credentials_too(world: World) -> None:
    authenticator = Authenticator(world.engine.core, loopback=ACCESS)
    assert (
        anyio.run(authenticator, a_request(HERE, ("Authorization", "Bearer x"), address="127.0.0.1")) is None
    )


def test_without_open_access_a_request_from_this_machine_has_no_principal(world: World) -> None:
    assert anyio.run(Authenticator(world.engine.core), a_request(HERE, address="127.0.0.1")) is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "", "192.168.1.5", "example.test"])
def test_a_server_without_credentials_does_not_listen_beyond_this_machine(address: str) -> None:
    with pytest.raises(UnprotectedAddressError, match="holdfast key create"):
        check_address(address, has_credentials=False)
    check_address(address, has_credentials=True)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "[::1]", "localhost"])
def test_a_server_without_credentials_may_listen_on_this_machine(address: str) -> None:
    check_address(address, has_credentials=False)
    assert is_loopback(address)
