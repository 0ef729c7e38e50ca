"""Sign-in with an OpenID Connect provider: the authorization code flow with PKCE (RFC 6749, RFC 7636, RFC 9700).

The browser goes to the provider, and comes back with a code. The server exchanges the code for an ID token, which is
checked as every token. What belongs to one sign-in is derived from a random secret in a cookie of ten minutes, so
nothing is stored, and any server of a fleet completes what another has begun (docs/decisions/0133).
"""

import base64
import hashlib
import hmac
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit

import anyio
import attrs

from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.http.authentication.cookies import NAME, OriginCookie
from holdfast.hosts.http.authentication.documents import fetch_document, is_safe_url, object_in, send_form
from holdfast.hosts.http.authentication.issuer import FETCH_ERRORS, Fetch, Issuer, url_in
from holdfast.hosts.http.authentication.tokens import Tokens
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.request_forms import PAGES
from holdfast.hosts.http.return_paths import is_return_path
from holdfast.ports.errors import InvalidArgumentError, InvalidUrlError

if TYPE_CHECKING:  # the client has the table of operations too, and needs no starlette
    from starlette.requests import Request

RETURN_PATH: Final = f"{PAGES}/sign-in/return"
"""The path, below the public URL, to which the provider sends the browser back."""
SIGN_IN_FAILED: Final = "sign_in_failed"
"""The code of the error if the person is not to be signed in."""
SECONDS_MAX: Final = 600
"""How long a person may take at the provider."""
FRESH_SECONDS: Final = 300.0
"""How long the configuration of the provider is used before it is read again: anyone may begin a sign-in."""
_PATH_MAX: Final = 1_500
"""The longest path to which the browser goes afterwards: it is in the cookie."""
_EXCHANGES_MAX: Final = 8
"""How many codes are exchanged at once: each one that a browser sends is a request to the provider."""
_COOKIE: Final = re.compile(r"(?P<secret>[A-Za-z0-9_-]{43})\.(?P<path>[A-Za-z0-9_-]*)")
_CLIENT_ERRORS: Final = frozenset({"invalid_client", "unauthorized_client"})
"""Errors for which a setting is wrong, here or at the provider (RFC 6749, 5.2)."""
_REFUSED_CLIENT: Final = "the provider refuses this server as a client: an administrator finds why in the log"
_REFUSED_CODE: Final = "the provider does not accept its own code: sign in again"
_CLIENT: Final = re.compile(r"[\x20-\x7e]{1,500}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")

_log = logging.getLogger("holdfast.server")

Send: TypeAlias = Callable[[str, Mapping[str, str], Mapping[str, str]], bytes]
"""Sends a form with headers to a URL and returns the answer. OSError if that fails."""


def _without_slash(url: str) -> str:
    return url.rstrip("/")


@attrs.frozen(kw_only=True)
class SingleSignOn:
    """How people sign in with the provider of the tokens.

    Raises:
        InvalidArgumentError: A client id, a scope or a name is empty or has characters that it can't have.
        InvalidUrlError: The public URL is not https, or has more than a path.
    """

    client_id: str
    """The id that the provider has given to this server."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The secret of the client; None for a public client, which has none."""
    public_url: str = attrs.field(converter=_without_slash)
    """The URL of this server for browsers, with the path under which it is mounted: `https://holdfast.example.com`.
    Register it at the provider as redirect URL, with `/ui/sign-in/return` appended."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """What is requested of the provider. Some need another scope, such as `groups`, for the claims of the grants."""
    name: str = "single sign-on"
    """What the page for signing in calls it: "Sign in with ..."."""

    def __attrs_post_init__(self) -> None:
        """Refuse what can't be."""
        if not _CLIENT.fullmatch(self.client_id):
            raise InvalidArgumentError("client_id", f"{self.client_id!r:.80} is not the id of a client")
        if self.client_secret is not None and not _CLIENT.fullmatch(self.client_secret):
            raise InvalidArgumentError("client_secret", "it is empty, or has characters that it can't have")
        if "openid" not in self.scopes or not all(map(_SCOPE.fullmatch, self.scopes)):
            raise InvalidArgumentError(
                "scopes", f"{' '.join(self.scopes)!r:.200}: give words, of which one is openid"
            )
        if not self.name.strip() or len(self.name) > 80:
            raise InvalidArgumentError("name", f"{self.name!r:.80}: give from 1 to 80 characters")
        parts = urlsplit(self.public_url) if is_safe_url(self.public_url) else None
        if parts is None or parts.query or parts.fragment:
            raise InvalidUrlError(
                f"{self.public_url!r:.200} is not the URL of a server: https://holdfast.example.com, for example"
                " (http only on this machine)"
            )

    @property
    def return_url(self) -> str:
        """The redirect URL to be registered at the provider."""
        return f"{self.public_url}{RETURN_PATH}"


