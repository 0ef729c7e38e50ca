"""Pending runs and concurrency keys in the command line."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.hosts.cli.conftest import CommandLine


def start(holdfast: CommandLine, name: str, *said: str) -> None:
    answer = holdfast("run", "start", "shop:engine", "nothing", "--id", name, *said)
    assert (answer.code, answer.out) == (0, f"{name}\n"), answer.err


def test_a_run_is_started_later_with_a_deadline(holdfast: CommandLine) -> None:
    start(holdfast, "x", "--start-at", "2h", "--deadline", "90m")

    shown = holdfast("run", "show", "shop:engine", "x", "--json").json
    start_at = datetime.fromisoformat(shown["start_at"])
    assert shown["status"] == "pending"
    assert timedelta(minutes=119) < start_at - datetime.now(UTC) <= timedelta(hours=2)
    assert datetime.fromisoformat(shown["deadline"]) == start_at + timedelta(minutes=90)
    assert "its start at" in holdfast("run", "show", "shop:engine", "x").out


def test_a_start_may_be_an_instant(holdfast: CommandLine) -> None:
    start(holdfast, "x", "--start-at", "2999-01-01T08:00Z")

    shown = holdfast("run", "show", "shop:engine", "x", "--json").json
    assert datetime.fromisoformat(shown["start_at"]) == datetime(2999, 1, 1, 8, tzinfo=UTC)


def test_a_run_that_waits_for_a_slot_says_so(holdfast: CommandLine) -> None:
    for name in ("first", "second"):
        start(holdfast, name, "--concurrency-key", "customer 7")

    first = holdfast("run", "show", "shop:engine", "first").out
    second = holdfast("run", "show", "shop:engine", "second").out
    assert "running" in first
    assert "Waits" not in first
    assert "a slot of concurrency key customer 7 (1 of 1 in use)" in second
    assert holdfast("run", "cancel", "shop:engine", "first").code == 0
    assert holdfast("run", "show", "shop:engine", "second", "--json").json["status"] == "running"


def test_a_limit_is_said_with_its_key(holdfast: CommandLine) -> None:
    for name in ("first", "second"):
        start(holdfast, name, "--concurrency-key", "k", "--concurrency-limit", "2")

    shown = holdfast("run", "show", "shop:engine", "second", "--json").json
    assert (shown["status"], shown["concurrency_key"], shown["concurrency_limit"]) == ("running", "k", 2)


def test_an_id_is_used_again_as_is_said(holdfast: CommandLine) -> None:
    start(holdfast, "x")
    start(holdfast, "x", "--if-active", "terminate")
    assert holdfast("run", "start", "shop:engine", "nothing", "--id", "x", "--if-ended", "rerun").code == 4
    assert holdfast("run", "cancel", "shop:engine", "x").code == 0
    start(holdfast, "x", "--if-ended", "rerun_failed")

    assert holdfast("run", "show", "shop:engine", "x", "--json").json["generation"] == 3


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (("--start-at", "soon"), "a delay such as 90m or 7d"),
        (("--deadline", "2999-01-01"), "not a duration"),
        (("--concurrency-key", "k", "--concurrency-limit", "0"), "concurrency-limit"),
        (("--if-active", "rerun"), "if-active"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    holdfast: CommandLine, said: tuple[str, ...], complaint: str
) -> None:
    answer = holdfast("run", "start", "shop:engine", "nothing", *said)
    assert answer.code == 2
    assert complaint in answer.err
