"""Rules for credentials: created once under a label, rotated with a period of grace, revoked for good."""

import re
from collections.abc import Collection
from typing import Final

from holdfast.kernel.commands import (
    CredentialCreate,
    CredentialCreated,
    CredentialRevoke,
    CredentialRevoked,
    CredentialRotate,
    CredentialRotated,
    CredentialsTouched,
    CredentialTouch,
)
from holdfast.kernel.commands.credentials import DAY
from holdfast.kernel.composed_searches import NamedCredentials
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.clock import Ids, instant
from holdfast.ports.errors import CredentialExistsError, CredentialNotFoundError, InvalidCommandError
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.values import Micros
from holdfast.ports.scopes import ALL_NAMESPACES, Scope
from holdfast.ports.structs import evolve
from holdfast.ports.tables import CREDENTIALS

FIRST_ID: Final = "a" * 12
"""The id of a credential that may only be the first: of two transactions that create one, the store refuses one."""
GRACE_MAX: Final[Micros] = 30 * DAY
TOUCHED_MAX: Final = 500
TOUCHED_EVERY: Final[Micros] = 60_000_000

_ID: Final = re.compile(r"[a-z2-7]{12}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,199}")
_NAMESPACES_MAX: Final = 100


def reads_of_create(command: CredentialCreate) -> Reads:
    """Lock the credential with the label. Raises InvalidCommandError for a value that is not valid."""
    _check(command)
    return Reads(search=_search(command))


def decide_create(
    state: State, command: CredentialCreate, now: Micros, _: Ids
) -> Decision[CredentialCreated]:
    """Create the credential, or return the one with its label. Raises CredentialExistsError, InvalidCommandError."""
    if command.expires_at is not None and command.expires_at <= now:
        raise InvalidCommandError("expires_at is in the past: give an instant in the future, or none")
    if command.only_if_first and (state.found[_search(command)].checked or state.tables.credentials):
        raise CredentialExistsError(
            "only the first credential may be created in this way, and there has been one: use its key, or "
            "`holdfast key create` with access to the database"
        )
    row = Credential(
        id=FIRST_ID if command.only_if_first else command.id,
        kind=command.kind,
        label=command.label,
        unique_label=command.label,
        principal=command.principal or command.label,
        scopes=joined(command.scopes),
        namespaces=joined(command.namespaces),
        hash=command.hash,
        created_at=now,
        expires_at=command.expires_at,
    )
    known = _named(state, command.label)
    if known is None:
        return Decision(CredentialCreated(id=row.id, created=True), (Insert(row),))
    _check_same(known, row, now)
    return Decision(CredentialCreated(id=known.id, created=False))


def reads_of_named(command: CredentialRotate | CredentialRevoke) -> Reads:
    """Lock the credential. Raises InvalidCommandError for a hash or a period of grace that is not valid."""
    if isinstance(command, CredentialRotate):
        check_hash(command.hash)
        if not 0 <= command.grace <= GRACE_MAX:
            raise InvalidCommandError(
                f"grace is {command.grace}; it must be from 0 to 30 days in microseconds"
            )
    return Reads(search=NamedCredentials((command.name,)))


def decide_rotate(
    state: State, command: CredentialRotate, now: Micros, _: Ids
) -> Decision[CredentialRotated]:
    """Replace the secret. Raises CredentialNotFoundError, InvalidCommandError."""
    known = _named(state, command.name)
    if known is None or known.revoked_at is not None:
        raise CredentialNotFoundError(command.name)
    if not known.is_valid(now):
        raise InvalidCommandError(f"the key {known.label!r} has expired: revoke it, and create another")
    if command.hash == known.hash:
        raise InvalidCommandError("this is the secret that the key has: generate another")
    until = now + command.grace
    row = evolve(known, hash=command.hash, previous_hash=known.hash, previous_until=until)
    return Decision(CredentialRotated(id=known.id, previous_until=until), (Update(row),))


def decide_revoke(
    state: State, command: CredentialRevoke, now: Micros, _: Ids
) -> Decision[CredentialRevoked]:
    """Revoke the credential. Raises CredentialNotFoundError."""
    known = _named(state, command.name)
    if known is None:
        raise CredentialNotFoundError(command.name)
    if known.revoked_at is not None:
        return Decision(CredentialRevoked(id=known.id, revoked=False))
    row = evolve(known, unique_label=None, revoked_at=now)
    # Unique names are noted when a row is inserted: an update can't release one.
    return Decision(
        CredentialRevoked(id=known.id, revoked=True), (Delete(CREDENTIALS, known.id), Insert(row))
    )


