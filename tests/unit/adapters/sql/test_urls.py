"""Database URLs, and the options that reach the driver."""

import subprocess
import sys
from urllib.parse import quote

import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.settings import connection_settings
from holdfast.adapters.sql.sqlite.connection import sqlite_path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///some.db", "some.db"),
        ("sqlite:////tmp/some.db", "/tmp/some.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite:///a%3Fb%23c.db", "a?b#c.db"),
    ],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    assert path == sqlite_path(url)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://host/db", "some.db"]
)
def test_other_urls_are_refused_with_a_hint(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///"):
        SqlPersistence(url)


@pytest.mark.parametrize("url", ["sqlite:///some.db?mode=ro", "sqlite:///some.db#1"])
def test_what_a_url_of_sqlite_can_not_say_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no parameters"):
        SqlPersistence(url)


@pytest.mark.parametrize("url", ["postgresql://h/te\0st", "postgresql://h/test\0", "postgresql://h/te\nst"])
def test_a_name_is_not_cut_off_where_the_driver_stops_to_read(url: str) -> None:
    with pytest.raises(ValueError, match="can't be printed"):
        connection_settings(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_a_url_names_a_server(scheme: str) -> None:
    settings = connection_settings(f"{scheme}://me@there:5433/base")

    assert tuple(settings[key] for key in ("user", "host", "port", "dbname")) == (
        "me",
        "there",
        "5433",
        "base",
    )
    assert "-c statement_timeout=5000" in settings["options"]
    assert settings["tcp_user_timeout"] == "15000"


def test_what_the_url_says_comes_before_our_own_settings() -> None:
    url = "postgresql://there/base?application_name=mine&connect_timeout=9&options=-cstatement_timeout%3D1"

    settings = connection_settings(url)

    assert (settings["application_name"], settings["connect_timeout"]) == ("mine", "9")
    options = settings["options"]
    assert options.index("-c statement_timeout=5000") < options.index("-cstatement_timeout=1")


@pytest.mark.parametrize(
    "options",
    [
        "-c standard_conforming_strings=off",
        "--timezone=Asia/Tokyo -cdatestyle=German",
        r"-c default_transaction_isolation=repeatable\ read",
        "-cdefault_transaction_read_only=on",
    ],
)
def test_what_must_be_ours_comes_after_what_the_url_says(options: str) -> None:
    settings = connection_settings(f"postgresql://there/base?client_encoding=latin1&options={quote(options)}")

    assert settings["client_encoding"] == "UTF8"
    ours = settings["options"].partition(options)[2]
    for word in options.replace("-c", "").replace("--", "").split():
        name = word.partition("=")[0]
        assert f"-c {name}=" in ours or "=" not in word


def test_poolers_can_be_spared_session_settings() -> None:
    assert "options" not in connection_settings("postgresql://there/base", session_settings=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "call", "extra"),
    [
        ("psycopg", "SqlPersistence('postgresql://host/db')", "holdfast[postgres]"),
        ("alembic", "SqlPersistence(f'sqlite:///{sys.argv[1]}').setup()", "holdfast[sqlite]"),
    ],
)
def test_what_is_not_installed_is_named(missing: str, call: str, extra: str, tmp_path: object) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from holdfast.adapters.sql.persistence import SqlPersistence
{call}
"""
    done = subprocess.run(
        [sys.executable, "-c", program, f"{tmp_path}/x.db"], capture_output=True, text=True, check=False
    )

    assert f'pip install "{extra}"' in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_sqlite_needs_neither_psycopg_nor_alembic_to_be_imported() -> None:
    program = (
        "import sys; from holdfast.adapters.sql.persistence import SqlPersistence; "
        "SqlPersistence('sqlite:///x.db'); print({'psycopg', 'alembic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
