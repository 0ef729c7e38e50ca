"""`holdfast history show`, at once and while a run goes on, and `holdfast openapi`."""

import json
import threading
from pathlib import Path

import pytest

from holdfast.hosts.cli import history
from tests.unit.hosts.cli.conftest import CommandLine, answer, question, rounds


def test_the_rows_of_a_history_are_lines_and_objects(holdfast: CommandLine) -> None:
    holdfast.start("cup")
    holdfast.finish("order-1")
    lines = holdfast("history", "show", "shop:engine", "order-1").out.splitlines()
    rows = [
        json.loads(line)
        for line in holdfast("history", "show", "shop:engine", "order-1", "--json").out.splitlines()
    ]

    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert [line.split()[0] for line in lines] == [str(row["number"]) for row in rows]
    assert [line.split()[3] for line in lines] == [row["type"] for row in rows]
    assert "pack[0]" in "".join(lines)
    after = holdfast("history", "show", "shop:engine", "order-1", "--after", str(len(rows) - 1)).out
    assert after.splitlines() == lines[-1:]


def test_a_history_is_followed_until_its_run_has_ended(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message that the run waits for is sent when the command waits for more rows."""
    engine = holdfast.engine()
    run = engine.sync.start(answer(), id="a")

    class Signalling:
        is_sent = False

        def sleep(self, seconds: float) -> None:
            if not self.is_sent:
                self.is_sent = True
                run.signal(question(21))
            threading.Event().wait(min(seconds, 0.01))

    monkeypatch.setattr(history, "time", Signalling())
    with holdfast.working():
        shown = holdfast("history", "show", "shop:engine", "a", "--follow", "--json")
    rows = [json.loads(line) for line in shown.out.splitlines()]

    assert shown.code == 0
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert (rows[0]["type"], rows[-1]["type"]) == ("run.created", "run.completed")


@pytest.mark.slow
def test_following_goes_on_with_the_next_generation(holdfast: CommandLine) -> None:
    with holdfast.working():
        holdfast.engine().sync.run(rounds(1), id="r")
    first = holdfast("history", "show", "shop:engine", "r", "--generation", "1")
    followed = holdfast("history", "show", "shop:engine", "r", "--follow", "--generation", "1")
    newest = holdfast("history", "show", "shop:engine", "r")

    assert followed.err == "Generation 2\n"
    assert followed.out == first.out + newest.out
    assert first.out != newest.out


def test_a_run_that_does_not_exist_has_no_history(holdfast: CommandLine) -> None:
    assert holdfast("history", "show", "shop:engine", "none", "--follow").code == 3


@pytest.mark.slow
def test_the_openapi_document_is_that_of_the_server(holdfast: CommandLine, tmp_path: Path) -> None:
    document = holdfast("openapi").json
    written = holdfast("openapi", "-o", "api.json")

    assert document["openapi"].startswith("3.1")
    assert "/v1/namespaces/{namespace}/runs" in document["paths"]
    assert (written.code, written.out) == (0, "api.json was written\n")
    assert json.loads((tmp_path / "api.json").read_text()) == document
    assert holdfast("openapi", "-o", "api.json").code == 4
