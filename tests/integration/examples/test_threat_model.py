"""The threat model names an existing test for each of its defences."""

import re
from itertools import chain
from typing import Final

from tests.integration.examples.pages import DOCS, ROOT, table

PAGE: Final = DOCS / "explanation" / "threat-model.md"
PARTS: Final = ("Strangers", "Pages in a browser", "Clients with some rights", "Data", "Leaks")


def test_every_defence_is_held_by_tests_that_exist() -> None:
    rows = list(chain.from_iterable(table(PAGE, part) for part in PARTS))
    assert len(rows) > 30
    for threat, defence, checks in rows:
        assert threat
        assert defence
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", checks)
        assert len(named) == checks.count("`") // 2 > 0, threat
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
