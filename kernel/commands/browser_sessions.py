"""Commands on browser sessions, with their replies. None has a secret: hosts make it and pass its hash."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class BrowserSessionCreated:
    """Reply to `BrowserSessionCreate`."""

    id: str
    ends_at: Micros
    """When it ends unless it is used before."""
    deleted: int
    """How many other sessions were deleted: the replaced one, and those beyond the maximum number."""


@frozen(kw_only=True)
class BrowserSessionCreate(OperatorCommand[BrowserSessionCreated]):
    """Command to sign a browser in. Of more than 100 sessions of one principal, those that end first are deleted.

    Errors: InvalidCommandError.
    """

    type: ClassVar[Literal["browser_session.create"]] = "browser_session.create"
    id: str
    """12 random characters of `a-z2-7`."""
    hash: str
    """SHA-256 of the secret, in lower-case hexadecimal."""
    principal: str
    """Who is signed in: what actors name."""
    kind: str = "user"
    """The kind of the actor."""
    scopes: tuple[str, ...]
    """Names of scopes, such as `read`; at least one."""
    namespaces: tuple[str, ...]
    """The namespaces in which it is valid, or `*` for all; at least one."""
    idle: Micros
    """For how long it may go unused: from five minutes to 90 days, in microseconds."""
    expires_at: Micros
    """From when on it is refused, at most 90 days ahead."""
    credential: str | None = None
    """The id of the API key that it is opened with; None: a token."""
    credential_hash: str | None = None
    """The hash of the secret of that key."""
    replaces: str | None = None
    """The id of the session that the browser had before, which is deleted; None: none."""


@frozen(kw_only=True)
class BrowserSessionsDeleted:
    """Reply to `BrowserSessionDelete`."""

    deleted: int
    """How many sessions were deleted."""


@frozen(kw_only=True)
class BrowserSessionDelete(OperatorCommand[BrowserSessionsDeleted]):
    """Command to sign a principal out: from one browser, or from all. Unknown sessions are ignored."""

    type: ClassVar[Literal["browser_session.delete"]] = "browser_session.delete"
    principal: str
    """Who is signed out."""
    kind: str = "user"
    """The kind of the actor."""
    id: str | None = None
    """The id of one session, which is deleted only if it is this principal's; None: all of them."""


@frozen(kw_only=True)
class BrowserSessionsTouched:
    """Reply to `BrowserSessionTouch`."""

    touched: int
    """How many rows were written."""


@frozen(kw_only=True)
class BrowserSessionTouch(Command[BrowserSessionsTouched]):
    """Command to note that browser sessions were used. Of each, this is written at most once a minute.

    Unknown ids, and those of sessions that have ended, are ignored. Errors: InvalidCommandError for more than 500 ids.
    """

    type: ClassVar[Literal["browser_session.touch"]] = "browser_session.touch"
    ids: tuple[str, ...]
