# Generated from hosts/client/sync_keys.py by `python -m tools.async_facade`. Do not edit.
"""API keys of the server, for async code. Each method calls `SyncKeys` in a thread."""

from collections.abc import Collection
from datetime import datetime

from holdfast.hosts.client.api_keys import GRACE
from holdfast.hosts.client.sync_keys import SyncKeys
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.inspection.keys import KeyInfo, NewKey
from holdfast.ports.actors import Actor
from holdfast.ports.durations import Duration
from holdfast.ports.scopes import Scope


class Keys:
    """The API keys of the server, for async code. `engine.keys` returns it.

    The keys belong to the store: each names the namespaces that it is valid in.
    """

    def __init__(self, sync: SyncKeys) -> None:
        self._sync = sync

    async def create(
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
        return await in_thread(
            lambda: self._sync.create(
                label,
                scopes=scopes,
                namespaces=namespaces,
                principal=principal,
                expires_at=expires_at,
                only_if_first=only_if_first,
                actor=actor,
            )
        )

    async def list(self) -> tuple[KeyInfo, ...]:
        """Return all keys of the store, the oldest first, also those that have expired or were revoked."""
        return await in_thread(self._sync.list)

    async def rotate(self, name: str, /, *, grace: Duration = GRACE, actor: Actor | None = None) -> NewKey:
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
        return await in_thread(lambda: self._sync.rotate(name, grace=grace, actor=actor))

    async def revoke(self, name: str, /, *, reason: str = "", actor: Actor | None = None) -> KeyInfo:
        """Revoke a key for good, and return it. Servers refuse it within seconds. Its label may be used again.

        Args:
            name: The label or the id of the key.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            CredentialNotFoundError: There is no such key.
        """
        return await in_thread(lambda: self._sync.revoke(name, reason=reason, actor=actor))
