"""The contract of a store for running work: results, errors, rollback, and reuse."""

import pytest

from holdfast.ports.changes import DeleteJobs, Insert, Update
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, JobsOfRun, RunsByKey
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.searches import LatestRuns
from holdfast.ports.tables import REPLIES, RUNS
from holdfast.testing.conformance.builders import NAMESPACE, a_job, a_key, a_reply, a_row, a_run
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    jobs_of,
    put,
    put_run,
    query,
    the_run,
)
from holdfast.testing.conformance.threads import in_threads


class _OwnError(Exception):
    pass


class _OwnExit(BaseException):
    pass


class Retries(PersistenceCase):
    """`transact`, `setup` and `close`."""

    @pytest.mark.parametrize("result", [None, 0, "text", (1, 2)])
    def test_the_result_of_work_is_returned(self, store: Persistence, result: object) -> None:
        """Whatever it is."""
        assert result == store.transact(lambda _: result)

    def test_the_very_object_is_returned(self, store: Persistence) -> None:
        """It is not copied."""
        result = object()

        assert result is store.transact(lambda _: result)

    def test_what_is_returned_is_stored(self, store: Persistence) -> None:
        """When `transact` has returned, all transactions, queries and threads see the changes."""
        put(store, Insert(a_run()))

        assert a_run() == store.read(FindRun(a_run().name))
        assert [a_run()] == query(store, lambda tx: tx.lock(RUNS, [a_key(1)]))
        assert [a_run()] == in_threads(1, lambda _: the_run(store, a_key(1)))

    def test_what_is_stored_is_seen_by_another_store(self, store: Persistence, other: Persistence) -> None:
        """On the same rows."""
        put(store, Insert(a_run()))

        assert a_run() == the_run(other, a_key(1))

    def test_what_is_stored_outlives_the_store(self, store: Persistence, other: Persistence) -> None:
        """Closing it loses nothing."""
        put(store, Insert(a_run()))
        store.close()

        assert a_run() == the_run(other, a_key(1))

    @pytest.mark.parametrize("error", [_OwnError("own"), ValueError("value"), _OwnExit("exit")])
    def test_an_error_of_work_goes_to_the_caller_and_nothing_is_stored(
        self, store: Persistence, error: BaseException
    ) -> None:
        """The same error, of any class; every change of the batch is undone; the work is not retried."""
        put_run(store, a_run(), a_job())
        tries: list[int] = []

        def work(tx: Transaction) -> None:
            tries.append(1)
            tx.lock(RUNS, [a_key(1)])
            tx.apply(
                [
                    Insert(a_run(2)),
                    Update(a_run(status=RunStatus.FAILED)),
                    Insert(a_job(2, 1)),
                    DeleteJobs(a_key(1)),
                    Insert(a_row(1, 1)),
                    Insert(a_reply()),
                ]
            )
            raise error

        with pytest.raises(type(error)) as caught:
            store.transact(work)

        assert error is caught.value
        assert tries == [1]
        assert RunStatus.RUNNING is the_run(store, a_key(1)).status
        assert store.read(RunsByKey((a_key(2),))) == ()
        assert [a_job()] == jobs_of(store, a_key(1), a_key(2))
        assert store.read(HistoryOf(a_key(1))) == ()
        assert query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "key-1")])) == []

    def test_an_error_before_any_change_goes_to_the_caller(self, store: Persistence) -> None:
        """And releases locks: the next transaction gets them."""
        put(store, Insert(a_run()))

        def work(tx: Transaction) -> None:
            tx.lock(RUNS, [a_key(1)])
            raise _OwnError

        for _ in range(20):
            with pytest.raises(_OwnError):
                store.transact(work)

        assert [a_run()] == in_threads(1, lambda _: the_run(store, a_key(1)))
        put(store, Update(a_run(last_row=1)))

    def test_a_transaction_that_changes_nothing_ends(self, store: Persistence) -> None:
        """And releases locks."""
        put(store, Insert(a_run()))
        for _ in range(20):
            query(store, lambda tx: tx.lock(RUNS, [a_key(1)]))

        in_threads(2, lambda number: put(store, Update(a_run(last_row=number))))

    def test_work_that_finds_the_row_of_a_conflict_goes_on_from_it(self, store: Persistence) -> None:
        """Get or create: the second attempt reads the row that the first one conflicted with."""
        put(store, Insert(a_run(1, id="order")))
        tries: list[int] = []

        def get_or_create(tx: Transaction) -> str:
            tries.append(1)
            # The first attempt acts as if it had looked just before the other run was committed.
            found = tx.find(LatestRuns([RunName(NAMESPACE, "order")])) if len(tries) > 1 else ()
            if found:
                return found[0].key
            tx.apply([Insert(a_run(2, id="order"))])
            return a_key(2)

        assert a_key(1) == store.transact(get_or_create)

    def test_setup_is_harmless_when_repeated(self, store: Persistence) -> None:
        """It leaves the rows as they are."""
        put_run(store, a_run(), a_job())
        store.setup()
        store.setup()

        assert (a_job(),) == store.read(JobsOfRun(a_key(1)))

    def test_setup_is_safe_when_raced(self) -> None:
        """Several threads call it on the same store at once; the store then works."""
        store = self.make_persistence()
        try:
            in_threads(4, lambda _: store.setup())
            put(store, Insert(a_run()))
            assert a_run() == the_run(store, a_key(1))
        finally:
            store.close()

    def test_close_is_harmless_when_repeated(self, store: Persistence) -> None:
        """Also for a store that was never used."""
        store.close()
        store.close()
        unused = self.make_persistence()
        unused.close()
        unused.close()
