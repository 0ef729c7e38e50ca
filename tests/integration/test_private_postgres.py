"""The PostgreSQL that the tests run on."""

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres import ROOT, PrivatePostgres, plain_url

pytestmark = pytest.mark.service


@pytest.mark.slow
def test_a_database_is_empty_and_can_be_written(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        connection.execute("CREATE TABLE things (id int PRIMARY KEY)")


def test_each_test_has_a_database_of_its_own(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE things (id int PRIMARY KEY)")


@pytest.mark.slow
def test_what_was_committed_survives_a_crash_at_the_same_url() -> None:
    with PrivatePostgres() as server:
        url = server.url
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE things AS SELECT 7 AS id")
        server.restart("immediate")
        assert server.url == url
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT id FROM things").fetchall() == [(7,)]
        assert "automatic recovery in progress" in server.log


@pytest.mark.slow
def test_a_stopped_server_refuses_connections_until_it_is_started() -> None:
    with PrivatePostgres() as server:
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url)
        server.start()
        psycopg.connect(server.url).close()


@pytest.mark.slow
def test_it_is_gone_when_its_owner_is_killed() -> None:
    program = (
        "import time; from tests.postgres import PrivatePostgres; p = PrivatePostgres(); p.start(); "
        "print(p.url, p._folder, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        url, folder = owner.stdout.readline().split()
        psycopg.connect(url).close()
        owner.kill()
    limit = time.monotonic() + 20
    while Path(folder).exists() and time.monotonic() < limit:
        time.sleep(0.05)
    assert not Path(folder).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_the_driver_is_taken_out_of_a_url() -> None:
    assert plain_url("postgresql+psycopg://a@b:1/c?x=y") == "postgresql://a@b:1/c?x=y"
    assert plain_url("postgresql://a@b:1/c") == "postgresql://a@b:1/c"
