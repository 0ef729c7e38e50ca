"""The configuration file: which value wins, what is refused, and that no secret is shown."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pytest

from holdfast import Engine
from holdfast.hosts.cli.configuration import KEYS, load_configuration
from holdfast.hosts.cli.serve import serve_command
from holdfast.hosts.cli.worker import worker_command
from tests.integration.examples.pages import DOCS, blocks, table
from tests.unit.hosts.cli.conftest import CommandLine

PAGE: Final = DOCS / "howto" / "configure.md"
Options = Callable[..., dict[str, Any]]


@pytest.fixture
def write(tmp_path: Path, holdfast: CommandLine) -> Callable[..., None]:
    """Write a file in the current folder."""
    del holdfast  # it makes the folder the current one

    def write(text: str, name: str = "holdfast.toml") -> None:
        (tmp_path / name).write_text(text)

    return write


@pytest.fixture
def options(holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Return what `serve` or `worker` would run with."""

    def options(*arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def run(**given: Any) -> None:
            found.update(given)

        for command in (serve_command, worker_command):
            monkeypatch.setattr(command, "callback", run)
        answer = holdfast(*arguments)
        assert answer.code == 0, answer.err
        return found

    return options


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Engine.open(url).sync:
        return url


def test_an_option_wins_over_the_environment_that_over_the_file_and_that_over_the_default(
    write: Callable[..., None], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options("serve")["port"] == 8080
    write("[serve]\nport = 1\n")
    assert options("serve")["port"] == 1
    monkeypatch.setenv("HOLDFAST_SERVE_PORT", "2")
    assert options("serve")["port"] == 2
    assert options("serve", "--port", "3")["port"] == 3


def test_lists_and_flags_are_configured_too(
    write: Callable[..., None], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[serve]\noidc_map = ["groups:a=read@*", "groups:b=start@shop"]\nworker = true\n')
    assert options("serve")["grants"] == ("groups:a=read@*", "groups:b=start@shop")
    assert options("serve")["worker"] is True
    write('[worker]\nqueues = ["gpu=2", "mail"]\nconcurrency = 5\n')
    assert options("worker")["queues"] == ("gpu=2", "mail")
    assert options("worker", "--queue", "cpu")["queues"] == ("cpu",)
    monkeypatch.setenv("HOLDFAST_WORKER_QUEUES", "a b=3")
    monkeypatch.setenv("HOLDFAST_SERVE_WORKER", "0")
    assert options("worker")["queues"] == ("a", "b=3")
    assert options("worker")["concurrency"] == 5


def test_a_file_that_an_option_names_is_beside_the_configuration(
    write: Callable[..., None], options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    write('[serve]\noidc_client_secret_file = "client"\n', "etc/holdfast.toml")
    monkeypatch.setenv("HOLDFAST_CONFIG", "etc/holdfast.toml")
    assert Path(str(options("serve")["oidc_client_secret_file"])) == Path("etc/client")
    monkeypatch.setenv("HOLDFAST_SERVE_OIDC_CLIENT_SECRET_FILE", "/run/secrets/client")
    assert options("serve")["oidc_client_secret_file"] == Path("/run/secrets/client")


def test_the_store_is_that_of_the_argument_the_environment_or_the_file(
    write: Callable[..., None], holdfast: CommandLine, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f'url = "{store}"\nnamespace = "team"\n')
    assert holdfast("db", "status", "--json").json["namespace"] == "team"
    assert holdfast("db", "status", "--namespace", "mine", "--json").json["namespace"] == "mine"
    monkeypatch.setenv("HOLDFAST_NAMESPACE", "ours")
    assert holdfast("db", "status", "--json").json["namespace"] == "ours"
    assert holdfast("db", "status", "shop:engine", "--json").json["url"] == "memory://"
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///elsewhere.db")
    assert holdfast("db", "status", "--json").json["url"] == "sqlite:///elsewhere.db"
    write('engine = "shop:engine"\n')  # the environment names another store: the file names none
    assert holdfast("db", "status", "--json").json["url"] == "sqlite:///elsewhere.db"
    monkeypatch.delenv("HOLDFAST_URL")
    assert holdfast("db", "status", "--json").json["url"] == "memory://"


def test_the_file_is_a_table_of_pyproject_toml_too_or_is_named(
    write: Callable[..., None], options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("[project]\nname = 'x'\n\n[tool.holdfast.serve]\nport = 1\n", "pyproject.toml")
    assert options("serve")["port"] == 1
    write("[serve]\nport = 2\n")
    assert options("serve")["port"] == 2, "holdfast.toml comes first"
    write("[serve]\nport = 3\n", "other.toml")
    monkeypatch.setenv("HOLDFAST_CONFIG", "other.toml")
    assert options("serve")["port"] == 3
    assert options("--config", str(tmp_path / "pyproject.toml"), "serve")["port"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('namspace = "x"', "holdfast.toml has an unknown key, 'namspace'; did you mean 'namespace'?"),
        ("port = 1", "unknown key, 'port'; did you mean 'serve.port'?"),
        ("[serve]\nhots = 'x'", "unknown key, 'serve.hots'; did you mean 'serve.host'?"),
        ("[server]\nport = 1", "holdfast.toml has an unknown table, 'server'; did you mean 'serve'?"),
        ("zzzzzz = 1", "unknown key, 'zzzzzz': it may have engine, url, "),
        ("[zzzzzz]\nport = 1", "unknown table, 'zzzzzz': it may have serve, worker"),
        ("serve = 1", "serve is a table: write [serve]"),
        ("[serve]\nport = '1'", "serve.port must be a whole number, not a string"),
        ("[serve]\nport = true", "serve.port must be a whole number, not a truth value"),
        ("[worker]\nqueues = 'gpu'", "worker.queues must be an array of strings, not a string"),
        ("[worker]\nqueues = [1]", "worker.queues must be an array of strings, not an array"),
        ("engine = ''", "engine must be a string, not an empty string"),
        ("engine = ", "holdfast.toml is not TOML: "),
        ("url = 'sqlite:///x'\nurl_file = 'x'", "url and url_file: omit one of them"),
        ("url_file = 'none'", "none can't be read: No such file"),
        ("[serve]\nport = 70000", "70000 is not in the range 0<=x<=65535. (serve.port in holdfast.toml)"),
    ],
)
def test_the_error_of_a_file_names_the_fault(
    write: Callable[..., None], holdfast: CommandLine, text: str, message: str
) -> None:
    write(text)
    answer = holdfast("serve", "shop:engine", "--json")

    assert (answer.code, answer.error["code"]) == (2, "usage" if "range" in message else "configuration")
    assert message in answer.error["message"]


def test_a_value_of_the_environment_that_is_wrong_names_its_variable(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SERVE_PORT", "many")
    assert "'many' is not a valid integer range. (HOLDFAST_SERVE_PORT)" in holdfast("serve").err
    monkeypatch.setenv("HOLDFAST_PATIENCE", "long")
    assert "patience long: it must be a number of seconds" in holdfast("db", "status", "memory://").err


@pytest.mark.parametrize("file", ["none.toml", "pyproject.toml"])
def test_a_file_that_is_named_must_be_there(
    write: Callable[..., None], holdfast: CommandLine, file: str
) -> None:
    write("[project]\nname = 'x'\n", "pyproject.toml")
    answer = holdfast("--config", file, "run", "list", "--json")

    assert (answer.code, answer.error["code"]) == (2, "configuration")
    assert holdfast("run", "list", "shop:engine").code == 0, "without being named it may lack the table"


def test_a_broken_file_hinders_neither_help_nor_completion(
    write: Callable[..., None], holdfast: CommandLine
) -> None:
    write("broken")
    for words in (["run", "list", "--help"], ["completion", "bash"], ["--version"]):
        assert holdfast(*words).code == 0


def test_secrets_are_in_files_of_their_own_and_are_never_shown(
    write: Callable[..., None], holdfast: CommandLine, tmp_path: Path
) -> None:
    write('url = "postgresql://ann:geheim@host/db"\n')
    refused = holdfast("run", "list", "--json")
    assert "url has a password or a token" in refused.error["message"]
    assert "url_file" in refused.error["message"]
    write('engine = "postgresql://ann:geheim@host/db"\n')
    assert "engine has a password" in holdfast("run", "list", "--json").error["message"]
    (tmp_path / "secrets").mkdir()
    write("postgresql://ann:geheim@host:port/db\n", "secrets/url")
    write('url_file = "secrets/url"\n')
    unreachable = holdfast("run", "list", "--json")
    assert "postgresql" in unreachable.err
    write('url_file = "url"\n', "secrets/holdfast.toml")  # beside the file, not in the current folder
    assert holdfast("--config", "secrets/holdfast.toml", "run", "list", "--json").err == unreachable.err
    write("postgresql//ann:geheim@host/db\n", "secrets/url")
    misspelt = holdfast("--config", "secrets/holdfast.toml", "run", "list", "--json")
    assert misspelt.code != 0
    assert "geheim" not in refused.err + unreachable.err + misspelt.err


def test_a_server_and_its_key_are_configured_too(
    write: Callable[..., None], holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("hf_a_geheim\n", "key")
    write('server = "https://runs.example.com"\nkey_file = "key"\n')
    with click.Context(click.Command("run")) as context:
        found = load_configuration(context, None)
        server = found.server()
        assert (server, found.store()) == ("https://runs.example.com", None)
        assert server is not None
        assert found.key(server) == "hf_a_geheim"
        assert found.key("https://other.example.com") is None, "it is the key of that server"
        assert found.secrets == ("hf_a_geheim",)
        monkeypatch.setenv("HOLDFAST_KEY", "hf_b")
        monkeypatch.setenv("HOLDFAST_URL", "memory://")
        found = load_configuration(context, None)
        assert (found.server(), found.key(server), found.store()) == (None, "hf_b", "memory://")
    monkeypatch.delenv("HOLDFAST_URL")
    assert "can't go over HTTP" in holdfast("db", "status").err
    write("one\ntwo\n", "key")
    assert "key must have one line" in holdfast("db", "status").err


def test_the_page_has_each_key_with_its_variable(write: Callable[..., None], holdfast: CommandLine) -> None:
    rows = table(PAGE, "The command line and the server")
    listed = {tuple(re.findall(r"`([\w.]+)`", f"{row[0]} {row[1]}")) for row in rows}
    variables = {(key.name, key.variable) for key in KEYS}
    (example,) = [
        block.code for block in blocks(PAGE) if block.language == "toml" and "[serve]" in block.code
    ]
    write(example)

    assert listed == variables
    assert holdfast("db", "status", "shop:engine").code == 0
