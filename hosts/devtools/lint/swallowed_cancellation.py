"""Rule HF013: handlers that swallow cancellation, so that a cancelled run would continue."""

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.hosts.devtools.lint.hits import CodeLocation, NodeFinding, written
from holdfast.hosts.devtools.lint.name_resolution import Origins
from holdfast.hosts.devtools.lint.rules import SWALLOWED
from holdfast.hosts.devtools.lint.scopes import nodes_of

_BROAD: Final = frozenset(
    {
        "builtins.BaseException",
        "asyncio.CancelledError",
        "asyncio.exceptions.CancelledError",
        "concurrent.futures.CancelledError",
    }
)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)


def check_swallowing(
    node: ast.AST, place: CodeLocation, origins: Origins, cancelled: frozenset[str]
) -> Iterator[NodeFinding]:
    """Yield the findings in a statement. `cancelled` are the names on which the function calls `cancel()`."""
    match node:
        case ast.Try() | ast.TryStar():
            if _awaits(node.body) and not _is_end_of_cancelled(node.body, cancelled):
                yield from _check_handlers(node, place, origins)
            left = _leaves(node.finalbody)
            if left is not None and _awaits([*node.body, *node.handlers, *node.orelse]):
                yield NodeFinding(left, SWALLOWED, "leaves a `finally` block, which swallows cancellation")
        case ast.With() | ast.AsyncWith():
            if _awaits(node.body) and not _is_end_of_cancelled(node.body, cancelled):
                yield from _check_suppress(node, place, origins)
        case _:
            pass


def names_cancelled(body: Sequence[ast.AST]) -> frozenset[str]:
    """Return the names on which `cancel()` is called, in a function and those inside it."""
    return frozenset(
        written(node.func.value)
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cancel"
    )


def _check_handlers(
    node: ast.Try | ast.TryStar, place: CodeLocation, origins: Origins
) -> Iterator[NodeFinding]:
    for handler in node.handlers:
        broad = _broad(handler.type, place, origins)
        if broad is None:
            continue
        if not any(isinstance(one, ast.Raise) for one in nodes_of(handler.body)):
            end = handler.type.end_lineno if handler.type is not None else None
            yield NodeFinding(
                handler, SWALLOWED, f"`{broad}` catches cancellation, too", end or handler.lineno
            )
        return  # later handlers do not see the cancellation


def _check_suppress(
    node: ast.With | ast.AsyncWith, place: CodeLocation, origins: Origins
) -> Iterator[NodeFinding]:
    for item in node.items:
        call = item.context_expr
        if (
            isinstance(call, ast.Call)
            and origins.of(call.func, place.module, place.scope) == "contextlib.suppress"
        ):
            for argument in call.args:
                if origins.of(argument, place.module, place.scope) in _BROAD:
                    text = f"suppressing `{written(argument)}` swallows cancellation of the run, too"
                    yield NodeFinding(call, SWALLOWED, text)


def _broad(caught: ast.expr | None, place: CodeLocation, origins: Origins) -> str | None:
    """Return the text of a handler that catches cancellation; None if it does not."""
    if caught is None:
        return "except:"
    for one in caught.elts if isinstance(caught, ast.Tuple) else [caught]:
        if origins.of(one, place.module, place.scope) in _BROAD:
            return f"except {written(one)}"
    return None


def _awaits(body: Sequence[ast.AST]) -> bool:
    """Return whether cancellation can arrive in these statements."""
    return any(
        isinstance(one, ast.Await | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(one, ast.comprehension) and bool(one.is_async))
        for one in nodes_of(body)
    )


def _is_end_of_cancelled(body: Sequence[ast.stmt], cancelled: frozenset[str]) -> bool:
    """Return whether these statements only await a task that the function itself has cancelled."""
    match body:
        case [ast.Expr(value=ast.Await(value=value)) | ast.Assign(value=ast.Await(value=value))]:
            return written(value) in cancelled
        case _:
            return False


def _leaves(body: Sequence[ast.stmt]) -> ast.stmt | None:
    """Return the statement that leaves a `finally` block early; None without one."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Break | ast.Continue):
            return node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(
            node, (*_LOOPS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, _LOOPS):
            waiting += [one for one in ast.walk(node) if isinstance(one, ast.Return)]
    return None
