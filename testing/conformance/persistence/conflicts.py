"""The contract of a store for rows that exist already, and for values that it can't store."""

from collections.abc import Sequence
from typing import Final

import pytest
from attrs import evolve

from holdfast.ports.changes import Change, Insert
from holdfast.ports.errors import ConflictError, RefusedError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.history import HistoryOf, NotesOf
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.queries.values import LoadValues
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.values import Payload
from holdfast.ports.references import item_reference
from holdfast.ports.searches import LatestRuns
from holdfast.ports.tables import REPLIES, RUNS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    a_job,
    a_key,
    a_leader_lease,
    a_note,
    a_page,
    a_reply,
    a_row,
    a_run,
    a_schedule,
    a_sink,
)
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    jobs_of,
    put,
    put_jobs,
    query,
    the_run,
)

THERE: Final[Sequence[Change]] = (
    Insert(a_run(1, id="order", open_jobs=1)),
    Insert(a_job(1, 1)),
    Insert(a_row(1, 1)),
    Insert(a_page(1, 0, items=(Payload(inline="1"),))),
    Insert(a_reply("key-1")),
    Insert(a_note(1)),
    Insert(a_leader_lease("maintenance")),
    Insert(a_sink("audit")),
    Insert(a_schedule(1, name="nightly")),
)

TAKEN: Final[dict[str, Change]] = {
    "key of a run": Insert(a_run(1, id="another")),
    "name of a run": Insert(a_run(9, id="order")),
    "number of a job": Insert(a_job(1, 1, priority=9)),
    "number of a history row": Insert(a_row(1, 1, type="other")),
    "page of items": Insert(a_page(1, 0, items=(Payload(inline="2"),))),
    "idempotency key": Insert(a_reply("key-1", body="other")),
    "name of a duty": Insert(a_leader_lease("maintenance", session=9)),
    "key of a sink": Insert(a_sink("other", key=a_sink("audit").key)),
    "name of a sink": Insert(a_sink("audit", key="01OTHER")),
    "key of a schedule": Insert(a_schedule(1, name="other")),
    "name of a schedule": Insert(a_schedule(9, name="nightly")),
}
"""Rows to add, each of which has a unique value in common with a row of THERE."""

NEAR_MISSES: Final[Sequence[Change]] = (
    Insert(a_run(9, id="order", generation=2)),
    Insert(a_run(8, id="order", namespace="tenant-2")),
    Insert(a_job(1, 2)),
    Insert(a_job(9, 1)),
    Insert(a_row(1, 2)),
    Insert(a_row(9, 1)),
    Insert(a_page(1, 1)),
    Insert(a_page(1, 0, node="other")),
    Insert(a_page(9, 0)),
    Insert(a_reply("key-1", namespace="tenant-2")),
    Insert(a_reply("key-2")),
    Insert(a_note(2)),
    Insert(a_leader_lease("other")),
    Insert(a_sink("other")),
    Insert(a_sink("audit", key="01OTHER", namespace="tenant-2")),
    Insert(a_schedule(9, name="nightly ")),
    Insert(a_schedule(8, name="nightly", namespace="tenant-2")),
)
"""Rows to add that have no unique value in common with a row of THERE."""

ODD_TEXTS: Final[dict[str, str]] = {
    "NUL": "a\x00b",
    "lone surrogate": "a\ud800b",
    "reversed surrogates": "\udc00\ud800",
    "non-character": "\ufffe\uffff",
    "a million characters": "x" * 1_000_000,
}

ODD_NUMBERS: Final[dict[str, int]] = {
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "2**64": 2**64,
    "10**30": 10**30,
}


