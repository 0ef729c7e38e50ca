"""The programs of flow control do what their page describes, and are as long as it says."""

import ast
import io
import re
import runpy
import time
import tokenize
from pathlib import Path
from typing import Final

import pytest

from tests.integration.examples.pages import DOCS, blocks, table
from tests.poll_intervals import look_often

PAGE: Final = DOCS / "explanation" / "flow-control-programs.md"
PROGRAMS: Final = DOCS / "examples" / "flow_control"
ROWS: Final = table(PAGE, "Lines of code")
PRINTED: Final = {
    "batch": "[['ONE'], ['TWO'], ['THREE']] 1\n",
    "cancel_in_progress": "b2 is built cancelled\n",
    "cancel_newest": "concurrency_full\n1.0 is published\n",
    "debounce": """{"indexed 'abc'"} 1\n""",
    "fair_queue": "16 True\n",
    "own_queue": "2930f3c3\n",
    "rates": "['an answer to a', 'an answer to b', 'an answer to c']\n",
    "round_robin": "['flood', 'ann', 'bob', 'flood', 'flood', 'flood', 'flood', 'flood']\n",
    "schedules": f"{[*['Hello, Ada!'] * 5, 'Hello, Grace!']}\n",
}
LEAST_SECONDS: Final = {"rates": 1, "debounce": 0.2}
"""How long the limits of a program make it take at least."""
_NOT_CODE: Final = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def count_lines(source: str) -> int:
    """Return the number of lines with code, without blank lines, imports, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*_NOT_CODE, tokenize.ENDMARKER):
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_text:
            assert isinstance(node, ast.stmt)
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_lines_are_counted_without_blank_lines_imports_comments_and_docstrings() -> None:
    source = (
        '"""Two\nlines."""\n\nfrom os import (\n    path,\n)\n\n# a comment\nx = [\n    1,\n]  # another\n'
    )

    assert count_lines(source) == 3


def test_the_table_has_each_program_with_its_lines() -> None:
    given = [(re.findall(r"`(\w+)\.py`", row[1])[0], int(row[2])) for row in ROWS]

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

    began_at = time.monotonic()
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")

    assert capsys.readouterr().out == PRINTED[name]
    assert time.monotonic() - began_at >= LEAST_SECONDS.get(name, 0)
