"""A parsed source file: its syntax tree, its scope and its definitions."""

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import attrs

from holdfast.hosts.devtools.lint.comments import Suppression, read_suppressions
from holdfast.hosts.devtools.lint.scopes import (
    Function,
    Scope,
    scope_of_function,
    scope_of_module,
    statements_of,
)

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@attrs.frozen(eq=False)
class Definition:
    """A function or a class of the program.

    Attributes:
        module: The module that defines it.
        node: Its syntax tree.
        qualname: The qualified name, as in Python: `Order.total`, `make.<locals>.inner`.
        scope: The enclosing scope.
        owner: The qualified name of the class whose body defines it; "" outside classes.
    """

    module: "Module"
    node: Function | ast.ClassDef
    qualname: str
    scope: Scope
    owner: str = ""

    @property
    def origin(self) -> str:
        """The name that is unique in the program."""
        return f"{self.module.key}.{self.qualname}"

    @property
    def shown(self) -> str:
        """The name for messages."""
        return f"{self.module.name}.{self.qualname}".replace(".<locals>", "")

    @property
    def is_method(self) -> bool:
        """Whether its first parameter is an instance of its class."""
        names = {getattr(one, "id", "") for one in self.node.decorator_list}
        return bool(self.owner) and not names & {"staticmethod", "classmethod"}


class Module:
    """A parsed file. `key` is its unique name in the program, `name` the name by which it is imported."""

    def __init__(self, path: Path, shown: str, name: str, key: str, source: bytes, tree: ast.Module) -> None:
        self.path = path
        self.shown = shown
        self.name = name
        self.key = key
        self.source = source
        self.tree = tree

    @cached_property
    def scope(self) -> Scope:
        """The module's scope."""
        return scope_of_module(self.tree, has_walrus=b":=" in self.source)

    @cached_property
    def definitions(self) -> Mapping[str, Definition]:
        """All functions and classes at any depth, by qualified name; of several with one name, the last."""
        return {one.qualname: one for one in self._defined()}

    @cached_property
    def suppressions(self) -> Mapping[int, Suppression]:
        """Suppressions by comments, by line."""
        return read_suppressions(self.source)

    @cached_property
    def lines(self) -> Sequence[bytes]:
        """The lines of the source, in bytes."""
        return self.source.splitlines()

    @cached_property
    def _added(self) -> Mapping[str, Sequence[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="add"), args=[added]):
                    found.setdefault(name, []).append(added)
                case _:
                    pass
        return found

    def added_to(self, name: str) -> Sequence[ast.expr]:
        """Return the arguments of all `name.add(...)` in the module."""
        return self._added.get(name, ())

    def column(self, line: int, offset: int) -> int:
        """Return the column, from 1 and in characters, of an offset in bytes."""
        text = self.lines[line - 1] if line <= len(self.lines) else b""
        return len(text[:offset].decode("utf-8", errors="replace")) + 1

    def scope_within(self, definition: Definition) -> Scope:
        """Return the scope of a function of this module."""
        node = definition.node
        assert not isinstance(node, ast.ClassDef)
        owner = f"{self.key}.{definition.owner}" if definition.is_method else ""
        return scope_of_function(node, definition.scope, qualname=definition.qualname, owner=owner)

    def _defined(self) -> Iterator[Definition]:
        """Yield the definitions, outer ones first, otherwise in the order of the source."""
        waiting: list[tuple[Sequence[ast.stmt], Scope, str, str]] = [(self.tree.body, self.scope, "", "")]
        while waiting:
            body, scope, prefix, owner = waiting.pop(0)
            found = [one for one in statements_of(body) if isinstance(one, _DEFINITIONS)]
            for node in sorted(found, key=lambda one: one.lineno):
                made = Definition(self, node, prefix + node.name, scope, owner)
                yield made
                if isinstance(node, ast.ClassDef):
                    waiting.append((node.body, scope, f"{made.qualname}.", made.qualname))
                elif any(isinstance(one, _DEFINITIONS) for one in statements_of(node.body)):
                    waiting.append((node.body, self.scope_within(made), f"{made.qualname}.<locals>.", ""))


def read_module(path: Path, shown: str, name: str, key: str, source: bytes) -> Module:
    """Parse a file.

    Raises:
        SyntaxError, ValueError: This version of Python can't parse it.
        RecursionError, MemoryError: It is nested too deeply for this version of Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Module(path, shown, name, key, source, ast.parse(source))