def reads_of_touch(command: CredentialTouch) -> Reads:
    """Lock the credentials. Raises InvalidCommandError for too many."""
    if len(command.ids) > TOUCHED_MAX:
        raise InvalidCommandError(f"at most {TOUCHED_MAX} credentials are touched by one command")
    return Reads(search=NamedCredentials(tuple(sorted(set(command.ids)))))


def decide_touch(state: State, command: CredentialTouch, now: Micros, _: Ids) -> Decision[CredentialsTouched]:
    """Write when the credentials were last used, to the minute."""
    rows = map(state.tables.credentials.get, sorted(set(command.ids)))
    changes = tuple(
        Update(evolve(row, used_at=now))
        for row in rows
        if row is not None and (row.used_at is None or now - row.used_at >= TOUCHED_EVERY)
    )
    return Decision(CredentialsTouched(touched=len(changes)), changes)


def _search(command: CredentialCreate) -> NamedCredentials:
    return NamedCredentials((command.label,), if_any=command.only_if_first)


def _named(state: State, name: str) -> Credential | None:
    rows = state.tables.credentials
    return rows.get(name) or next((row for row in rows.values() if row.unique_label == name), None)


def _check_same(known: Credential, row: Credential, now: Micros) -> None:
    """Raise CredentialExistsError unless a credential has the same rights, principal and end as a new one."""
    if not known.is_valid(now):
        raise CredentialExistsError(
            f"the key {known.label!r} has expired: revoke it first, or choose another label"
        )
    for what, before, after in (
        ("other scopes", known.scopes, row.scopes),
        ("other namespaces", known.namespaces, row.namespaces),
        ("another principal", known.principal, row.principal),
        ("another end", _end(known), _end(row)),
    ):
        if before != after:
            raise CredentialExistsError(
                f"a key {known.label!r} exists with {what} ({before}, not {after}): choose another label, or revoke "
                "it first"
            )


def _end(row: Credential) -> str:
    return "none" if row.expires_at is None else instant(row.expires_at).isoformat()


def _check(command: CredentialCreate) -> None:
    check_id(command.id)
    check_hash(command.hash)
    if not _LABEL.fullmatch(command.label):
        raise InvalidCommandError(
            f"{command.label[:120]!r} is not a label: use 1 to 100 of A-Z a-z 0-9 _ . @ -, the first a letter or a "
            "digit"
        )
    check_rights(command.scopes, command.namespaces)


def joined(names: Collection[str]) -> str:
    """Return names as a row has them: ascending, each once, separated by spaces."""
    return " ".join(sorted(set(names)))


def check_rights(scopes: Collection[str], namespaces: Collection[str]) -> None:
    """Raise InvalidCommandError for scopes that do not exist, and for namespaces that none can have."""
    known = [scope.value for scope in Scope]
    wrong = [scope for scope in scopes if scope not in known]
    if wrong or not scopes:
        problem = f"{wrong[0][:50]!r} is not a scope" if wrong else "a key without a scope may do nothing"
        raise InvalidCommandError(f"{problem}: give some of {', '.join(known)}")
    if not 1 <= len(namespaces) <= _NAMESPACES_MAX:
        raise InvalidCommandError(f"give from 1 to {_NAMESPACES_MAX} namespaces, or '*' for all")
    for namespace in namespaces:
        if namespace != ALL_NAMESPACES and not _NAMESPACE.fullmatch(namespace):
            raise InvalidCommandError(f"{namespace[:50]!r} is not a namespace: give its name, or '*' for all")
    if len(set(namespaces)) > 1 and ALL_NAMESPACES in namespaces:
        raise InvalidCommandError("'*' stands for all namespaces: give it alone, or the names of some")


def check_id(text: str) -> None:
    """Raise InvalidCommandError unless a text can be the id of a credential or a browser session."""
    if not _ID.fullmatch(text):
        raise InvalidCommandError(f"{text[:50]!r} is not the id of a credential: 12 of a-z 2-7")


def check_hash(text: str) -> None:
    """Raise InvalidCommandError unless a text can be the hash of a secret."""
    if not _HASH.fullmatch(text):
        raise InvalidCommandError("hash is not the SHA-256 of a secret in lower-case hexadecimal")
