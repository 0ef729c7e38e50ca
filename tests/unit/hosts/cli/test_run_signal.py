"""`holdfast run signal`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Channel, Engine, workflow
from holdfast.hosts.wiring.registered_workflows import register_workflows
from tests.unit.hosts.cli.conftest import CommandLine

number = Channel("number", int)


@workflow
async def asks() -> int:
    return await number.receive()


def test_a_message_reaches_the_function(holdfast: CommandLine) -> None:
    holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a")
    key = ("--idempotency-key", "k")
    sent = holdfast("run", "signal", "shop:engine", "a", "question", " 21 ", "--actor", "ann", *key)
    assert (sent.code, sent.out) == (0, "sent to run a, as row 2 of its history\n")
    again = holdfast("run", "signal", "shop:engine", "a", "question", "21", "--json", *key)
    assert again.json == {"id": "a", "channel": "question", "number": 2, "status": "running"}
    holdfast.finish("a")
    assert holdfast("run", "show", "shop:engine", "a", "--output").out == '"it is 42"\n'
    assert (
        "channel question, by user ann → 21" in holdfast("run", "show", "shop:engine", "a", "--history").out
    )


def test_without_the_code_it_is_checked_by_what_a_worker_has_registered(
    holdfast: CommandLine, tmp_path: Path, new_sqlite: Callable[[Path], str]
) -> None:
    url = new_sqlite(tmp_path / "runs.db")
    engine = Engine.open(url, workflows=[asks])
    with engine.sync as sync:
        sync.start(asks(), id="a")
        unchecked = holdfast("run", "signal", "--url", url, "a", "number", '"x"', "--json")
        assert (unchecked.code, unchecked.json["number"]) == (0, 2), "no worker has registered the workflow"
        register_workflows(engine.core)
        refused = holdfast("run", "signal", "--url", url, "a", "number", '"x"', "--json")
        assert refused.error["code"] == "invalid_value"
        assert "expected integer" in refused.err
        assert holdfast("run", "signal", "--url", url, "a", "number", "1").code == 0


def test_a_pipeline_takes_none(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    refused = holdfast("run", "signal", "shop:engine", "a", "question", "1", "--json")
    assert (refused.code, refused.error["code"]) == (4, "signal_refused")


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    assert holdfast("run", "signal", "shop:engine", "nobody", "question", "1").code == 3


@pytest.mark.parametrize("words", [("a", "question", "yes"), ("a", "question")])
def test_wrong_usage_is_told(holdfast: CommandLine, words: tuple[str, ...]) -> None:
    assert holdfast("run", "signal", "shop:engine", *words).code == 2


def test_what_became_of_messages_is_listed(holdfast: CommandLine) -> None:
    holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a")
    for number in ("21", "22"):
        holdfast("run", "signal", "shop:engine", "a", "question", number, "--idempotency-key", f"k{number}")
    listed = holdfast("run", "messages", "shop:engine", "a", "--json")
    assert [(one["number"], one["state"], one["key"]) for one in listed.json] == [
        (2, "unread", "k21"),
        (3, "unread", "k22"),
    ]
    holdfast.finish("a")
    assert [
        (one["number"], one["channel"], one["state"], one["has_start"])
        for one in holdfast("run", "messages", "shop:engine", "a", "--json").json
    ] == [(2, "question", "received", False), (3, "question", "never_received", False)]
    shown = holdfast("run", "messages", "shop:engine", "a", "--unread").out
    assert ("never received" in shown, shown.count("received")) == (True, 1)
    assert "1 not received" in holdfast("run", "show", "shop:engine", "a").out
    assert holdfast("run", "show", "shop:engine", "a", "--json").json["unread"] == [3]
    assert "1 message was never received (row 3" in holdfast("why", "shop:engine", "a").out
    holdfast("run", "start", "shop:engine", "answer", "{}", "--id", "a", "--if-ended", "rerun")
    again = holdfast("run", "messages", "shop:engine", "a", "--generation", "1", "--unread")
    assert "handed on to generation 2" in again.out


def test_a_run_without_messages_has_none_to_list(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    listed = holdfast("run", "messages", "shop:engine", "a")
    assert (listed.code, listed.out) == (0, "")
