"""Queries for credentials, browser sessions and audit entries."""

from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Query
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.structs import frozen


@frozen
class FindCredential(Query[Credential | None]):
    """The credential with this id, whether or not it is valid."""

    id: str


@frozen(kw_only=True)
class ListCredentials(Query[tuple[Credential, ...]]):
    """The next credentials after a place, the oldest first. Revoked ones are included."""

    after: ListPlace | None = None
    limit: int = 100


@frozen
class FindBrowserSession(Query[BrowserSession | None]):
    """The browser session with this id, whether or not it is valid."""

    id: str


@frozen(kw_only=True)
class ListAuditEntries(Query[tuple[AuditEntry, ...]]):
    """The next audit entries of a namespace after a place, the newest first."""

    namespace: str
    after: ListPlace | None = None
    limit: int = 100
