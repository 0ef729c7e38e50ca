"""The cost of gathered starts: a constant number of statements, however many starts and keys there are."""

from collections.abc import Iterator
from zlib import crc32

import attrs
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.kernel.commands import RunClaimPending, RunCreate, RunCreated
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.json import canonical
from holdfast.ports.records.values import Payload
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from tests.integration.counts.statement_counter import Statements
from tests.unit.kernel.test_gathering import plan

DEBOUNCE = GatherPlan(within_us=60_000_000, quiet_us=5_000_000, by="document")


class Host:
    """A host with a clock that is moved by hand."""

    def __init__(self, url: str, namespace: str, statements: Statements, *plans: Plan) -> None:
        self.clock = ManualClock()
        self.store = SqlPersistence(url)
        self.store.setup()
        ids = SeededIds(crc32(namespace.encode()), clock=self.clock)
        self.kernel = Kernel(persistence=self.store, clock=self.clock, ids=ids, plans=plans)
        self.namespace = namespace
        self.statements = statements

    def start(self, *documents: str) -> tuple[list[RunCreated], Statements]:
        """Start runs in one batch, and return what it took."""
        commands = [
            RunCreate(
                namespace=self.namespace,
                workflow="w",
                input=Payload(inline='{"document":"x"}'),
                attributes=canonical({"document": document}),
            )
            for document in documents
        ]
        with self.statements.of() as sent:
            replies = self.kernel.dispatch_many(commands)
        assert all(isinstance(reply, RunCreated) for reply in replies)
        return [reply for reply in replies if isinstance(reply, RunCreated)], sent


@pytest.fixture
def host(url: str, namespace: str, statements: Statements) -> Iterator[Host]:
    found = Host(url, namespace, statements, plan(DEBOUNCE))
    yield found
    found.store.close()


def test_a_gathered_start_costs_the_same_however_many_starts_and_keys_there_are(host: Host) -> None:
    host.start("a")  # stores the plan
    host.start("a")  # reads it
    few = host.start("a")[1]
    host.start(*(f"key-{number}" for number in range(300)), *["a"] * 100)

    replies, many = host.start("a")

    assert replies[0].joined
    assert (many.queries, many.commits) == (few.queries, few.commits)
    assert many.commits == 1
    assert many.queries <= 9


def test_a_batch_of_gathered_starts_takes_one_commit_and_no_more_statements_for_more_starts(
    host: Host,
) -> None:
    host.start("a")
    small = host.start(*(f"few-{number % 3}" for number in range(10)))[1]
    large = host.start(*(f"many-{number % 50}" for number in range(400)))[1]

    assert large.commits == small.commits == 1
    assert large.queries == small.queries


def test_runs_begin_in_one_commit_and_nothing_due_costs_one_statement(host: Host) -> None:
    host.start(*(f"key-{number}" for number in range(50)))
    due = RunClaimPending(namespace=host.namespace, due=True)
    with host.statements.of() as idle:
        assert host.kernel.dispatch(due).admitted == 0
    host.clock.advance(5)
    with host.statements.of() as begun:
        assert host.kernel.dispatch(due).admitted == 50

    assert idle.queries <= 2
    assert begun.commits == 1
    assert begun.queries <= 12


def test_a_start_that_is_not_gathered_costs_what_it_did(
    url: str, namespace: str, statements: Statements
) -> None:
    """The process has another workflow that gathers."""
    plain = attrs.evolve(plan(DEBOUNCE), gather=None)
    costs: list[tuple[int, int]] = []
    for plans in ((plain,), (attrs.evolve(plan(DEBOUNCE), workflow="other"), plain)):
        host = Host(url, f"{namespace}-{len(plans)}", statements, *plans)
        host.start("a")
        sent = host.start("a")[1]
        host.store.close()
        costs.append((sent.queries, sent.commits))

    assert costs[0] == costs[1]
