"""Looks whether functions are as they were: the trees of all of them, before and after a move.

    python -m tools.codemod.same moves.txt [commit]

Only imports may differ, and names of modules in them. Each function that is not as it was is printed.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tools.codemod.move import PACKAGES, names_of, read_table
from tools.codemod.server import ROOT


def main() -> int:
    """Compare the work tree with a commit, the last one unless another is given."""
    table = Path(sys.argv[1])
    commit = sys.argv[2] if len(sys.argv) > 2 else "HEAD"
    pattern, names = names_of(dict(read_table(table.read_text())))
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", commit, *PACKAGES],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    before: Counter[str] = Counter()
    for name in listed:
        if name.endswith(".py"):
            shown = subprocess.run(
                ["git", "show", f"{commit}:{name}"], cwd=ROOT, check=True, capture_output=True, text=True
            )
            text = pattern.sub(lambda match: match[0].replace(match[1], names[match[1]]), shown.stdout)
            before += functions_of(text)
    after: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            after += functions_of(path.read_text())
    for sign, some in (("-", before - after), ("+", after - before)):
        for one in some:
            print(sign, re.sub(r"\s+", " ", one)[:200])
    print(f"{before.total()} functions before, {after.total()} after")
    return int(before != after)


def functions_of(text: str) -> Counter[str]:
    """Return the functions of a module, each with its class and its tree."""
    found: Counter[str] = Counter()

    def walk(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"{inside}{child.name} {ast.dump(child)}"] += 1
            elif isinstance(child, ast.ClassDef):
                walk(child, f"{inside}{child.name}.")
            else:
                walk(child, inside)

    walk(ast.parse(text), "")
    return found


if __name__ == "__main__":
    sys.exit(main())
