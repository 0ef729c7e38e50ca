"""JSON in which a key occurs twice is refused where somebody wrote it: one of the two values would be lost."""

import pytest

from holdfast import Channel
from holdfast.kernel.commands import NewAnnotation
from holdfast.ports.errors import InvalidCommandError, InvalidValueError
from tests.unit.hosts.cli.conftest import CommandLine

TWICE = '{"a": 1, "a": 2}'


@pytest.mark.parametrize(
    "words",
    [
        ("run", "start", "shop:engine", "order", TWICE),
        ("run", "start", "shop:engine", "board", TWICE),
        ("run", "signal", "shop:engine", "a", "question", TWICE),
        ("run", "query", "shop:engine", "a", "Board.shown", "--arguments", TWICE),
        ("run", "update", "shop:engine", "a", "Board.paint", "--arguments", TWICE),
        ("run", "annotate", "shop:engine", "a", f"note={TWICE}", "--json-values"),
    ],
)
def test_on_the_command_line(holdfast: CommandLine, words: tuple[str, ...]) -> None:
    answer = holdfast(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "an object has the key 'a' more than once" in answer.err


def test_in_a_message_by_name() -> None:
    with pytest.raises(InvalidValueError, match="an object has the key 'a' more than once"):
        Channel("any", object).recoded(TWICE)


def test_in_an_annotation() -> None:
    with pytest.raises(InvalidCommandError, match="an object has the key 'a' more than once"):
        NewAnnotation(name="note", value=TWICE)
