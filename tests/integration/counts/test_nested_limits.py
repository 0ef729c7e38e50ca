"""The cost of admissions under limits within each other: the same, however many levels, keys and runs there are."""

import pytest

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunClaimPending, RunCreate, RunTerminate
from holdfast.ports.errors import CommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import OuterLevel
from holdfast.ports.records.values import Payload
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements


@stage
def one(x: int) -> int:
    return x


SHORT = Pipeline("short", input=int).pipe(one)


class Claims:
    """Starts runs, and counts the statements of the claims that admit them."""

    def __init__(self, open_engine: OpenEngine, statements: Statements) -> None:
        self.engine = open_engine(SHORT)
        self.statements = statements

    def start(self, keys: int, *outer: OuterLevel, each: int = 2) -> None:
        """Start runs of so many users of so many tenants in one batch, under these limits."""
        commands = [
            RunCreate(
                namespace=self.engine.core.namespace,
                workflow="short",
                id=f"{len(outer)}-{keys}-{number}-{again}",
                input=Payload(inline=canonical(1)),
                concurrency_key=f"user-{number}",
                concurrency_within=outer,
            )
            for number in range(keys)
            for again in range(each)
        ]
        for start in range(0, len(commands), 100):
            answers = self.engine.kernel.dispatch_many(commands[start : start + 100])
            assert not [answer for answer in answers if isinstance(answer, CommandError)]

    def claim(self, key: str) -> tuple[int, int]:
        """Admit what a free slot of a key lets in. Return how many that are, and the number of statements."""
        before = self.statements.queries
        reply = self.engine.kernel.dispatch(
            RunClaimPending(namespace=self.engine.core.namespace, keys=(key,))
        )
        return reply.admitted, self.statements.queries - before

    def end(self, run_id: str) -> None:
        self.engine.kernel.dispatch(RunTerminate(namespace=self.engine.core.namespace, run_id=run_id))


@pytest.fixture
def claims(open_engine: OpenEngine, statements: Statements) -> Claims:
    """An engine."""
    return Claims(open_engine, statements)


ALL, MIDDLE = OuterLevel(key="all", limit=3), OuterLevel(key="middle", limit=3)


@pytest.mark.slow
def test_a_claim_makes_as_many_statements_with_many_keys_as_with_few(claims: Claims) -> None:
    """A second claim of each line: the first one adds the rows that are locked."""
    counts: list[int] = []
    for keys, root in ((4, "few"), (150, "many")):
        outer = OuterLevel(key=root, limit=3), MIDDLE
        claims.start(keys, *outer)
        assert claims.claim(root)[0] == 3
        claims.end(f"2-{keys}-0-0")
        admitted, statements = claims.claim(f"{root} :: middle :: user-0")
        assert admitted == 1
        counts.append(statements)
    assert counts[0] == counts[1]


def test_levels_add_one_statement_to_a_claim(claims: Claims) -> None:
    """It counts the slots of all outer levels. The rows of all levels are locked together."""
    found: dict[int, int] = {}
    for levels, outer in ((1, ()), (2, (ALL,)), (3, (OuterLevel(key="every", limit=3), MIDDLE))):
        claims.start(4, *outer)
        key = " :: ".join((*(str(one.key) for one in outer), "user-0"))
        claims.claim(key)
        claims.end(f"{len(outer)}-4-0-0")
        found[levels] = claims.claim(key)[1]
    assert found[2] == found[3] == found[1] + 1, found


def test_a_claim_of_a_full_level_reads_and_changes_nothing_more(claims: Claims) -> None:
    claims.start(150, ALL)
    assert claims.claim("all")[0] == 3
    admitted, statements = claims.claim("all :: user-5")
    assert admitted == 0
    assert statements <= 3
