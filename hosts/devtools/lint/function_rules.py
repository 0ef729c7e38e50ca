"""The check of one function that runs in a workflow: its findings, and the functions that it uses."""

import ast
from collections.abc import Iterator, Sequence

from holdfast.hosts.devtools.lint.continue_as_new import check_continuing
from holdfast.hosts.devtools.lint.dropped_calls import UnusedResultRule, names_read
from holdfast.hosts.devtools.lint.hits import CodeLocation, NodeFinding, written
from holdfast.hosts.devtools.lint.known_names import NameProblem, why_not_call, why_not_mention
from holdfast.hosts.devtools.lint.module_state import ModuleStateRule
from holdfast.hosts.devtools.lint.modules import Definition
from holdfast.hosts.devtools.lint.name_resolution import FunctionRole, Origins
from holdfast.hosts.devtools.lint.query_purity import check_read_only
from holdfast.hosts.devtools.lint.rules import THREADS
from holdfast.hosts.devtools.lint.scopes import (
    Annotated,
    Assigned,
    Imported,
    Scope,
    scope_of_comprehension,
    scope_of_function,
)
from holdfast.hosts.devtools.lint.set_order import SetOrderRule
from holdfast.hosts.devtools.lint.swallowed_cancellation import check_swallowing, names_cancelled

_MADE_BY = ("__init__", "__new__", "__post_init__", "__attrs_post_init__", "model_post_init")
_FACTORIES = frozenset({"default_factory", "factory"})
_RECORDED = frozenset({"holdfast.side_effect"})


class FunctionChecker:
    """The checks of a function's body, shared by all functions of a program."""

    def __init__(self, origins: Origins) -> None:
        self.origins = origins
        self.dropping = UnusedResultRule(origins)
        self._orders = SetOrderRule(origins)
        self._sharing = ModuleStateRule(origins)

    def check(self, definition: Definition) -> tuple[list[NodeFinding], list[Definition]]:
        """Return the findings in a function, and the functions of the program that it uses."""
        look = _FunctionVisitor(self, definition)
        scope = definition.module.scope_within(definition)
        for statement in definition.node.body:
            look.visit(statement, scope)
        if self.origins.is_read_only(definition):
            look.hits += check_read_only(definition)
        look.hits += check_continuing(definition, self.origins)
        look.hits += self.dropping.check_returns(definition)
        return look.hits, look.used

    def check_node(
        self, node: ast.AST, place: CodeLocation, look: "_FunctionVisitor"
    ) -> Iterator[NodeFinding]:
        """Yield the findings of the rules that check single nodes."""
        yield from self._orders.check(node, place)
        yield from self._sharing.check(node, place)
        yield from self.dropping.check(node, place, look.read)
        yield from check_swallowing(node, place, self.origins, look.cancelled)


