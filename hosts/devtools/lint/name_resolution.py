"""Static name resolution: the full names, or origins, of expressions.

`dt.datetime.now` is `datetime.datetime.now` after `import datetime as dt`; `Path(x)` is `pathlib.Path()`, an instance.
An uncertain expression has no origin, and is never a finding.
"""

import ast
import builtins
import re
from enum import Enum
from typing import Final

from holdfast.hosts.devtools.lint.known_names import is_known, names_in
from holdfast.hosts.devtools.lint.modules import Definition, Module
from holdfast.hosts.devtools.lint.program import Program
from holdfast.hosts.devtools.lint.scopes import (
    Annotated,
    Assigned,
    Binding,
    Defined,
    Imported,
    Scope,
    SelfInstance,
)

DEPTH_MAX: Final = 24
"""Maximum number of names that are followed from an expression; beyond it the origin is unknown."""
SET: Final = "builtins.set()"
_BUILTINS: Final = frozenset(dir(builtins))
_OURS: Final = re.compile(r"holdfast\.(?:kernel\.authoring\.\w+\.)?(?=\w)")
_SETS: Final = frozenset(
    {
        *names_in("builtins", "set() frozenset()"),
        *names_in("typing", "Set() FrozenSet() AbstractSet() MutableSet()"),
        *names_in("collections.abc", "Set() MutableSet()"),
    }
)
_SET_METHODS: Final = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_SET_OPERATORS: Final = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
_VIEWS: Final = ("keys()", "items()")
_WRAPPERS: Final = frozenset({"typing.Optional", "typing.Annotated", "typing.Final", "typing.ClassVar"})


class FunctionRole(Enum):
    """The role of a function in Holdfast."""

    WORKFLOW = "workflow"
    STEP = "step"
    MESSAGE = "message"
    """A query or an update, which runs as a part of its workflow."""
    STAGE = "stage"
    OTHER = "other"


