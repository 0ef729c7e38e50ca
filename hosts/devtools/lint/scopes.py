"""Which names a piece of code binds, and to what: the scopes of Python, without running it."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import attrs

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Code: TypeAlias = Function | ast.Lambda
OF_THEIR_OWN: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
"""What has a scope of its own, beside comprehensions."""
_HOLDING: Final = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
    *(ast.ExceptHandler, ast.match_case),
)
_HELD: Final = ("body", "orelse", "finalbody", "handlers", "cases", "items")
"""The fields of a statement in which there are others."""


@attrs.frozen
class Imported:
    """A name is bound by an import: to a module, or to a name in one. `level` counts the dots of a relative one."""

    module: str
    name: str = ""
    level: int = 0


@attrs.frozen(eq=False)
class Assigned:
    """A name is bound to the value of an expression, or to what that gives when it is entered by `with`."""

    value: ast.expr


@attrs.frozen(eq=False)
class Annotated:
    """A name is said to be of a type."""

    annotation: ast.expr


@attrs.frozen(eq=False)
class Defined:
    """A name is bound to a function or class."""

    node: Function | ast.ClassDef


@attrs.frozen
class OfClass:
    """A name is bound to an instance of the class in whose body the code is: `self`."""

    qualname: str


@attrs.frozen
class Somehow:
    """A name is bound to something, and nobody knows to what."""


Binding: TypeAlias = Imported | Assigned | Annotated | Defined | OfClass | Somehow
SOMEHOW: Final = Somehow()


@attrs.define(eq=False)
class Scope:
    """The names of one function, or of a module, whose `parent` is None."""

    parent: "Scope | None" = None
    prefix: str = ""
    """What the qualified names of what is defined here begin with."""
    has_walrus: bool = True
    """Whether `:=` may bind names here. Only then are expressions looked through for names."""
    names: dict[str, list[Binding]] = attrs.field(factory=dict[str, list[Binding]])
    globals: set[str] = attrs.field(factory=set[str])
    stars: list[Imported] = attrs.field(factory=list[Imported])
    """What `import *` takes names from, last first."""
    origins: "dict[str, str | None]" = attrs.field(factory=dict[str, "str | None"])
    """What is known of its names already. While it is looked for, what a name stands for is not known."""

    @property
    def is_module(self) -> bool:
        """Whether this is the scope of a module."""
        return self.parent is None

    def where(self, name: str) -> "Scope | None":
        """Return the scope that a name is looked up in; None if no code here binds it."""
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
        """Note that a name is bound here."""
        self.names.setdefault(name, []).append(binding)


def scope_of_module(tree: ast.Module, *, has_walrus: bool = True) -> Scope:
    """Return the names of a module."""
    scope = Scope(has_walrus=has_walrus)
    _bind_all(tree.body, scope)
    return scope


def scope_of_function(node: Code, parent: Scope, *, qualname: str, owner: str = "") -> Scope:
    """Return the names of a function. `owner` is the class whose method it is, if it is one."""
    scope = Scope(parent, f"{qualname}.<locals>.", parent.has_walrus)
    parameters = node.args
    positional = [*parameters.posonlyargs, *parameters.args]
    for parameter in (*positional, *parameters.kwonlyargs):
        is_self = bool(owner) and positional[:1] == [parameter]
        if is_self:
            scope.bind(parameter.arg, OfClass(owner))
        else:
            scope.bind(parameter.arg, Annotated(parameter.annotation) if parameter.annotation else SOMEHOW)
    for variadic in (parameters.vararg, parameters.kwarg):
        if variadic is not None:
            scope.bind(variadic.arg, SOMEHOW)
    if not isinstance(node, ast.Lambda):
        _bind_all(node.body, scope)
    return scope


def scope_of_comprehension(generators: Sequence[ast.comprehension], parent: Scope) -> Scope:
    """Return the names of a comprehension."""
    scope = Scope(parent, parent.prefix, parent.has_walrus)
    for generator in generators:
        for name in _targets(generator.target):
            scope.bind(name, SOMEHOW)
    return scope


def nodes_of(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes that are the code of one function, and not of one inside of it; those are yielded themselves."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, OF_THEIR_OWN):
            waiting += ast.iter_child_nodes(node)


def statements_of(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all statements that are the code of one function, with their handlers, cases and `with` items."""
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
            scope.bind(name, SOMEHOW)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            scope.bind(name, SOMEHOW)
        case ast.Global():
            scope.globals.update(node.names)
        case _:
            pass


def _value_is_more_precise(node: ast.AnnAssign) -> bool:
    """Whether the value of an annotated assignment says more of its type than the annotation, as for `Final`."""
    annotation = node.annotation
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    name = annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", "")
    return name in {"Final", "ClassVar", "Any", "object", "Callable", "TypeAlias"}


def _bind_target(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, SOMEHOW if value is None else Assigned(value))
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        pairs = len(target.elts) == len(value.elts)
        if pairs and not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts)):
            for part, part_value in zip(target.elts, value.elts, strict=True):
                _bind_target(part, part_value, scope)
            return
        _bind_target(target, None, scope)
    else:
        for name in _targets(target):
            scope.bind(name, SOMEHOW)


def _targets(target: ast.expr) -> Iterator[str]:
    """Yield the names that a target binds. What is in `a.b` or `a[b]` is read, not bound."""
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
