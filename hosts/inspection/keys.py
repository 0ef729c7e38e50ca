"""API keys as the client shows them: everything but their secrets."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import instant
from holdfast.ports.queries.credentials import FindCredential, ListCredentials
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.values import Micros
from holdfast.ports.scopes import Scope

_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class KeyInfo:
    """An API key, without its secret."""

    id: str
    """12 characters of the key, after `hf_`."""
    label: str
    """For people. No two keys that are not revoked share it."""
    principal: str
    """Who uses it: the id of the actor of its commands."""
    scopes: tuple[Scope, ...]
    """What it allows."""
    namespaces: tuple[str, ...]
    """Where it allows that; `*`: in all namespaces."""
    created_at: datetime
    """When it was created. Instants are aware, in UTC."""
    expires_at: datetime | None = None
    """From when on it is refused; None: never."""
    used_at: datetime | None = None
    """When it was last used, to the minute."""
    revoked_at: datetime | None = None
    """When it was revoked; None: it was not."""
    previous_until: datetime | None = None
    """Until when the secret before the last rotation is accepted, too."""


@attrs.frozen(kw_only=True)
class NewKey:
    """A key that was created or rotated. Its text is shown this once: the store has only its hash."""

    text: str | None = attrs.field(repr=False)
    """The key itself, `hf_...`; None if a key with the label existed, whose secret is not known."""
    created: bool
    """Whether this call created the key. False: it was rotated, or existed before."""
    info: KeyInfo
    """The key as it is listed."""


def key_infos(core: Core) -> Iterator[KeyInfo]:
    """Yield the keys of the store, the oldest first, page by page."""
    core.connect()
    pages = pages_of(
        lambda after, size: core.stores.persistence.read(ListCredentials(after=after, limit=size)),
        _PAGE,
        None,
        None,
        place_of,
    )
    return (key_info(row) for page in pages for row in page)


def find_key(core: Core, id: str) -> KeyInfo | None:
    """Return the key with this id; None if it does not exist."""
    row = core.stores.persistence.read(FindCredential(id))
    return None if row is None else key_info(row)


def key_info(row: Credential) -> KeyInfo:
    """Return what is shown of a credential."""
    return KeyInfo(
        id=row.id,
        label=row.label,
        principal=row.principal,
        scopes=tuple(scopes_of(row)),
        namespaces=tuple(row.namespaces.split()),
        created_at=instant(row.created_at),
        expires_at=_instant(row.expires_at),
        used_at=_instant(row.used_at),
        revoked_at=_instant(row.revoked_at),
        previous_until=_instant(row.previous_until),
    )


def scopes_of(row: Credential | BrowserSession) -> Iterator[Scope]:
    """Yield the scopes of a credential or a browser session that this version knows."""
    for name in row.scopes.split():
        with suppress(ValueError):
            yield Scope(name)


def _instant(at: Micros | None) -> datetime | None:
    return None if at is None else instant(at)
