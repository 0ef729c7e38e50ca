"""Finds the queued steps and the workflows that a function's code mentions, which need not be registered then."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dis import get_instructions
from inspect import isfunction, ismodule
from sys import stdlib_module_names
from types import CodeType, FunctionType
from typing import Any, Final, cast

from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.steps import Step

_OURS: Final = ("holdfast.kernel.", "holdfast.hosts.")
_SYNCHRONIZES: Final = frozenset({"asyncio.locks", "asyncio.queues"})
_MANY: Final = 1_000
"""The maximum size of a collection that is searched."""


def steps_within(function: Callable[..., object]) -> Iterator[Step[..., Any]]:
    """Yield the queued steps that a function mentions, directly or through functions that it mentions.

    They are found as names (`embed`), as attributes of modules (`models.embed`), in mentioned lists and dicts, and as
    compensations. Nothing is called.
    """
    for one in _all_mentioned(function):
        if isinstance(one, Step) and one.queue is not None:
            yield cast("Step[..., Any]", one)


def workflows_within(function: Callable[..., object]) -> Iterator[WorkflowDefinition[object]]:
    """Yield the workflows that a function mentions in the same ways: its child workflows and continuations."""
    for one in _all_mentioned(function):
        if isinstance(one, WorkflowDefinition):
            yield one


def shared_primitives(function: Callable[..., object]) -> Iterator[tuple[str, object]]:
    """Yield the asyncio locks and queues that a function uses from outside, with their names."""
    if isfunction(function):
        # From the instructions, as `co_names` has the names of attributes too.
        names = {*_loaded(function.__code__), *function.__code__.co_freevars}
        for name, found in _known_of(function):
            if name in names and type(found).__module__ in _SYNCHRONIZES:
                yield name, found


def with_children(workflows: Iterable[WorkflowDefinition[Any]]) -> list[WorkflowDefinition[Any]]:
    """Return workflows plus those that they mention, recursively. The first one of a name and version counts."""
    definitions = list(workflows)
    found = {(one.name, one.version): one for one in reversed(definitions)}
    waiting = list(definitions)
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, Workflow):
            for child in workflows_within(one.function):
                if found.setdefault((child.name, child.version), child) is child and child not in definitions:
                    definitions.append(child)
                    waiting.append(child)
    return definitions


def _all_mentioned(function: Callable[..., object]) -> Iterator[object]:
    seen: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, Step):
            step = cast("Step[..., Any]", one)
            if step.compensation is not None:
                waiting.append(step.compensation)
        elif isinstance(one, (list, tuple, set, frozenset, dict)):
            waiting += _held(cast("Collection[object]", one))
        elif isfunction(one) and _may_call_steps(one.__module__):
            waiting += _mentioned(one)


def _held(several: Collection[object]) -> Collection[object]:
    """Return the elements of a collection, or the values of a dict; nothing if it is too large."""
    if len(several) > _MANY:
        return ()
    return cast("dict[object, object]", several).values() if isinstance(several, dict) else several


def _may_call_steps(module: str) -> bool:
    """Whether functions of a module may call an application's steps: not those of Python and Holdfast."""
    return module.partition(".")[0] not in stdlib_module_names and not module.startswith(_OURS)


def _mentioned(function: FunctionType) -> Iterator[object]:
    names = set(_names(function.__code__))
    for _, found in _known_of(function):
        if ismodule(found):
            yield from (vars(found)[name] for name in names & vars(found).keys())
        else:
            yield found


def _known_of(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the globals and closure variables that a function's code names, with their values."""
    names = set(_names(function.__code__))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {name: function.__globals__[name] for name in names & function.__globals__.keys()}
    for name, cell in cells:
        try:
            known[name] = cell.cell_contents
        except ValueError:  # it is not defined yet
            continue
    yield from known.items()


def _loaded(code: CodeType) -> Iterator[str]:
    """Yield the names that the code of a function reads, and that of the functions nested in it."""
    for one in codes_within(code):
        found = (each for each in get_instructions(one) if each.opname in {"LOAD_GLOBAL", "LOAD_NAME"})
        yield from (str(each.argval) for each in found)


def _names(code: CodeType) -> Iterator[str]:
    for one in codes_within(code):
        yield from one.co_names


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)
