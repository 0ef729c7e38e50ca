"""Deletion of rows that are no longer needed, a limited number at a time, so that no statement takes long.

History is not deleted here. Should it ever be, rows that a stream of a registered sink has not delivered must stay,
also those of dead-lettered streams.
"""

from typing import Final

from holdfast.adapters.sql.database import Database, Parameters
from holdfast.ports.records.audit_entry import AUDIT_KEPT
from holdfast.ports.records.values import Micros

ROWS_AT_ONCE: Final = 5_000
RECEIPT_AGE: Final[Micros] = 3_600_000_000
"""How long receipts are kept at least, in microseconds. `persistence.DOUBT_SECONDS` is shorter."""

_OLD_REPLIES: Final = (
    "DELETE FROM holdfast_idempotency_replies WHERE (namespace, key) IN "
    "(SELECT namespace, key FROM holdfast_idempotency_replies WHERE created_at < :before LIMIT :limit) RETURNING 1"
)
_OLD_SESSIONS: Final = (
    "DELETE FROM holdfast_sessions WHERE id IN (SELECT s.id FROM holdfast_sessions AS s WHERE s.state <> 'open' "
    "AND s.expires_at < :before AND NOT EXISTS "
    "(SELECT 1 FROM holdfast_jobs AS j WHERE j.session = s.id AND j.state = 'leased') LIMIT :limit) RETURNING 1"
)
_ORPHAN_STREAMS: Final = (
    "DELETE FROM holdfast_outbox WHERE (sink, run) IN (SELECT o.sink, o.run FROM holdfast_outbox AS o "
    "WHERE NOT EXISTS (SELECT 1 FROM holdfast_sinks AS s WHERE s.key = o.sink) LIMIT :limit) RETURNING 1"
)
_STRAY_REGISTRATIONS: Final = (
    "DELETE FROM holdfast_worker_registry WHERE session IN (SELECT w.session FROM holdfast_worker_registry AS w "
    "WHERE NOT EXISTS (SELECT 1 FROM holdfast_sessions AS s WHERE s.id = w.session AND s.state = 'open') "
    "LIMIT :limit) RETURNING 1"
)
_QUIET_RATES: Final = (
    "DELETE FROM holdfast_rate_limits WHERE (namespace, name) IN "
    "(SELECT namespace, name FROM holdfast_rate_limits WHERE updated_at < :before LIMIT :limit) "
    "AND updated_at < :before RETURNING 1"
)
_QUIET_FAIR_KEYS: Final = (
    "DELETE FROM holdfast_fair_keys WHERE (namespace, line, key) IN "
    "(SELECT namespace, line, key FROM holdfast_fair_keys WHERE updated_at < :before LIMIT :limit) "
    "AND updated_at < :before RETURNING 1"
)
_OLD_AUDIT_ENTRIES: Final = (
    "DELETE FROM holdfast_audit_entries WHERE (namespace, at, id) IN "
    "(SELECT namespace, at, id FROM holdfast_audit_entries WHERE at < :before LIMIT :limit) RETURNING 1"
)
_ENDED_BROWSER_SESSIONS: Final = (
    "DELETE FROM holdfast_browser_sessions WHERE id IN "
    "(SELECT id FROM holdfast_browser_sessions WHERE ends_at < :before LIMIT :limit) "
    "AND ends_at < :before RETURNING 1"
)
_OLD_RECEIPTS: Final = (
    "DELETE FROM holdfast_commit_receipts WHERE id IN "
    "(SELECT id FROM holdfast_commit_receipts WHERE at < :before LIMIT :limit) RETURNING 1"
)


def prune_rows(database: Database, before: Micros, seconds: float) -> int:
    """Delete replies, rate limits and fair keys from before an instant, streams of removed sinks, and dead sessions.

    Deleted sessions expired before the instant and hold no jobs, and deleted browser sessions ended before it; audit
    entries are `AUDIT_KEPT` older than it. Rows of the worker registry without an open session, which only damage
    leaves behind, are deleted too.
    """
    old = (
        *(_OLD_REPLIES, _OLD_SESSIONS, _QUIET_RATES, _QUIET_FAIR_KEYS, _ORPHAN_STREAMS),
        *(_STRAY_REGISTRATIONS, _ENDED_BROWSER_SESSIONS),
    )
    removed = sum(_remove(database, sql, before, seconds) for sql in old)
    return removed + _remove(database, _OLD_AUDIT_ENTRIES, before - AUDIT_KEPT, seconds)


def prune_receipts(database: Database, seconds: float) -> int:
    """Delete receipts more than an hour old by the database's clock."""
    if not database.has_receipts:
        return 0
    assert database.clock_sql is not None, "the receipts are dated by the database's clock"
    with database.reader(seconds) as link:
        now: Micros = link.query(database.clock_sql)[0][0]
    return _remove(database, _OLD_RECEIPTS, now - RECEIPT_AGE, seconds)


def _remove(database: Database, sql: str, before: Micros, seconds: float) -> int:
    bound = database.dialect.bound(sql)
    parameters: Parameters = {"before": before, "limit": ROWS_AT_ONCE}
    removed = 0
    while True:
        with database.writer(seconds) as link:
            link.begin()
            found = len(link.query(bound, parameters))
            link.commit()
        removed += found
        if found < ROWS_AT_ONCE:
            return removed
