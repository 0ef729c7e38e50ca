"""JSON Web Tokens: what is accepted, and the known ways to forge one."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import anyio
import anyio.to_thread
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from holdfast.errors import InvalidArgumentError, InvalidUrlError, UnavailableError
from holdfast.hosts.http.authentication.authenticator import Authenticator
from holdfast.hosts.http.authentication.documents import DOCUMENT_MAX
from holdfast.hosts.http.authentication.key_set import (
    FRESH_SECONDS,
    RETRY_SECONDS,
    UNKNOWN_SECONDS,
    KeySet,
)
from holdfast.hosts.http.authentication.tokens import Grant, Tokens
from holdfast.hosts.http.principals import Principal, Scope
from holdfast.testing import World
from tests.unit.hosts.http.requests import bearer

ISSUER: Final = "https://issuer.test/realm"
URL: Final = "https://issuer.test/keys"
AUDIENCE: Final = "holdfast"
GRANTS: Final = tuple(
    map(
        Grant.of,
        ("groups:admins=admin,read@*", "groups:shop=read,start@shop,shop-test", "scope:work=work@shop"),
    )
)


@cache
def rsa_key(name: str, bits: int = 2_048) -> rsa.RSAPrivateKey:
    del name  # another key for each name
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def rsa_jwk(name: str, **fields: object) -> dict[str, Any]:
    jwk = RSAAlgorithm.to_jwk(rsa_key(name).public_key(), as_dict=True)
    return {**jwk, "kid": name, "use": "sig", **fields}


def ec_jwk() -> dict[str, Any]:
    return {**ECAlgorithm.to_jwk(ec_key().public_key(), as_dict=True), "kid": "ec"}


def ed_jwk() -> dict[str, Any]:
    return {**OKPAlgorithm.to_jwk(ed_key().public_key(), as_dict=True), "kid": "ed"}


class Issuer:
    """An issuer whose documents a test changes, or makes unreachable."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.documents: dict[str, object] = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": URL},
            URL: {"keys": list(keys)},
        }
        self.fetched: list[str] = []
        self.seconds = 0.0
        self.set = KeySet(ISSUER, fetch=self.fetch, monotonic=lambda: self.seconds)

    def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        document = self.documents.get(url)
        if document is None:
            raise ConnectionRefusedError("down")
        return document if isinstance(document, bytes) else json.dumps(document).encode()

    def ask(self, token: str, **options: Any) -> Principal | None:
        given: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "grants": GRANTS, "keys": self.set}
        tokens = Tokens(**{**given, **options})
        verified = anyio.run(tokens.verified, token)
        return None if verified is None else verified.principal


@pytest.fixture
def issuer() -> Issuer:
    return Issuer(rsa_jwk("one"), rsa_jwk("two"), ec_jwk(), ed_jwk())


def claims(**changes: object) -> dict[str, object]:
    now = datetime.now(UTC)
    made: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "exp": now + timedelta(minutes=5),
        "iat": now,
        "groups": ["people", "shop"],
        **changes,
    }
    return {name: value for name, value in made.items() if value is not ...}


def token(
    key: Any = None, algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changes: object
) -> str:
    return jwt.encode(
        claims(**changes), key or rsa_key("one"), algorithm, headers={"kid": "one", **(headers or {})}
    )


