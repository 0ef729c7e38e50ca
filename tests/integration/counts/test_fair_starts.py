"""What turns cost: three reads and a row a batch, and nothing for workflows without them."""

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Fair
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import JobClaim, RunCreate, SessionOpen
from holdfast.ports.json import canonical
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements


@stage
def one(x: int) -> int:
    return x


FAIR = Pipeline("shared", input=int, fair=Fair(by="tenant")).pipe(one)
PLAIN = Pipeline("plain", input=int).pipe(one)


def start(engine: Engine, workflow: str, number: int, keys: int = 1) -> None:
    engine.kernel.dispatch_many(
        [
            RunCreate(
                namespace=engine.core.namespace,
                workflow=workflow,
                input=Payload(inline="1"),
                attributes=canonical({"tenant": f"t{place % keys}"}),
            )
            for place in range(number)
        ]
    )


@pytest.mark.parametrize("waiting", [0, 50])
def test_a_batch_of_starts_takes_turns_by_three_reads_and_a_write(
    open_engine: OpenEngine, statements: Statements, waiting: int
) -> None:
    engine = open_engine(FAIR, PLAIN)
    start(engine, "plain", 1)
    start(engine, "shared", max(waiting, 1), keys=3)
    with statements.of() as plain:
        start(engine, "plain", 20)
    with statements.of() as fair:
        start(engine, "shared", 20, keys=5)

    assert (plain.commits, fair.commits) == (1, 1)
    assert fair.queries <= plain.queries + 4
    asked = [sql for sql in plain.sent if "fair_keys" in sql or "j.turn" in sql]
    # A store writes all columns of a row.
    assert not [sql for sql in asked if not sql.startswith("INSERT")]


def test_a_claim_is_the_same_statement(open_engine: OpenEngine, statements: Statements) -> None:
    engine = open_engine(FAIR, PLAIN)
    kernel, namespace = engine.kernel, engine.core.namespace
    session = kernel.dispatch(SessionOpen(namespace=namespace, host="h", lease=10**9)).session
    sent: list[set[str]] = []
    for workflow in ("plain", "shared"):
        start(engine, workflow, 10, keys=3)
        queue_claims = (QueueClaim(queue="default", definitions=(f"{workflow}@1",), limit=5),)
        with statements.of() as claimed:
            claim = JobClaim(namespace=namespace, session=session, queue_claims=queue_claims, limit=5)
            assert len(kernel.dispatch(claim).attempts) == 5
        sent.append(set(claimed.sent))

    assert sent[0] == sent[1]
