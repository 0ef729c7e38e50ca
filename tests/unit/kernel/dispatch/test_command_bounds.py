"""Every text of every command has a maximum length, checked before anything is stored."""

from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import attrs
import pytest

from holdfast.kernel.commands import Command, RunCancel, RunCreate
from holdfast.kernel.commands.attempt_output import REASON_MAX
from holdfast.kernel.dispatch.command_bounds import VALUES, check_texts, maximum
from holdfast.kernel.rules.registry import RULES
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, payload, pipeline, stage

Path = tuple[str, ...]


def paths(kind: object, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all texts in a type, as names of fields."""
    if kind is str:
        yield path
    elif isinstance(kind, type) and attrs.has(kind):
        for field in attrs.fields(kind):
            yield from paths(field.type, (*path, field.name))
    elif get_origin(kind) is not Literal:
        for part in get_args(kind):
            yield from paths(part, path)


def sample(kind: object, path: Path, text: str) -> object:
    """Return a value of a type with this text at a path."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str:
        return text if not path else "1"
    if origin in (Union, UnionType):
        fitting = [part for part in arguments if part is not NoneType and path in set(paths(part))]
        return sample((fitting or arguments)[0], path, text)
    if origin is tuple:
        return (sample(arguments[0], path, text),)
    if origin is Literal:
        return arguments[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if isinstance(kind, type) and attrs.has(kind):
        return sample_of(kind, path, text)
    return kind() if isinstance(kind, type) else None


def sample_of(kind: type[attrs.AttrsInstance], path: Path, text: str) -> object:
    given: dict[str, Any] = {}
    for field in attrs.fields(kind):
        if path and field.name == path[0]:
            given[field.name] = sample(field.type, path[1:], text)
        elif field.default is attrs.NOTHING:
            given[field.name] = sample(field.type, ("",), "")
    if kind is Payload:
        given = given or {"inline": "1"}
    return kind(**given)


@pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
def test_every_text_of_every_command_has_a_maximum(kind: type[Command[Any]]) -> None:
    for path in dict.fromkeys(paths(kind)):
        most = maximum((kind.__name__, *path))
        if most is None:
            assert path[-1] in VALUES
            continue
        check_texts(cast("Command[Any]", sample(kind, path, _text(path, most))))
        with pytest.raises(InvalidCommandError):
            check_texts(cast("Command[Any]", sample(kind, path, _text(path, most + 1))))


def _text(path: Path, length: int) -> str:
    """Return a text of this length: JSON where a value is expected."""
    return f'"{"a" * (length - 2)}"' if path[-1] == "value" else "a" * length


def test_there_are_many() -> None:
    assert sum(len(set(paths(kind))) for kind in RULES) > 150


def test_nothing_is_stored_and_the_others_of_the_batch_are_carried_out() -> None:
    world = World(pipeline(stage("a")))
    world.create("x")
    long = RunCancel(run_id="x", reason="a" * (REASON_MAX + 1))
    with world.unchanged():
        refused = world.send(long)
    first, second = world.kernel.dispatch_many([long, RunCreate(workflow="w", id="y", input=payload(1))])

    assert isinstance(refused[0], InvalidCommandError)
    assert str(first) == "reason has 2,001 characters; at most 2,000 are possible"
    assert not isinstance(second, Exception)
