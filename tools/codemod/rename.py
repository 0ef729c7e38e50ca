"""Renames what a table lists, wherever it is meant."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.codemod.server import ROOT, LanguageServer, Place

LINKED: Final = ("adapters", "hosts", "kernel", "ports", "testing")


class Rename(NamedTuple):
    """A name that becomes another: `path` is the file in which it is defined, `name` is `Class.field` or `function`."""

    path: str
    name: str
    new: str


def find(renames: Iterable[Rename], root: Path = ROOT) -> tuple[dict[Place, str], list[str]]:
    """Return each place that is to be changed, with its new text; and what there is to look at by hand."""
    changes: dict[Place, str] = {}
    doubts: list[str] = []
    with LanguageServer(root) as server:
        _wait_until_ready(server, root)
        for one in renames:
            path = _real(root / one.path)
            old = one.name.rpartition(".")[2]
            line, column = locate(path, one.name)
            server.open(path)
            places = server.references(path, line, column)
            server.close(path)
            for place in places:
                text = place.path.read_text().split("\n")[place.line][place.start : place.end]
                if text.strip("\"'") == old:  # a name, or one that a list of names quotes
                    changes[place] = text.replace(old, one.new)
                else:
                    doubts.append(f"{place.path}:{place.line + 1}: {text!r} is {one.name}")
    return changes, doubts


def apply(changes: Mapping[Place, str]) -> dict[Path, str]:
    """Make the changes, and return the text that each file had before."""
    by_file: dict[Path, list[tuple[Place, str]]] = defaultdict(list)
    for place, new in changes.items():
        by_file[place.path].append((place, new))
    before: dict[Path, str] = {}
    for path, places in by_file.items():
        before[path] = path.read_text()
        lines = before[path].split("\n")
        for place, new in sorted(places, reverse=True):
            text = lines[place.line]
            lines[place.line] = f"{text[: place.start]}{new}{text[place.end :]}"
        path.write_text("\n".join(lines))
    return before


def _wait_until_ready(server: LanguageServer, root: Path) -> None:
    """The first answer comes before all files are known."""
    path = _real(root / "ports/records/run.py")
    server.open(path)
    line, column = locate(path, "Run.status")
    known = -1
    while (found := len(server.references(path, line, column))) != known or found < 10:
        known = found
    server.close(path)


def _real(path: Path) -> Path:
    """Return the path under which pyright knows a file: that in the package, which links to ours."""
    parts = path.relative_to(ROOT).parts
    return ROOT / "src" / "holdfast" / Path(*parts) if parts[0] in LINKED else path


def locate(path: Path, name: str) -> tuple[int, int]:
    """Return line and column, from 0, at which a name is defined. LookupError if it is not.

    A name is that of a module's class, function or variable; `Class.method`, `Class.field`, or `Class._attribute` that
    a method sets on `self`; `function.parameter` or `function.variable`, and so on inwards.
    """
    scope: ast.AST = ast.parse(path.read_text())
    lines = path.read_text().split("\n")
    *outer, last = name.split(".")
    for one in outer:
        scope = _inner(scope, one, name)
    for node in _own(scope):
        match node:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                if found == last:
                    line = node.lineno - 1
                    return line, lines[line].index(
                        last, lines[line].index("class " if isinstance(node, ast.ClassDef) else "def ")
                    )
            case ast.arg(arg=found) | ast.Name(id=found, ctx=ast.Store()):
                if found == last:
                    return _at(node, lines)
            case ast.ExceptHandler(name=found) if found == last:
                line = node.lineno - 1
                return line, lines[line].index(f" as {last}") + len(" as ")
            case ast.MatchAs(name=found) | ast.MatchStar(name=found) if found == last and node.end_lineno:
                line = node.end_lineno - 1
                return line, _characters(lines[line], node.end_col_offset or 0) - len(last)
            case _:
                pass
    if isinstance(scope, ast.ClassDef):
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute) and node.attr == last and isinstance(node.ctx, ast.Store):
                assert node.end_lineno is not None
                assert node.end_col_offset is not None
                line = node.end_lineno - 1
                return line, _characters(lines[line], node.end_col_offset) - len(last)
    raise LookupError(f"{path} defines no {name}")


def _inner(scope: ast.AST, name: str, whole: str) -> ast.AST:
    found = [
        node
        for node in _own(scope)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    if not found:
        raise LookupError(f"there is no {name} of {whole}")
    return found[-1]  # behind its overloads


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in their order, without those of scopes within it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own(node)


def _at(node: ast.expr | ast.arg, lines: Sequence[str]) -> tuple[int, int]:
    return node.lineno - 1, _characters(lines[node.lineno - 1], node.col_offset)


def _characters(line: str, size: int) -> int:
    """Return how many characters the first bytes of a line are."""
    return len(line.encode()[:size].decode())
