"""Authentication by API keys of the store."""

import hmac
from collections.abc import Callable
from typing import Final

from holdfast.hosts.client.api_keys import key_from
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.http.authentication.cached_rows import CachedRows, is_due
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.principals import Principal
from holdfast.hosts.inspection.keys import scopes_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import CredentialTouch
from holdfast.ports.clock import micros
from holdfast.ports.queries.credentials import FindCredential, ListCredentials
from holdfast.ports.records.credential import Credential

_NO_HASH: Final = "0" * 64
"""What the secret of an unknown key is compared with, so that the answer takes as long as for a known one."""


class Keys:
    """Checks API keys against the store.

    Args:
        core: The engine's core, whose store has the keys. They may be valid in other namespaces than the engine's.
        monotonic: Returns seconds.
        start: Starts a call in the background.
    """

    def __init__(
        self,
        core: Core,
        *,
        monotonic: Callable[[], float],
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._core = core
        self._monotonic = monotonic
        self._rows: CachedRows[Credential] = CachedRows(
            "key", read=self._read, touch=self._touch, monotonic=monotonic, start=start
        )
        self._has_any = False
        self._looked_at: float | None = None
        self._is_looking = False

    async def verified(self, text: str) -> VerifiedCredential | None:
        """Return a key as verified; None if it is unknown, wrong, expired or revoked."""
        key = key_from(text)
        if key is None:
            return None
        credential = await self._rows.find(key.id)
        return self._verified(credential, key.hash)

    async def still_verified(self, id: str, hash: str) -> VerifiedCredential | None:
        """Return a key that was verified before; None if its secret with this hash is no longer accepted."""
        return self._verified(await self._rows.find(id), hash)

    def _verified(self, credential: Credential | None, hash: str) -> VerifiedCredential | None:
        hashes = () if credential is None else credential.hashes(micros(self._core.clock.now()))
        accepted = [hmac.compare_digest(known, hash) for known in hashes or (_NO_HASH,)]
        if credential is None or not hashes or not any(accepted):
            return None
        self._rows.note_use(credential.id)
        principal = Principal(
            id=credential.principal,
            kind="key",
            scopes=frozenset(scopes_of(credential)),
            namespaces=frozenset(credential.namespaces.split()),
        )
        return VerifiedCredential(
            principal=principal, expires_at=credential.expires_at, key=credential.id, key_hash=hash
        )

    async def has_any(self) -> bool:
        """Return whether the store has had a key. There is one for good once there was one."""
        now = self._monotonic()
        if not self._has_any and is_due(self._looked_at, now, is_reading=self._is_looking):
            self._is_looking = True
            try:
                self._has_any = bool(await in_thread(self._first))
                self._looked_at = now
            finally:
                self._is_looking = False
        return self._has_any

    def _read(self, id: str) -> Credential | None:
        self._core.connect()
        return self._core.stores.persistence.read(FindCredential(id))

    def _touch(self, id: str) -> None:
        self._core.kernel.dispatch(CredentialTouch(namespace=self._core.namespace, ids=(id,)))

    def _first(self) -> tuple[Credential, ...]:
        self._core.connect()
        return self._core.stores.persistence.read(ListCredentials(limit=1))
