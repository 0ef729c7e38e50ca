"""The authenticator of the server: composes API keys, tokens, browser sessions, and access from this machine."""

import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from holdfast.hosts.client.api_keys import START
from holdfast.hosts.http.authentication.browser_sessions import BrowserSessions, BrowserSessionSettings
from holdfast.hosts.http.authentication.failure_limit import FailureLimit
from holdfast.hosts.http.authentication.keys import Keys
from holdfast.hosts.http.authentication.loopback import LoopbackAccess
from holdfast.hosts.http.authentication.single_sign_on import (
    SIGN_IN_FAILED,
    CodeFlow,
    ProviderAnswer,
    SingleSignOn,
)
from holdfast.hosts.http.authentication.tokens import Tokens
from holdfast.hosts.http.authentication.verified_credentials import VerifiedCredential
from holdfast.hosts.http.principals import Principal
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.wiring.services import Core
from holdfast.ports.errors import TooManyFailuresError

CREDENTIAL_MAX: Final = 8_192
"""The most characters of a key or token."""


class Authenticator:
    """Returns who sends a request, by its `Authorization: Bearer` header, or else by the cookie of a browser session.

    With that header the cookie does not count, whether or not the credential is valid. A request with neither is one of
    nobody, except on a server without credentials: there, requests from this machine may do everything, if `loopback`
    is given.

    The answer for a key may be three seconds old, so a server that streams can call it again and again: it returns None
    once the key is revoked or has expired.

    Args:
        core: The engine's core, whose store has the keys.
        tokens: Checks JSON Web Tokens; None: they are refused.
        single_sign_on: How people sign in with the provider of the tokens; None: with keys and tokens only.
        browser_sessions: How long browser sessions last.
        loopback: Access from this machine while the store has no key and no tokens are accepted; None: never.
        monotonic: Returns seconds.
        start: Starts a call in the background; in a thread by default.
    """

    def __init__(
        self,
        core: Core,
        *,
        tokens: Tokens | None = None,
        single_sign_on: SingleSignOn | None = None,
        browser_sessions: BrowserSessionSettings | None = None,
        loopback: LoopbackAccess | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._keys = Keys(core, monotonic=monotonic, start=start)
        settings = browser_sessions or BrowserSessionSettings()
        self.sessions = BrowserSessions(
            core,
            self._keys,
            settings,
            accepts_tokens=tokens is not None,
            monotonic=monotonic,
            start=start,
        )
        """The browser sessions."""
        self.sign_on = (
            None
            if single_sign_on is None or tokens is None
            else CodeFlow(single_sign_on, tokens, secure=settings.secure, monotonic=monotonic)
        )
        """Single sign-on; None without it."""
        self._tokens = tokens
        self._loopback = loopback
        self._limit = FailureLimit(monotonic)

    async def __call__(self, request: Request) -> Principal | None:
        """Return the principal; None if the request has no valid credential: the answer is 401.

        Raises:
            TooManyFailuresError: The credential is not valid, and neither were those before it: the answer is 429.
            ForeignOriginError: `Host` or `Origin` names another site: the answer is 403.
            UnavailableError: The store, or the keys of the tokens' issuer, can't be read: the answer is 503.
        """
        given = request.headers.getlist("authorization")
        if not given:
            # A cookie that is not valid is no failed attempt: browsers send those of sessions that have ended.
            return await self.sessions.principal(request) or await self._without_credential(request)
        scheme, _, credential = given[0].partition(" ")
        is_bearer = len(given) == 1 and scheme.lower() == "bearer"
        verified = await self.verify(request, credential.strip(" ") if is_bearer else "")
        return None if verified is None else verified.principal

    async def verify(self, request: Request, credential: str) -> VerifiedCredential | None:
        """Return a key or token that a request has; None if it is not valid.

        Raises:
            TooManyFailuresError: It is not valid, and neither were those before it: the answer is 429.
            UnavailableError: The store, or the keys of the tokens' issuer, can't be read: the answer is 503.
        """
        address = "" if request.client is None else request.client.host
        wait = self._limit.wait(address)
        verified = await self._verified(credential)
        if verified is not None:
            return verified
        if wait > 0:
            raise TooManyFailuresError(wait)
        self._limit.note_failure(address)
        return None

    async def signed_in(self, request: Request, answer: ProviderAnswer) -> VerifiedCredential:
        """Return the ID token of a person that the provider has sent back.

        Raises:
            HttpError: There is no single sign-on, this one has failed, or the provider does not answer.
            TooManyFailuresError: It has failed, and so did those before it: the answer is 429.
            UnavailableError: The keys of the provider can't be read: the answer is 503.
        """
        if self.sign_on is None:
            raise HttpError("not_found", "this server has no single sign-on")
        address = "" if request.client is None else request.client.host
        wait = self._limit.wait(address)
        try:
            return await self.sign_on.verified(request, answer)
        except HttpError as error:
            if error.code == SIGN_IN_FAILED:
                if wait > 0:
                    raise TooManyFailuresError(wait) from None
                self._limit.note_failure(address)
            raise

    async def has_credentials(self) -> bool:
        """Return whether the server has any credentials: without any it must not listen beyond this machine."""
        return self._tokens is not None or await self._keys.has_any()

    async def _without_credential(self, request: Request) -> Principal | None:
        if self._loopback is None or await self.has_credentials():
            return None
        return self._loopback.principal(request)

    async def _verified(self, credential: str) -> VerifiedCredential | None:
        if len(credential) > CREDENTIAL_MAX:
            return None
        if credential.startswith(START):
            return await self._keys.verified(credential)
        return None if self._tokens is None else await self._tokens.verified(credential)