class _FunctionVisitor:
    """The check of one function with the functions inside it."""

    def __init__(self, bodies: FunctionChecker, definition: Definition) -> None:
        self.hits: list[NodeFinding] = []
        self.used: list[Definition] = []
        self.read = names_read(definition.node)
        self.cancelled = names_cancelled(definition.node.body)
        self._bodies = bodies
        self._origins = bodies.origins
        self._module = definition.module
        self._definition = definition

    def visit(self, node: ast.AST, scope: Scope) -> None:
        """Check a node and its children."""
        place = CodeLocation(self._module, scope)
        self.hits += self._bodies.check_node(node, place, self)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._visit_function(node, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._visit_all(ast.iter_child_nodes(node), scope_of_comprehension(node.generators, scope))
            case ast.Call():
                self._visit_call(node, place)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                self._visit_mention(node, place)
            case ast.AnnAssign():
                self._visit_all([one for one in (node.target, node.value) if one is not None], scope)
            case _:
                self._visit_all(ast.iter_child_nodes(node), scope)

    def _visit_all(self, nodes: Iterator[ast.AST] | Sequence[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self.visit(node, scope)

    def _visit_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope
    ) -> None:
        parameters = node.args
        self._visit_all(
            [one for one in (*parameters.defaults, *parameters.kw_defaults) if one is not None], scope
        )
        if isinstance(node, ast.Lambda):
            self.visit(node.body, scope_of_function(node, scope, qualname=f"{scope.prefix}<lambda>"))
            return
        self._visit_all(node.decorator_list, scope)
        qualname = f"{scope.prefix}{node.name}"
        here = Definition(self._module, node, qualname, scope)
        if self._origins.kind(here) in {FunctionRole.OTHER, FunctionRole.MESSAGE}:
            self._visit_all(node.body, scope_of_function(node, scope, qualname=qualname))

    def _visit_mention(self, node: ast.Name | ast.Attribute, place: CodeLocation) -> None:
        origin = self._origins.of(node, place.module, place.scope)
        why = None if origin is None else why_not_mention(origin)
        if origin is not None and why is not None and not self._is_alias(node, place.scope):
            self._hit(node, written(node), origin, why)
            return
        if origin is not None:
            self._use(origin)
        if isinstance(node, ast.Attribute):
            self.visit(node.value, place.scope)

    def _visit_call(self, node: ast.Call, place: CodeLocation) -> None:
        origin = self._origins.of(node.func, place.module, place.scope)
        if origin in _RECORDED:
            return  # side_effect() calls its argument once and records the result
        count = len(node.args) + len(node.keywords)
        why = None if origin is None else why_not_mention(origin) or why_not_call(origin, count)
        if origin is not None and why is not None and not self._is_of_local(node.func, origin, place.scope):
            self._hit(node, written(node.func), origin, why)
            if why.code == THREADS:
                return  # a call into a thread is one finding, whatever runs there
            self._visit_all([*node.args, *node.keywords], place.scope)
            return
        if origin is not None:
            self._make(origin, node)
        self._visit_all(ast.iter_child_nodes(node), place.scope)

    def _hit(self, node: ast.expr, text: str, origin: str, why: NameProblem) -> None:
        plain = origin.removeprefix("builtins.").replace("()", "")
        known = "" if plain.endswith(text) and plain.count(".") <= text.count(".") + 1 else f" ({plain})"
        self.hits.append(NodeFinding(node, why.code, f"`{text}`{known} {why.text}"))

    def _use(self, origin: str) -> None:
        """Add a function of the program to `used`. Functions inside the present one are checked with it anyway."""
        found = self._origins.program.definition(origin)
        if found is None or isinstance(found.node, ast.ClassDef):
            return
        is_inside = found.module is self._module and found.qualname.startswith(
            f"{self._definition.qualname}.<locals>."
        )
        if not is_inside and self._origins.kind(found) in {FunctionRole.OTHER, FunctionRole.MESSAGE}:
            self.used.append(found)

    def _make(self, origin: str, call: ast.Call) -> None:
        """Add the code that runs when a class of the program is instantiated."""
        found = self._origins.program.definition(origin)
        if found is None or not isinstance(found.node, ast.ClassDef):
            return
        for name in _MADE_BY:
            made_by = found.module.definitions.get(f"{found.qualname}.{name}")
            if made_by is not None:
                self.used.append(made_by)
        passed = {keyword.arg for keyword in call.keywords}
        if call.args or None in passed:
            return
        for one in found.node.body:
            if isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") not in passed:
                self._make_default(one, found, call)

    def _make_default(self, field: ast.AnnAssign, made: Definition, call: ast.Call) -> None:
        """Check the default factory of a field that a call leaves out."""
        if not isinstance(field.value, ast.Call):
            return
        place = CodeLocation(made.module, made.scope)
        for keyword in field.value.keywords:
            if keyword.arg in _FACTORIES:
                factory = keyword.value
                inner = factory.body if isinstance(factory, ast.Lambda) else factory
                inner = inner.func if isinstance(inner, ast.Call) else inner
                origin = self._origins.of(inner, place.module, place.scope)
                why = None if origin is None else why_not_mention(origin) or why_not_call(origin, 0)
                if why is not None:
                    by = f"creates `{written(field.target)}` with `{written(inner)}`, which {why.text}"
                    text = f"`{written(call.func)}(...)` {by}"
                    self.hits.append(NodeFinding(call, why.code, text))

    @staticmethod
    def _is_alias(node: ast.expr, scope: Scope) -> bool:
        """Return whether this is a local variable: its value was checked at the assignment."""
        if not isinstance(node, ast.Name):
            return False
        where = scope.where(node.id)
        return (
            where is not None
            and not where.is_module
            and not any(isinstance(one, Imported) for one in where.names[node.id])
        )

    @staticmethod
    def _is_of_local(node: ast.expr, origin: str, scope: Scope) -> bool:
        """Return whether this belongs to a local object, whose creation was already a finding."""
        if isinstance(node, ast.Name):
            return _FunctionVisitor._is_alias(node, scope)
        if "()" not in origin or origin.startswith("pathlib."):
            return False
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
            if isinstance(node, ast.Await):
                node = node.value
        where = scope.where(node.id) if isinstance(node, ast.Name) else None
        return (
            isinstance(node, ast.Name)
            and where is not None
            and not where.is_module
            and any(isinstance(one, Assigned) for one in where.names[node.id])
            and not any(isinstance(one, Annotated) for one in where.names[node.id])
        )