def encoded(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def ago(**length: float) -> datetime:
    return datetime.now(UTC) - timedelta(**length)


def test_a_token_has_the_principal_of_its_first_fitting_grant(issuer: Issuer) -> None:
    assert issuer.ask(token()) == Principal(
        id="ann", scopes=frozenset({Scope.READ, Scope.START}), namespaces=frozenset({"shop", "shop-test"})
    )
    assert issuer.ask(token(groups=["shop", "admins"])) == Principal(
        id="ann", scopes=frozenset({Scope.ADMIN, Scope.READ}), namespaces=frozenset({"*"})
    )
    assert issuer.ask(token(groups=..., scope="openid work")) == Principal(
        id="ann", scopes=frozenset({Scope.WORK}), namespaces=frozenset({"shop"})
    )
    assert issuer.ask(token(aud=["other", AUDIENCE])) is not None


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (lambda: rsa_key("two"), "RS256", "two"),
        (lambda: rsa_key("one"), "PS256", "one"),
        (ec_key, "ES256", "ec"),
        (ed_key, "EdDSA", "ed"),
    ],
)
def test_signatures_that_are_accepted(
    issuer: Issuer, key: Callable[[], Any], algorithm: str, kid: str
) -> None:
    assert issuer.ask(token(key(), algorithm, {"kid": kid})) is not None
    assert (
        issuer.ask(token(key(), algorithm, {"kid": kid}), algorithms=["RS256"]) is None
        or algorithm == "RS256"
    )