class Origins:
    """The resolver of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._kinds: dict[int, FunctionRole] = {}

    def of(self, node: ast.expr, module: Module, scope: Scope, depth: int = 0) -> str | None:
        """Return the origin of an expression; None if unknown."""
        if depth > DEPTH_MAX:
            return None
        deeper = depth + 1
        match node:
            case ast.Name(id=name):
                return self.of_name(name, module, scope, deeper)
            case ast.Attribute(value=value, attr=attr):
                base = self.of(value, module, scope, deeper)
                return None if base is None else self.of_attribute(base, attr, deeper)
            case ast.Call(func=func):
                called = self.of(func, module, scope, deeper)
                return None if called is None else self._of_call(called, deeper)
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self.of(value, module, scope, deeper)
            case ast.Set() | ast.SetComp():
                return SET
            case ast.List() | ast.ListComp():
                return "builtins.list()"
            case ast.Dict() | ast.DictComp():
                return "builtins.dict()"
            case ast.BinOp():
                return self._of_operation(node, module, scope, deeper)
            case _:
                return None

    def of_name(self, name: str, module: Module, scope: Scope, depth: int = 0) -> str | None:
        """Return the origin of a name in a scope; None if unknown."""
        where = scope.where(name)
        if where is None:
            return self._from_stars(name, module) or (f"builtins.{name}" if name in _BUILTINS else None)
        if name not in where.origins:
            where.origins[name] = None
            # None is a placeholder for a later value or a failed import: ignore it.
            bindings = [one for one in where.names[name] if not _is_of_none(one)]
            found = {self._of_binding(name, one, module, where, depth) for one in bindings}
            where.origins[name] = found.pop() if len(found) == 1 else None
        return where.origins[name]

    def of_attribute(self, base: str, attr: str, depth: int = 0) -> str | None:
        """Return the origin of an attribute; None if unknown."""
        module, name = self.program.split(base)
        if module is not None and not name:
            inside = f"{base}.{attr}"
            if self.program.split(inside)[1] == "":
                return inside
            return self.of_name(attr, module, module.scope, depth + 1)
        if module is not None:
            found = self._of_member(module, name, attr, depth)
            if found is not None:
                return found
        return _plain(f"{base}.{attr}")

    def of_type(self, annotation: ast.expr, module: Module, scope: Scope, depth: int = 0) -> str | None:
        """Return the origin of an instance of an annotated type; None if unknown."""
        if depth > DEPTH_MAX:
            return None
        deeper = depth + 1
        match annotation:
            case ast.Constant(value=str(text)):
                try:
                    return self.of_type(ast.parse(text, mode="eval").body, module, scope, deeper)
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return None
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                found = {
                    self.of_type(one, module, scope, deeper) for one in (left, right) if not _is_none(one)
                }
                return found.pop() if len(found) == 1 else None
            case ast.Subscript(value=value, slice=inner):
                base = self.of(value, module, scope, deeper)
                if base in _WRAPPERS:
                    first = inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
                    return self.of_type(first, module, scope, deeper)
                return _instance(base)
            case ast.Name() | ast.Attribute():
                return _instance(self.of(annotation, module, scope, deeper))
            case _:
                return None

    def kind(self, definition: Definition) -> FunctionRole:
        """Return the role of a function, by its decorators."""
        known = self._kinds.get(id(definition.node))
        if known is None:
            self._kinds[id(definition.node)] = known = FunctionRole.OTHER  # ends recursion
            for decorator in definition.node.decorator_list:
                origin = self._of_decorator(decorator, definition)
                if origin is not None and (found := self.makes(origin)) is not FunctionRole.OTHER:
                    known = found
            self._kinds[id(definition.node)] = known
        return known

    def is_read_only(self, definition: Definition) -> bool:
        """Return whether a function is a query, or the validator of an update."""
        decorators = (self._of_decorator(node, definition) for node in definition.node.decorator_list)
        return any(
            one == "holdfast.query"
            or (one.endswith(".validator") and self.makes(one) is FunctionRole.MESSAGE)
            for one in decorators
            if one is not None
        )

    def _of_decorator(self, node: ast.expr, definition: Definition) -> str | None:
        """Return the origin of a decorator. In the body of a class it may belong to an earlier definition there."""
        if definition.owner and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            beside = f"{definition.owner}.{node.value.id}"
            if beside in definition.module.definitions:
                return f"{definition.module.key}.{beside}.{node.attr}"
        return self.of(node, definition.module, definition.scope)

    def makes(self, origin: str) -> FunctionRole:
        """Return the role of functions with this decorator."""
        origin = origin.replace(".options()", "").replace("()", "")
        if origin in {"holdfast.step", "holdfast.step.in_transaction"}:
            return FunctionRole.STEP
        if origin == "holdfast.workflow":
            return FunctionRole.WORKFLOW
        if origin in {"holdfast.query", "holdfast.update"}:
            return FunctionRole.MESSAGE
        if origin in {"holdfast.stage", "holdfast.stage.external"}:
            return FunctionRole.STAGE
        base, _, last = origin.rpartition(".")
        found = (
            self.program.definition(base) if last in {"compensate", "validator", "check", "cancel"} else None
        )
        match None if found is None else self.kind(found), last:
            case FunctionRole.STEP, "compensate":
                return FunctionRole.STEP
            case FunctionRole.MESSAGE, "validator":
                return FunctionRole.MESSAGE
            case FunctionRole.STAGE, _:
                return FunctionRole.STAGE
            case _:
                return FunctionRole.OTHER

    def called(self, origin: str) -> tuple[FunctionRole, Definition | None]:
        """Return the role of a called name, and its definition if the program has it."""
        if origin.startswith("holdfast.step()"):
            return FunctionRole.STEP, None
        if origin.startswith("holdfast.workflow()"):
            return FunctionRole.WORKFLOW, None
        definition = self.program.definition(origin.removesuffix(".options()"))
        return (FunctionRole.OTHER, None) if definition is None else (self.kind(definition), definition)

    def is_set(self, origin: str | None) -> bool:
        """Return whether an origin is a set."""
        return origin in _SETS

    # Helpers --------------------------------------------------------------------------------------------------------

    def _of_binding(
        self, name: str, binding: Binding, module: Module, where: Scope, depth: int
    ) -> str | None:
        match binding:
            case Imported():
                return self._of_import(binding, module, depth)
            case Assigned(value=value):
                return self.of(value, module, where, depth)
            case Annotated(annotation=annotation):
                return self.of_type(annotation, module, where, depth)
            case Defined():
                return f"{module.key}.{where.prefix}{name}"
            case SelfInstance(qualname=qualname):
                return f"{qualname}()"
            case _:
                return None

    def _of_import(self, imported: Imported, module: Module, depth: int) -> str | None:
        """Return the origin of an import, followed through re-exports of other files."""
        origin = self.program.imported(imported, module)
        found, name = self.program.split(origin)
        if found is None or not name or depth > DEPTH_MAX:
            return _plain(origin)
        return self.of_name(name, found, found.scope, depth + 1) if "." not in name else None

    def _of_member(self, module: Module, name: str, attr: str, depth: int) -> str | None:
        """Return the origin of an attribute of a class of the program, or of its instance."""
        qualname = name.removesuffix("()")
        for _ in range(DEPTH_MAX):
            known = module.definitions.get(qualname)
            if known is None or not isinstance(known.node, ast.ClassDef):
                return None
            if f"{qualname}.{attr}" in module.definitions:
                return f"{module.key}.{qualname}.{attr}"
            for one in known.node.body:
                if isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") == attr:
                    return self.of_type(one.annotation, module, known.scope, depth + 1)
            base = self.of(known.node.bases[0], module, known.scope, depth + 1) if known.node.bases else None
            above, qualname = (None, "") if base is None else self.program.split(base)
            if above is None:
                return None
            module = above
        return None

    def _of_call(self, called: str, depth: int) -> str | None:
        """Return the origin of the result of a call."""
        definition = self.program.definition(called)
        if definition is not None and not isinstance(definition.node, ast.ClassDef):
            returns = definition.node.returns
            if returns is not None and self.kind(definition) is not FunctionRole.WORKFLOW:
                return self.of_type(returns, definition.module, definition.scope, depth)
        base, _, last = called.rpartition(".")
        if base in _SETS and last in _SET_METHODS:
            return SET
        return f"{called}()"

    def _of_operation(self, node: ast.BinOp, module: Module, scope: Scope, depth: int) -> str | None:
        left = self.of(node.left, module, scope, depth)
        if left is not None and left.startswith("pathlib.") and isinstance(node.op, ast.Div):
            return left
        if isinstance(node.op, _SET_OPERATORS):
            right = self.of(node.right, module, scope, depth)
            if self.is_set(left) or self.is_set(right) or _is_view(left) or _is_view(right):
                return SET
        return None

    def _from_stars(self, name: str, module: Module) -> str | None:
        """Return the origin of a name that only an `import *` can have bound."""
        for star in module.scope.stars:
            origin = self.program.imported(star, module)
            found, inner_name = self.program.split(origin)
            if found is not None and not inner_name:
                if found is not module and found.scope.where(name) is not None:
                    return self.of_name(name, found, found.scope)
            elif is_known(_plain(f"{origin}.{name}")) or origin.startswith("holdfast"):
                return _plain(f"{origin}.{name}")
        return None


def _plain(origin: str) -> str:
    """Return the public name of a Holdfast object, independent of the module it was imported from."""
    return _OURS.sub("holdfast.", origin, count=1) if origin.startswith("holdfast.") else origin


def _instance(origin: str | None) -> str | None:
    return None if origin is None else f"{origin}()"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_of_none(binding: Binding) -> bool:
    return isinstance(binding, Assigned) and _is_none(binding.value)


def _is_view(origin: str | None) -> bool:
    return origin is not None and origin.endswith(_VIEWS)
