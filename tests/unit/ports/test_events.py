"""The list of event types."""

import re
from pathlib import Path
from typing import get_args

import pytest

import holdfast.kernel
from holdfast.kernel.commands import RecordedType
from holdfast.kernel.rules.registry import RULES
from holdfast.ports.events import EVENT_TYPES, USER_EVENTS, is_possible
from tests.integration.examples.pages import DOCS, table

KERNEL = Path(holdfast.kernel.__file__).parent
PORTS = KERNEL.parent / "ports"


def test_all_that_the_kernel_writes_are_known() -> None:
    """Sinks cannot be registered for unknown types: a new type must be added to EVENT_TYPES."""
    commands = {rule.type for rule in RULES}
    written = {
        word
        for path in (
            *(path for room in ("rules", "runs", "pipelines") for path in (KERNEL / room).rglob("*.py")),
            PORTS / "records" / "history.py",
        )
        for word in re.findall(r'"([a-z]+\.[a-z_]+)"', path.read_text())
    }
    written |= set(get_args(RecordedType))
    assert written - commands <= EVENT_TYPES
    assert EVENT_TYPES - {"event.skipped"} <= written


def test_the_page_of_events_has_each_of_them() -> None:
    listed = {row[0].strip("`") for row in table(DOCS / "reference/events.md", "Types")}
    assert listed == {*EVENT_TYPES, f"{USER_EVENTS}<type>"}


@pytest.mark.parametrize("pattern", ["run.failed", "run.*", "stage.re*", "*", "user.*", "user.paid", "us*"])
def test_what_may_come_is_possible(pattern: str) -> None:
    assert is_possible(pattern)


@pytest.mark.parametrize("pattern", ["foo.bar", "run.fialed", "foo.*", "run", "stagex.*", ""])
def test_what_never_comes_is_not(pattern: str) -> None:
    assert not is_possible(pattern)
