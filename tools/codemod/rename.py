"""Renames what a table lists, wherever it is meant."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
            line, column = _definition(path, one.name)
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
    path = _real(root / "ports/records.py")
    server.open(path)
    line, column = _definition(path, "Run.status")
    known = -1
    while (found := len(server.references(path, line, column))) != known or found < 10:
        known = found
    server.close(path)


def _real(path: Path) -> Path:
    """Return the path under which pyright knows a file: that in the package, which links to ours."""
    parts = path.relative_to(ROOT).parts
    return ROOT / "src" / "holdfast" / Path(*parts) if parts[0] in LINKED else path


def _definition(path: Path, name: str) -> tuple[int, int]:
    """Return line and column, from 0, at which a name is defined."""
    body: Sequence[ast.stmt] = ast.parse(path.read_text()).body
    lines = path.read_text().split("\n")
    *outer, last = name.split(".")
    for one in outer:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == one)
    for node in body:
        match node:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                if found == last:
                    return node.lineno - 1, lines[node.lineno - 1].index(last, node.col_offset + 4)
            case ast.AnnAssign(target=ast.Name(id=found)) | ast.Assign(targets=[ast.Name(id=found)]):
                if found == last:
                    return node.lineno - 1, node.col_offset
            case _:
                pass
    raise LookupError(f"{path} defines no {name}")
