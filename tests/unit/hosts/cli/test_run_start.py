"""`holdfast run start`."""

import io
from pathlib import Path

import pytest

from holdfast.ports.json import parse
from tests.unit.hosts.cli.conftest import CommandLine, on_the_store

ORDER = '{"customer": "Ann", "items": ["a", "b"]}'


def test_a_config_for_one_run_names_a_stage_that_has_one(holdfast: CommandLine) -> None:
    for config, said in (
        ("pack", "write STAGE=JSON"),
        ("none={}", "has no stage 'none'"),
        ("pack={}", "stage 'pack' has no config"),
    ):
        answer = holdfast("run", "start", "shop:engine", "order", ORDER, "--config", config)
        assert answer.code == 2
        assert said in answer.err


def test_it_prints_the_id_and_nothing_else_on_stdout(holdfast: CommandLine) -> None:
    answer = holdfast("run", "start", "shop:engine", "order", ORDER, "--id", "order-7")
    assert (answer.code, answer.out) == (0, "order-7\n")


def test_the_run_is_stored_with_what_was_said(holdfast: CommandLine) -> None:
    said = ("--id", "x", "--queue", "slow", "--priority", "7", "--attribute", "a=1", "--attribute", "b==")
    assert holdfast("run", "start", "shop:engine", "order", ORDER, *said).code == 0
    shown = holdfast("run", "show", "shop:engine", "x", "--json", "--history").json
    assert (shown["queue"], shown["priority"], shown["attributes"]) == ("slow", 7, {"a": "1", "b": "="})
    assert shown["history"][0]["payload"]["value"] == {"customer": "Ann", "items": ["a", "b"]}


def test_headers_are_stored_and_shown_in_details_alone(holdfast: CommandLine) -> None:
    given = ("--id", "x", "--header", "traceparent=00-1", "--header", "locale=de=at")
    assert holdfast("run", "start", "shop:engine", "order", ORDER, *given).code == 0
    shown = holdfast("run", "show", "shop:engine", "x", "--json").json
    assert (shown["headers"], shown["attributes"]) == ({"traceparent": "00-1", "locale": "de=at"}, {})
    assert "locale=de=at, traceparent=00-1" in holdfast("run", "show", "shop:engine", "x").out
    assert "00-1" not in holdfast("run", "list", "shop:engine", "--json").out


@pytest.mark.parametrize(
    ("header", "why"),
    [("traceparent", "--header traceparent: write NAME=TEXT"), ("a b=c", "headers is {'a b': 'c'}")],
)
def test_what_is_no_header_is_refused(holdfast: CommandLine, header: str, why: str) -> None:
    answer = holdfast("run", "start", "shop:engine", "order", ORDER, "--header", header)
    assert answer.code == 2
    assert why in answer.err


@pytest.mark.parametrize(("said", "priority"), [((), 4), (("--priority", "0"), 0)])
def test_the_priority_of_the_workflow_is_the_default(
    holdfast: CommandLine, said: tuple[str, ...], priority: int
) -> None:
    assert holdfast("run", "start", "shop:engine", "unlucky", "{}", "--id", "x", *said).code == 0
    assert holdfast("run", "show", "shop:engine", "x", "--json").json["priority"] == priority


def test_as_json_it_says_whether_the_run_is_new(holdfast: CommandLine) -> None:
    start = ("run", "start", "shop:engine", "nothing", "--id", "x", "--if-exists", "return", "--json")
    first, second = holdfast(*start), holdfast(*start)
    assert first.json == {**second.json, "created": True}
    assert second.json["created"] is False
    assert (first.err, second.err) == ("", "")


def test_input_that_does_not_fit_gives_the_list_of_problems(holdfast: CommandLine) -> None:
    answer = holdfast("run", "start", "shop:engine", "order", '{"customer": 3}')
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "holdfast: invalid value for the input of workflow 'order'",
        "  - $.customer: expected string, got integer",
        "  - $.items: required field is missing",
    ]
    assert holdfast("run", "list", "shop:engine").out == ""


