"""Which commands go to a server, and what those do that can't."""

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.http import asgi_app
from tests.integration.http.api import authenticate
from tests.integration.http.live import served
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store

pytestmark = on_the_store  # the tests name the server themselves


@pytest.fixture
def server(holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    engine = holdfast.engine()
    monkeypatch.setenv("HOLDFAST_KEY", "operate")
    with engine.sync, served(asgi_app(engine, authenticate=authenticate)) as url:
        yield url


def test_the_option_comes_before_the_variable(
    holdfast: CommandLine, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", "all")
    monkeypatch.setenv("HOLDFAST_SERVER", "http://127.0.0.1:1")
    holdfast.start("x", id="a")

    found = holdfast("run", "list", "--server", server)

    assert (found.code, "a" in found.out) == (Exit.OK, True)
    unreachable = holdfast("run", "list", "--patience", "0.01")
    assert unreachable.code == Exit.UNAVAILABLE
    assert "does not answer" in unreachable.err


def test_a_server_comes_before_the_engine_of_the_environment(
    holdfast: CommandLine, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER", server)
    monkeypatch.setenv("HOLDFAST_ENGINE", "elsewhere:engine")
    monkeypatch.setenv("HOLDFAST_KEY", "all")

    assert holdfast("run", "list").code == Exit.OK
    assert holdfast("run", "list", "shop:engine").code == Exit.OK  # an argument comes before both


@pytest.mark.parametrize(
    "words",
    [
        ("db", "status"),
        ("db", "upgrade"),
        ("doctor",),
        ("history", "export", "a"),
        ("run", "show", "a", "--result-of", "check"),
        ("run", "start", "order", "{}", "--config", "check={}"),
    ],
    ids=" ".join,
)
def test_what_can_not_go_over_http_is_refused_and_says_so(
    holdfast: CommandLine, server: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER", server)
    monkeypatch.setenv("HOLDFAST_ENGINE", "shop:engine")  # it is not used in place of the server

    answer = holdfast(*words)

    assert answer.code == Exit.USAGE
    assert "can't go over HTTP" in answer.err


def test_a_store_and_a_server_are_not_named_together(holdfast: CommandLine, server: str) -> None:
    for words in (("shop:engine",), ("--url", "memory://")):
        answer = holdfast("run", "list", *words, "--server", server)
        assert (answer.code, "not both" in answer.err) == (Exit.USAGE, True)
    assert "--blobs needs --url" in holdfast("run", "list", "--server", server, "--blobs", "file:///a").err


def test_a_key_without_the_scope_is_denied(holdfast: CommandLine, server: str) -> None:
    answer = holdfast("run", "list", "--server", server, "--namespace", "shop")

    assert answer.code == Exit.DENIED
    assert "'read'" in answer.err


@pytest.mark.slow
def test_the_messages_for_a_wrong_key_and_a_missing_key_differ(
    holdfast: CommandLine, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", "another")
    wrong = holdfast("run", "list", "--server", server)
    monkeypatch.delenv("HOLDFAST_KEY")
    missing = holdfast("run", "list", "--server", server)

    assert (wrong.code, missing.code) == (Exit.DENIED, Exit.DENIED)
    assert "is not valid" in wrong.err
    assert "HOLDFAST_KEY" not in wrong.err
    assert "send a key" in missing.err
    assert "HOLDFAST_KEY is not set" in missing.err


def test_a_url_at_which_something_else_answers_is_wrong_usage(holdfast: CommandLine) -> None:
    with served(Starlette()) as url:
        answer = holdfast("run", "list", "--server", url)

    assert answer.code == Exit.USAGE
    assert f"there is no Holdfast server at {url}" in answer.err
    assert "check the URL" in answer.err


@pytest.mark.parametrize("words", [("doctor",), ("history", "export", "a"), ("db", "status")], ids=" ".join)
def test_a_command_that_reads_only_a_store_has_no_option_for_a_server(
    holdfast: CommandLine, words: tuple[str, ...]
) -> None:
    answer = holdfast(*words, "--server", "http://127.0.0.1:1")

    assert answer.code == Exit.USAGE
    assert "No such option" in answer.err
