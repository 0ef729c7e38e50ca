"""The page on clock changes: each case of its table, and what the command prints."""

import ast
import re
import shlex
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.hosts.cli.main import main
from holdfast.kernel.calendars.occurrences import occurrences
from holdfast.kernel.calendars.specs import Cron
from holdfast.ports.clock import instant, micros
from tests.calendars import TZDATA, ZONES
from tests.integration.examples.pages import DOCS, blocks, table

PAGES = (DOCS / "explanation" / "clock-changes.md", DOCS / "reference" / "cli.md")
CASES = table(PAGES[0], "Cases")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} on {case[1]}")
def test_each_case_is_as_the_table_has_it(case: list[str]) -> None:
    text, *given = re.findall(r"`([^`]+)`", case[0])
    options: dict[str, Any] = {"zone": "Europe/Paris"}
    options.update({name: ast.literal_eval(value) for name, value in (one.split("=") for one in given)})
    cron = Cron(text, **options)
    day, _, until = case[1].partition(", until ")
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC)

    found = [
        instant(one.at).astimezone(timezone(timedelta(seconds=one.offset)))
        for one in occurrences(
            [cron],
            ZONES,
            after=micros(begin - timedelta(days=1)),
            until=micros(begin + timedelta(days=2)),
            limit=100,
        )
    ]

    shown = [
        local.isoformat(" ", "minutes")[11:].replace("+", " +").replace("-", " -")
        for local in found
        if local.date() == begin.date() and (not until or f"{local:%H:%M}" < until)
    ]
    assert (", ".join(shown) or "not at all") == case[2]


def test_the_table_has_each_kind_of_case() -> None:
    text = str(CASES)

    assert len(CASES) >= 12
    for word in ("gap=", "fold=", "zone=", "not at all"):
        assert word in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_prints_what_is_shown(page: object, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = [
        one
        for path in PAGES
        if path == page
        for one in blocks(path)
        if one.language == "console" and one.code.startswith("$ holdfast schedule next")
    ]
    command, _, shown = block.code.partition("\n")

    assert main(shlex.split(command)[2:]) == 0

    written = capsys.readouterr()
    assert written.out + written.err == shown.replace("tzdata 2026f", f"tzdata {TZDATA.version}")
