"""Rule HF015: queries and validators that change their object, which changes only the copy of one process."""

import ast
from collections.abc import Iterator

from holdfast.hosts.devtools.lint.hits import NodeFinding, written
from holdfast.hosts.devtools.lint.module_state import CHANGES
from holdfast.hosts.devtools.lint.modules import Definition
from holdfast.hosts.devtools.lint.rules import IMPURE_QUERY

_WHY = "is changed here, only in the process that sends the query, and not in the run"


def check_read_only(definition: Definition) -> Iterator[NodeFinding]:
    """Yield the changes that a query or a validator makes to the object on which it is called."""
    assert not isinstance(definition.node, ast.ClassDef)
    taken = definition.node.args
    first = next((one.arg for one in (*taken.posonlyargs, *taken.args)), None)
    if first is None:
        return
    for statement in definition.node.body:
        for node in ast.walk(statement):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                    if _root(node) == first:
                        yield NodeFinding(node, IMPURE_QUERY, f"`{written(node)}` {_WHY}")
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute() | ast.Subscript() as value, attr=attr)
                ):
                    if attr in CHANGES and _root(value) == first:
                        yield NodeFinding(node, IMPURE_QUERY, f"`{written(value)}` {_WHY}")
                case _:
                    pass


def _root(node: ast.expr) -> str | None:
    """Return the variable at the start of an expression: `self` of `self.moves[0].at`. None for other expressions."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
