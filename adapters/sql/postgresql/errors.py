"""Translation of PostgreSQL's errors: retry, conflict, refused data, missing access, missing tables."""

import re
from typing import Final

from holdfast.adapters.sql.errors import SETUP_HINT, DiskFullError, StatementStoppedError, TransientError
from holdfast.ports.errors import (
    AccessDeniedError,
    ConflictError,
    HoldfastError,
    InvalidUrlError,
    RefusedError,
    SchemaError,
    UnavailableError,
)

CREATE_HINT: Final = "create it, then run `holdfast db upgrade`"
GRANT_HINT: Final = "grant it the missing privileges on the tables holdfast_* or their schema"
_CONFLICT: Final = "23505"
_NO_TABLE: Final = frozenset({"42P01", "42703"})
_NO_SCHEMA: Final = "3F000"
_REFUSED: Final = ("22", "23", "54")
"""Bad data, a violated constraint, a value that is too large."""
_DISK_FULL: Final = "53100"
_STOPPED: Final = "57014"
"""A statement timeout, or a request to cancel."""
_TRANSIENT: Final = ("08", "25", "26", "40", "53", "55", "57", "58")
"""Connection; transaction state (a promoted standby refuses writes); prepared statements behind a pooler that changed
servers; serialization and deadlocks; resources; locks; shutdown and timeouts; system.
"""
_DENIED: Final = ("28", "42501")
"""Failed authentication, and missing privileges."""
_NO_DATABASE: Final = "3D000"
_RECOVERING: Final = re.compile(r"read-write mode during recovery")
# libpq has no error codes for failed connections, only messages.
_NOT_LET_IN: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba.conf entry|pg_hba.conf rejects|no such user"
    r"|permission denied (for database|to set)|role \".*\" does not exist|not permitted to log in|CONNECT privilege",
    re.DOTALL,
)
_NOT_THERE: Final = re.compile(r"database \".*\" does not exist|no such database", re.DOTALL)
_NOT_POSSIBLE: Final = re.compile(
    r"unrecognized configuration parameter|invalid value for parameter|invalid command-line argument|requires a value"
    r"|parameter \".*\" (cannot be changed|requires a)|invalid connection option|invalid [\w ]+ value"
    r"|invalid port number|server does not support SSL|certificate file|private key file|certificate verify failed",
    re.DOTALL,
)
_SEVERAL: Final = "Multiple connection attempts failed"


def from_sqlstate(sqlstate: str | None, message: str) -> HoldfastError:
    """Return the error for an SQLSTATE. None is an error of the driver without one: a lost connection."""
    if sqlstate == _DISK_FULL:
        return DiskFullError(message)
    if sqlstate == _STOPPED:
        return StatementStoppedError(message)
    if sqlstate is None or sqlstate.startswith(_TRANSIENT) or _RECOVERING.search(message):
        return TransientError(message)
    if sqlstate.startswith(_DENIED):
        return AccessDeniedError(f"the database denies this to its user: {message}; {GRANT_HINT}")
    if sqlstate == _NO_DATABASE:
        return SchemaError(f"the database does not exist: {message}; {CREATE_HINT}")
    if sqlstate == _CONFLICT:
        return ConflictError(message)
    if sqlstate.startswith(_REFUSED):
        return RefusedError(message)
    if sqlstate == _NO_SCHEMA:
        return SchemaError(f"no schema of the search path exists that this user may use ({message})")
    if sqlstate in _NO_TABLE:
        return SchemaError(f"the database's tables are missing or old; {SETUP_HINT} ({message})")
    return UnavailableError(f"the database refused a statement ({sqlstate}): {message}")


def from_connecting(message: str) -> HoldfastError:
    """Return the error for a failed connection, by the driver's message."""
    text = f"no connection: {message}"
    if _SEVERAL in message:
        return TransientError(text)  # of several hosts the primary may be down, and another be read-only
    if _NOT_THERE.search(message):
        return SchemaError(f"{text}; {CREATE_HINT}")
    if _NOT_LET_IN.search(message):
        return AccessDeniedError(f"{text}; check the user, the password and the access rules of the server")
    if _NOT_POSSIBLE.search(message):
        return InvalidUrlError(f"{text}; correct the URL, or the environment variables of the client")
    return TransientError(text)