@attrs.frozen(kw_only=True)
class ProviderAnswer:
    """The query parameters with which the provider sends the browser back."""

    code: str | None = attrs.field(default=None, repr=False)
    """A code that stands for the sign-in."""
    state: str = attrs.field(default="", repr=False)
    """The state with which the browser was sent to the provider."""
    error: str | None = None
    """Why the provider has refused."""
    error_description: str | None = None
    """The same, for people."""
    iss: str | None = None
    """The issuer (RFC 9207)."""


class CodeFlow:
    """Signs people in with the provider of `tokens`.

    Args:
        settings: How.
        tokens: Checks the ID tokens; its grants decide what they allow.
        secure: Whether browsers send the cookie with TLS only. Names of this machine, such as localhost, need none.
        fetch: Returns the bytes at a URL.
        send: Sends a form to the provider.
        monotonic: Returns seconds.
    """

    def __init__(
        self,
        settings: SingleSignOn,
        tokens: Tokens,
        *,
        secure: bool,
        fetch: Fetch = fetch_document,
        send: Send = send_form,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._tokens = tokens
        self._issuer = Issuer(tokens.issuer, fetch)
        self._send = send
        self._cookie = OriginCookie(f"{NAME}-sign-in", secure=secure)
        self._monotonic = monotonic
        self._exchanges = anyio.Semaphore(_EXCHANGES_MAX)
        self._known: tuple[Mapping[str, object], float] = {}, -math.inf

    def begin(self, request: "Request", return_to: str) -> tuple[str, str]:
        """Return the address of the provider for a browser, and the header that sets the cookie. Blocks.

        `return_to` is the path to which the browser goes in the end. HttpError if the provider does not answer.
        """
        address = self._endpoint(self._configuration(), "authorization_endpoint")
        secret = secrets.token_urlsafe(32)
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.settings.client_id,
                "redirect_uri": self.settings.return_url,
                "scope": " ".join(self.settings.scopes),
                "state": _derived(secret, "state"),
                "nonce": _derived(secret, "nonce"),
                "code_challenge": _challenge(_derived(secret, "verifier")),
                "code_challenge_method": "S256",
            }
        )
        path = return_to if is_return_path(return_to) and len(return_to) <= _PATH_MAX else PAGES
        cookie = self._cookie.set_header(request, f"{secret}.{_encoded(path.encode())}", SECONDS_MAX)
        return f"{address}{'&' if urlsplit(address).query else '?'}{query}", cookie

    async def verified(self, request: "Request", answer: ProviderAnswer) -> VerifiedCredential:
        """Return the ID token for the provider's answer.

        Raises:
            HttpError: `sign_in_failed`: the provider refused, this browser has not begun the sign-in, or no grant fits
                the person; `provider_unavailable`: the provider does not answer.
            UnavailableError: The keys of the provider can't be read.
        """
        secret = self._secret_of(request)
        if secret is None or not _are_equal(_derived(secret, "state"), answer.state):
            raise _failed(
                "this browser has begun no sign-in within ten minutes, or another one since: sign in again"
            )
        if answer.iss not in (None, self._tokens.issuer):
            raise _failed("the answer is of another provider")
        if answer.error is not None or answer.code is None:
            why = answer.error_description or answer.error or "it has sent no code"
            raise _failed(f"the provider has refused: {why[:300]}")
        code = answer.code
        async with self._exchanges:
            token = await result_in_thread(lambda: self._exchanged(code, _derived(secret, "verifier")))
        claims = await self._tokens.claims_of(token, self.settings.client_id)
        if claims is None or not _is_for(claims, self.settings.client_id, _derived(secret, "nonce")):
            _log.warning("single sign-on: the ID token of the provider is not valid")
            raise _failed("the provider's ID token is not valid")
        found = self._tokens.granted(claims)
        if found is None:
            _log.warning("single sign-on: no grant fits %.200r", claims.get("sub"))
            raise _failed(
                "you are known to the provider, but nothing is granted to you here: ask an administrator"
            )
        # An ID token proves the sign-in, and expires soon after it. The session has its own end.
        return attrs.evolve(found, expires_at=None)

    def return_path(self, request: "Request") -> str:
        """Return the path to which the browser goes after its sign-in."""
        found = _COOKIE.fullmatch(self._cookie.read(request) or "")
        try:
            path = PAGES if found is None else _decoded(found["path"]).decode("ascii")
        except ValueError:
            return PAGES
        return path if is_return_path(path) else PAGES

    def end(self, request: "Request") -> str:
        """Return the header that deletes the cookie."""
        return self._cookie.set_header(request, "", 0)

    def _secret_of(self, request: "Request") -> str | None:
        found = _COOKIE.fullmatch(self._cookie.read(request) or "")
        return None if found is None else found["secret"]

    def _configuration(self) -> Mapping[str, object]:
        known, until = self._known
        now = self._monotonic()
        if now < until:
            return known
        try:
            found = self._issuer.configuration()
        except FETCH_ERRORS as error:
            raise self._unavailable(error) from None
        self._known = found, now + FRESH_SECONDS
        return found

    def _endpoint(self, configuration: Mapping[str, object], name: str) -> str:
        try:
            return url_in(configuration, name)
        except ValueError as error:
            raise self._unavailable(error) from None

    def _exchanged(self, code: str, verifier: str) -> str:
        """Return the ID token for a code. Blocks."""
        configuration = self._configuration()
        address = self._endpoint(configuration, "token_endpoint")
        client, secret = self.settings.client_id, self.settings.client_secret
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.return_url,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        methods = configuration.get("token_endpoint_auth_methods_supported")
        if secret is None:
            fields["client_id"] = client
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            fields |= {"client_id": client, "client_secret": secret}
        else:
            pair = f"{quote_plus(client)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            token = object_in(self._send(address, fields, headers)).get("id_token")
        except HTTPError as error:
            code_of_error = _error_in(error)
            _log.warning("single sign-on: the provider refuses a code: %s %s", error, code_of_error)
            if error.code >= 500:
                raise self._unavailable(error) from None
            is_client = error.code == 401 or code_of_error in _CLIENT_ERRORS
            raise _failed(_REFUSED_CLIENT if is_client else _REFUSED_CODE) from None
        except FETCH_ERRORS as error:
            raise self._unavailable(error) from None
        if not isinstance(token, str):
            raise _failed("the provider has sent no ID token")
        return token

    def _unavailable(self, error: Exception) -> HttpError:
        _log.warning(
            "single sign-on: the provider %s does not answer as it should: %s", self._issuer.url, error
        )
        return HttpError("provider_unavailable", "try again, or sign in with a key")


