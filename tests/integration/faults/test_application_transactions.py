"""An application is killed at each point of a transaction in which it starts a run: its row and the run agree."""

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, text

from holdfast import Engine, Worker, workflow
from tests.postgres import fresh_database

SOON = timedelta(minutes=2)
POINTS: Final = ("row", "run", "commit")
"""The application is killed after it has written its row, after it has started the run, and after the commit."""
PROGRAM: Final = """
import sys
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from holdfast import Engine
from tests.integration.faults.test_application_transactions import ship

url, namespace, point, id = sys.argv[1:]

def reached(now):
    if now == point:
        print("here", flush=True)
        sys.stdin.read()

engine = Engine.open(url, workflows=[ship], namespace=namespace).sync
engine.core.connect()
with Session(create_engine(url.replace("postgresql:", "postgresql+psycopg:"))) as session:
    session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": id})
    reached("row")
    engine.within(session).start(ship(id), id=id)
    reached("run")
    session.commit()
    reached("commit")
"""


@workflow
async def ship(order: str) -> str:
    return f"shipped {order}"


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """The database of `database_url` on PostgreSQL."""
    with fresh_database(postgres_url) as url:
        yield url


@pytest.mark.slow
def test_an_order_and_its_run_agree_wherever_the_application_is_killed(database_url: str) -> None:
    namespace = f"test-{secrets.token_hex(6)}"
    engine = Engine.open(database_url, workflows=[ship], namespace=namespace).sync
    application = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    with application.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id text)"))
    with engine:
        assert list(engine.runs()) == []
        for point in POINTS:
            with subprocess.Popen(
                [sys.executable, "-c", PROGRAM, database_url, namespace, point, f"killed-after-{point}"],
                cwd=Path(__file__).parents[3],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == b"here\n"
                process.kill()
            assert process.returncode == -signal.SIGKILL
        with application.begin() as connection:
            orders = [order for (order,) in connection.execute(text("SELECT id FROM orders"))]
            connection.execute(text("DROP TABLE orders"))
        application.dispose()
        assert orders == [run.id for run in engine.runs()] == ["killed-after-commit"]
        # Its hint was lost with the process: the worker finds the run by itself.
        with Worker(engine):
            assert (
                engine.handle(ship, "killed-after-commit").result(timeout=SOON)
                == "shipped killed-after-commit"
            )
