"""Scopes: the names that code binds, and their values, found without running it."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import attrs

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Code: TypeAlias = Function | ast.Lambda
OF_THEIR_OWN: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
"""Nodes with a scope of their own, besides comprehensions."""
_HOLDING: Final = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
    *(ast.ExceptHandler, ast.match_case),
)
_HELD: Final = ("body", "orelse", "finalbody", "handlers", "cases", "items")
"""Fields of a statement that hold other statements."""


@attrs.frozen
class Imported:
    """A binding by an import, of a module or of a name in it."""

    module: str
    """The module's full name; relative to `level`."""
    name: str = ""
    """The name in the module; "" for the module itself."""
    level: int = 0
    """The number of dots of a relative import."""


@attrs.frozen(eq=False)
class Assigned:
    """A binding to the value of an expression, or to the context that it enters in a `with`."""

    value: ast.expr


@attrs.frozen(eq=False)
class Annotated:
    """A binding with a type annotation, of an unknown value."""

    annotation: ast.expr


@attrs.frozen(eq=False)
class Defined:
    """A binding to a function or class."""

    node: Function | ast.ClassDef


@attrs.frozen
class SelfInstance:
    """A binding to an instance of the class whose method this is: `self`."""

    qualname: str


@attrs.frozen
class UnknownValue:
    """A binding to an unknown value."""


Binding: TypeAlias = Imported | Assigned | Annotated | Defined | SelfInstance | UnknownValue
UNKNOWN_VALUE: Final = UnknownValue()


@attrs.define(eq=False)
class Scope:
    """The names of a function or a module."""

    parent: "Scope | None" = None
    """The enclosing scope; None for a module."""
    prefix: str = ""
    """Prefix of the qualified names of definitions in this scope."""
    has_walrus: bool = True
    """Whether the file uses `:=`. Only then are expressions searched for bindings."""
    names: dict[str, list[Binding]] = attrs.field(factory=dict[str, list[Binding]])
    globals: set[str] = attrs.field(factory=set[str])
    """Names declared `global`."""
    stars: list[Imported] = attrs.field(factory=list[Imported])
    """Modules of `import *`, last first."""
    origins: "dict[str, str | None]" = attrs.field(factory=dict[str, "str | None"])
    """Cache of resolved names. A name that is being resolved has the value None, which ends recursion."""

    @property
    def is_module(self) -> bool:
        """Whether this is the scope of a module."""
        return self.parent is None

    def where(self, name: str) -> "Scope | None":
        """Return the scope that binds a name as seen from here; None if the file does not bind it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.globals:
                while scope.parent is not None:
                    scope = scope.parent
            if name in scope.names:
                return scope
            scope = scope.parent
        return None

    def bind(self, name: str, binding: Binding) -> None:
        """Add a binding of a name."""
        self.names.setdefault(name, []).append(binding)


def scope_of_module(tree: ast.Module, *, has_walrus: bool = True) -> Scope:
    """Return the scope of a module."""
    scope = Scope(has_walrus=has_walrus)
    _bind_all(tree.body, scope)
    return scope


def scope_of_function(node: Code, parent: Scope, *, qualname: str, owner: str = "") -> Scope:
    """Return the scope of a function. `owner` is the class of a method."""
    scope = Scope(parent, f"{qualname}.<locals>.", parent.has_walrus)
    parameters = node.args
    positional = [*parameters.posonlyargs, *parameters.args]
    for parameter in (*positional, *parameters.kwonlyargs):
        is_self = bool(owner) and positional[:1] == [parameter]
        if is_self:
            scope.bind(parameter.arg, SelfInstance(owner))
        else:
            scope.bind(
                parameter.arg, Annotated(parameter.annotation) if parameter.annotation else UNKNOWN_VALUE
            )
    for variadic in (parameters.vararg, parameters.kwarg):
        if variadic is not None:
            scope.bind(variadic.arg, UNKNOWN_VALUE)
    if not isinstance(node, ast.Lambda):
        _bind_all(node.body, scope)
    return scope


def scope_of_comprehension(generators: Sequence[ast.comprehension], parent: Scope) -> Scope:
    """Return the scope of a comprehension."""
    scope = Scope(parent, parent.prefix, parent.has_walrus)
    for generator in generators:
        for name in _targets(generator.target):
            scope.bind(name, UNKNOWN_VALUE)
    return scope


def nodes_of(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes of a function's code. Inner functions and classes are yielded without their contents."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, OF_THEIR_OWN):
            waiting += ast.iter_child_nodes(node)


def statements_of(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all statements of a function's code, with their handlers, cases and `with` items."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _HOLDING):
            for field in _HELD:
                waiting += getattr(node, field, ())


def _bind_all(body: Sequence[ast.stmt], scope: Scope) -> None:
    for node in nodes_of(body) if scope.has_walrus else statements_of(body):
        if isinstance(node, ast.match_case) and not scope.has_walrus:
            for one in ast.walk(node.pattern):
                _bind(one, scope)
        else:
            _bind(node, scope)


def _bind(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            scope.bind(node.name, Defined(node))
        case ast.Import():
            for alias in node.names:
                if alias.asname:
                    scope.bind(alias.asname, Imported(alias.name))
                else:
                    top = alias.name.partition(".")[0]
                    if Imported(top) not in scope.names.get(top, ()):
                        scope.bind(top, Imported(top))
        case ast.ImportFrom():
            for alias in node.names:
                imported = Imported(node.module or "", alias.name, node.level)
                if alias.name == "*":
                    scope.stars.insert(0, Imported(node.module or "", "", node.level))
                else:
                    scope.bind(alias.asname or alias.name, imported)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _bind_target(target, value, scope)
        case ast.AnnAssign(target=ast.Name(id=name)):
            assigned = node.value if _value_is_more_precise(node) else None
            scope.bind(name, Annotated(node.annotation) if assigned is None else Assigned(assigned))
        case ast.NamedExpr(target=ast.Name(id=name)):
            scope.bind(name, Assigned(node.value))
        case ast.For() | ast.AsyncFor():
            _bind_target(node.target, None, scope)
        case ast.withitem(optional_vars=ast.expr() as target):
            _bind_target(target, node.context_expr, scope)
        case ast.ExceptHandler(name=str(name)):
            scope.bind(name, UNKNOWN_VALUE)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.bind(name, UNKNOWN_VALUE)
        case ast.Global():
            scope.globals.update(node.names)
        case _:
            pass


def _value_is_more_precise(node: ast.AnnAssign) -> bool:
    """Return whether the value is more precise than the annotation, as for `Final` or `Callable`."""
    annotation = node.annotation
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    name = annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", "")
    return name in {"Final", "ClassVar", "Any", "object", "Callable", "TypeAlias"}


def _bind_target(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, UNKNOWN_VALUE if value is None else Assigned(value))
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        pairs = len(target.elts) == len(value.elts)
        if pairs and not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts)):
            for part, part_value in zip(target.elts, value.elts, strict=True):
                _bind_target(part, part_value, scope)
            return
        _bind_target(target, None, scope)
    else:
        for name in _targets(target):
            scope.bind(name, UNKNOWN_VALUE)


def _targets(target: ast.expr) -> Iterator[str]:
    """Yield the names that a target binds; `a.b` and `a[b]` bind none."""
    waiting = [target]
    while waiting:
        match waiting.pop():
            case ast.Name(id=name):
                yield name
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                waiting += parts
            case ast.Starred(value=value):
                waiting.append(value)
            case _:
                pass