def _is_for(claims: Mapping[str, object], client: str, nonce: str) -> bool:
    """Return whether an ID token was made for this client and this sign-in (OpenID Connect Core 1.0, 3.1.3.7)."""
    found, party = claims.get("nonce"), claims.get("azp", client)
    # A token for several must name the client that it was made for.
    is_shared = isinstance(audience := claims.get("aud"), list) and len(cast("list[object]", audience)) > 1
    return (
        isinstance(found, str)
        and _are_equal(found, nonce)
        and party == client
        and not (is_shared and "azp" not in claims)
    )


def _are_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass"))


def _derived(secret: str, use: str) -> str:
    return _encoded(hmac.digest(secret.encode(), use.encode(), "sha256"))


def _challenge(verifier: str) -> str:
    return _encoded(hashlib.sha256(verifier.encode()).digest())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _failed(why: str) -> HttpError:
    return HttpError(SIGN_IN_FAILED, why)


def _error_in(answer: HTTPError) -> str:
    """Return the code of an error of the provider (RFC 6749, 5.2), such as `invalid_client`; empty without one."""
    try:
        code = object_in(answer.read(65_536)).get("error", "")
    except (OSError, ValueError, HTTPException, RecursionError):
        return ""
    return code[:80] if isinstance(code, str) and code.isprintable() else ""
