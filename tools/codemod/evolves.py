"""Finds arguments of `evolve` that name fields by what they were called: only mypy looks at these."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

from tools.codemod.rename import Rename
from tools.codemod.server import ROOT, Place

_UNEXPECTED: Final = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+): error: "
    r'Unexpected keyword argument "(?P<old>\w+)" for "evolve" of "(?P<of>\w+)"',
    re.MULTILINE,
)


def find_evolves(renames: Iterable[Rename]) -> dict[Place, str]:
    """Return the places where fields are named as they were before they were renamed, each with the new name."""
    new = {one.name: one.new for one in renames}
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found: dict[Place, str] = {}
    for match in _UNEXPECTED.finditer(done.stdout):
        becomes = new.get(f"{match['of']}.{match['old']}")
        if becomes is None:
            continue
        path = (ROOT / match["file"]).resolve()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.lineno <= int(match["line"]) <= (node.end_lineno or 0):
                for argument in node.keywords:
                    if argument.arg == match["old"] and _is_evolve(node.func):
                        start = argument.col_offset
                        found[Place(path, argument.lineno - 1, start, start + len(match["old"]))] = becomes
    return found


def _is_evolve(called: ast.expr) -> bool:
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == "evolve"
