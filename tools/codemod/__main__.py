"""Renames what a table lists, in the code, the tests and the planted bugs.

    python -m tools.codemod renames.toml

Each entry says `path`, the file in which the name is defined, `name`, `Class.field` say, and `new`. What only a reader
can decide is printed: texts of other kinds, and planted bugs whose text is not in its file.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.codemod.evolves import find_evolves
from tools.codemod.mutants import follow
from tools.codemod.rename import Rename, apply, find
from tools.codemod.server import ROOT


def main() -> int:
    """Rename, and format what was changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.codemod")
    parser.add_argument("table", type=Path)
    listed = tomllib.loads(parser.parse_args().table.read_text())["rename"]
    renames = [Rename(**one) for one in listed]
    changes, doubts = find(renames)
    before = apply(changes)
    doubts += follow(changes, before)
    evolves = find_evolves(renames)
    doubts += follow(evolves, apply(evolves))
    subprocess.run([Path(sys.executable).with_name("ruff"), "format", "--quiet"], cwd=ROOT, check=True)
    print(f"{len(changes) + len(evolves)} places")
    for one in doubts:
        print(f"look at {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
