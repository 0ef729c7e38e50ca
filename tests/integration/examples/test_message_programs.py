"""The programs with messages do what their page describes, and are as long as it says."""

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

from tests.integration.examples.pages import DOCS, blocks, table
from tests.integration.examples.test_flow_control import count_lines
from tests.poll_intervals import look_often

PAGE: Final = DOCS / "explanation" / "message-programs.md"
PROGRAMS: Final = DOCS / "examples" / "messages"
PRINTED: Final = {
    "events": (
        "deliver-nz/order.paid/1 parcel 1 is on its way\ndeliver-nz/order.paid/2 parcel 2 is on its way\n"
    ),
    "resource_pool": f"{[f'page {number}' for number in range(5)]}\n",
    "sliding_window": "40425 in 3 generations\n",
}


def test_the_table_has_each_program_with_its_lines() -> None:
    rows = [row for row in table(PAGE, "Where it is shown") if row[1]]
    given = [(re.findall(r"`(\w+)\.py`", row[2])[0], int(row[1])) for row in rows]
    assert given == [(name, count_lines((PROGRAMS / f"{name}.py").read_text())) for name, _ in given]
    assert sorted(name for name, _ in given) == sorted(PRINTED)


def test_the_page_shows_each_program_word_for_word() -> None:
    shown = [one.code for one in blocks(PAGE)]
    assert sorted(shown) == sorted((PROGRAMS / f"{name}.py").read_text() for name in PRINTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_a_program_does_what_the_page_describes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    look_often(monkeypatch)
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == PRINTED[name]
