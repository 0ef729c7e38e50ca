"""The engine or store of a command, and `holdfast db`."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.adapters.sql.retry import RetryBudget
from holdfast.adapters.sql.schema.migrator import newest_version
from holdfast.ports.errors import UnavailableError
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("shop", "write MODULE:ENGINE"),
        ("shop:", "write MODULE:ENGINE"),
        ("shop.py:engine", "is the name of a file, not of a module: write shop:engine"),
        ("no_such_module:engine", "no module 'no_such_module'"),
        ("shop.inner:engine", "no module 'shop"),
        ("shop:engin", "'shop' has no 'engin'; its engines: engine"),
        ("shop:__name__", "is of type str, not Engine"),
    ],
)
@pytest.mark.parametrize("command", [("worker",), ("run", "list")])
def test_an_engine_that_is_not_there_is_told(
    holdfast: CommandLine, command: tuple[str, ...], spec: str, why: str
) -> None:
    answer = holdfast(*command, spec)
    assert (answer.code, answer.out) == (2, "")
    assert why in answer.err


def test_a_module_that_breaks_shows_its_own_part_of_the_traceback(
    holdfast: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "broken_shop.py").write_text("import no_such_dependency\n")
    answer = holdfast("run", "list", "broken_shop:engine")
    assert answer.code == 2
    assert (
        "importing 'broken_shop' failed: ModuleNotFoundError: No module named 'no_such_dependency'"
        in answer.err
    )
    assert "broken_shop.py" in answer.err
    assert "importlib" not in answer.err


@pytest.mark.parametrize("path", ["lazy", "settings.engine"])
def test_an_attribute_that_raises_shows_its_error(holdfast: CommandLine, tmp_path: Path, path: str) -> None:
    (tmp_path / "lazy_shop.py").write_text(
        "class Settings:\n"
        "    @property\n"
        "    def engine(self):\n"
        "        raise ValueError('no database is configured')\n"
        "settings = Settings()\n"
        "def __getattr__(name):\n"
        "    raise ValueError('no database is configured')\n"
    )
    answer = holdfast("run", "list", f"lazy_shop:{path}")
    assert answer.code == 2
    assert f"reading '{path}' of 'lazy_shop' failed: ValueError: no database is configured" in answer.err
    assert "lazy_shop.py" in answer.err
    assert "engine_options.py" not in answer.err
    worker = holdfast("worker", "shop:engine", "--sink", "audit=lazy_shop:sink")
    assert worker.code == 2
    assert "reading 'sink' of 'lazy_shop' failed" in worker.err


def test_a_module_is_found_where_we_are(holdfast: CommandLine, tmp_path: Path, url: str) -> None:
    source = f"from holdfast import Engine\nclass settings:\n    engine = Engine.open({url!r})\n"
    (tmp_path / "cwd_shop.py").write_text(source)
    assert holdfast("run", "list", "cwd_shop:settings.engine").code == 0


def test_without_an_engine_it_says_how_to_name_one(holdfast: CommandLine) -> None:
    answer = holdfast("run", "list")
    assert answer.code == 2
    assert "HOLDFAST_URL" in answer.err


@on_the_store
@pytest.mark.parametrize(
    "options",
    [
        ("shop:engine", "--url", "memory://"),
        ("shop:engine", "--namespace", "x"),
        ("shop:engine", "--blobs", "file:///x"),
        ("shop:engine", "--transport", "nats://localhost:4222"),
        ("shop:engine", "--scheduler", "eventbridge://default?role=arn"),
    ],
)
def test_what_does_not_go_together_is_told(holdfast: CommandLine, options: tuple[str, ...]) -> None:
    assert holdfast("run", "list", *options).code == 2


@pytest.mark.parametrize(
    "bad",
    [
        "mysql://ann:secret@host/db",
        "postgresql://ann:secret@host:port/db?x=1",
        "sqlite://runs.db",
        "sqlite:///:memory:",
        "nowhere://",
    ],
)
def test_a_url_that_names_no_store_is_told_without_its_secrets(holdfast: CommandLine, bad: str) -> None:
    answer = holdfast("run", "list", "--url", bad)
    assert answer.code == 2
    assert "secret" not in answer.err


def test_looking_at_a_database_that_is_not_there_makes_none(
    holdfast: CommandLine, url: str, tmp_path: Path
) -> None:
    assert holdfast("run", "list", "--url", url).code == 8
    status = holdfast("db", "status", url, "--json")
    assert (status.code, status.json["schema"]["stored"], status.json["runs"]) == (8, None, None)
    assert not (tmp_path / "runs.db").exists()


def test_upgrading_makes_the_tables_once(holdfast: CommandLine, url: str) -> None:
    first, second = holdfast("db", "upgrade", url), holdfast("db", "upgrade", url, "--json")
    assert (first.code, first.out) == (0, f"Created the tables: version {newest_version()}\n")
    assert second.json == {
        "before": newest_version(),
        "after": newest_version(),
        "changed": False,
        "schedules": [],
    }
    status = holdfast("db", "status", url)
    assert status.code == 0
    assert f"{newest_version()} up to date" in status.out


@pytest.mark.slow
@on_the_store
def test_what_needs_no_code_works_by_url(
    holdfast: CommandLine, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from holdfast import Engine, Pipeline, stage\n@stage\ndef hi() -> str:\n    return 'hi'\n"
        f"engine = Engine.open({url!r}, workflows=[Pipeline('greet').pipe(hi)])\n"
    )
    (tmp_path / "url_shop.py").write_text(source)
    assert holdfast("run", "start", "url_shop:engine", "greet", "--id", "a:b").code == 0
    monkeypatch.setenv("HOLDFAST_URL", url)
    assert [run["id"] for run in holdfast("run", "list", "--json").json] == ["a:b"]
    assert "hi     queued" in holdfast("run", "show", "a:b").out
    assert holdfast("run", "show", url, "a:b").code == 0
    assert holdfast("run", "list", "--url", url, "--namespace", "other", "--json").json == []
    assert "1 running" in holdfast("db", "status").out
    assert holdfast("run", "cancel", "a:b").code == 0
    assert holdfast("run", "wait", "a:b").code == 5


@pytest.mark.parametrize(
    ("version", "remedy"), [("0000", "start over"), ("2026_01_01", "newer"), ("9999", "newer")]
)
def test_tables_of_another_version_are_left_alone(
    holdfast: CommandLine, url: str, tmp_path: Path, version: str, remedy: str
) -> None:
    holdfast("db", "upgrade", url)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE holdfast_version SET version_num = ?", (version,))
    answer = holdfast("run", "list", "--url", url)
    assert answer.code == 8
    assert remedy in answer.err
    status = holdfast("db", "status", url)
    assert status.code == 8
    assert remedy in " ".join(status.out.split())


def test_the_status_of_an_engine_counts_its_runs(holdfast: CommandLine) -> None:
    holdfast.start("a")
    answer = holdfast("db", "status", "shop:engine", "--json")
    assert (answer.code, answer.json["runs"], answer.json["jobs"]) == (0, {"running": 1}, {"queued": 1})


@on_the_store
def test_how_long_to_try_can_be_said_and_it_is_said_what_is_waited_for(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RetryBudget.__init__.__kwdefaults__ or {}, "notice_after", 0.0)
    nobody = "postgresql://ann@127.0.0.1:1/runs"
    answer = holdfast("run", "list", "--url", nobody, "--patience", "0.2")
    assert answer.code == 6
    assert "the database is unavailable; the call is retried for up to" in answer.err
    assert "was unavailable for 0.2 seconds" in answer.err
    assert holdfast("run", "list", "--url", nobody, "--patience", "0").code == 2
    assert holdfast("run", "list", "shop:engine", "--patience", "1").code == 2


def test_an_engine_says_how_long_its_calls_try() -> None:
    engine = Engine.open("postgresql://ann@127.0.0.1:1/runs", patience=timedelta(seconds=0.2))
    with pytest.raises(UnavailableError, match=r"was unavailable for 0\.2 seconds"):
        engine.sync.wake("x")


def test_a_folder_that_is_missing_is_wrong_usage(holdfast: CommandLine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/runs.db"
    answer = holdfast("db", "upgrade", url, "--json")
    assert (answer.code, answer.error["code"]) == (2, "file")
    assert "its folder does not exist" in answer.error["message"]
    assert holdfast("run", "list", url).code == 8


def test_what_is_no_engine_may_have_been_meant_as_a_url(holdfast: CommandLine) -> None:
    answer = holdfast("doctor", "foo")
    assert (answer.code, answer.out) == (2, "")
    assert "write MODULE:ENGINE, such as shop.workflows:engine, or the URL of a store" in answer.err
