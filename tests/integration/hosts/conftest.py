"""Engines on every kind of store."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from holdfast.hosts.client.engine import Engine
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.testing.ledger import DeterminismChecker
from tests.integration.hosts.seats import Seats
from tests.poll_intervals import look_often
from tests.postgres import fresh_database
from tests.sizes import STORES

OpenEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def shared_database(postgres_url: str) -> Iterator[str]:
    """A database that these tests share: each has its own namespace in it."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """The URL of a store of each kind.

    `make test` runs these tests on SQLite alone, `make test-slow` on PostgreSQL, and `make test-full` in memory too.
    What each store promises is held by the conformance suite in `make test`, as are SQL, counts and the doctor.
    """
    if request.param == "postgres":
        found: str = request.getfixturevalue("shared_database")
        return found
    return "memory://" if request.param == "memory" else new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def namespace() -> str:
    """A namespace for one test."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def open_engine(url: str, namespace: str, tmp_path: Path) -> Iterator[OpenEngine]:
    """Opens engines on that store, with a blob folder, and closes them at the end.

    Before closing, all durable functions that ran are replayed at every prefix of their histories: live and replayed
    they must make the same calls.
    """
    opened: list[Engine] = []
    ledger = DeterminismChecker()

    def open_one(
        *workflows: WorkflowDefinition[object],
        steps: Sequence[Step[..., Any]] = (),
        triggers: Sequence[Trigger[object]] | None = None,
        namespace: str = namespace,
    ) -> Engine:
        blobs = f"file://{tmp_path}/blobs"
        engine = Engine.open(
            url, workflows=workflows, steps=steps, triggers=triggers, namespace=namespace, blobs=blobs
        )
        opened.append(engine)
        return opened[-1]

    with ledger.watching():
        yield open_one
        replays = sum(ledger.replay(engine.core) for engine in opened)
    for engine in opened:
        engine.core.close()
    assert ledger.problems == []
    assert replays >= len(ledger.lives)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which workers check bodies, sessions and the store."""
    look_often(monkeypatch)


@pytest.fixture
def seats(url: str, namespace: str) -> Iterator[Seats]:
    if url == "memory://":
        pytest.skip("it has no transactions to share")
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        made = "CREATE TABLE IF NOT EXISTS test_seats (owner text, seat text, PRIMARY KEY (owner, seat))"
        connection.execute(text(made))
    yield Seats(engine, namespace)
    engine.dispose()
