"""A counter of the calls of a store."""

from collections.abc import Callable
from typing import TypeVar

import attrs

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.queries.values import LoadValues, LoadWork

R = TypeVar("R")


class Counting:
    """A store that counts transactions and queries."""

    def __init__(self, inner: Persistence, *, has_clock: bool) -> None:
        self._inner = inner
        self._has_clock = has_clock
        self.calls = 0
        self.values: list[LoadValues | LoadWork] = []
        self.found = 0
        """The number of look-ups of a run by its name."""

    def setup(self) -> None:
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        self.calls += 1
        return self._inner.transact(work)

    def read(self, query: Query[R], /) -> R:
        asked: object = query
        if self._has_clock or not isinstance(asked, StoreTime):
            self.calls += 1
        if isinstance(asked, LoadValues | LoadWork) and asked.wanted:
            self.values.append(asked)
        self.found += isinstance(asked, FindRun)
        return self._inner.read(query)

    def prune(self, before: int, /) -> int:
        self.calls += 1
        return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()


def counting_engine(
    url: str, namespace: str, *workflows: WorkflowDefinition[object]
) -> tuple[Engine, Counting]:
    """Open an engine whose store calls are counted."""
    stores = open_stores(url)
    counting = Counting(stores.persistence, has_clock=stores.file is None)
    engine = Engine.on(attrs.evolve(stores, persistence=counting), workflows=workflows, namespace=namespace)
    return engine, counting
