"""The contract of a store for `prune`, which deletes rows after a retention period."""

from collections.abc import Callable
from typing import Final

import pytest
from attrs import evolve

from holdfast.ports.changes import AdvanceStreams, Change, Insert
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.records.audit_entry import AUDIT_KEPT
from holdfast.ports.records.job import JobState
from holdfast.ports.records.limits import FairKey, RateWindow
from holdfast.ports.records.outbox import StreamHead
from holdfast.ports.records.session import Registration, SessionState
from holdfast.ports.searches import DueStreams
from holdfast.ports.tables import (
    AUDIT_ENTRIES,
    BROWSER_SESSIONS,
    FAIR_KEYS,
    RATES,
    REGISTRATIONS,
    REPLIES,
    SESSIONS,
)
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    SECOND,
    a_browser_session,
    a_job,
    a_key,
    a_reply,
    a_run,
    a_session,
    a_sink,
    an_audit_entry,
)
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, put_run, query

BEFORE: Final = NOW
_DEAD: Final = a_session(state=SessionState.DEAD)
_REGISTRATION: Final = Registration(session=a_key(5), namespace=NAMESPACE, about="{}", lease=1)
_WINDOW: Final = RateWindow(namespace=NAMESPACE, name="api", updated_at=NOW)
_ACCOUNT: Final = FairKey(namespace=NAMESPACE, line="w/q", key="a", next_turn=1, updated_at=NOW)

OLD: Final[dict[str, tuple[Change, Callable[[Transaction], int]]]] = {
    "a reply": (
        Insert(a_reply(created_at=BEFORE - 1)),
        lambda tx: len(tx.get(REPLIES, [(NAMESPACE, "key-1")])),
    ),
    "a dead session": (
        Insert(evolve(_DEAD, expires_at=BEFORE - 1)),
        lambda tx: len(tx.get(SESSIONS, [_DEAD.id])),
    ),
    "a count of starts": (
        Insert(evolve(_WINDOW, updated_at=BEFORE - 1)),
        lambda tx: len(tx.get(RATES, [_WINDOW.rate_name])),
    ),
    "the account of a key": (
        Insert(evolve(_ACCOUNT, updated_at=BEFORE - 1)),
        lambda tx: len(tx.get(FAIR_KEYS, [_ACCOUNT.name])),
    ),
    "an audit entry": (
        Insert(evolve(an_audit_entry(), at=BEFORE - AUDIT_KEPT - 1)),
        lambda tx: len(tx.get(AUDIT_ENTRIES, [(NAMESPACE, BEFORE - AUDIT_KEPT - 1, an_audit_entry().id)])),
    ),
    "a browser session": (
        Insert(evolve(a_browser_session(), ends_at=BEFORE - 1)),
        lambda tx: len(tx.get(BROWSER_SESSIONS, [a_browser_session().id])),
    ),
    "a registration without an open session": (
        Insert(_REGISTRATION),
        lambda tx: len(tx.get(REGISTRATIONS, [_REGISTRATION.session])),
    ),
}
"""Rows just old enough to be deleted, with functions that count them."""

YOUNG: Final[dict[str, tuple[Change, Callable[[Transaction], int]]]] = {
    "a reply": (Insert(a_reply(created_at=BEFORE)), OLD["a reply"][1]),
    "a dead session": (Insert(evolve(_DEAD, expires_at=BEFORE)), OLD["a dead session"][1]),
    "an open session that has expired long ago": (
        Insert(a_session(expires_at=BEFORE - 1_000 * SECOND)),
        OLD["a dead session"][1],
    ),
    "a count of starts": (Insert(_WINDOW), OLD["a count of starts"][1]),
    "an audit entry": (
        Insert(evolve(an_audit_entry(), at=BEFORE - AUDIT_KEPT)),
        lambda tx: len(tx.get(AUDIT_ENTRIES, [(NAMESPACE, BEFORE - AUDIT_KEPT, an_audit_entry().id)])),
    ),
    "a browser session": (
        Insert(evolve(a_browser_session(), ends_at=BEFORE)),
        OLD["a browser session"][1],
    ),
    "the account of a key": (Insert(_ACCOUNT), OLD["the account of a key"][1]),
    "a stream whose sink is there": (
        Insert(a_sink()),
        lambda tx: len(tx.find(DueStreams(*a_sink().sink_name, 9), NOW)),
    ),
}
"""Rows one microsecond too young, or kept at any age, with functions that count them."""


class Retention(PersistenceCase):
    """`prune`: both sides of each bound."""

    @pytest.mark.parametrize("what", OLD)
    def test_what_is_older_than_the_bound_is_removed(self, store: Persistence, what: str) -> None:
        """And counted, once."""
        change, count = OLD[what]
        put(store, change)

        assert store.transact(count) == 1
        assert store.prune(BEFORE) == 1
        assert store.transact(count) == 0
        assert store.prune(BEFORE) == 0

    @pytest.mark.parametrize("what", YOUNG)
    def test_what_is_not_older_than_the_bound_stays(self, store: Persistence, what: str) -> None:
        """To the microsecond."""
        put_run(store, a_run())
        change, count = YOUNG[what]
        put(store, change)
        if what == "a stream whose sink is there":
            put(
                store,
                AdvanceStreams(
                    StreamHead(sink=a_sink().key, run=a_key(1), head_row=1, at=BEFORE - 1_000 * SECOND)
                ),
            )

        assert store.prune(BEFORE) == 0
        assert store.transact(count) == 1

    def test_the_registration_of_an_open_session_stays(self, store: Persistence) -> None:
        """However long ago it has expired."""
        put(store, Insert(a_session(5, expires_at=0, is_registered=1)), Insert(_REGISTRATION))
        assert store.prune(BEFORE) == 0
        assert query(store, lambda tx: tx.get(REGISTRATIONS, [a_key(5)])) == [_REGISTRATION]

    @pytest.mark.parametrize("state", [JobState.LEASED, JobState.QUEUED])
    def test_a_dead_session_that_holds_a_job_stays(self, store: Persistence, state: JobState) -> None:
        """Until its jobs are freed: the holder of a job must be known."""
        holder = evolve(_DEAD, expires_at=BEFORE - 1_000 * SECOND)
        is_held = state is JobState.LEASED
        put(store, Insert(holder))
        put_run(
            store, a_run(), a_job(state=state, session=holder.id if is_held else None, epoch=1, attempts=1)
        )

        assert store.prune(BEFORE) == (0 if is_held else 1)
        found = query(store, lambda tx: tx.get(SESSIONS, [holder.id]))
        assert [session.id for session in found] == ([holder.id] if is_held else [])
