"""`holdfast run signal`."""

import pytest

from tests.unit.hosts.cli.conftest import CommandLine


def test_a_message_reaches_the_function(holdfast: CommandLine) -> None:
    holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a")
    key = ("--idempotency-key", "k")
    sent = holdfast("run", "signal", "shop:engine", "a", "question", " 21 ", *key)
    assert (sent.code, sent.out) == (0, "a has it, as row 2 of its history\n")
    again = holdfast("run", "signal", "shop:engine", "a", "question", "21", "--json", *key)
    assert again.json == {"id": "a", "channel": "question", "number": 2, "status": "running"}
    holdfast.finish("a")
    assert holdfast("run", "show", "shop:engine", "a", "--output").out == '"it is 42"\n'
    assert "channel question → 21" in holdfast("run", "show", "shop:engine", "a", "--history").out


def test_a_pipeline_takes_none(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    refused = holdfast("run", "signal", "shop:engine", "a", "question", "1", "--json")
    assert (refused.code, refused.error["code"]) == (4, "signal_refused")


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    assert holdfast("run", "signal", "shop:engine", "nobody", "question", "1").code == 3


@pytest.mark.parametrize("words", [("a", "question", "yes"), ("a", "question")])
def test_wrong_usage_is_told(holdfast: CommandLine, words: tuple[str, ...]) -> None:
    assert holdfast("run", "signal", "shop:engine", *words).code == 2
