"""What a look at one function comes to, before anybody asks whose code it is."""

import ast
from collections.abc import Callable
from typing import TypeAlias

import attrs

from holdfast.hosts.devtools.lint.modules import Module
from holdfast.hosts.devtools.lint.scopes import Scope


@attrs.frozen(eq=False)
class Hit:
    """A place, and what is wrong there. `end_line` is the last line whose comment can quiet it."""

    node: ast.expr | ast.stmt | ast.excepthandler
    code: str
    text: str
    end_line: int | None = None


@attrs.frozen(eq=False)
class Place:
    """Where an expression is: in which module, and among which names."""

    module: Module
    scope: Scope


Found: TypeAlias = Callable[[Hit], None]


def written(node: ast.AST) -> str:
    """Return an expression as it is written, if it is short."""
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
