"""Faults that a process does to itself at a chosen moment, without anything in Holdfast that knows of them.

The moments are those of a job, seen from outside: around the commands that a host dispatches, inside the transactions
that they become, and in the bodies. They are named by points: `job.settle:before`, when the command is about to be
dispatched; `job.settle:inside`, when all is written and not yet committed; `job.settle:after`, when it is committed and
the process does not know it yet; `body`, in the middle of one. Claims count only if they found something.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, cast

import attrs
from typing_extensions import TypeVar, override

from holdfast.adapters.sql.transaction import SqlTransaction
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.commands import (
    Command,
    JobRecorded,
    JobsClaimed,
    JobSettled,
    RunCreated,
    RunStopped,
    SchedulesFired,
)
from holdfast.kernel.dispatch.kernel import Executor, Kernel
from holdfast.ports.clock import Clock
from holdfast.ports.errors import CommandError
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.records.values import Micros
from holdfast.ports.user_transactions import SharedTransaction, SharesTransactions
from tests.chaos.execution_log import book

R = TypeVar("R")

_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@attrs.frozen
class Fault:
    """A fault: the `nth` time that `point` is reached, the process gets SIGKILL or SIGSTOP (`kill`, `stop`)."""

    point: str
    nth: int = 1
    do: str = "kill"


class Faults:
    """Counts the points reached, and fires the faults. Thread-safe."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()
        # A process that stops while another of its threads is in a transaction keeps all others out of a SQLite file.
        # So where one is to stop, threads take turns at the store: what is stopped is what the test means to stop.
        self.turn = threading.RLock() if any(fault.do == "stop" for fault in faults) else nullcontext()

    def reach(self, point: str) -> None:
        """Count that the process reached this point."""
        with self._lock:
            self._reached[point] += 1
            nth = self._reached[point]
        for fault in self._faults:
            if (fault.point, fault.nth) == (point, nth):
                with self.turn:
                    book().write_fault(point)
                    # Sent to the process, another thread might take it, and this one might go on for a moment.
                    signal.pthread_kill(threading.get_ident(), _SIGNALS[fault.do])


_own = [Faults()]


def expect(faults: Sequence[Fault]) -> None:
    """Set the faults of this process."""
    _own[0] = Faults(faults)


def reach(point: str) -> None:
    """Count that this process reached a point. Bodies call it."""
    _own[0].reach(point)


class StrikingStore:
    """A Persistence that reaches the `inside` and `after` points through `reach`.

    `committed` gets the number of transactions that changed something so far.
    """

    def __init__(
        self,
        inner: Persistence,
        reach: Callable[[str], None] = reach,
        committed: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._inner = inner
        self._reach = reach
        self._committed = committed
        self._commits = 0
        self._lock = threading.Lock()

    def setup(self) -> None:
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        wrote = False

        def inside(tx: Transaction) -> R:
            nonlocal wrote
            result = work(tx)
            wrote = isinstance(tx, SqlTransaction) and tx.wrote
            self._reach_all(result, "inside")
            return result

        with _own[0].turn:
            result = self._inner.transact(inside)
        if wrote:
            self._note_commit()
        self._reach_all(result, "after")
        return result

    @contextmanager
    def shared(self, wanted: type, /) -> Generator["StrikingTransaction"]:
        with cast("SharesTransactions", self._inner).shared(wanted) as transaction:
            yield StrikingTransaction(transaction, self._reach_all)

    def read(self, query: Query[R], /) -> R:
        return self._inner.read(query)

    def prune(self, before: Micros, /) -> int:
        with _own[0].turn:
            return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()

    def _note_commit(self) -> None:
        with self._lock:
            self._commits += 1
            self._committed(self._commits)

    def _reach_all(self, result: object, moment: str) -> None:
        """Reach the points of the commands that a transaction of the kernel answered."""
        answers = cast("tuple[object, ...]", result)[0] if isinstance(result, tuple) and result else None
        kinds = map(_kind, cast("list[object]", answers)) if isinstance(answers, list) else ()
        for kind in dict.fromkeys(filter(None, kinds)):
            self._reach(f"{kind}:{moment}")


class StrikingTransaction:
    """A SharedTransaction that reaches the `inside` and `after` points."""

    def __init__(self, inner: SharedTransaction, reach_all: Callable[[object, str], None]) -> None:
        self.given = inner.given
        self.was_committed = inner.was_committed
        self._inner = inner
        self._reach_all = reach_all
        self._result: object = None

    def join(self, work: Callable[[Transaction], R], /) -> R:
        result = self._inner.join(work)
        self._result = result
        self._reach_all(result, "inside")
        return result

    def commit(self) -> None:
        self._inner.commit()
        self._reach_all(self._result, "after")


class StrikingKernel(Kernel):
    """A kernel that reaches the `before` points."""

    @override
    def dispatch_many(self, commands: Sequence[Command[R]], /) -> list[R | CommandError]:
        for kind in dict.fromkeys(command.type for command in commands):
            reach(f"{kind}:before")
        return super().dispatch_many(commands)


class StrikingCore(Core):
    """Services that create such kernels."""

    @override
    def kernel_with(self, executor: Executor | None) -> Kernel:
        return StrikingKernel(
            persistence=self.stores.persistence,
            clock=self.clock,
            ids=self.stores.ids,
            transport=self.stores.transport,
            plans=self.registry.plans,
            executor=executor,
        )


def striking_engine(
    url: str, workflows: Sequence[WorkflowDefinition[object]], clock: Clock | None = None
) -> Engine:
    """Return an engine with faults at every point, optionally with a clock of its own."""
    stores = open_stores(url)
    persistence = StrikingStore(stores.persistence, committed=book().note_commits)
    stores = attrs.evolve(stores, persistence=persistence, clock=clock or stores.clock)
    return Engine(StrikingCore(stores, workflows, namespace="default", migrate=True))


def _kind(answer: object) -> str | None:
    match answer:
        case JobsClaimed(attempts=attempts) if attempts:
            return "job.claim"
        case JobSettled(status="settled"):
            return "job.settle"
        case JobRecorded(status="recorded", rows=rows) if rows:
            return "job.record"
        case RunCreated():
            return "run.create"
        case RunStopped():
            return "run.end"
        case SchedulesFired(runs=runs) if runs:
            return "schedule.fire"
        case _:
            return None


def fault_from(data: Mapping[str, Any]) -> Fault:
    """Return a fault from its JSON form."""
    return Fault(**data)
