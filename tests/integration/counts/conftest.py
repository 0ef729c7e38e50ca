"""Engines on both databases, with their statement counters."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.kernel.authoring.calls import WorkflowDefinition
from tests.integration.counts.statement_counter import Statements, count_statements
from tests.postgres import fresh_database

OpenEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def shared_database(postgres_url: str) -> Iterator[str]:
    """A database that these tests share: each has its own namespace in it."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.other_store),
        pytest.param("postgres", marks=pytest.mark.service),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """The URL of a database of each kind; on PostgreSQL the one that these tests share."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("shared_database")
        return found
    return new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def namespace() -> str:
    """A namespace for one test."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """The statements sent to the database."""
    return count_statements(monkeypatch)


@pytest.fixture
def open_engine(url: str, namespace: str, statements: Statements) -> Iterator[OpenEngine]:
    """Opens engines on that database, with tables and counted statements; closes them at the end."""
    opened: list[Engine] = []

    def open_one(*workflows: WorkflowDefinition[object]) -> Engine:
        opened.append(Engine.open(url, workflows=workflows, namespace=namespace))
        opened[-1].core.connect()
        return opened[-1]

    assert not statements.sent
    yield open_one
    for engine in opened:
        engine.core.close()
