"""Browser sessions: people who have signed in to the server with a browser. Sessions of workers are elsewhere."""

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class BrowserSession:
    """A browser that was signed in with a credential. Its cookie has a secret, of which only the hash is stored.

    It has the rights of the credential, and ends with it. It ends earlier if it was not used for `idle`.
    """

    id: str
    """12 characters of lower-case base 32: part of the cookie, and no secret."""
    hash: str
    """SHA-256 of the secret, in hexadecimal."""
    kind: str
    """The kind of the actor of its commands: `key`, or `user` for one that was opened with a token."""
    principal: str
    """Who was signed in: the id of the actor of its commands."""
    credential: str | None
    """The id of the API key that it was opened with; None for a token, which no row has."""
    credential_hash: str | None
    """The hash of the secret of that key: the session ends when the key no longer has this secret."""
    scopes: str
    """Names of scopes, ascending, separated by spaces."""
    namespaces: str
    """Names of namespaces, ascending, separated by spaces; `*`: all."""
    created_at: Micros
    used_at: Micros
    """When it was last used, to the minute."""
    idle: Micros
    """For how long it may go unused, in microseconds."""
    expires_at: Micros
    """From when on it is refused, however much it is used."""
    ends_at: Micros
    """From when on it is refused unless it is used before: `idle` after `used_at`, and at most `expires_at`."""

    def is_valid(self, now: Micros) -> bool:
        """Return whether it has not ended by its own times; that of its credential is another question."""
        return now < self.ends_at
