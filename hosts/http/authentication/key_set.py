"""The public keys of an issuer of tokens, which is found by OpenID Connect discovery (RFC 8414, RFC 7517)."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import anyio

from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.http.authentication.documents import checked_url, object_in
from holdfast.hosts.http.authentication.issuer import FETCH_ERRORS, Fetch, Issuer, url_in
from holdfast.ports.errors import UnavailableError

Jwk: TypeAlias = dict[str, Any]
"""A JSON Web Key."""

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
        fetch: Fetch | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = Issuer(issuer) if fetch is None else Issuer(issuer, fetch)
        self._url = None if url is None else checked_url(url)
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
                f"the keys of the issuer {self._issuer.url} can't be read; tokens can't be checked"
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
            self._keys = _keys_in(self._issuer.fetch(self._keys_url()))
            self._read_at = self._monotonic()
        except FETCH_ERRORS as error:
            _log.warning("the keys of the issuer %s could not be read: %s", self._issuer.url, error)

    def _keys_url(self) -> str:
        if self._url is not None:
            return self._url
        return url_in(self._issuer.configuration(), "jwks_uri")


def _keys_in(content: bytes) -> tuple[Jwk, ...]:
    keys = object_in(content).get("keys")
    if not isinstance(keys, list):
        raise ValueError("it is not a JSON object with a list of keys")
    return tuple(cast("Jwk", key) for key in cast("list[object]", keys) if isinstance(key, dict))
