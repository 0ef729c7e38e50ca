"""The workloads of applications that store a row and start a run for it: in one transaction, or in two."""

import contextlib
import sqlite3
from collections.abc import Generator
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from holdfast import Engine, workflow
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample
from tests.benchmarks.sites import Site


@workflow
async def ship(order: int) -> int:
    """Return the order."""
    return order


@contextlib.contextmanager
def _application(url: str) -> Generator[Any]:
    """A connection with a table of orders."""
    connection: Any = (
        sqlite3.connect(make_url(url).database or "") if url.startswith("sqlite") else psycopg.connect(url)
    )
    with contextlib.closing(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id bigint)")
        connection.commit()
        yield connection


def start_within(site: Site, orders: int) -> Sample:
    """Store orders, each in one transaction with its run."""
    with (
        Meter(site) as meter,
        Engine.open(site.url, workflows=[ship]).sync as engine,
        _application(site.url) as connection,
    ):
        meter.start()
        for number in range(orders):
            connection.execute(f"INSERT INTO orders VALUES ({number})")
            engine.within(connection).start(ship(number))
            connection.commit()
        meter.stop()
        check(sum(engine.count().values()) == orders, "runs are missing")
    return meter.sample(orders)


def start_after(site: Site, orders: int) -> Sample:
    """Store orders, and start the run of each in a transaction of its own."""
    with (
        Meter(site) as meter,
        Engine.open(site.url, workflows=[ship]).sync as engine,
        _application(site.url) as connection,
    ):
        meter.start()
        for number in range(orders):
            connection.execute(f"INSERT INTO orders VALUES ({number})")
            connection.commit()
            engine.start(ship(number))
        meter.stop()
        check(sum(engine.count().values()) == orders, "runs are missing")
    return meter.sample(orders)
