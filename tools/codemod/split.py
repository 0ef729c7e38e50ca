"""Splits modules: moves definitions to modules of their own, and rewrites every import of them.

    python -m tools.codemod.split table.txt

Each line of the table is `module -> new module: Name OTHER_NAME function`, paths from the root without `.py`. A
constant moves with the docstring below it. What a new module needs of the old one, or of a sibling, it imports.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.codemod.move import dotted
from tools.codemod.server import ROOT

_IMPORT: Final = r"^([ \t]*)from {module} import (\((?:[^()]|\n)*?\)|[^\n(]+)$"


def main() -> int:
    """Split what the table lists, and format what was changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.codemod.split")
    parser.add_argument("table", type=Path)
    homes: dict[str, dict[str, str]] = {}
    for line in parser.parse_args().table.read_text().splitlines():
        if entry := line.partition("#")[0].strip():
            places, _, names = entry.partition(":")
            old, _, new = (part.strip() for part in places.partition("->"))
            homes.setdefault(old, {}).update(dict.fromkeys(names.split(), new))
    for old, names in homes.items():
        _split(old, names)
    for old, names in homes.items():
        _rewrite(dotted(old), {name: dotted(new) for name, new in names.items()})
    ruff = Path(sys.executable).with_name("ruff")
    subprocess.run([ruff, "check", "--quiet", "--fix", "--select", "I,F401", "."], cwd=ROOT, check=False)
    subprocess.run([ruff, "format", "--quiet"], cwd=ROOT, check=True)
    return 0


def _split(old: str, homes: Mapping[str, str]) -> None:
    path = ROOT / f"{old}.py"
    text = path.read_text()
    lines = text.split("\n")
    tree = ast.parse(text)
    imports = [_source(lines, node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    parts: dict[str, list[str]] = {}
    stays: list[tuple[int, int]] = []
    body = list(tree.body)
    for number, node in enumerate(body):
        name = _name(node)
        if name is None or name not in homes:
            continue
        start, end = _span(node)
        if number + 1 < len(body) and _is_text(body[number + 1]):
            end = body[number + 1].end_lineno or end
        while start > 1 and lines[start - 2].startswith("#"):
            start -= 1
        parts.setdefault(homes[name], []).append("\n".join(lines[start - 1 : end]))
        stays.append((start, end))
    missing = set(homes) - {_name(node) for node in body}
    if missing:
        raise LookupError(f"{old} defines no {', '.join(sorted(missing))}")
    for start, end in sorted(stays, reverse=True):
        del lines[start - 1 : end]
    everywhere = {_name(node): old for node in body if _name(node)} | dict(homes)
    for new, definitions in parts.items():
        code = "\n\n\n".join(definitions)
        target = ROOT / f"{new}.py"
        head = target.read_text() if target.exists() else '"""."""\n'
        target.parent.mkdir(parents=True, exist_ok=True)
        needs = _needs(code, everywhere, new)
        target.write_text("\n".join([head.rstrip(), "", *imports, *needs, "", "", code, ""]))
    left = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))
    if set(everywhere) <= set(homes):
        path.unlink()
        return
    needs = _needs(left, everywhere, old)
    at = next(node for node in ast.parse(left).body if isinstance(node, ast.Import | ast.ImportFrom)).lineno
    shown = left.split("\n")
    path.write_text("\n".join([*shown[: at - 1], *needs, *shown[at - 1 :]]))


def _needs(code: str, everywhere: Mapping[str | None, str], own: str) -> list[str]:
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    used |= {
        word for word in re.findall(r"\w+", " ".join(re.findall(r'"([^"\n]*)"', code))) if word in everywhere
    }
    return [
        f"from {dotted(place)} import {name}"
        for name, place in sorted((n, p) for n, p in everywhere.items() if n)
        if name in used and place != own
    ]


def _rewrite(old: str, homes: Mapping[str, str]) -> None:
    pattern = re.compile(_IMPORT.format(module=re.escape(old)), re.MULTILINE)

    def moved(match: re.Match[str]) -> str:
        bare = re.sub(r"#[^\n]*", "", match[2])
        names = [name.strip() for name in bare.strip("() \n").replace("\n", " ").split(",") if name.strip()]
        by_home: dict[str, list[str]] = {}
        for name in names:
            by_home.setdefault(homes.get(name.partition(" as ")[0], old), []).append(name)
        return "\n".join(
            f"{match[1]}from {home} import ({', '.join(some)})" for home, some in sorted(by_home.items())
        )

    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    new = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in (*listed.stdout.split(), *new.stdout.split()):
        path = ROOT / name
        if path.is_file():
            text = path.read_text()
            changed = pattern.sub(moved, text)
            if changed != text:
                path.write_text(changed)


def _name(node: ast.stmt) -> str | None:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return None


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    assert node.end_lineno is not None
    return min([node.lineno, *(one.lineno for one in decorators)]), node.end_lineno


def _source(lines: list[str], node: ast.stmt) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


if __name__ == "__main__":
    sys.exit(main())
