"""Reads one source file, and counts what is in it. Pure: the same file gives the same numbers."""

import ast
import os
from pathlib import Path
from threading import Lock
from tokenize import detect_encoding
from typing import Final

import attrs
from docs.examples.stdlib_report.model import Function, Module, SourceFile

_LEFT_OUT: Final = {"__pycache__", "test", "tests", "idle_test", "_bundled"}
_BRANCHES: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp)
_PARSING: Final = Lock()
"""Not every Python may parse in two threads at once: some raise `SystemError: AST constructor recursion depth`."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def find_sources(root: Path) -> list[SourceFile]:
    """Return the source files below a folder, by path: without tests, and without `site-packages`, no module's name."""
    found: list[SourceFile] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name.isidentifier() and name not in _LEFT_OUT]
        place = Path(folder).relative_to(root).parts
        for file in files:
            name, _, ending = file.rpartition(".")
            if ending == "py" and name.isidentifier():
                is_package = name == "__init__" and bool(place)
                module = ".".join(place if is_package else (*place, name))
                found.append(SourceFile(path=f"{folder}{os.sep}{file}", module=module, is_package=is_package))
    return sorted(found, key=lambda source: source.path)


@attrs.define
class _Open:
    """A function whose body is being read."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    complexity: int = 1


def measure(file: SourceFile) -> Module:
    """Measure a file.

    The complexity of a function is McCabe's: one, and one more for each if, loop, except, and/or, conditional
    expression, comprehension and case. What is in an inner function counts for that one alone.
    """
    source = Path(file.path).read_bytes()
    with _PARSING:
        tree = ast.parse(source, file.path)
    open_functions: list[_Open] = []
    eager: set[str] = set()
    lazy: set[str] = set()
    classes = documentation = 0
    todo: list[tuple[ast.AST, str, _Open | None, bool]] = [(tree, "", None, False)]
    while todo:
        node, scope, function, is_lazy = todo.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            documentation += _docstring_lines(node)
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
            scope = f"{scope}.{node.name}" if scope else node.name
            classes += isinstance(node, ast.ClassDef)
        if isinstance(node, _FUNCTIONS):
            function = _Open(scope, node)
            open_functions.append(function)
            is_lazy = True
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            (lazy if is_lazy else eager).update(_imported(node, file))
        elif function is not None:
            function.complexity += _weight(node)
        is_lazy = is_lazy or _is_for_main(node)
        todo.extend((child, scope, function, is_lazy) for child in ast.iter_child_nodes(node))
    lines = _decoded(source).splitlines()
    bare = sum(not line or line.startswith("#") for line in map(str.strip, lines))
    return Module(
        name=file.module,
        lines=len(lines),
        code=max(0, len(lines) - bare - documentation),
        classes=classes,
        functions=sorted(map(_closed, open_functions), key=lambda function: function.line),
        imports=sorted(eager),
        lazy_imports=sorted(lazy - eager),
    )


def _weight(node: ast.AST) -> int:
    """Return how many ways through its function a node adds."""
    match node:
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
        case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):
            return 0
        case ast.match_case():
            return 1
        case _:
            return int(isinstance(node, _BRANCHES))


def _is_for_main(node: ast.AST) -> bool:
    """Whether this is `if __name__ == "__main__":`, which is not done when the file is imported."""
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case _:
            return False


def _closed(function: _Open) -> Function:
    node = function.node
    return Function(
        name=function.name,
        line=node.lineno,
        lines=(node.end_lineno or node.lineno) - node.lineno + 1,
        complexity=function.complexity,
    )


def _imported(node: ast.Import | ast.ImportFrom, file: SourceFile) -> set[str]:
    """Return the dotted names that a statement imports, made absolute."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    module = node.module or ""
    if node.level:
        parts = file.module.split(".")
        up = node.level - file.is_package
        kept = parts[: len(parts) - up]
        module = ".".join([*kept, module] if module else kept)
    return {module if alias.name == "*" else f"{module}.{alias.name}" for alias in node.names}


def _docstring_lines(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    match node.body[:1]:
        case [ast.Expr(value=ast.Constant(value=str() as text))]:
            # Blank lines in it are counted as blank already.
            return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())
        case _:
            return 0


def _decoded(source: bytes) -> str:
    lines = iter(source.splitlines(keepends=True))
    encoding, _ = detect_encoding(lambda: next(lines, b""))
    return source.decode(encoding)
