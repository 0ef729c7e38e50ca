"""Rule HF018: child workflows that no engine of the program registers, so that their runs would wait for a worker."""

import ast
from collections.abc import Iterable, Iterator

from holdfast.hosts.devtools.lint.hits import NodeFinding, written
from holdfast.hosts.devtools.lint.modules import Definition, Module
from holdfast.hosts.devtools.lint.name_resolution import FunctionRole, Origins
from holdfast.hosts.devtools.lint.program import Program
from holdfast.hosts.devtools.lint.rules import UNREGISTERED
from holdfast.hosts.devtools.lint.scopes import nodes_of

_ENGINES = frozenset({"holdfast.Engine.open", "holdfast.Engine.on"})


class UnregisteredChildRule:
    """The check for unregistered children. It works only if all engines list their workflows in a literal."""

    def __init__(self, program: Program, origins: Origins) -> None:
        self._program = program
        self._origins = origins

    def registered(self, modules: Iterable[Module]) -> frozenset[str] | None:
        """Return the origins of registered workflows; None without engines, or if a list of workflows can't be read."""
        found: set[str] = set()
        engines = 0
        for module in modules:
            for node in ast.walk(module.tree):
                if (
                    isinstance(node, ast.Call)
                    and self._origins.of(node.func, module, module.scope) in _ENGINES
                ):
                    engines += 1
                    listed = self._listed(node, module)
                    if listed is None:
                        return None
                    found |= listed
        return frozenset(found) if engines else None

    def check(self, workflow: Definition, registered: frozenset[str]) -> Iterator[NodeFinding]:
        """Yield calls of unregistered children. Unregistered parents are skipped: another program runs them."""
        module = workflow.module
        if workflow.origin not in registered or isinstance(workflow.node, ast.ClassDef):
            return
        scope = module.scope_within(workflow)
        for node in nodes_of(workflow.node.body):
            if not isinstance(node, ast.Call):
                continue
            child = self._workflow(self._origins.of(node.func, module, scope))
            if child is not None and child.origin not in registered:
                yield NodeFinding(
                    node, UNREGISTERED, f"{written(node.func)}() starts a workflow that no engine here has"
                )

    def _listed(self, call: ast.Call, module: Module) -> set[str] | None:
        argument = next((one.value for one in call.keywords if one.arg == "workflows"), None)
        if not isinstance(argument, ast.List | ast.Tuple) or any(one.arg is None for one in call.keywords):
            return None
        found: set[str] = set()
        for item in argument.elts:
            origin = self._origins.of(item, module, module.scope)
            if origin is None:
                return None
            workflow = self._workflow(origin)
            found.add(origin if workflow is None else workflow.origin)
        return found

    def _workflow(self, origin: str | None) -> Definition | None:
        found = None if origin is None else self._program.definition(origin)
        is_workflow = found is not None and self._origins.kind(found) is FunctionRole.WORKFLOW
        return found if is_workflow else None
