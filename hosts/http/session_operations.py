"""Operations on browser sessions: sign in with a key or token, see who is signed in, sign out."""

from datetime import datetime
from typing import Any, Final

import attrs

from holdfast.hosts.http.authentication.browser_sessions import BrowserSessions
from holdfast.hosts.http.operations import Access, Hint, Invocation, Nothing, Operation, Table
from holdfast.hosts.http.principals import CurrentSession, Principal
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.return_paths import is_return_path
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidCommandError

SESSION: Final = "/v1/browser-session"


def _check_path(_: object, __: "attrs.Attribute[str]", value: str) -> None:
    """Refuse a path that is not one of this server."""
    if not is_return_path(value):
        raise ValueError(f"{value!r:.80} is not a path of this server, such as /runs")


@attrs.frozen(kw_only=True)
class SignIn:
    """The credential with which a person signs in."""

    credential: str = attrs.field(repr=False)
    """An API key, or a token of the OpenID Connect provider."""
    return_to: str = attrs.field(default="/", validator=_check_path)
    """After a form: the path of this server to which the browser goes."""


@attrs.frozen(kw_only=True)
class SignOut:
    """How a person signs out."""

    everywhere: bool = False
    """Whether all browser sessions of the principal end, not only that of the request."""
    return_to: str = attrs.field(default="/", validator=_check_path)
    """After a form: the path of this server to which the browser goes."""


@attrs.frozen(kw_only=True)
class BrowserSessionInfo:
    """A browser session, and who is signed in."""

    principal: str
    """The id of the principal."""
    kind: str
    """The kind of the actor of its commands: `key`, or `user` for a token."""
    scopes: tuple[str, ...]
    """The scopes of the principal."""
    namespaces: tuple[str, ...]
    """The namespaces that the principal reaches; `*` for all."""
    csrf_token: str = attrs.field(repr=False)
    """What requests that change something send as `X-CSRF-Token`, and forms as `csrf_token`."""
    created_at: datetime
    """When the person signed in."""
    ends_at: datetime
    """When the session ends unless it is used before."""
    expires_at: datetime
    """When it ends, however much it is used."""


@attrs.frozen(kw_only=True)
class SignedOut:
    """What a sign-out has ended."""

    ended: int
    """How many browser sessions have ended."""


def sign_in(call: Invocation[Nothing, SignIn]) -> BrowserSessionInfo:
    """Sign a browser in with an API key or a token.

    The answer sets a cookie, and has what a script needs to send requests with it. The body may also be a form; then
    the browser is sent to `return_to`. The session that the browser had before ends. The request must come from a page
    of this server, if from a browser.
    """
    assert call.verified is not None, "the operation needs a credential"
    sessions = _sessions_of(call)
    session, cookie = sessions.open(call.engine.client, call.request, call.verified)
    call.answer_cookies.append(cookie)
    return _info(call.principal, session)


def get_session(call: Invocation[Nothing, Nothing]) -> BrowserSessionInfo:
    """Get the browser session of the request, with a token against cross-site request forgery.

    The token is another text each time, and each is valid as long as the session. 404 for a request without a session:
    `GET /v1` describes the principal of every request.
    """
    session = call.principal.session
    if session is None:
        raise HttpError("not_found", "no browser session has authenticated this request")
    return _info(call.principal, session)


def sign_out(call: Invocation[Nothing, SignOut]) -> SignedOut:
    """Sign out, from this browser or everywhere.

    Open streams of a session that has ended are closed within five seconds. With `everywhere`, a key or a token ends
    all browser sessions of its principal. The body may also be a form; then the browser is sent to `return_to`.
    """
    ended, cookie = _sessions_of(call).close(
        call.engine.client, call.request, call.principal, everywhere=call.body.everywhere
    )
    call.answer_cookies.append(cookie)
    return SignedOut(ended=ended)


def _sessions_of(call: Invocation[Any, Any]) -> BrowserSessions:
    sessions = call.server.sessions
    if sessions is None:
        raise HttpError("not_found", "the application that embeds this server signs people in")
    return sessions


def _info(principal: Principal, session: CurrentSession) -> BrowserSessionInfo:
    return BrowserSessionInfo(
        principal=principal.id,
        kind=principal.kind,
        scopes=tuple(sorted(principal.scopes)),
        namespaces=tuple(sorted(principal.namespaces)),
        csrf_token=session.csrf_token(),
        created_at=instant(session.row.created_at),
        ends_at=instant(session.row.ends_at),
        expires_at=instant(session.row.expires_at),
    )


def _return_to(call: Invocation[Nothing, SignIn | SignOut]) -> str:
    return call.body.return_to


OPERATIONS: Final[Table] = (
    Operation(
        name="browser_session.create",
        method="POST",
        path=SESSION,
        scope=Access.CREDENTIAL,
        body=SignIn,
        reply=BrowserSessionInfo,
        handler=sign_in,
        hint=Hint.CHANGES,
        form=_return_to,
        in_read_only=True,
        errors=(InvalidCommandError,),
    ),
    Operation(
        name="browser_session.get",
        method="GET",
        path=SESSION,
        scope=Access.PRINCIPAL,
        reply=BrowserSessionInfo,
        handler=get_session,
    ),
    Operation(
        name="browser_session.delete",
        method="POST",
        path=f"{SESSION}/sign-out",
        scope=Access.PRINCIPAL,
        body=SignOut,
        reply=SignedOut,
        handler=sign_out,
        hint=Hint.CHANGES,
        form=_return_to,
        in_read_only=True,
    ),
)
