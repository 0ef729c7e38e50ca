"""The cost of rates of starts: few statements more, whatever the number of keys, and none without a rate."""

from datetime import timedelta

import pytest

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Rate
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunClaimPending, RunCreate
from holdfast.ports.errors import CommandError, RateExceededError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import OverRate
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import evolve
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements


@stage
def one(x: int) -> int:
    return x


SHORT = Pipeline("short", input=int).pipe(one)
RATE = Rate(1, per=timedelta(hours=1), by="tenant").of_runs


class Starter:
    """Starts runs of many tenants and counts the statements of each batch."""

    def __init__(self, open_engine: OpenEngine, statements: Statements) -> None:
        self.engine = open_engine(SHORT)
        self.statements = statements
        self.start(0, over=None)  # stores the plan

    @property
    def namespace(self) -> str:
        return self.engine.core.namespace

    def start(self, *tenants: int, over: OverRate | None = OverRate.WAIT) -> int:
        """Start a run of each tenant in one batch. Return the number of statements."""
        commands = [
            RunCreate(
                namespace=self.namespace,
                workflow="short",
                input=Payload(inline=canonical(1)),
                attributes=canonical({"tenant": str(tenant)}),
                rate=None if over is None else evolve(RATE, over=over),
            )
            for tenant in tenants
        ]
        before = self.statements.queries
        answers = self.engine.kernel.dispatch_many(commands)
        assert not [
            one for one in answers if isinstance(one, CommandError) and not isinstance(one, RateExceededError)
        ]
        return self.statements.queries - before

    def count(self, command: RunClaimPending) -> tuple[int, int]:
        """Return how many statements a command makes, and how many runs it admits."""
        before = self.statements.queries
        admitted = self.engine.kernel.dispatch(evolve(command, namespace=self.namespace)).admitted
        return self.statements.queries - before, admitted


@pytest.fixture
def starter(open_engine: OpenEngine, statements: Statements) -> Starter:
    """An engine whose plan is stored."""
    return Starter(open_engine, statements)


def test_a_start_that_waits_for_its_rate_costs_no_more_than_another_one(starter: Starter) -> None:
    assert starter.start(1) <= starter.start(1, over=None)
    assert starter.start(*range(100)) <= starter.start(*range(100), over=None)


def test_a_start_that_may_be_refused_reads_and_writes_one_row_more(starter: Starter) -> None:
    starter.start(1, over=OverRate.REFUSE)
    plain = starter.start(1, over=None)
    assert starter.start(2, over=OverRate.REFUSE) <= plain + 3
    few = starter.start(*range(10, 13), over=OverRate.REFUSE)
    assert starter.start(*range(20, 120), over=OverRate.REFUSE) <= few


def test_admissions_make_as_many_statements_for_many_keys_as_for_few(starter: Starter) -> None:
    def rates(tenants: range) -> RunClaimPending:
        return RunClaimPending(rates=tuple(f"run-rate:short/{tenant}" for tenant in tenants))

    for tenants in (range(3), range(100, 200)):
        starter.start(*tenants, *tenants)
    few, admitted = starter.count(rates(range(3)))
    assert admitted == 3
    many, admitted = starter.count(rates(range(100, 200)))
    assert admitted == 100
    assert many <= few


def test_lines_that_are_held_up_cost_a_poll_one_search(starter: Starter) -> None:
    idle, _ = starter.count(RunClaimPending(due=True))
    tenants = range(50)
    starter.start(*tenants, *tenants)
    starter.count(RunClaimPending())
    assert starter.count(RunClaimPending(due=True)) == (idle, 0)
