"""Findings inside one function, before they are assigned to a workflow."""

import ast

import attrs

from holdfast.hosts.devtools.lint.modules import Module
from holdfast.hosts.devtools.lint.scopes import Scope


@attrs.frozen(eq=False)
class NodeFinding:
    """A finding at a node."""

    node: ast.expr | ast.stmt | ast.excepthandler
    """The node with the problem."""
    code: str
    """The code of the rule."""
    text: str
    """What is wrong."""
    end_line: int | None = None
    """The last line whose comment can suppress the finding; None for the node's own last line."""


@attrs.frozen(eq=False)
class CodeLocation:
    """The module and the scope of an expression."""

    module: Module
    scope: Scope


def written(node: ast.AST) -> str:
    """Return a short form of an expression for messages, without arguments and subscripts."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{written(value)}.{attr}"
        case ast.Call(func=func):
            return f"{written(func)}(...)"
        case ast.Subscript(value=value):
            return f"{written(value)}[...]"
        case ast.Await(value=value):
            return written(value)
        case _:
            return "(...)"
