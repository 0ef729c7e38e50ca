"""The public keys of an issuer of tokens, which is found by OpenID Connect discovery (RFC 8414, RFC 7517)."""

import logging
import time
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import anyio

from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.http.authentication.loopback import is_loopback
from holdfast.ports.errors import InvalidUrlError, UnavailableError
from holdfast.ports.json import parse

Jwk: TypeAlias = dict[str, Any]
"""A JSON Web Key."""

DOCUMENT_MAX: Final = 262_144
"""The most bytes of a document."""
TIMEOUT: Final = 3.0
"""Seconds for which a server may be silent, and for the whole document thrice that."""
FRESH_SECONDS: Final = 3_600.0
"""How long keys are used before they are read again."""
UNKNOWN_SECONDS: Final = 60.0
"""How often keys are read again because a token names an unknown one."""
RETRY_SECONDS: Final = 5.0
"""How often a first read that has failed is repeated."""

_log = logging.getLogger("holdfast.server")


class KeySet:
    """The public keys of an issuer. Those that are known are used until they could be read anew, even in an outage.

    Args:
        issuer: The URL of the issuer: https, or http on this machine.
        url: Where its keys are; found by discovery if None.
        fetch: Returns the bytes at a URL; OSError if they can't be read.
        monotonic: Returns seconds.

    Raises:
        InvalidUrlError: A URL is neither https nor on this machine.
    """

    def __init__(
        self,
        issuer: str,
        url: str | None = None,
        *,
        fetch: Callable[[str], bytes] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = _checked(issuer)
        self._url = None if url is None else _checked(url)
        self._fetch = fetch or fetch_document
        self._monotonic = monotonic
        self._keys: tuple[Jwk, ...] = ()
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._lock = anyio.Lock()

    async def keys(self, kid: str | None) -> Sequence[Jwk]:
        """Return the keys with this id, or all of them for None. UnavailableError if none could ever be read."""
        found = self._named(kid)
        is_awaited = not found and self._lock.locked()  # another request reads the keys
        if is_awaited or self._is_due(is_unknown=not found):
            async with self._lock:
                if self._is_due(is_unknown=not self._named(kid)):
                    self._tried_at = self._monotonic()
                    await in_thread(self._read)
            found = self._named(kid)
        if self._read_at is None:
            raise UnavailableError(
                f"the keys of the issuer {self._issuer} can't be read; tokens can't be checked"
            )
        return found

    def _named(self, kid: str | None) -> Sequence[Jwk]:
        return [key for key in self._keys if kid is None or key.get("kid") == kid]

    def _is_due(self, *, is_unknown: bool) -> bool:
        """Return whether the keys are to be read again."""
        if self._tried_at is None:
            return True
        since_tried = self._monotonic() - self._tried_at
        if self._read_at is None:
            return since_tried >= RETRY_SECONDS
        is_old = self._monotonic() - self._read_at >= FRESH_SECONDS
        return (is_unknown or is_old) and since_tried >= UNKNOWN_SECONDS

    def _read(self) -> None:
        """Read the keys. If that fails, those that are known stay."""
        try:
            self._keys = _keys_in(self._fetch(self._keys_url()))
            self._read_at = self._monotonic()
        except (OSError, ValueError, HTTPException, RecursionError) as error:
            _log.warning("the keys of the issuer %s could not be read: %s", self._issuer, error)

    def _keys_url(self) -> str:
        if self._url is not None:
            return self._url
        document = parse(self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration").decode())
        if not isinstance(document, dict):
            raise ValueError("its configuration is not a JSON object")
        configuration = cast("dict[str, object]", document)
        if configuration.get("issuer") != self._issuer:
            raise ValueError(f"its configuration names another issuer, {configuration.get('issuer')!r:.200}")
        url = configuration.get("jwks_uri")
        if not isinstance(url, str) or not _is_safe(url):
            raise ValueError(f"its jwks_uri is not an https URL: {url!r:.200}")
        return url


def fetch_document(url: str) -> bytes:
    """Return the bytes at an http or https URL. OSError or ValueError if that fails; redirects are not followed."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    end = time.monotonic() + 3 * TIMEOUT
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310  # by `_is_safe`
    with opener.open(request, timeout=TIMEOUT) as answer:
        content = b""
        while chunk := answer.read1(65_536):
            content += chunk
            if len(content) > DOCUMENT_MAX:
                raise ValueError(f"it has more than {DOCUMENT_MAX:,} bytes")
            if time.monotonic() > end:
                raise TimeoutError("it was sent too slowly")
    return content


def _keys_in(content: bytes) -> tuple[Jwk, ...]:
    document = parse(content.decode())
    keys = cast("dict[str, object]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise ValueError("it is not a JSON object with a list of keys")
    return tuple(cast("Jwk", key) for key in cast("list[object]", keys) if isinstance(key, dict))


def _checked(url: str) -> str:
    if not _is_safe(url):
        raise InvalidUrlError(f"{url!r:.200} is not an https URL (http only on this machine)")
    return url


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if host is None or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
