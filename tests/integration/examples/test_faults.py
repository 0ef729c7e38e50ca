"""The page of faults names existing tests for each fault."""

import ast
import re
from functools import cache
from itertools import chain

import pytest

from tests.integration.examples.pages import DOCS, ROOT, table

PAGE = DOCS / "explanation" / "faults.md"
PARTS = {
    "Seen by running them": [f"P{number}" for number in range(1, 10)],
    "Wrong results under an ordinary load": [f"A{number}" for number in range(1, 12)],
    "Crashes, races and size": [f"B{number}" for number in range(1, 13)],
    "What was missing": [f"C{number}" for number in range(1, 12)],
}


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the tests in a file of the repository, those of classes too."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


@pytest.mark.slow
def test_every_fault_is_held_by_tests_that_there_are() -> None:
    for heading, names in PARTS.items():
        rows = table(PAGE, heading)
        assert [row[0] for row in rows] == names
        for name, fault, here, held in rows:
            assert fault
            assert here
            named = re.findall(r"`((?:tests|testing)/[\w/]+\.py)::(test_\w+)`", held)
            assert len(named) == held.count("`") // 2 > 0, name
            for path, test in named:
                assert test in named_in(path), f"{name}: {path} has no {test}"


def test_the_named_in_the_list_are_on_the_page() -> None:
    """A test that is named after a fault stands in the row of that fault."""
    rows = {row[0].lower(): row[3] for row in chain.from_iterable(table(PAGE, part) for part in PARTS)}
    for test in named_in("tests/faults/test_known_faults.py"):
        assert f"tests/faults/test_known_faults.py::{test}`" in rows[test.split("_")[1]]
