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


def test_a_run_that_waits_for_a_slot_shows_the_limit_that_an_operator_has_set(holdfast: CommandLine) -> None:
    for name in ("first", "second", "third"):
        start(holdfast, name, "--concurrency-key", "k", "--concurrency-limit", "2")
    assert holdfast("limit", "set", "shop:engine", "run:k", "--slots", "1").code == 0

    text = " ".join(holdfast("run", "show", "shop:engine", "third").out.split())
    shown = holdfast("run", "show", "shop:engine", "third", "--json").json

    assert "concurrency key k (2 of 1 in use; the plan says 2)" in text
    assert (shown["slots_used"], shown["slots_in_force"], shown["concurrency_limit"]) == (2, 1, 2)
    assert holdfast("limit", "clear", "shop:engine", "run:k").code == 0
    assert holdfast("run", "show", "shop:engine", "third", "--json").json["slots_in_force"] == 2
    first = holdfast("run", "show", "shop:engine", "first", "--json").json
    assert (first["slots_used"], first["slots_in_force"]) == (None, None)


def test_a_limit_is_said_with_its_key(holdfast: CommandLine) -> None:
    for name in ("first", "second"):
        start(holdfast, name, "--concurrency-key", "k", "--concurrency-limit", "2")

    shown = holdfast("run", "show", "shop:engine", "second", "--json").json
    assert (shown["status"], shown["concurrency_key"], shown["concurrency_limit"]) == ("running", "k", 2)


def test_a_start_says_what_happens_if_its_key_is_full(holdfast: CommandLine) -> None:
    bounded = ("--concurrency-by", "tenant", "--attribute", "tenant=ann", "--concurrency-waiting", "1")
    for name in ("first", "second"):
        start(holdfast, name, *bounded, "--concurrency-full", "refuse")
    refused = holdfast("run", "start", "shop:engine", "nothing", *bounded, "--concurrency-full", "refuse")
    assert refused.code == 4
    assert "the concurrency key 'nothing/tenant/ann' is full" in refused.err

    replaces = (*bounded, "--concurrency-full", "replace", "--id", "third", "--json")
    answer = holdfast("run", "start", "shop:engine", "nothing", *replaces)
    assert (answer.code, answer.json["ended"]) == (0, ["second"])
    why = holdfast("why", "shop:engine", "second").out
    assert "superseded: run 'third' took its place" in " ".join(why.split())


def test_limits_are_given_around_that_of_a_key(holdfast: CommandLine) -> None:
    around = (
        "--concurrency-within",
        "all=2",
        "--concurrency-within",
        "by:tenant=1",
        "--attribute",
        "tenant=ann",
    )
    for name in ("first", "second"):
        start(holdfast, name, "--concurrency-key", name, *around)

    why = " ".join(holdfast("why", "shop:engine", "second").out.split())
    assert "at most 1 of the runs with the concurrency key 'all :: tenant/ann' run at a time" in why
    shown = " ".join(holdfast("run", "show", "shop:engine", "second").out.split())
    assert "all :: tenant/ann :: second (each level needs room; `holdfast why` names the full one)" in shown
    listed = holdfast("limit", "list", "shop:engine", "--json").json
    assert [one["name"] for one in listed] == [
        "run:all",
        "run:all :: tenant/ann",
        "run:all :: tenant/ann :: second",
    ]
    assert holdfast("limit", "set", "shop:engine", "run:all :: tenant/ann", "--slots", "2").code == 0
    assert holdfast("run", "show", "shop:engine", "second", "--json").json["status"] == "running"


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
        (("--concurrency-within", "all=2"), "needs --concurrency-key TEXT or --concurrency-by NAME"),
        (
            ("--concurrency-key", "k", "--concurrency-within", "all"),
            "write KEY=N, such as all=100, or by:NAME=N",
        ),
        (("--concurrency-key", "k", "--concurrency-within", "all=0"), "limit is 0"),
        (("--concurrency-key", "k", "--concurrency-within", "all :: b=2"), "separates limits"),
        (("--concurrency-limit", "2"), "needs --concurrency-key TEXT or --concurrency-by NAME"),
        (("--concurrency-key", "k", "--concurrency-by", "b"), "and not both"),
        (("--concurrency-key", "k", "--concurrency-waiting", "2"), "any number of runs may wait"),
        (("--concurrency-key", "k", "--concurrency-full", "skip"), "concurrency-full"),
        (("--if-active", "rerun"), "if-active"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    holdfast: CommandLine, said: tuple[str, ...], complaint: str
) -> None:
    answer = holdfast("run", "start", "shop:engine", "nothing", *said)
    assert answer.code == 2
    assert complaint in answer.err


def test_a_run_that_waits_for_its_rate_says_so(holdfast: CommandLine) -> None:
    rated = ("--rate", "5/1h", "--rate-by", "tenant", "--rate-name", "mails", "--attribute", "tenant=ann")
    for name in ("first", "second"):
        start(holdfast, name, *rated, "--units", "3")

    assert "running" in holdfast("run", "show", "shop:engine", "first").out
    assert "the rate of starts run-rate:mails/ann" in holdfast("run", "show", "shop:engine", "second").out
    why = " ".join(holdfast("why", "shop:engine", "second").out.split())
    assert "3 of 5 in 1h are used. It costs 3. It may start in" in why
    assert "run-rate:mails/ann" in holdfast("limit", "list", "shop:engine").out
    assert holdfast("limit", "set", "shop:engine", "run-rate:mails", "--rate", "6/1h").code == 0
    assert holdfast("run", "show", "shop:engine", "second", "--json").json["status"] == "running"

    refused = holdfast("run", "start", "shop:engine", "nothing", *rated, "--rate-over", "refuse")
    assert refused.code == 4
    assert "the rate run-rate:mails/ann is used up" in refused.err
    alone = holdfast("run", "start", "shop:engine", "nothing", "--rate-over", "refuse")
    assert (alone.code, "--rate-over needs --rate" in alone.err) == (2, True)
