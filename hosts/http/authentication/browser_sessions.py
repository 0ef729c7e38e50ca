"""Authentication by browser sessions: a cookie that stands for the key or token with which a person has signed in."""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import attrs

from holdfast.hosts.client.api_keys import new_key
from holdfast.hosts.client.client import Client
from holdfast.hosts.http.authentication.cached_rows import CachedRows
from holdfast.hosts.http.authentication.cookies import OriginCookie
from holdfast.hosts.http.authentication.keys import Keys
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.principals import CurrentSession, Principal
from holdfast.hosts.inspection.keys import scopes_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import BrowserSessionCreate, BrowserSessionDelete, BrowserSessionTouch
from holdfast.ports.clock import micros
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.queries.credentials import FindBrowserSession
from holdfast.ports.records.browser_session import BrowserSession

if TYPE_CHECKING:  # the client has the table of operations too, and needs no starlette
    from starlette.requests import Request

IDLE: Final = timedelta(hours=12)
LIFETIME: Final = timedelta(days=7)
_LONGEST: Final = timedelta(days=90)
_COOKIE: Final = re.compile(r"(?P<id>[a-z2-7]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_NO_HASH: Final = "0" * 64
"""What the secret of an unknown session is compared with, so that the answer takes as long as for a known one."""


@attrs.frozen(kw_only=True)
class BrowserSessionSettings:
    """How long browser sessions last, and how their cookie is sent.

    Raises:
        InvalidArgumentError: A duration is too short or too long.
    """

    idle: timedelta = IDLE
    """How long a session may go unused: from five minutes to 90 days."""
    lifetime: timedelta = LIFETIME
    """How long it lasts at most, however much it is used: from five minutes to 90 days."""
    secure: bool = True
    """Whether browsers send its cookie with TLS only. Names of this machine, such as localhost, need none."""

    def __attrs_post_init__(self) -> None:
        """Refuse durations that no session can have."""
        for name, length in (("idle", self.idle), ("lifetime", self.lifetime)):
            if not timedelta(minutes=5) <= length <= _LONGEST:
                raise InvalidArgumentError(name, f"{name} is {length}; give from five minutes to 90 days")


class BrowserSessions:
    """Opens, checks and ends browser sessions.

    Args:
        core: The engine's core, whose store has the sessions.
        keys: Checks the keys with which they were opened.
        settings: How long they last.
        accepts_tokens: Whether the server accepts tokens: if not, sessions that were opened with one have ended.
        monotonic: Returns seconds.
        start: Starts a call in the background; in a thread by default.
    """

    def __init__(
        self,
        core: Core,
        keys: Keys,
        settings: BrowserSessionSettings,
        *,
        accepts_tokens: bool,
        monotonic: Callable[[], float],
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._core = core
        self._keys = keys
        self._settings = settings
        self._accepts_tokens = accepts_tokens
        self._cookie = OriginCookie(secure=settings.secure)
        self._rows: CachedRows[BrowserSession] = CachedRows(
            "browser session", read=self._read, touch=self._touch, monotonic=monotonic, start=start
        )

    async def principal(self, request: "Request") -> Principal | None:
        """Return the principal of a request's cookie; None if it has none, or its session or credential has ended."""
        found = _COOKIE.fullmatch(self._cookie.read(request) or "")
        if found is None:
            return None
        row = await self._rows.find(found["id"])
        if not _is_secret_of(row, found["secret"]) or row is None:
            return None
        if not row.is_valid(micros(self._core.clock.now())):
            return None
        principal = await self._principal_of(row)
        if principal is None:
            return None
        self._rows.note_use(row.id)
        session = CurrentSession(id=row.id, secret=found["secret"], row=row)
        return attrs.evolve(principal, session=session)

    async def _principal_of(self, row: BrowserSession) -> Principal | None:
        """Return who was signed in; None if the credential has ended. What a key allows is read from the key."""
        if row.credential is not None:
            verified = await self._keys.still_verified(row.credential, row.credential_hash or "")
            return None if verified is None else verified.principal
        if not self._accepts_tokens:
            return None
        return Principal(
            id=row.principal,
            kind=row.kind,
            scopes=frozenset(scopes_of(row)),
            namespaces=frozenset(row.namespaces.split()),
        )

    def open(
        self, client: Client, request: "Request", verified: VerifiedCredential
    ) -> tuple[CurrentSession, str]:
        """Return a new session, and the header that sets its cookie. The browser's former session ends. Blocks.

        Raises InvalidCommandError if the credential has ended meanwhile.
        """
        made = new_key()  # only its parts are used: 12 characters that name it, and 256 random bits
        principal = verified.principal
        former = self._current_of(request)
        now = micros(self._core.clock.now())
        expires_at = now + self._settings.lifetime // timedelta(microseconds=1)
        if verified.expires_at is not None:
            expires_at = min(expires_at, verified.expires_at)
        client.dispatch(
            BrowserSessionCreate(
                namespace=self._core.namespace,
                id=made.id,
                hash=made.hash,
                principal=principal.id,
                kind=principal.kind,
                scopes=tuple(sorted(principal.scopes)),
                namespaces=tuple(sorted(principal.namespaces)),
                idle=self._settings.idle // timedelta(microseconds=1),
                expires_at=expires_at,
                credential=verified.key,
                credential_hash=verified.key_hash,
                replaces=former,
            )
        )
        if former is not None:
            self._rows.forget(former)
        row = self._read(made.id)
        assert row is not None, "it was stored just now"
        cookie = self._cookie.set_header(request, f"{made.id}_{made.secret}", (expires_at - now) // 1_000_000)
        return CurrentSession(id=made.id, secret=made.secret, row=row), cookie

    def close(
        self, client: Client, request: "Request", principal: Principal, *, everywhere: bool
    ) -> tuple[int, str]:
        """Sign a principal out, and return from how many browsers, and the header that deletes the cookie. Blocks."""
        session = principal.session
        number = 0
        if everywhere or session is not None:
            only = None if everywhere or session is None else session.id
            command = BrowserSessionDelete(
                namespace=self._core.namespace, principal=principal.id, kind=principal.kind, id=only
            )
            number = client.dispatch(command).deleted
            self._rows.forget_all() if only is None else self._rows.forget(only)
        return number, self._cookie.set_header(request, "", 0)

    def _current_of(self, request: "Request") -> str | None:
        """Return the id of the session that a request's cookie proves to have; None if it has none."""
        found = _COOKIE.fullmatch(self._cookie.read(request) or "")
        row = None if found is None else self._read(found["id"])
        if found is None or row is None or not _is_secret_of(row, found["secret"]):
            return None
        return row.id

    def _read(self, id: str) -> BrowserSession | None:
        self._core.connect()
        return self._core.stores.persistence.read(FindBrowserSession(id))

    def _touch(self, id: str) -> None:
        self._core.kernel.dispatch(BrowserSessionTouch(namespace=self._core.namespace, ids=(id,)))


def _is_secret_of(row: BrowserSession | None, secret: str) -> bool:
    known = _NO_HASH if row is None else row.hash
    return hmac.compare_digest(known, _hash_of(secret)) and row is not None


def _hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