def public_pem(name: str) -> bytes:
    return (
        rsa_key(name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def signed_by_hmac(secret: bytes) -> str:
    """Return a token with HMAC by a public key as its secret, as a library that takes any key would accept."""
    import hashlib
    import hmac

    plain = {
        name: int(value.timestamp()) if isinstance(value, datetime) else value
        for name, value in claims().items()
    }
    start = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{encoded(plain)}"
    mac = hmac.new(secret, start.encode(), hashlib.sha256).digest()
    return f"{start}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def with_header(**header: object) -> str:
    """Return a valid token whose header was replaced, so that its signature fits no more."""
    _, payload, signature = token().split(".")
    return f"{encoded({'alg': 'RS256', 'kid': 'one', **header})}.{payload}.{signature}"


FORGED: Final[dict[str, Callable[[], str]]] = {
    "no signature": lambda: f"{encoded({'alg': 'none', 'kid': 'one'})}.{token().split('.')[1]}.",
    "none in capitals": lambda: with_header(alg="NONE"),
    "signature cut off": lambda: token().rpartition(".")[0] + ".",
    "payload replaced": lambda: f"{token().split('.')[0]}.{encoded({'sub': 'root'})}.{token().split('.')[2]}",
    "HMAC with the public key": lambda: signed_by_hmac(public_pem("one")),
    "HMAC with the text of the key": lambda: signed_by_hmac(json.dumps(rsa_jwk("one")).encode()),
    "HMAC with an empty secret": lambda: signed_by_hmac(b""),
    "key of another": lambda: token(rsa_key("three")),
    "id of another key": lambda: token(headers={"kid": "two"}),
    "unknown id": lambda: token(headers={"kid": "../../dev/null"}),
    "id that is a number": lambda: with_header(kid=1),
    "no id where there are several keys": lambda: jwt.encode(claims(), rsa_key("one"), "RS256"),
    "algorithm of another key": lambda: with_header(kid="ec"),
    "algorithm that is a list": lambda: with_header(alg=["RS256"]),
    "no algorithm": lambda: with_header(alg=None),
    "longer hash": lambda: token(algorithm="RS512"),
    "own key by URL": lambda: token(rsa_key("three"), headers={"jku": "https://evil.test/keys"}),
    "own certificate by URL": lambda: token(headers={"x5u": "https://evil.test/cert"}),
    "own key": lambda: token(rsa_key("three"), headers={"jwk": rsa_jwk("three")}),
    "own certificate": lambda: token(headers={"x5c": ["MII"]}),
    "critical extension": lambda: token(headers={"crit": ["b64"], "b64": False}),
    "critical extension of nothing": lambda: token(headers={"crit": ["exp"]}),
    "expired": lambda: token(exp=ago(seconds=40)),
    "no end": lambda: token(exp=...),
    "end that is a text": lambda: token(exp="never"),
    "infinite end": lambda: token(exp=float("inf")),
    "not yet": lambda: token(nbf=ago(seconds=-60)),
    "issued in the future": lambda: token(iat=ago(seconds=-60)),
    "another audience": lambda: token(aud="other"),
    "no audience": lambda: token(aud=...),
    "another issuer": lambda: token(iss="https://evil.test"),
    "issuer with a slash": lambda: token(iss=f"{ISSUER}/"),
    "no issuer": lambda: token(iss=...),
    "no subject": lambda: token(sub=...),
    "empty subject": lambda: token(sub=""),
    "no claim of a grant": lambda: token(groups=["people"]),
    "claim that is an object": lambda: token(groups={"shop": True}),
    "claim with more": lambda: token(groups=["shop2"]),
    "not a token": lambda: "eyJ",
    "too many parts": lambda: f"{token()}.x",
    "not base64": lambda: f"é.{token()}",
    "header that is a list": lambda: f"{encoded([])}.{encoded({})}.",
    "deep header": lambda: f"{base64.urlsafe_b64encode(b'[' * 5_000).decode()}.e30.e30",
    "payload that is a list": lambda: f"{token().split('.')[0]}.{encoded([])}.{token().split('.')[2]}",
    "empty": lambda: "",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_what_is_no_valid_token_has_no_principal(issuer: Issuer, forge: Callable[[], str]) -> None:
    assert issuer.ask(forge()) is None
    assert issuer.ask(token()) is not None


def test_a_token_may_have_expired_by_the_difference_of_clocks(issuer: Issuer) -> None:
    assert issuer.ask(token(exp=ago(seconds=20))) is not None


def test_a_key_for_encryption_and_a_short_key_sign_nothing() -> None:
    assert Issuer(rsa_jwk("one", use="enc")).ask(token()) is None
    assert Issuer(rsa_jwk("one", alg="PS256")).ask(token()) is None
    short = RSAAlgorithm.to_jwk(rsa_key("short", 1_024).public_key(), as_dict=True)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        made = token(rsa_key("short", 1_024))
    assert Issuer({**short, "kid": "one"}).ask(made) is None


def test_without_an_id_the_only_key_is_taken() -> None:
    assert Issuer(rsa_jwk("one"), ec_jwk()).ask(jwt.encode(claims(), rsa_key("one"), "RS256")) is not None


def test_valid_tokens_live_through_an_outage_of_the_issuer(issuer: Issuer) -> None:
    assert issuer.ask(token()) is not None
    issuer.documents.clear()
    issuer.seconds = 10 * FRESH_SECONDS

    assert issuer.ask(token()) is not None
    assert issuer.ask(token(headers={"kid": "three"})) is None
    assert len(issuer.fetched) == 3


def test_while_no_key_could_ever_be_read_tokens_can_not_be_checked() -> None:
    issuer = Issuer(rsa_jwk("one"))
    documents, issuer.documents = issuer.documents, {}
    for _ in range(3):
        with pytest.raises(UnavailableError, match=r"issuer\.test"):
            issuer.ask(token())
    assert len(issuer.fetched) == 1

    issuer.documents, issuer.seconds = documents, RETRY_SECONDS
    assert issuer.ask(token()) is not None


def test_requests_wait_for_the_keys_that_another_one_reads(issuer: Issuer) -> None:
    began, may_end = threading.Event(), threading.Event()

    def fetch(url: str) -> bytes:
        began.set()
        assert may_end.wait(30)
        return issuer.fetch(url)

    keys = KeySet(ISSUER, fetch=fetch, monotonic=lambda: 0.0)
    tokens = Tokens(issuer=ISSUER, audience=AUDIENCE, grants=GRANTS, keys=keys)
    found: list[Principal | None] = []

    async def ask() -> None:
        verified = await tokens.verified(token())
        found.append(None if verified is None else verified.principal)

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.to_thread.run_sync(began.wait)
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            may_end.set()

    anyio.run(both)
    assert len(found) == 2
    assert None not in found
    assert len(issuer.fetched) == 2


def test_the_keys_of_a_rotation_are_read_at_most_once_a_minute(issuer: Issuer) -> None:
    assert issuer.ask(token()) is not None
    issuer.documents[URL] = {"keys": [rsa_jwk("three")]}
    rotated = token(rsa_key("three"), headers={"kid": "three"})
    assert issuer.ask(rotated) is None
    assert len(issuer.fetched) == 2

    issuer.seconds = UNKNOWN_SECONDS
    assert issuer.ask(rotated) is not None
    assert issuer.ask(token()) is None
    assert len(issuer.fetched) == 4


def test_keys_are_read_again_after_an_hour(issuer: Issuer) -> None:
    assert issuer.ask(token()) is not None
    issuer.documents[URL] = {"keys": [rsa_jwk("two")]}
    issuer.seconds = FRESH_SECONDS

    assert issuer.ask(token()) is None


@pytest.mark.parametrize(
    "document",
    [
        b"\xff",
        b"[" * 100_000,
        [],
        {"keys": {}},
        {},
    ],
    ids=["no text", "deep", "list", "no list", "nothing"],
)
def test_a_document_that_is_no_key_set_changes_nothing(issuer: Issuer, document: object) -> None:
    assert issuer.ask(token()) is not None
    issuer.documents[URL] = document
    issuer.seconds = FRESH_SECONDS
    assert issuer.ask(token()) is not None


@pytest.mark.parametrize(
    "configuration",
    [
        {"issuer": "https://evil.test", "jwks_uri": URL},
        {"issuer": ISSUER, "jwks_uri": "http://issuer.test/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER},
        [],
    ],
)
def test_a_configuration_that_leads_elsewhere_is_not_followed(configuration: object) -> None:
    issuer = Issuer(rsa_jwk("one"))
    issuer.documents[f"{ISSUER}/.well-known/openid-configuration"] = configuration
    with pytest.raises(UnavailableError):
        issuer.ask(token())
    assert len(issuer.fetched) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.test",
        "file:///etc/passwd",
        "ftp://issuer.test",
        "issuer.test",
        "https://",
        "https://a@b",
        "https://[b",
    ],
)
def test_an_issuer_is_an_https_url(url: str) -> None:
    with pytest.raises(InvalidUrlError):
        KeySet(url)
    with pytest.raises(InvalidUrlError):
        KeySet(ISSUER, url)


def test_an_issuer_on_this_machine_may_be_http() -> None:
    KeySet("http://127.0.0.1:9000", "http://localhost:9000/keys")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "groups:a",
        "groups:a=read",
        "groups:a=@*",
        "groups:a=root@*",
        ":a=read@*",
        "groups:=read@*",
        "groups:a=read@",
    ],
)
def test_a_grant_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="CLAIM:VALUE=SCOPES@NAMESPACES"):
        Grant.of(text)


def test_wrong_settings_are_refused(issuer: Issuer) -> None:
    with pytest.raises(InvalidArgumentError, match="RS256"):
        issuer.ask("", algorithms=["HS256"])
    with pytest.raises(InvalidArgumentError, match="grant"):
        issuer.ask("", grants=())


@pytest.fixture
def world() -> Iterator[World]:
    with World([]) as world:
        yield world


def test_the_authenticator_takes_tokens(world: World, issuer: Issuer) -> None:
    tokens = Tokens(issuer=ISSUER, audience=AUDIENCE, grants=GRANTS, keys=issuer.set)
    authenticator = Authenticator(world.engine.core, tokens=tokens)

    principal = anyio.run(authenticator, bearer(token()))
    assert principal is not None
    assert principal.id == "ann"
    assert anyio.run(authenticator, bearer(token(groups=["shop"] * 2_000))) is None
    assert anyio.run(authenticator.has_credentials)
    assert DOCUMENT_MAX < 1_000_000
