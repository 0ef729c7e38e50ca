"""Translation of SQLite's errors: retry, conflict, refused data, missing access, missing tables."""

import sqlite3
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

_DENIED: Final = frozenset({sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY})
_TRANSIENT: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
    }
)
_UNIQUE: Final = frozenset(
    {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID}
)
_PRIMARY: Final = 0xFF  # SQLite's extended codes keep the primary one in their low byte


def from_sqlite(error: Exception) -> HoldfastError:
    """Return the error for one of the sqlite3 module."""
    message = f"{type(error).__name__}: {error}"
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code in _UNIQUE:
        return ConflictError(message)
    primary = None if code is None else code & _PRIMARY
    if primary == sqlite3.SQLITE_FULL:
        return DiskFullError(message)
    if primary == sqlite3.SQLITE_INTERRUPT:
        return StatementStoppedError(message)
    if primary in _DENIED:
        return AccessDeniedError(
            f"the database's file, or its folder, can't be written by this user: {message}"
        )
    if primary == sqlite3.SQLITE_NOTADB:
        return InvalidUrlError(f"the file that the URL names is not a database: {message}")
    if primary in _TRANSIENT:
        return TransientError(message)
    if "no such table" in str(error) or "no such column" in str(error) or "has no column named" in str(error):
        return SchemaError(f"the database's tables are missing or old; {SETUP_HINT} ({error})")
    # Without a code the module itself refused a value: an integer or a text that it can't bind.
    if primary in {None, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}:
        return RefusedError(message)
    return UnavailableError(f"SQLite failed: {message}")
