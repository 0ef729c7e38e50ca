"""Which steps of queues the code of a function mentions, so that nobody has to list them."""

from collections.abc import Callable, Collection, Iterator
from inspect import isfunction, ismodule
from sys import stdlib_module_names
from types import CodeType, FunctionType
from typing import Any, Final, cast

from holdfast.kernel.authoring.steps import Step

_OURS: Final = ("holdfast.kernel.", "holdfast.hosts.")
_MANY: Final = 1_000
"""How much a collection may hold to be looked into."""


def steps_within(function: Callable[..., object]) -> Iterator[Step[..., Any]]:
    """Yield the steps with a queue that a function mentions by name, and so do the functions that it mentions.

    As `embed`, as `models.embed` of a module, or in a list or a dict that is mentioned; and what takes such steps back.
    Nothing is called.
    """
    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Step):
            step = cast("Step[..., Any]", one)
            if step.queue is not None:
                yield step
            if step.undone_by is not None:
                waiting.append(step.undone_by)
        elif isinstance(one, (list, tuple, set, frozenset, dict)):
            waiting += _held(cast("Collection[object]", one))
        elif isfunction(one) and _may_call_steps(one.__module__):
            waiting += _mentioned(one)


def _held(several: Collection[object]) -> Collection[object]:
    """Return what a collection holds, of a dict its values; nothing if that is much."""
    if len(several) > _MANY:
        return ()
    return cast("dict[object, object]", several).values() if isinstance(several, dict) else several


def _may_call_steps(module: str) -> bool:
    """Whether the functions of a module may call steps of users': those of Python and ours don't."""
    return module.partition(".")[0] not in stdlib_module_names and not module.startswith(_OURS)


def _mentioned(function: FunctionType) -> Iterator[object]:
    names = set(_names(function.__code__))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    for name, cell in cells:
        try:
            known[name] = cell.cell_contents
        except ValueError:  # it is not defined yet
            continue
    for found in known.values():
        if ismodule(found):
            yield from (vars(found)[name] for name in names & vars(found).keys())
        else:
            yield found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
