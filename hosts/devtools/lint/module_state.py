"""Rule HF007: state of modules, which the runs of one process share and other processes do not have."""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.hosts.devtools.lint.hits import CodeLocation, NodeFinding, written
from holdfast.hosts.devtools.lint.known_names import names_in, why_not_share, words
from holdfast.hosts.devtools.lint.modules import Definition, Module
from holdfast.hosts.devtools.lint.name_resolution import Origins
from holdfast.hosts.devtools.lint.rules import SHARED
from holdfast.hosts.devtools.lint.scopes import Assigned, Imported, Scope, nodes_of, statements_of

_CONTAINERS: Final = frozenset(
    {
        *names_in("builtins", "list() dict() set() bytearray()"),
        *names_in("collections", "defaultdict() deque() Counter() OrderedDict() ChainMap()"),
        *names_in("collections.abc", "MutableMapping() MutableSequence() MutableSet()"),
        *names_in("typing", "List() Dict() Set()"),
        *names_in("weakref", "WeakValueDictionary() WeakKeyDictionary() WeakSet()"),
    }
)
CHANGES: Final = frozenset(
    words(
        "append extend insert remove pop popitem clear update setdefault add discard appendleft "
        "extendleft popleft rotate sort reverse subtract difference_update intersection_update "
        "symmetric_difference_update"
    )
)
"""Methods that change a container."""


class ModuleStateRule:
    """The check for reads and writes of module state."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._changed: dict[str, Mapping[str, Definition]] = {}

    def check(self, node: ast.AST, place: CodeLocation) -> Iterator[NodeFinding]:
        """Yield the findings at a node. Its parents were checked before."""
        match node:
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                yield from self._read(node, place)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in CHANGES:
                if self._at(value, place) is not None and self._is_container(value, place):
                    yield _hit(value, "is changed here, and shared by all runs in this process")
            case ast.Name(ctx=ast.Store() | ast.Del(), id=name) if name in place.scope.globals:
                yield _hit(node, "is changed here, and shared by all runs in this process")
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                top = _top(node)
                if top is not None and self._at(top, place) is not None:
                    yield _hit(node, "is changed here, and shared by all runs in this process")
            case _:
                pass

    def _read(self, node: ast.Name | ast.Attribute, place: CodeLocation) -> Iterator[NodeFinding]:
        where = self._at(node, place)
        if where is None:
            return
        module, name = where
        by = self.changed(module).get(name)
        if by is not None:
            yield _hit(
                node, f"is changed by `{by.shown}`, line {by.node.lineno}, for all runs in this process"
            )
            return
        origin = self._origins.of_name(name, module, module.scope)
        why = None if origin is None else why_not_share(origin)
        if why is not None:
            yield _hit(node, why.text)

    def changed(self, module: Module) -> Mapping[str, Definition]:
        """Return the names in a module that its functions change, each with one such function."""
        if module.key not in self._changed:
            self._changed[module.key] = found = dict[str, Definition]()
            for definition in module.definitions.values():
                if not isinstance(definition.node, ast.ClassDef) and not _is_decorator(definition):
                    for name in self._changes(definition, module):
                        found.setdefault(name, definition)
        return self._changed[module.key]

    def _changes(self, definition: Definition, module: Module) -> Iterator[str]:
        body = definition.node.body
        touched = {name for node in nodes_of(body) if (name := _changed_name(node))}
        if not touched & (module.scope.names.keys() | _names_global(definition)):
            return
        place = CodeLocation(module, module.scope_within(definition))
        for node in nodes_of(body):
            name = _changed_name(node)
            if name is None or place.scope.where(name) is not module.scope:
                continue
            if isinstance(node, ast.Name):
                if name in place.scope.globals:
                    yield name
            elif isinstance(node, ast.Call):
                if self._is_container(ast.Name(name, ast.Load()), place):
                    yield name
            elif any(isinstance(one, Assigned) for one in module.scope.names[name]) or self._is_container(
                ast.Name(name, ast.Load()), place
            ):
                yield name

    def _is_container(self, node: ast.expr, place: CodeLocation) -> bool:
        return self._origins.of(node, place.module, place.scope) in _CONTAINERS

    def _at(self, node: ast.expr, place: CodeLocation) -> tuple[Module, str] | None:
        """Return the module and the name of a module-level variable; None if the node is something else."""
        match node:
            case ast.Name(id=name):
                where = place.scope.where(name)
                if where is None:
                    return None
                return self._variable(name, place.module, where)
            case ast.Attribute(value=value, attr=attr):
                base = self._origins.of(value, place.module, place.scope)
                module, inner_name = (None, "") if base is None else self._origins.program.split(base)
                if module is None or inner_name or attr not in module.scope.names:
                    return None
                return self._variable(attr, module, module.scope)
            case _:
                return None

    def _variable(self, name: str, module: Module, where: Scope) -> tuple[Module, str] | None:
        """Follow imports from a name to the module of the program whose variable it is."""
        for _ in range(10):
            imported = next((one for one in where.names.get(name, ()) if isinstance(one, Imported)), None)
            if imported is None:
                break
            found, inner_name = self._origins.program.split(self._origins.program.imported(imported, module))
            if found is None or not inner_name or "." in inner_name:
                return None
            module, name, where = found, inner_name, found.scope
        if not where.is_module or name not in where.names:
            return None
        definition = module.definitions.get(name)
        if definition is not None and not isinstance(definition.node, ast.ClassDef):
            return None
        return module, name


def _names_global(definition: Definition) -> set[str]:
    return {
        name for node in nodes_of(definition.node.body) if isinstance(node, ast.Global) for name in node.names
    }


def _changed_name(node: ast.AST) -> str | None:
    """Return the name of the variable that a node changes or rebinds."""
    match node:
        case ast.Name(ctx=ast.Store() | ast.Del(), id=name):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in CHANGES:
            return name
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            top = _top(node)
            return None if top is None else top.id
        case _:
            return None


def _top(node: ast.Attribute | ast.Subscript) -> ast.Name | None:
    """Return the variable at the start of `a.b` or `a[b]`; None if it starts with another expression."""
    top: ast.expr = node
    while isinstance(top, ast.Attribute | ast.Subscript):
        top = top.value
    return top if isinstance(top, ast.Name) else None


def _is_decorator(definition: Definition) -> bool:
    """Return whether a function returns an argument, as decorators do: they run only while modules are imported."""
    node = definition.node
    if isinstance(node, ast.ClassDef):
        return False
    names = {one.arg for one in (*node.args.posonlyargs, *node.args.args)}
    return any(
        isinstance(one, ast.Return) and isinstance(one.value, ast.Name) and one.value.id in names
        for one in statements_of(node.body)
    )


def _hit(node: ast.expr, text: str) -> NodeFinding:
    return NodeFinding(node, SHARED, f"`{written(node)}` {text}")
