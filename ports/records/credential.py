"""Credentials: secrets with an end, of which only the hash is stored."""

from enum import StrEnum

from holdfast.ports.pagination import ListPlace
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class CredentialKind(StrEnum):
    """What a credential is used as."""

    KEY = "key"
    """An API key."""


@frozen(kw_only=True)
class Credential:
    """A secret by which the server recognizes its client. It is valid in all namespaces that it lists.

    It lets its holder in until `expires_at`, unless it was revoked.
    """

    id: str
    """12 characters of lower-case base 32: part of the key, and no secret."""
    kind: CredentialKind
    label: str
    """For people. That of a revoked credential may be used again."""
    unique_label: str | None
    """The label; None once revoked. No two rows share it."""
    principal: str
    """Who uses it: what actors name."""
    scopes: str
    """Names of scopes, ascending, separated by spaces."""
    namespaces: str
    """Names of namespaces, ascending, separated by spaces; `*`: all."""
    hash: str
    """SHA-256 of the secret, in hexadecimal."""
    previous_hash: str | None = None
    """That of the secret before the last rotation."""
    previous_until: Micros | None = None
    """Until when the previous secret is accepted, too."""
    created_at: Micros
    expires_at: Micros | None = None
    """From when on it is refused; None: never."""
    used_at: Micros | None = None
    """When it was last used, to the minute; None: never."""
    revoked_at: Micros | None = None

    @property
    def place(self) -> ListPlace:
        """Its position in the list of credentials."""
        return ListPlace(self.created_at, self.id)

    def is_valid(self, now: Micros) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def hashes(self, now: Micros) -> tuple[str, ...]:
        """Return the hashes of the secrets that are accepted now, the newest first. Empty if it is not valid."""
        if not self.is_valid(now):
            return ()
        if self.previous_hash is None or self.previous_until is None or now >= self.previous_until:
            return (self.hash,)
        return (self.hash, self.previous_hash)
