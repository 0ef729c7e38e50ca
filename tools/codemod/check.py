"""Looks through tables of renames without making any: is each name there, and is the new one free?

python -m tools.codemod.check renames.toml
"""

import ast
import keyword
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.codemod.rename import Rename, locate
from tools.codemod.server import ROOT


def faults(renames: list[Rename]) -> Iterator[str]:
    """Yield what is wrong with renames, a line each."""
    seen: set[tuple[str, str]] = set()
    for one in renames:
        what = f"{one.path}: {one.name} -> {one.new}"
        if (one.path, one.name) in seen:
            yield f"{what}: it is listed twice"
        seen.add((one.path, one.name))
        if not one.new.isidentifier() or keyword.iskeyword(one.new):
            yield f"{what}: that is no name"
        try:
            locate(ROOT / one.path, one.name)
        except (LookupError, OSError, ValueError) as error:
            yield f"{what}: {error}"
            continue
        if one.new in _names_beside(ROOT / one.path, one.name):
            yield f"{what}: {one.new} is used beside it"


def _names_beside(path: Path, name: str) -> set[str]:
    """Return all names in the outermost class or function that a name is in; of a name of a module all of its own."""
    tree = ast.parse(path.read_text())
    outer = name.partition(".")[0] if "." in name else ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == outer:
            inner = name.split(".")[1] if name.count(".") > 1 else ""
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name == inner:
                    return _names(part)
            return _names(node)
    return _names(tree)


def _names(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return found


def main() -> int:
    """Print what is wrong with the tables that are named."""
    renames = [
        Rename(**one) for path in sys.argv[1:] for one in tomllib.loads(Path(path).read_text())["rename"]
    ]
    found = list(faults(renames))
    print("\n".join(found) or f"{len(renames)} renames can be made")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
