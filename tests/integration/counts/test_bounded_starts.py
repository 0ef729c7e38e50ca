"""The cost of starts under a bounded concurrency key, and that other starts cost what they did."""

import pytest

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunClaimPending, RunCreate
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import WhenFull
from holdfast.ports.records.values import Payload
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements


@stage
def one(x: int) -> int:
    return x


SHORT = Pipeline("short", input=int).pipe(one)


class Starter:
    """Starts runs and counts the statements of each batch."""

    def __init__(self, open_engine: OpenEngine, statements: Statements) -> None:
        self.engine = open_engine(SHORT)
        self.statements = statements
        self.start()  # stores the plan

    def start(
        self, full: str = "wait", *, number: int = 1, key: str | None = None, waiting: int | None = None
    ) -> int:
        """Start so many runs in one batch. Return the number of statements."""
        command = RunCreate(
            namespace=self.engine.core.namespace,
            workflow="short",
            input=Payload(inline=canonical(1)),
            concurrency_key=key,
            concurrency_waiting=waiting,
            concurrency_full=WhenFull(full),
        )
        before = self.statements.queries
        answers = self.engine.kernel.dispatch_many([command] * number)
        assert not [answer for answer in answers if isinstance(answer, CommandError) and full != "refuse"]
        return self.statements.queries - before

    def admit(self, key: str) -> None:
        """Admit a run of a key."""
        self.engine.kernel.dispatch(RunClaimPending(namespace=self.engine.core.namespace, keys=(key,)))


@pytest.fixture
def starter(open_engine: OpenEngine, statements: Statements) -> Starter:
    """An engine whose plan is stored."""
    return Starter(open_engine, statements)


@pytest.mark.slow
def test_a_bounded_start_makes_a_few_statements_more(starter: Starter) -> None:
    """It locks a row and counts. What it ends it locks, counts again, and writes with everything else."""
    plain = starter.start(key="plain")
    assert starter.start("refuse", key="first", waiting=9) <= plain + 3  # the row of the key is new
    with_a_place = starter.start("refuse", key="first", waiting=9)
    assert with_a_place == plain + 2
    starter.start("replace", key="k")
    starter.admit("k")
    starter.start("replace", key="k")
    assert starter.start("replace", key="k") <= plain + 6
    refused = starter.start("refuse", key="k", waiting=0)
    assert refused <= plain


@pytest.mark.parametrize("full", ["replace", "terminate", "refuse"])
def test_a_batch_makes_as_many_statements_as_one_start(starter: Starter, full: str) -> None:
    for key in ("few", "many"):
        starter.start(full, key=key)
        starter.admit(key)
        starter.start(full, key=key)
    few = starter.start(full, number=3, key="few")
    assert starter.start(full, number=60, key="many") <= few + 1


def test_starts_without_a_bound_cost_what_they_did(starter: Starter) -> None:
    """A start writes a run, its first history row and its first job; one with a key has no job yet."""
    assert starter.start() == starter.start(number=50)
    plain = starter.start()
    assert starter.start(key="k") <= plain
    assert not starter.statements.texts_with(
        "row_number() OVER (PARTITION BY w.namespace, w.concurrency_key,"
    )
