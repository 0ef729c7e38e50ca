"""The cost of firing schedules: one commit, and statements that do not grow with the number of schedules."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final
from zlib import crc32

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.commands import (
    Overlap,
    RunCreate,
    ScheduleFire,
    SchedulePolicy,
    SchedulePut,
    SchedulesFired,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.schedules.row_data import timing_of
from holdfast.ports.records.values import Payload
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from tests.integration.counts.statement_counter import Statements
from tests.sizes import sized
from tests.unit.kernel.world import pipeline, stage

pytestmark = pytest.mark.sized

FEW, MANY = 10, 100
LATER: Final = sized(100, 2_000)
"""How many schedules there are besides, that are not due."""
PLAN: Final = pipeline(stage("a"), workflow="report")
MINUTE: Final = timedelta(minutes=1)


class Host:
    """A host with a clock that is moved by hand."""

    def __init__(self, url: str, namespace: str, statements: Statements) -> None:
        self.clock = ManualClock()
        self.store = SqlPersistence(url)
        self.store.setup()
        # Hosts of several namespaces share a database.
        ids = SeededIds(crc32(namespace.encode()), clock=self.clock)
        self.kernel = Kernel(persistence=self.store, clock=self.clock, ids=ids, plans=[PLAN])
        self.namespace = namespace
        self.statements = statements

    def put(self, number: int, overlap: Overlap = Overlap.ALLOW, *, every: timedelta = MINUTE) -> None:
        """Store schedules."""
        self.kernel.dispatch_many(
            [
                SchedulePut(
                    namespace=self.namespace,
                    schedule=f"{overlap.value}-{every.total_seconds()}-{each}",
                    start=RunCreate(namespace=self.namespace, workflow="report", input=Payload(inline="1")),
                    timing=timing_of([Every(every)]),
                    policy=SchedulePolicy(overlap=overlap),
                )
                for each in range(number)
            ]
        )

    def fire(self) -> tuple[SchedulesFired, Statements]:
        """Fire once, and return what it took."""
        command = ScheduleFire(namespace=self.namespace, workflows=("report",))
        with self.statements.of() as sent:
            fired = self.kernel.dispatch(command)
        return fired, sent

    def cost(self, schedules: int, overlap: Overlap) -> tuple[int, int, int]:
        """Return the runs, statements and commits of the second firing: the first may store a plan."""
        self.put(schedules, overlap)
        self.clock.advance(MINUTE)
        self.fire()
        self.clock.advance(MINUTE)
        fired, sent = self.fire()
        assert len(fired.runs) + fired.skipped == schedules
        return len(fired.runs), sent.queries, sent.commits


@pytest.fixture
def open_host(url: str, statements: Statements) -> Iterator[Callable[[str], Host]]:
    """Opens hosts in namespaces of their own, and closes them at the end."""
    opened: list[Host] = []

    def open_one(namespace: str) -> Host:
        opened.append(Host(url, namespace, statements))
        return opened[-1]

    yield open_one
    for host in opened:
        host.store.close()


STATEMENTS: Final = {Overlap.ALLOW: 9, Overlap.SKIP: 6, Overlap.QUEUE: 8}
"""For any number of due schedules. SQLite looks for what is due before it begins to write: one more."""


def kind_of(url: str) -> str:
    """Return the kind of a database."""
    return url.partition(":")[0]


def test_nothing_due_costs_two_searches_whatever_there_is(
    open_host: Callable[[str], Host], namespace: str
) -> None:
    host = open_host(namespace)
    _, empty = host.fire()
    host.put(LATER, every=timedelta(days=1))
    fired, sent = host.fire()

    assert fired.next_at is not None
    assert (sent.queries, sent.commits) == (empty.queries, empty.commits)
    assert (sent.queries, sent.written) == (2, 0)


@pytest.mark.parametrize("overlap", Overlap)
def test_schedules_that_are_not_due_cost_nothing(
    open_host: Callable[[str], Host], namespace: str, overlap: Overlap
) -> None:
    alone = open_host(f"{namespace}-alone").cost(1, overlap)
    host = open_host(namespace)
    host.put(LATER, every=timedelta(days=1))

    assert host.cost(1, overlap) == alone


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE])
def test_a_hundred_that_are_due_cost_as_many_statements_as_ten(
    open_host: Callable[[str], Host], namespace: str, url: str, overlap: Overlap
) -> None:
    few = open_host(f"{namespace}-few").cost(FEW, overlap)
    many = open_host(namespace).cost(MANY, overlap)

    assert many[0] == few[0] * MANY // FEW == (0 if overlap is Overlap.SKIP else MANY)
    assert many[1:] == few[1:]
    assert many[2] == 1
    assert many[1] == STATEMENTS[overlap] + (kind_of(url) == "sqlite")
