"""Rules HF010 to HF012: steps without `await`, tasks without a reference, and calls or signals without use."""

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.hosts.devtools.lint.hits import CodeLocation, NodeFinding, written
from holdfast.hosts.devtools.lint.modules import Definition, Module
from holdfast.hosts.devtools.lint.name_resolution import FunctionRole, Origins
from holdfast.hosts.devtools.lint.rules import DROPPED_CALL, DROPPED_TASK, UNAWAITED
from holdfast.hosts.devtools.lint.scopes import Imported, nodes_of, statements_of

_AWAITED: Final = frozenset(
    {
        *("asyncio.sleep", "asyncio.wait", "asyncio.wait_for"),
        *("holdfast.sleep", "holdfast.sleep_until", "holdfast.start_child", "holdfast.select"),
        *("holdfast.side_effect", "holdfast.continue_as_new", "holdfast.start_child().result"),
        *("holdfast.Channel().receive", "holdfast.Channel().close"),
        *("asyncio.Queue().get", "asyncio.Queue().put", "asyncio.Queue().join"),
        *("asyncio.Event().wait", "asyncio.Barrier().wait"),
        *("asyncio.Lock().acquire", "asyncio.Semaphore().acquire"),
    }
)
_AWAITED_ROLES: Final = frozenset({FunctionRole.STEP, FunctionRole.WORKFLOW})
_ROLES_WITH_RESULTS: Final = frozenset({FunctionRole.WORKFLOW, FunctionRole.MESSAGE})
_TASKS: Final = frozenset(
    {
        *("asyncio.create_task", "asyncio.ensure_future", "asyncio.gather", "asyncio.shield"),
        *("asyncio.get_running_loop().create_task", "asyncio.get_event_loop().create_task"),
    }
)
_RAISES: Final = frozenset({"raises", "warns", "assertRaises", "assertWarns", "assertRaisesRegex"})


