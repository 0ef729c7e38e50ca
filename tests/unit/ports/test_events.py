"""The list of event types."""

import pytest

from holdfast.kernel.history.events import EVENTS
from holdfast.ports.events import EVENT_TYPES, USER_EVENTS, is_possible
from tests.integration.examples.pages import DOCS, table


def test_each_class_of_events_is_listed() -> None:
    """Sinks cannot be registered for unknown types: a new type must be added to EVENT_TYPES."""
    assert EVENT_TYPES - {"event.skipped"} == EVENTS.keys()


def test_the_page_of_events_has_each_of_them() -> None:
    listed = {row[0].partition("](")[0].strip("[`") for row in table(DOCS / "reference/events.md", "Types")}
    assert listed == {*EVENT_TYPES, f"{USER_EVENTS}<type>"}


@pytest.mark.parametrize("pattern", ["run.failed", "run.*", "stage.re*", "*", "user.*", "user.paid", "us*"])
def test_what_may_come_is_possible(pattern: str) -> None:
    assert is_possible(pattern)


@pytest.mark.parametrize("pattern", ["foo.bar", "run.fialed", "foo.*", "run", "stagex.*", ""])
def test_what_never_comes_is_not(pattern: str) -> None:
    assert not is_possible(pattern)
