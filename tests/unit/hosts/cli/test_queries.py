"""`holdfast run query` and `holdfast run update`."""

import pytest

from tests.unit.hosts.cli.conftest import Answer, CommandLine


def ask(holdfast: CommandLine, command: str, name: str, *options: str) -> Answer:
    return holdfast("run", command, "shop:engine", "a", name, *options)


@pytest.fixture(autouse=True)
def _a_board(holdfast: CommandLine) -> None:
    holdfast("run", "start", "shop:engine", "board", '{"colour": "red"}', "--id", "a")


def test_a_query_is_answered_without_a_worker(holdfast: CommandLine) -> None:
    assert ask(holdfast, "query", "Board.shown").out == '"red"\n'
    loud = ask(holdfast, "query", "Board.shown", "--arguments", '{"loud": true}', "--json")
    assert (loud.code, loud.json) == (0, "RED")


@pytest.mark.slow
def test_an_update_is_answered_by_whoever_drives_the_run(holdfast: CommandLine) -> None:
    blue = ("Board.paint", "--arguments", '{"colour": "blue"}', "--idempotency-key", "k")
    with holdfast.working():
        assert ask(holdfast, "update", *blue).out == '"red"\n'
        assert ask(holdfast, "update", *blue).out == '"red"\n'
    assert ask(holdfast, "query", "Board.shown").json == "blue"


def test_an_update_that_nobody_carries_out_in_time_stays_stored(holdfast: CommandLine) -> None:
    late = ask(
        holdfast, "update", "Board.paint", "--arguments", '{"colour": "blue"}', "--timeout", "0.1", "--json"
    )
    assert (late.code, late.error["code"]) == (7, "timeout")
    assert ask(holdfast, "query", "Board.shown").json == "blue"


@pytest.mark.parametrize(
    ("command", "name", "arguments", "code", "exit"),
    [
        ("query", "Board.hidden", "{}", "not_exposed", 4),
        ("query", "Board.shown", "red", "usage", 2),
        ("query", "Board.shown", "[1]", "usage", 2),
        ("query", "Board.shown", '{"laut": true}', "invalid_value", 2),
        ("update", "Board.shown", "{}", "not_exposed", 4),
        ("update", "Board.paint", '{"colour": "red"}', "update_rejected", 4),
    ],
)
def test_what_can_not_be_answered_says_why(
    holdfast: CommandLine, command: str, name: str, arguments: str, code: str, exit: int
) -> None:
    refused = ask(holdfast, command, name, "--arguments", arguments, "--json")
    assert (refused.error["code"], refused.code) == (code, exit)


@pytest.mark.slow
def test_what_an_update_raises_is_told(holdfast: CommandLine) -> None:
    with holdfast.working():
        failed = ask(holdfast, "update", "Board.paint", "--arguments", '{"colour": "ugly"}')
    assert failed.code == 4
    assert "no such paint" in failed.err


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    assert holdfast("run", "query", "shop:engine", "nobody", "Board.shown").code == 3
