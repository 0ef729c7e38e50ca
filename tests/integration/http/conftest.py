"""Engines and clients of the server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Engine, Worker
from tests.integration.http.api import NAMESPACE, Api
from tests.integration.http.programs import WORKFLOWS
from tests.sizes import STORES


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> Iterator[str]:
    """The URL of a store of each kind."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_with_tables")
        return
    yield "memory://" if request.param == "memory" else new_sqlite(tmp_path / "holdfast.db")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine with the workflows."""
    opened = Engine.open(url, workflows=WORKFLOWS, namespace=NAMESPACE)
    with opened.sync:
        yield opened


@pytest.fixture
def api(engine: Engine) -> Api:
    """A client of its server."""
    return Api(engine)


@pytest.fixture
def worker(engine: Engine) -> Iterator[Worker]:
    """A worker of the engine."""
    with Worker(engine) as running:
        yield running


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn, the server of `holdfast serve`, runs asyncio."""
    return "asyncio"
