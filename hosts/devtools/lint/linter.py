"""The linter: reads files, finds workflows, follows their calls, and collects findings."""

import ast
import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from holdfast.hosts.devtools.lint.children import UnregisteredChildRule
from holdfast.hosts.devtools.lint.comments import is_suppressed, unknown_codes
from holdfast.hosts.devtools.lint.files import find_files
from holdfast.hosts.devtools.lint.findings import Finding, Report, Unreadable
from holdfast.hosts.devtools.lint.function_rules import FunctionChecker
from holdfast.hosts.devtools.lint.hits import NodeFinding
from holdfast.hosts.devtools.lint.modules import Definition, Module
from holdfast.hosts.devtools.lint.name_resolution import FunctionRole, Origins
from holdfast.hosts.devtools.lint.program import Program

_FIRST: Final = re.compile(rb"\b(?:workflow|step|Channel)\b|@\s*(?:[\w.]+\.)?(?:query|update)\b")
"""Pattern of files that define workflows, steps, channels, queries or updates."""
_MAKERS: Final = ("holdfast.workflow", "holdfast.step", "holdfast.Channel()")


def lint(named: Sequence[str], *, ignore: Iterable[str] = ()) -> Report:
    """Find code in the workflows of a program that a replay cannot repeat. Nothing is imported or run.

    Args:
        named: Files, folders, or modules and packages as they are imported from the current folder. Helpers are
            checked if their files are among these.
        ignore: Codes to omit.

    Raises:
        InvalidArgumentError: A name is not a file, folder or module.
    """
    return _Linter(Program(find_files(named)), frozenset(ignore)).run()


@attrs.frozen
class _Way:
    """A function that runs in a workflow, with the workflow's name and the helper that calls it."""

    definition: Definition
    workflow: str
    through: str


class _Linter:
    def __init__(self, program: Program, ignored: frozenset[str]) -> None:
        self._program = program
        self._ignored = ignored
        self._origins = Origins(program)
        self._bodies = FunctionChecker(self._origins)
        self._found: dict[tuple[str, int, int, str], Finding] = {}

    def run(self) -> Report:
        words = self._read_all()
        roots = [root for module in self._program.loaded() for root in self._roots(module)]
        seen = self._follow(roots)
        self._check_children(roots)
        for module in tuple(self._program.loaded()):
            mine = [one for one in seen.values() if one.module is module]
            with self._guard(module):
                for hit in self._bodies.dropping.check_module(module, mine, words):
                    self._note(hit, module, "", "")
            for finding in unknown_codes(module.shown, module.suppressions):
                self._keep(finding)
        return Report(
            findings=tuple(sorted(one for one in self._found.values() if not one.is_warning)),
            warnings=tuple(sorted(one for one in self._found.values() if one.is_warning)),
            unreadable=tuple(sorted(self._program.unreadable.values())),
            files=len(self._program.files),
            workflows=sum(1 for one in roots if self._origins.kind(one) is not FunctionRole.MESSAGE),
            functions=len(seen),
        )

    # Files and functions --------------------------------------------------------------------------------------------

    def _read_all(self) -> frozenset[str]:
        """Read the files that use Holdfast, and those that mention what other files define with it.

        Return the names of workflows, steps and channels.
        """
        words: frozenset[str] = frozenset()
        left = list(self._program.files)
        pattern = _FIRST
        while True:
            named = [file.is_named or bool(pattern.search(self._program.source(file.path))) for file in left]
            modules = [
                self._program.module(file.path) for file, it_is in zip(left, named, strict=True) if it_is
            ]
            left = [file for file, it_is in zip(left, named, strict=True) if not it_is]
            new = frozenset(self._words(modules)) - words
            if not new:
                return words
            words |= new
            pattern = re.compile(rb"\b(?:" + "|".join(sorted(new)).encode() + rb")\b")

    def _words(self, modules: Iterable[Module | None]) -> Iterator[str]:
        """Yield the names of what modules define with Holdfast: whose users need not import Holdfast."""
        for module in modules:
            if module is None:
                continue
            with self._guard(module):
                for definition in module.definitions.values():
                    if self._origins.kind(definition) in {FunctionRole.WORKFLOW, FunctionRole.STEP}:
                        yield definition.qualname.rpartition(".")[2]
                for name in module.scope.names:
                    origin = self._origins.of_name(name, module, module.scope)
                    if origin is not None and origin.startswith(_MAKERS):
                        yield name

    def _roots(self, module: Module) -> Iterator[Definition]:
        """Yield the workflows of a module, and the queries and updates of its classes."""
        with self._guard(module):
            for definition in module.definitions.values():
                if self._origins.kind(definition) in {FunctionRole.WORKFLOW, FunctionRole.MESSAGE}:
                    yield definition
            for node in module.tree.body:
                if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                    yield from self._made_by_call(node.value, module)

    def _made_by_call(self, call: ast.Call, module: Module) -> Iterator[Definition]:
        """Yield the function of a workflow made by a call instead of a decorator: `fulfil = workflow(_fulfil)`."""
        maker = self._origins.of(call.func, module, module.scope)
        if maker in {"holdfast.workflow", "holdfast.workflow()"} and call.args:
            origin = self._origins.of(call.args[0], module, module.scope)
            found = None if origin is None else self._program.definition(origin)
            if found is not None and not isinstance(found.node, ast.ClassDef):
                yield found

    def _follow(self, roots: Sequence[Definition]) -> dict[int, Definition]:
        """Check workflows and the functions that they use, transitively. Each function is checked once."""
        seen: dict[int, Definition] = {}
        waiting = deque(_Way(root, root.qualname.rpartition(".")[2], "") for root in roots)
        while waiting:
            way = waiting.popleft()
            definition = way.definition
            if id(definition.node) in seen:
                continue
            seen[id(definition.node)] = definition
            with self._guard(definition.module):
                hits, used = self._bodies.check(definition)
                for hit in hits:
                    self._note(hit, definition.module, way.workflow, way.through)
                waiting.extend(_Way(one, way.workflow, one.shown) for one in used)
        return seen

    def _check_children(self, roots: Sequence[Definition]) -> None:
        """Check for children that no engine registers."""
        children = UnregisteredChildRule(self._program, self._origins)
        registered = children.registered(tuple(self._program.loaded()))
        for root in roots if registered else ():
            with self._guard(root.module):
                for hit in children.check(root, registered or frozenset()):
                    self._note(hit, root.module, root.qualname.rpartition(".")[2], "")

    # Findings -------------------------------------------------------------------------------------------------------

    def _note(self, hit: NodeFinding, module: Module, workflow: str, through: str) -> None:
        node = hit.node
        self._keep(
            Finding(
                path=module.shown,
                line=node.lineno,
                column=module.column(node.lineno, node.col_offset),
                end_line=hit.end_line or node.end_lineno or node.lineno,
                code=hit.code,
                text=hit.text,
                workflow=workflow,
                through=through,
            ),
            module,
        )

    def _keep(self, finding: Finding, module: Module | None = None) -> None:
        if finding.code in self._ignored or (
            module is not None and is_suppressed(finding, module.suppressions)
        ):
            return
        self._found.setdefault((finding.path, finding.line, finding.column, finding.code), finding)

    @contextmanager
    def _guard(self, module: Module) -> Generator[None]:
        """Record a module as unreadable if its code is nested too deeply, and let the linter continue."""
        try:
            yield
        except RecursionError:
            reason = "nested too deeply to be checked"
            self._program.unreadable[module.path] = Unreadable(path=module.shown, reason=reason)