class Conflicts(PersistenceCase):
    """ConflictError and RefusedError."""

    @pytest.mark.parametrize("what", TAKEN)
    def test_a_row_that_another_has_taken_is_a_conflict(self, store: Persistence, what: str) -> None:
        """The work runs again, and then finds the other row; nothing of its first batch is stored."""
        put(store, *THERE)
        before = _contents(store)
        tries: list[list[Run]] = []

        def work(tx: Transaction) -> str:
            tries.append(list(tx.find(LatestRuns([RunName(NAMESPACE, "order")]))))
            if len(tries) == 1:
                tx.apply([Insert(a_reply("new")), TAKEN[what]])
                return "stored"
            return "found"

        assert store.transact(work) == "found"
        assert len(tries) >= 2
        assert tries[-1], "the last try did not see what was there"
        assert before == _contents(store)

    @pytest.mark.parametrize("what", TAKEN)
    def test_a_conflict_that_comes_every_time_goes_to_the_caller(self, store: Persistence, what: str) -> None:
        """After several attempts, and nothing is stored."""
        put(store, *THERE)
        before = _contents(store)

        with pytest.raises(ConflictError):
            put(store, Insert(a_reply("new")), TAKEN[what])

        assert before == _contents(store)

    def test_two_new_runs_of_one_name_in_a_batch_are_a_conflict(self, store: Persistence) -> None:
        """Neither is stored, nor are the changes before them."""
        with pytest.raises(ConflictError):
            put(store, Insert(a_reply("new")), Insert(a_run(1, id="x")), Insert(a_run(2, id="x")))

        assert query(store, lambda tx: tx.lock(RUNS, [a_key(1), a_key(2)])) == []
        assert query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "new")])) == []

    def test_two_new_replies_to_one_key_in_a_batch_are_a_conflict(self, store: Persistence) -> None:
        """Neither is stored, nor are the changes before them."""
        with pytest.raises(ConflictError):
            put(store, Insert(a_run(1)), Insert(a_reply("x")), Insert(a_reply("x", body="other")))

        assert query(store, lambda tx: tx.lock(RUNS, [a_key(1)])) == []
        assert query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "x")])) == []

    def test_rows_that_only_resemble_others_are_no_conflict(self, store: Persistence) -> None:
        """Another generation, namespace, run, map, page or number."""
        put(store, *THERE)
        put(store, *NEAR_MISSES)

        assert a_key(9) == the_run(store, a_key(9)).key
        assert [a_job(1, 1), a_job(1, 2), a_job(9, 1)] == jobs_of(store, a_key(1), a_key(9))

    @pytest.mark.parametrize("what", ODD_TEXTS)
    def test_an_odd_text_is_kept_or_refused(self, store: Persistence, what: str) -> None:
        """Exactly, or nothing of its batch is stored."""
        text = ODD_TEXTS[what]
        run = a_run(1, progress=text, error=text)
        try:
            put(store, Insert(a_reply("new")), Insert(run))
        except RefusedError:
            assert None is store.read(FindRun(run.name))
            assert query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "new")])) == []
        else:
            assert run == the_run(store, run.key)

    @pytest.mark.parametrize("what", ODD_NUMBERS)
    def test_an_odd_number_is_kept_or_refused(self, store: Persistence, what: str) -> None:
        """An instant that does not fit into 64 bits does no harm."""
        run = a_run(1, ended_at=ODD_NUMBERS[what])
        try:
            put(store, Insert(a_reply("new")), Insert(run))
        except RefusedError:
            assert None is store.read(FindRun(run.name))
            assert query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "new")])) == []
        else:
            assert run == the_run(store, run.key)

    def test_a_refusal_is_not_tried_again_and_harms_nobody(self, store: Persistence) -> None:
        """The next transaction on the same rows succeeds."""
        put_jobs(store, a_job())
        tries: list[int] = []

        def work(tx: Transaction) -> None:
            tries.append(1)
            (run,) = tx.lock(RUNS, [a_key(1)])
            tx.apply([Insert(a_row(1, 1, data="\x00\ud800")), Insert(evolve(run, key=a_key(2), id="2"))])

        try:
            store.transact(work)
        except RefusedError:
            assert store.read(HistoryOf(a_key(1))) == ()
            assert tries == [1]
        put(store, Insert(a_row(1, 2)))


def _contents(store: Persistence) -> tuple[object, ...]:
    keys = (a_key(1), a_key(9))
    return (
        query(store, lambda tx: tx.lock(RUNS, keys)),
        jobs_of(store, *keys),
        store.read(HistoryOf(a_key(1))),
        store.read(LoadValues(((a_key(1), item_reference("bill", 0, 0)),))),
        store.read(NotesOf(a_key(1))),
        query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "key-1"), (NAMESPACE, "new")])),
    )
