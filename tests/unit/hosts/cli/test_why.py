"""`holdfast why`."""

import time
from datetime import UTC, datetime

import pytest

from tests.unit.hosts.cli.conftest import CommandLine


def test_it_says_what_a_run_waits_for(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    answer = holdfast("why", "shop:engine", "a")
    assert answer.code == 0
    head, *rest = answer.out.splitlines()
    assert head == "Run a is running."
    assert any("waits for a worker" in line for line in rest)
    document = holdfast("why", "shop:engine", "a", "--json").json
    assert (document["id"], document["status"]) == ("a", "running")
    assert [reason["code"] for reason in document["reasons"]] == ["queued"]


def test_times_are_shown_as_everywhere_and_programs_get_utc(
    holdfast: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        at = datetime(2030, 1, 1, 12, tzinfo=UTC)
        holdfast("run", "start", "shop:engine", "nothing", "--id", "a", "--start-at", at.isoformat())
        local, utc = holdfast("why", "shop:engine", "a").out, holdfast("why", "shop:engine", "a", "--utc").out
        shown = holdfast("run", "show", "shop:engine", "a").out
        document = holdfast("why", "shop:engine", "a", "--json").json
    finally:
        monkeypatch.undo()
        time.tzset()

    assert "(at 2030-01-01 07:00:00)" in local
    assert "2030-01-01 07:00:00 " in shown
    assert "(at 2030-01-01 12:00:00Z)" in utc
    assert "(at 2030-01-01 12:00:00Z)" in document["reasons"][0]["text"]


def test_it_says_how_a_run_ended(holdfast: CommandLine) -> None:
    holdfast.start("x", id="a")
    holdfast.finish("a")
    assert "It completed" in holdfast("why", "shop:engine", "a").out


def test_a_run_that_is_not_there_is_not_found(holdfast: CommandLine) -> None:
    assert holdfast("why", "shop:engine", "nobody").code == 3
