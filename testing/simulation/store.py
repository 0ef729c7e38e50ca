"""The store that all simulated processes share. A watcher sees every commit before any process does."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import attrs

from holdfast.kernel.history import events
from holdfast.ports.changes import Change, Insert
from holdfast.ports.errors import RefusedError
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.fibers import Fiber

R = TypeVar("R")


@attrs.frozen(kw_only=True)
class Commit:
    """A committed transaction: its process, its changes, and the commands (`sent`) that caused it."""

    process: str
    changes: Sequence[Change]
    sent: Sequence[object]


class Watcher(Protocol):
    """An observer of every commit."""

    def before(self, tables: Tables, commit: Commit) -> None:
        """Observe a commit with the rows from before it."""
        ...

    def apply(self, tables: Tables, change: Change) -> None:
        """Make one change of the commit to the rows."""
        ...

    def after(self, tables: Tables, commit: Commit) -> None:
        """Observe a commit with the rows from after it."""
        ...


CHARGES_WITH_RECEIPT: Final = "receipted"
"""The name of steps whose compensation needs their result: a refused result would block their run."""

CHARGES: Final = "charge"
"""The name of the other steps that have a compensation."""

_Value: TypeAlias = tuple[str, str | None, int | None, str, Payload | None]

_RESULT_ROWS: Final = frozenset(
    {events.ChildCompleted.type, events.StageCompleted.type, events.StepCompleted.type}
)


class _RolledBack(Exception):  # noqa: N818  # it reports no error
    """Raised to roll a transaction back."""


def _is_awaited(result: events.HistoryEvent) -> bool:
    """Return whether a result matters beyond its row: that of a child run, or of a step with a compensation."""
    match result:
        case events.StepCompleted(step=step):
            return CHARGES in step
        case events.StageCompleted(run=run):
            return run is not None
        case _:
            return isinstance(result, events.ChildCompleted)


def _is_again(row: HistoryRow) -> bool:
    """Return whether a row repeats one of the generation before, as a fork's messages do."""
    match events.event_of(row):
        case (
            events.SignalReceived(again=again)
            | events.UpdateReceived(again=again)
            | events.ChildCompleted(again=again)
            | events.ChildFailed(again=again)
            | events.FunctionBegan(again=again)
            | events.ClockRead(again=again)
            | events.PatchMarked(again=again)
        ):
            return again is not None
        case _:
            return False


class SharedStore:
    """A store with a copy of its rows in plain dictionaries, which is updated at each commit."""

    def __init__(self, inner: Persistence, now: Callable[[], Micros], watcher: Watcher) -> None:
        self.inner = inner
        self.tables = Tables()
        self.commits = 0
        self.clock: Callable[[], Micros] = now
        """The store's clock."""
        self._now = now
        self._watcher = watcher
        self._refused: set[_Value] = set()
        self._refuses_next = False
        self._refuses_next_awaited = False

    def transact(self, fiber: Fiber, work: Callable[[Transaction], R]) -> R:
        """Run a transaction, and pass its commit to the watcher."""
        recorded: list[_Recorder] = []

        def observed(tx: Transaction) -> R:
            recorder = _Recorder(tx, self)
            recorded.append(recorder)
            return work(cast("Transaction", recorder))

        result = self.inner.transact(observed)
        if recorded and recorded[-1].changes:
            fiber.commits += 1
            for change in recorded[-1].changes:
                if (
                    isinstance(change, Insert)
                    and isinstance(change.record, HistoryRow)
                    and (change.record.epoch is not None or _is_again(change.record))
                ):
                    fiber.process.hub.stored_at[change.record.at] = self._now()
            self._follow(
                Commit(process=fiber.process.name, changes=recorded[-1].changes, sent=fiber.commands)
            )
        return result

    def for_nothing(self, work: Callable[[Transaction], object]) -> None:
        """Run a transaction and roll it back."""

        def rolled_back(tx: Transaction) -> None:
            work(tx)
            raise _RolledBack

        with suppress(_RolledBack):
            self.inner.transact(rolled_back)

    def read(self, query: Query[R]) -> R:
        """Answer a query. `StoreTime` returns what the store's clock shows."""
        if isinstance(query, StoreTime):
            return cast("R", self.clock())
        return self.inner.read(query)

    def prune(self, before: Micros) -> int:
        """Prune the store and the copy; return the number of pruned rows."""
        pruned = self.inner.prune(before)
        tables = self.tables
        for key in [key for key, reply in tables.replies.items() if reply.created_at < before]:
            del tables.replies[key]
        return pruned

    def refuse_next(self) -> None:
        """Refuse the next result for ever, and the next one that matters beyond its row."""
        self._refuses_next = self._refuses_next_awaited = True

    def check_refused(self, changes: Sequence[Change]) -> None:
        """Raise RefusedError if one of the results in these changes is refused."""
        for change in changes:
            if (
                not (isinstance(change, Insert) and isinstance(change.record, HistoryRow))
                or change.record.type not in _RESULT_ROWS
            ):
                continue
            row, result, call = change.record, events.event_of(change.record), ""
            if isinstance(result, events.StepCompleted):
                if CHARGES_WITH_RECEIPT in result.step:
                    continue
                call = result.call
            value = (row.run, row.node, row.item, call, row.payload)
            if self._refuses_next:
                self._refuses_next = False
                self._refused.add(value)
            elif self._refuses_next_awaited and _is_awaited(result):
                self._refuses_next_awaited = False
                self._refused.add(value)
            if value in self._refused:
                raise RefusedError(f"injected fault: the output of {row.node or 'the run'} can't be stored")

    def _follow(self, commit: Commit) -> None:
        self.commits += 1
        self._watcher.before(self.tables, commit)
        for change in commit.changes:
            self._watcher.apply(self.tables, change)
        self._watcher.after(self.tables, commit)


class _Recorder:
    """A transaction that records its changes."""

    def __init__(self, tx: Transaction, store: SharedStore) -> None:
        self._tx = tx
        self._store = store
        self.changes: Sequence[Change] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def apply(self, changes: Sequence[Change], /) -> None:
        """Apply the changes and record them."""
        self._store.check_refused(changes)
        self._tx.apply(changes)
        self.changes = tuple(changes)
