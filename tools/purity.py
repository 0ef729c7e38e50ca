"""What the code of each folder may not do, read from its syntax tree.

import-linter holds the layers, from what is imported. These rules see what it cannot: names, calls and `await`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("ports", "kernel", "adapters", "hosts", "testing")
OTHERS: Final = ("tests", "tools", "docs")

# The kernel is synchronous, but for the code that users write and that it drives, and what waits for them on its loop.
AWAITING: Final = ("kernel/authoring/", "kernel/functions/")
# The package that is the deterministic loop may use asyncio's Future and Task, never a selector.
USING_ASYNCIO: Final = ("kernel/functions/", "kernel/authoring/")

IMPURE_MODULES: Final = frozenset(
    {
        "alembic",
        "anyio",
        "asyncio",
        "click",
        "logging",
        "os",
        "psycopg",
        "pydantic",
        "random",
        "rich",
        "secrets",
        "socket",
    }
    | {"sqlalchemy", "subprocess", "threading", "time", "uuid"}
)
# A value may be a UUID. Nobody in the kernel may draw one. A Random that is given its seed is a value, too.
PURE_PARTS: Final = frozenset({"random.Random", "uuid.UUID"})
IMPURE_CALLS: Final = frozenset(
    {"datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"}
)
IMPURE_BUILTINS: Final = frozenset({"input", "open", "print"})
UNSAFE_MODULES: Final = frozenset({"cloudpickle", "dill", "marshal", "pickle", "shelve"})
UNSAFE_CALLS: Final = frozenset({"yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"})
UNSAFE_BUILTINS: Final = frozenset({"eval", "exec"})
# Writes out what copies a record from the names of its fields, which are code already.
WRITING_CODE: Final = "ports/structs.py"


class Violation(NamedTuple):
    """A place that breaks a rule."""

    path: str
    line: int
    rule: str

    @override
    def __str__(self) -> str:
        """Return it as editors know to open it."""
        return f"{self.path}:{self.line}: {self.rule}"


def check_repository() -> Iterator[Violation]:
    """Yield what breaks a rule, in every Python file of ours."""
    for folder in PACKAGES + OTHERS:
        for path in sorted((ROOT / folder).glob("**/*.py")):
            yield from check(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    for folder in (*PACKAGES, "tests"):
        yield from _check_folders(ROOT / folder)
    root = ROOT / "src" / "holdfast" / "__init__.py"
    yield from check(root.read_text(encoding="utf-8"), "__init__.py")


def wiring() -> list[str]:
    """Return the modules of hosts that import an adapter."""
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "hosts").glob("**/*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if any(_is_in(module, "adapters") for module in _imports(node))
    ]


def check(source: str, path: str) -> list[Violation]:
    """Return what breaks a rule in one file. `path` is from the root of the repository, with slashes."""
    tree = ast.parse(source)
    names = _names(tree)
    found: list[Violation] = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for module in _imports(node):
            found += (Violation(path, line, rule) for rule in _check_import(module, path))
        found += (Violation(path, line, rule) for rule in _check_node(node, names, path))
    return list(dict.fromkeys(found))


def _check_folders(top: Path) -> Iterator[Violation]:
    """Yield the folders below `top` that tools would overlook, or take for something else."""
    for folder in sorted({path.parent for path in top.glob("**/*.py")} - {top}):
        is_package = (folder / "__init__.py").exists()
        where = folder.relative_to(ROOT).as_posix()
        if top.name in PACKAGES and not is_package:
            yield Violation(where, 0, "a folder needs an __init__.py: import-linter overlooks it otherwise")
        if is_package and not (folder.parent / "__init__.py").exists():
            yield Violation(
                where, 0, "the folder above needs an __init__.py: otherwise this one is a top-level package"
            )


def _check_import(module: str, path: str) -> Iterator[str]:
    """Yield the rules that this import breaks."""
    top = module.partition(".")[0]
    folder = path.partition("/")[0]
    if top in PACKAGES:
        yield f"import holdfast.{module}: by its folder's name it would be a second copy"
    if folder in OTHERS:
        return
    if top in UNSAFE_MODULES:
        yield f"no {top}: stored bytes must not be able to run code"
    if top in OTHERS or (top == "holdfast" and _is_in(module, "testing") and folder != "testing"):
        yield f"nothing that ships imports {module}: tests look at the code, not the other way round"
    excepted = module in PURE_PARTS or (top == "asyncio" and path.startswith(USING_ASYNCIO))
    if folder in ("kernel", "ports") and top in IMPURE_MODULES and not excepted:
        yield f"{folder} may not import {top}: time, chance and the world come in through ports"
    if top == "holdfast" and folder in ("ports", "kernel", "adapters"):
        allowed = {
            "ports": ("ports",),
            "kernel": ("ports", "kernel"),
            "adapters": ("ports", "/".join(path.split("/")[:2]).removesuffix(".py").replace("/", ".")),
        }[folder]
        if not any(_is_in(module, name) for name in allowed):
            yield f"{folder} may not import {module}, only {' and '.join(allowed)}"


def _check_node(node: ast.AST, names: dict[str, str], path: str) -> Iterator[str]:
    """Yield the rules that this piece of code breaks."""
    folder = path.partition("/")[0]
    if folder in OTHERS:
        return
    if isinstance(node, ast.Name | ast.Attribute):
        dotted = _dotted(node, names)
        if dotted in UNSAFE_CALLS:
            yield f"no {dotted}: stored bytes must not be able to run code (yaml.safe_load)"
        if folder == "kernel" and dotted in IMPURE_CALLS:
            yield f"the kernel may not use {dotted}: it is handed `now`"
    if isinstance(node, ast.Name) and node.id not in names and isinstance(node.ctx, ast.Load):
        if node.id in UNSAFE_BUILTINS and path != WRITING_CODE:
            yield f"no {node.id}: text is not code"
        if folder == "kernel" and node.id in IMPURE_BUILTINS:
            yield f"the kernel may not use {node.id}: it does no I/O"
    if folder == "kernel" and not path.startswith(AWAITING):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            yield "the kernel is synchronous: no `async`, no `await`"
        if isinstance(node, ast.comprehension) and node.is_async:
            yield "the kernel is synchronous: no `async`, no `await`"


def _imports(node: ast.AST) -> Iterator[str]:
    """Yield what this statement imports; from `from a import b`, `a.b`, which may be a module or a name in one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield from (f"{module}.{alias.name}" for alias in node.names)


def _names(tree: ast.AST) -> dict[str, str]:
    """Return what the imported names of a module stand for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return the full name of an expression such as `dt.datetime.now`; empty if it does not begin with an import."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (head := _dotted(node.value, names)):
        return f"{head}.{node.attr}"
    return ""


def _is_in(module: str, name: str) -> bool:
    """Return whether a module of ours is, or is in, the sub-package `name`."""
    return f"{module}.".startswith(f"holdfast.{name}.")
