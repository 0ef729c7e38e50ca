"""Answers to the queries about credentials and audit entries, from plain dictionaries."""

from holdfast.ports.queries.credentials import ListAuditEntries, ListCredentials
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.credential import Credential
from holdfast.ports.working_set import Tables


def list_credentials(tables: Tables, query: ListCredentials) -> tuple[Credential, ...]:
    """Answer `ListCredentials`."""
    after = query.after
    found = [row for row in tables.credentials.values() if after is None or row.place > after]
    return tuple(sorted(found, key=lambda row: row.place)[: max(query.limit, 0)])


def list_audit_entries(tables: Tables, query: ListAuditEntries) -> tuple[AuditEntry, ...]:
    """Answer `ListAuditEntries`."""
    after = query.after
    found = [
        row
        for row in tables.audit_entries.values()
        if row.namespace == query.namespace and (after is None or row.place < after)
    ]
    return tuple(sorted(found, key=lambda row: row.place, reverse=True)[: max(query.limit, 0)])
