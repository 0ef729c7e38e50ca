"""Rules for browser sessions: a new one at each sign-in, a sign-out of one or all, an end that use puts off."""

from typing import Final

from holdfast.kernel.commands import (
    BrowserSessionCreate,
    BrowserSessionCreated,
    BrowserSessionDelete,
    BrowserSessionsDeleted,
    BrowserSessionsTouched,
    BrowserSessionTouch,
)
from holdfast.kernel.commands.credentials import DAY
from holdfast.kernel.composed_searches import SearchedBrowserSessions
from holdfast.kernel.rules.credentials import (
    TOUCHED_EVERY,
    TOUCHED_MAX,
    check_hash,
    check_id,
    check_rights,
    joined,
)
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import BROWSER_SESSIONS

SESSIONS_MAX: Final = 100
"""How many sessions a principal has at most. A program that signs in for each request would fill the table."""
IDLE_MIN: Final[Micros] = 300_000_000
"""Use is noted to the minute, by servers and in the store: a much shorter time could end a session that is in use."""
LIFETIME_MAX: Final[Micros] = 90 * DAY


def reads_of_create(command: BrowserSessionCreate) -> Reads:
    """Lock the sessions of the principal, and the replaced one. InvalidCommandError for a value that is not valid."""
    check_id(command.id)
    check_hash(command.hash)
    check_rights(command.scopes, command.namespaces)
    if not command.principal or not command.kind:
        raise InvalidCommandError("principal or kind is empty: name who is signed in")
    if (command.credential is None) != (command.credential_hash is None):
        raise InvalidCommandError("credential and credential_hash belong together: give both or neither")
    if command.credential is not None and command.credential_hash is not None:
        check_id(command.credential)
        check_hash(command.credential_hash)
    if not IDLE_MIN <= command.idle <= LIFETIME_MAX:
        raise InvalidCommandError(
            f"idle is {command.idle}; it must be from five minutes to 90 days in microseconds"
        )
    return Reads(search=_search_of(command))


def decide_create(
    state: State, command: BrowserSessionCreate, now: Micros, _: Ids
) -> Decision[BrowserSessionCreated]:
    """Create the session, and delete the replaced one and those that are too many. Raises InvalidCommandError."""
    if not now < command.expires_at <= now + LIFETIME_MAX:
        raise InvalidCommandError("expires_at is not an instant within the next 90 days")
    known = state.tables.browser_sessions
    if command.id in known:
        raise InvalidCommandError("there is a session with this id: generate another, and another secret")
    row = BrowserSession(
        id=command.id,
        hash=command.hash,
        kind=command.kind,
        principal=command.principal,
        credential=command.credential,
        credential_hash=command.credential_hash,
        scopes=joined(command.scopes),
        namespaces=joined(command.namespaces),
        created_at=now,
        used_at=now,
        idle=command.idle,
        expires_at=command.expires_at,
        ends_at=min(now + command.idle, command.expires_at),
    )
    gone = {key for key in known if key == command.replaces}
    others = sorted(
        (one for one in known.values() if _is_of(one, command) and one.id not in gone),
        key=lambda one: (one.ends_at, one.id),
    )
    gone |= {one.id for one in others[: max(len(others) - (SESSIONS_MAX - 1), 0)]}
    changes: tuple[Change, ...] = (*(Delete(BROWSER_SESSIONS, key) for key in sorted(gone)), Insert(row))
    return Decision(BrowserSessionCreated(id=row.id, ends_at=row.ends_at, deleted=len(gone)), changes)


def reads_of_delete(command: BrowserSessionDelete) -> Reads:
    """Lock the sessions of the principal, or one session."""
    return Reads(search=_search_of(command))


def decide_delete(
    state: State, command: BrowserSessionDelete, _: Micros, __: Ids
) -> Decision[BrowserSessionsDeleted]:
    """Delete the session, or all of the principal."""
    gone = sorted(
        one.id
        for one in state.tables.browser_sessions.values()
        if _is_of(one, command) and command.id in (None, one.id)
    )
    changes = tuple(Delete(BROWSER_SESSIONS, key) for key in gone)
    return Decision(BrowserSessionsDeleted(deleted=len(gone)), changes)


def reads_of_touch(command: BrowserSessionTouch) -> Reads:
    """Lock the sessions. Raises InvalidCommandError for too many."""
    if len(command.ids) > TOUCHED_MAX:
        raise InvalidCommandError(f"at most {TOUCHED_MAX} browser sessions are touched by one command")
    return Reads(search=SearchedBrowserSessions(ids=tuple(sorted(set(command.ids)))))


def decide_touch(
    state: State, command: BrowserSessionTouch, now: Micros, _: Ids
) -> Decision[BrowserSessionsTouched]:
    """Write when the sessions were last used, to the minute, and put off their ends. None that has ended revives."""
    rows = map(state.tables.browser_sessions.get, sorted(set(command.ids)))
    changes = tuple(
        Update(evolve(row, used_at=now, ends_at=min(now + row.idle, row.expires_at)))
        for row in rows
        if row is not None and row.is_valid(now) and now - row.used_at >= TOUCHED_EVERY
    )
    return Decision(BrowserSessionsTouched(touched=len(changes)), changes)


def _search_of(command: BrowserSessionCreate | BrowserSessionDelete) -> SearchedBrowserSessions:
    if isinstance(command, BrowserSessionCreate):
        named = {command.id} if command.replaces is None else {command.id, command.replaces}
        return SearchedBrowserSessions(tuple(sorted(named)), command.kind, command.principal)
    if command.id is not None:
        return SearchedBrowserSessions((command.id,))
    return SearchedBrowserSessions((), command.kind, command.principal)


def _is_of(row: BrowserSession, command: BrowserSessionCreate | BrowserSessionDelete) -> bool:
    return (row.kind, row.principal) == (command.kind, command.principal)