class UnusedResultRule:
    """The check for unused results."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins

    def check(self, node: ast.AST, place: CodeLocation, read: frozenset[str]) -> Iterator[NodeFinding]:
        """Yield the unused results in a statement of a workflow. `read` are all names that the function reads."""
        match node:
            case ast.Expr(value=value):
                yield from self._dropped(value, place, node.end_lineno, is_workflow=True)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value):
                if name not in read and not name.startswith("_") and name not in place.scope.globals:
                    yield from self._dropped(value, place, node.end_lineno, is_workflow=True)
            case _:
                pass

    def check_returns(self, definition: Definition) -> Iterator[NodeFinding]:
        """Yield the calls that a workflow or an async update returns without awaiting them. No result can hold them."""
        role = self._origins.kind(definition)
        if role not in _ROLES_WITH_RESULTS or not isinstance(definition.node, ast.AsyncFunctionDef):
            return
        place = CodeLocation(definition.module, definition.module.scope_within(definition))
        for node in statements_of(definition.node.body):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            for call in _calls(node.value):
                origin = self._origins.of(call.func, place.module, place.scope)
                if origin is not None and self._must_be_awaited(origin):
                    text = f"`{written(call.func)}(...)` is returned without `await`, so it does not run"
                    yield NodeFinding(call, UNAWAITED, text, node.end_lineno)

    def _must_be_awaited(self, origin: str) -> bool:
        kind, definition = self._origins.called(origin)
        return kind in _AWAITED_ROLES or origin in _AWAITED or _is_coroutine(definition)

    def check_module(
        self, module: Module, seen: Sequence[Definition], words: frozenset[str]
    ) -> Iterator[NodeFinding]:
        """Yield the unused results in a module, outside the functions that were checked as code of workflows.

        `words` are the names of workflows, steps and channels; other calls are skipped.
        """
        aliases = {
            name
            for name, bindings in module.scope.names.items()
            if any(isinstance(one, Imported) and one.name in words for one in bindings)
        }
        known = words | aliases
        inside = {
            one
            for definition in seen
            for one in ast.walk(definition.node)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        yield from self._check_body(module.tree.body, CodeLocation(module, module.scope))
        for definition in module.definitions.values():
            node = definition.node
            if not isinstance(node, ast.ClassDef) and node not in inside and _may_drop(node.body, known):
                yield from self._check_body(node.body, CodeLocation(module, module.scope_within(definition)))

    def _check_body(self, body: Sequence[ast.stmt], place: CodeLocation) -> Iterator[NodeFinding]:
        expected = {
            id(one)
            for node in statements_of(body)
            if isinstance(node, ast.With | ast.AsyncWith) and any(_raises(item) for item in node.items)
            for one in node.body
        }
        for node in statements_of(body):
            if isinstance(node, ast.Expr) and id(node) not in expected:
                yield from self._dropped(node.value, place, node.end_lineno, is_workflow=False)

    def _dropped(
        self, value: ast.expr, place: CodeLocation, end: int | None, *, is_workflow: bool
    ) -> Iterator[NodeFinding]:
        for call in _calls(value):
            origin = self._origins.of(call.func, place.module, place.scope)
            if origin is None:
                continue
            name = written(call.func)
            kind, definition = self._origins.called(origin)
            if kind is FunctionRole.WORKFLOW:
                text = f"`{name}(...)` only describes a run, and is not used: nothing runs"
                yield NodeFinding(call, DROPPED_CALL, text, end)
            elif origin == "holdfast.Channel()":
                text = f"`{name}(...)` only describes a message, and is not used: nothing is sent"
                yield NodeFinding(call, DROPPED_CALL, text, end)
            elif kind is FunctionRole.STEP:
                yield NodeFinding(
                    call, UNAWAITED, f"step `{name}(...)` is not awaited, so it does not run", end
                )
            elif is_workflow and (origin in _AWAITED or _is_coroutine(definition)):
                yield NodeFinding(call, UNAWAITED, f"`{name}(...)` is not awaited, so it does not run", end)
            elif is_workflow and origin in _TASKS:
                text = f"the result of `{name}(...)` is not kept: its error is lost, and it ends with the workflow"
                yield NodeFinding(call, DROPPED_TASK, text, end)


def names_read(node: ast.AST) -> frozenset[str]:
    """Return all names that a piece of code reads."""
    return frozenset(
        one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    )


def _calls(value: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls that produce the value of an expression, or its elements."""
    match value:
        case ast.Call():
            yield value
        case ast.IfExp(body=one, orelse=other):
            yield from _calls(one)
            yield from _calls(other)
        case ast.BoolOp(values=values):
            yield from _calls(values[-1])
        case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
            yield from _calls(element)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _calls(part)
        case _:
            pass


def _is_coroutine(definition: Definition | None) -> bool:
    """Return whether a call of a function returns a coroutine."""
    if definition is None or not isinstance(definition.node, ast.AsyncFunctionDef):
        return False
    node = definition.node
    names = {getattr(one, "id", "") for one in node.decorator_list}
    is_generator = any(isinstance(one, ast.Yield) for one in nodes_of(node.body))
    return not is_generator and names <= {"staticmethod", "classmethod", "override"}


def _may_drop(body: Sequence[ast.stmt], words: frozenset[str]) -> bool:
    """Return whether a body contains an unused call of one of these names. Most do not, which saves the full check."""
    return any(
        _last_word(call.func) in words
        for node in statements_of(body)
        if isinstance(node, ast.Expr)
        for call in _calls(node.value)
    )


def _last_word(node: ast.expr) -> str:
    while isinstance(node, ast.Call):  # unwraps pack.options(...)(order)
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr == "options":
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _raises(item: ast.withitem) -> bool:
    """Return whether a block expects an exception, as in a test: its results are not meant to be used."""
    call = item.context_expr
    func = call.func if isinstance(call, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name in _RAISES