def test_input_that_does_not_fit_gives_the_problems_as_json(holdfast: CommandLine) -> None:
    answer = holdfast("run", "start", "shop:engine", "order", "{", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert (answer.error["code"], answer.error["exit_code"]) == ("invalid_value", 2)
    assert "invalid JSON" in answer.error["problems"][0]


def test_input_may_come_from_a_file_or_stdin(
    holdfast: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "order.json").write_text(ORDER)
    monkeypatch.setattr("sys.stdin", io.StringIO(ORDER))
    assert holdfast("run", "start", "shop:engine", "order", "--input-file", "order.json").code == 0
    assert holdfast("run", "start", "shop:engine", "order", "--input-file", "-").code == 0


def test_input_that_begins_with_a_minus_goes_after_two_of_them(holdfast: CommandLine) -> None:
    with holdfast.working():
        assert holdfast("run", "start", "shop:engine", "negate", "--wait", "--", "-5").out == "5\n"


def test_a_workflow_may_be_named_with_its_version(holdfast: CommandLine) -> None:
    assert holdfast("run", "start", "shop:engine", "nothing@2").code == 0
    answer = holdfast("run", "start", "shop:engine", "nothing@1")
    assert answer.code == 3
    assert "'nothing@1' is not registered" in answer.err


def test_the_engine_may_come_from_the_environment(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ENGINE", "shop:engine")
    assert holdfast("run", "start", "nothing", "--id", "a").out == "a\n"
    assert holdfast("run", "start", "order", ORDER, "--id", "b").out == "b\n"


def test_an_id_that_is_taken_is_refused(holdfast: CommandLine) -> None:
    start = ("run", "start", "shop:engine", "nothing", "--id", "x")
    assert holdfast(*start).code == 0
    again = holdfast(*start, "--json")
    assert (again.code, again.error["code"]) == (4, "run_exists")
    assert holdfast(*start, "--if-exists", "return").out == "x\n"


def test_an_idempotency_key_starts_one_run(holdfast: CommandLine) -> None:
    start = ("run", "start", "shop:engine", "negate", "--idempotency-key", "k")
    first, second = holdfast(*start, "1"), holdfast(*start, "1")
    assert first.out == second.out
    assert holdfast(*start, "2").code == 4


@on_the_store
def test_a_store_in_memory_is_warned_of(holdfast: CommandLine) -> None:
    assert "in memory" in holdfast("run", "start", "shop:engine", "nothing").err


def test_waiting_gives_the_result_and_the_exit_code(holdfast: CommandLine) -> None:
    with holdfast.working():
        good = holdfast("run", "start", "shop:engine", "order", ORDER, "--wait")
        bad = holdfast(
            "run", "start", "shop:engine", "order", ORDER.replace("b", "broken"), "--wait", "--json"
        )
    assert (good.code, good.out) == (0, '"A+B"\n')
    assert (bad.code, bad.json["status"], bad.json["result"]) == (1, "failed", None)
    logged = [parse(line) for line in bad.err.splitlines()]  # by the worker of this process
    assert [(one["level"], one["logger"]) for one in logged] == [
        ("warning", "holdfast.runs"),
        ("error", "holdfast.runs"),
    ]


@on_the_store
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("shop:engine",), "WORKFLOW is missing"),
        (("nothing",), "HOLDFAST_ENGINE"),
        (("shop:engine", "order"), "INPUT is missing: workflow 'order' takes JSON of type Order"),
        (("shop:engine", "order", "{}", "more"), "unexpected argument 'more'"),
        (("shop:engine", "order", "{}", "--input-file", "x"), "not both"),
        (("shop:engine", "order", "--input-file", "no-such-file"), "can't be read"),
        (("shop:engine", "nothing", "--attribute", "colour"), "write NAME=TEXT"),
        (("shop:engine", "nothing", "--attribute", "a=1", "--attribute", "a=2"), "is repeated"),
        (("shop:engine", "nothing", "--timeout", "1"), "--timeout needs --wait"),
        (("shop:engine", "nothing", "--queue", "no queue"), "queue is 'no queue'"),
        (("shop:engine", "nothing", "--id", ""), "id is ''"),
        (("shop:engine", "nothing", "1"), "expected null, got integer"),
    ],
)
def test_wrong_usage_is_told(holdfast: CommandLine, words: tuple[str, ...], why: str) -> None:
    answer = holdfast("run", "start", *words)
    assert (answer.code, answer.out) == (2, "")
    assert why in answer.err


@on_the_store
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sqlite:///runs.db", "order"), "sqlite:///runs.db is a store's URL, which has no workflows"),
        (("postgresql://ann:secret@db/x", "order"), "postgresql://***@db/x is a store's URL"),
        (
            ("order", "sqlite:///runs.db"),
            "the engine comes first: holdfast run start sqlite:///runs.db order",
        ),
        (("order", "shop:engine"), "the engine comes first: holdfast run start shop:engine order"),
        (("shop:engine", "order", "--if-exists", "rerun"), "write --if-ended rerun"),
        (("shop:engine", "order", "--if-exists", "terminate"), "write --if-active terminate"),
        (("shop:engine", "order", "--if-exists", "replace"), "not one of 'error', 'return'"),
    ],
)
def test_what_is_mixed_up_is_told_with_how_it_is_written(
    holdfast: CommandLine, words: tuple[str, ...], why: str
) -> None:
    answer = holdfast("run", "start", *words)
    assert (answer.code, answer.out) == (2, "")
    assert why in answer.err
