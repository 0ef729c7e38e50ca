"""Rule HF016: state that updates change is passed to `continue_as_new` before open updates have finished."""

import ast
from collections.abc import Iterator

from holdfast.hosts.devtools.lint.hits import NodeFinding, written
from holdfast.hosts.devtools.lint.modules import Definition
from holdfast.hosts.devtools.lint.name_resolution import FunctionRole, Origins
from holdfast.hosts.devtools.lint.rules import TOO_EARLY
from holdfast.hosts.devtools.lint.scopes import nodes_of

_WHY = "is read before running updates have ended: their changes to it are lost"


def check_continuing(definition: Definition, origins: Origins) -> Iterator[NodeFinding]:
    """Yield attributes of an exposed object that are passed to `continue_as_new` outside a lambda."""
    assert not isinstance(definition.node, ast.ClassDef)
    look = _Look(definition, origins)
    calls = [node for node in nodes_of(definition.node.body) if isinstance(node, ast.Call)]
    exposed = {name for node in nodes_of(definition.node.body) for name in look.exposed(node)}
    for call in calls if exposed else ():
        if look.origin(call.func) != "holdfast.continue_as_new":
            continue
        for argument in call.args[:1]:
            if isinstance(argument, ast.Lambda):
                continue
            for node in ast.walk(argument):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id in exposed
                ):
                    yield NodeFinding(node, TOO_EARLY, f"`{written(node)}` {_WHY}", call.end_lineno)


class _Look:
    """Name resolution within one function."""

    def __init__(self, definition: Definition, origins: Origins) -> None:
        self._module = definition.module
        self._scope = definition.module.scope_within(definition)
        self._origins = origins

    def origin(self, node: ast.expr) -> str | None:
        """Return the origin of an expression; None if unknown."""
        return self._origins.of(node, self._module, self._scope)

    def exposed(self, node: ast.AST) -> Iterator[str]:
        """Yield the name of an object that this node exposes, if it has updates."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func, args=[argument, *_])):
                if self._is_changed(func, argument):
                    yield name
            case ast.Call(func=func, args=[ast.Name(id=name) as argument, *_]):
                if self._is_changed(func, argument):
                    yield name
            case _:
                pass

    def _is_changed(self, func: ast.expr, argument: ast.expr) -> bool:
        """Return whether this call exposes an object of a class with updates."""
        made = self.origin(argument) if self.origin(func) == "holdfast.expose" else None
        found = None if made is None else self._origins.program.definition(made.removesuffix("()"))
        if found is None or not isinstance(found.node, ast.ClassDef):
            return False
        methods = (
            found.module.definitions.get(f"{found.qualname}.{one.name}")
            for one in found.node.body
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        return any(
            one is not None
            and self._origins.kind(one) is FunctionRole.MESSAGE
            and not self._origins.is_read_only(one)
            for one in methods
        )
