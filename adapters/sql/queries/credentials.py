"""Answers to the queries about credentials, browser sessions and audit entries."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link, Parameters
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import is_askable
from holdfast.ports.queries.credentials import (
    FindBrowserSession,
    FindCredential,
    ListAuditEntries,
    ListCredentials,
)
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential

_CREDENTIALS: Final = f"SELECT {', '.join(rows.CREDENTIAL)} FROM holdfast_credentials"
_BROWSER_SESSIONS: Final = f"SELECT {', '.join(rows.BROWSER_SESSION)} FROM holdfast_browser_sessions"
_ENTRIES: Final = f"SELECT {', '.join(rows.AUDIT_ENTRY)} FROM holdfast_audit_entries"


def find_credential(link: Link, dialect: Dialect, query: FindCredential) -> Credential | None:
    """Answer `FindCredential`."""
    if not is_askable(query.id):
        return None
    found = link.query(dialect.bound(f"{_CREDENTIALS} WHERE id = :id"), {"id": query.id})
    return rows.credential_from(found[0]) if found else None


def find_browser_session(link: Link, dialect: Dialect, query: FindBrowserSession) -> BrowserSession | None:
    """Answer `FindBrowserSession`."""
    if not is_askable(query.id):
        return None
    found = link.query(dialect.bound(f"{_BROWSER_SESSIONS} WHERE id = :id"), {"id": query.id})
    return rows.browser_session_from(found[0]) if found else None


def list_credentials(link: Link, dialect: Dialect, query: ListCredentials) -> tuple[Credential, ...]:
    """Answer `ListCredentials`."""
    if query.limit <= 0:
        return ()
    parameters: Parameters = {"limit": query.limit}
    after = ""
    if query.after is not None:
        after = " WHERE (created_at, id) > (:at, :id)"
        parameters = {**parameters, "at": query.after.at, "id": query.after.id}
    sql = f"{_CREDENTIALS}{after} ORDER BY created_at, id LIMIT :limit"
    return tuple(map(rows.credential_from, link.query(dialect.bound(sql), parameters)))


def list_audit_entries(link: Link, dialect: Dialect, query: ListAuditEntries) -> tuple[AuditEntry, ...]:
    """Answer `ListAuditEntries`."""
    if query.limit <= 0 or not is_askable(query.namespace):
        return ()
    parameters: Parameters = {"namespace": query.namespace, "limit": query.limit}
    after = ""
    if query.after is not None:
        after = " AND (at, id) < (:at, :id)"
        parameters = {**parameters, "at": query.after.at, "id": query.after.id}
    sql = f"{_ENTRIES} WHERE namespace = :namespace{after} ORDER BY at DESC, id DESC LIMIT :limit"
    entry = rows.record_of(AuditEntry)
    return tuple(map(entry, link.query(dialect.bound(sql), parameters)))
