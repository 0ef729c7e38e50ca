"""API keys of the server: created, listed, rotated and revoked, for synchronous code."""

from collections.abc import Collection
from datetime import datetime, timedelta

from holdfast.hosts.client.api_keys import GRACE, ApiKey, new_key
from holdfast.hosts.client.client import Client
from holdfast.hosts.inspection.keys import KeyInfo, NewKey, find_key, key_infos
from holdfast.kernel.commands import CredentialCreate, CredentialRevoke, CredentialRotate
from holdfast.ports.actors import Actor
from holdfast.ports.clock import micros
from holdfast.ports.durations import Duration
from holdfast.ports.scopes import Scope
from holdfast.ports.validation import AWARE, TEXT, TRUTH, check, duration, several


class SyncKeys:
    """The API keys of the server, for synchronous code. `engine.sync.keys` returns it.

    The keys belong to the store: each names the namespaces that it is valid in.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._core = client.core

    def create(
        self,
        label: str,
        /,
        *,
        scopes: Collection[Scope | str],
        namespaces: Collection[str] | None = None,
        principal: str = "",
        expires_at: datetime | None = None,
        only_if_first: bool = False,
        actor: Actor | None = None,
    ) -> NewKey:
        """Create a key, and return it with its text, which is never shown again.

        If a key with this label has the same rights already, it is returned without its text.

        Args:
            label: A name for people, by which the key can be rotated and revoked: 1 to 100 of `A-Z a-z 0-9 _ . @ -`.
            scopes: What the key allows: some of `read`, `payloads`, `start`, `operate`, `work` and `admin`.
            namespaces: Where it allows that; `["*"]`: in all namespaces. The engine's namespace if omitted.
            principal: Who uses it: the id of the actor of its commands. The label if omitted.
            expires_at: From when on it is refused. Aware. Never if omitted.
            only_if_first: Refuse unless this is the first key that the store ever has.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            InvalidCommandError: The label, a scope or a namespace is not valid, or `expires_at` is in the past.
            CredentialExistsError: The key with this label has other rights, another principal or another end, or has
                expired; or, with `only_if_first`, the store has had a key.
        """
        check("keys.create", TEXT, label=label, principal=principal)
        check("keys.create", AWARE.or_none, expires_at=expires_at)
        check("keys.create", TRUTH, only_if_first=only_if_first)
        wanted = several("keys.create", "scopes", scopes, "a list of scopes, such as ['read', 'start']")
        where = (self._core.namespace,) if namespaces is None else namespaces
        listed = several("keys.create", "namespaces", where, "a list of namespaces, such as ['default']")
        for kind, texts in (("scopes", wanted), ("namespaces", listed)):
            for text in texts:
                check("keys.create", TEXT, **{kind: text})
        key = new_key()
        command = CredentialCreate(
            namespace=self._core.namespace,
            id=key.id,
            label=label,
            hash=key.hash,
            scopes=tuple(str(scope) for scope in wanted),
            namespaces=tuple(listed),
            principal=principal,
            expires_at=None if expires_at is None else micros(expires_at),
            only_if_first=only_if_first,
            actor=actor,
        )
        reply = self._client.dispatch(command)
        shown = ApiKey(reply.id, key.secret).text if reply.created else None
        return NewKey(text=shown, created=reply.created, info=self._info(reply.id))

    def list(self) -> tuple[KeyInfo, ...]:
        """Return all keys of the store, the oldest first, also those that have expired or were revoked."""
        return tuple(key_infos(self._core))

    def rotate(self, name: str, /, *, grace: Duration = GRACE, actor: Actor | None = None) -> NewKey:
        """Replace the secret of a key, and return it with its new text. The old text is accepted for a while.

        Args:
            name: The label or the id of the key.
            grace: How long the old text is accepted: from 0 to 30 days. A day if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            InvalidCommandError: `grace` is too long, or the key has expired.
            CredentialNotFoundError: There is no such key, or it was revoked.
        """
        check("keys.rotate", TEXT, name=name)
        length = duration("keys.rotate", "grace", grace, timedelta(0))
        key = new_key()
        reply = self._client.dispatch(
            CredentialRotate(
                namespace=self._core.namespace,
                name=name,
                hash=key.hash,
                grace=length // timedelta(microseconds=1),
                actor=actor,
            )
        )
        text = ApiKey(reply.id, key.secret).text
        return NewKey(text=text, created=False, info=self._info(reply.id))

    def revoke(self, name: str, /, *, reason: str = "", actor: Actor | None = None) -> KeyInfo:
        """Revoke a key for good, and return it. Servers refuse it within seconds. Its label may be used again.

        Args:
            name: The label or the id of the key.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            CredentialNotFoundError: There is no such key.
        """
        check("keys.revoke", TEXT, name=name, reason=reason)
        reply = self._client.dispatch(
            CredentialRevoke(namespace=self._core.namespace, name=name, reason=reason, actor=actor)
        )
        return self._info(reply.id)

    def _info(self, id: str) -> KeyInfo:
        info = find_key(self._core, id)
        assert info is not None, "credentials are never deleted"
        return info
