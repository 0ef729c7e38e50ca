"""Moves modules: files, and every place that names one, as an import, a dotted name or a path.

    python -m tools.codemod.move moves.txt

Each line of the table is `old -> new`, paths from the root without `.py`: `hosts/spans -> hosts/text`. A module whose
new place is listed twice, or is a module already, is merged into that one: its imports join the others, its code
follows. The tests of a module move with it. No line inside a function changes but the names of modules, and
`tools.codemod.same` checks that.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.codemod.server import ROOT

PACKAGES: Final = ("kernel", "ports", "adapters", "hosts", "testing")
TEXTS: Final = frozenset(
    {".py", ".pyi", ".toml", ".md", ".txt", ".cfg", ".ini", ".yml", ".yaml", ".json", ".mako"}
)
_SKIPPED: Final = ("docs/decisions/", "CHANGELOG")


def main() -> int:
    """Move what the table lists, and format what was changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.codemod.move")
    parser.add_argument("table", type=Path)
    moves = dict(read_table(parser.parse_args().table.read_text()))
    for old in moves:
        if not (ROOT / f"{old}.py").is_file():
            parser.error(f"there is no {old}.py")
    moves |= _moves_of_tests(moves)
    _rewrite_names(moves)
    _rewrite_imports_of_modules(moves)
    _move_files(moves)
    ruff = Path(sys.executable).with_name("ruff")
    subprocess.run([ruff, "check", "--quiet", "--fix", "--select", "I,RUF022", "."], cwd=ROOT, check=False)
    subprocess.run([ruff, "format", "--quiet"], cwd=ROOT, check=True)
    print(f"{len(moves)} modules")
    return 0


def read_table(text: str) -> Iterator[tuple[str, str]]:
    """Yield the old and the new path of each module."""
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        if entry:
            old, _, new = (part.strip() for part in entry.partition("->"))
            if old != new:
                yield old, new


def dotted(path: str) -> str:
    """Return the name under which a module is imported."""
    name = path.replace("/", ".")
    return name if name.startswith(("tests.", "tools.")) else f"holdfast.{name}"


def names_of(moves: Mapping[str, str]) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return what finds the dotted names and the paths of modules that move, and what takes the place of each."""
    names = {dotted(old): dotted(new) for old, new in moves.items()}
    names |= {f"{old}.py": f"{new}.py" for old, new in moves.items()}
    listed = sorted((re.escape(name) for name in names), key=len, reverse=True)
    return re.compile(rf"(?<![\w.])(?<!\w/)(?:src/holdfast/)?({'|'.join(listed)})(?![\w])"), names


def _moves_of_tests(moves: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for old, new in moves.items():
        folder, name = old.rsplit("/", 1)
        to, becomes = new.rsplit("/", 1)
        test = f"tests/unit/{folder}/test_{name}"
        target = f"tests/unit/{to}/test_{becomes}"
        if (ROOT / f"{test}.py").is_file() and target not in found.values():
            found[test] = target
    return {
        test: target
        for test, target in found.items()
        if test != target and (target in found or not (ROOT / f"{target}.py").exists())
    }


def _files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [
        ROOT / name
        for name in listed.stdout.splitlines()
        if Path(name).suffix in TEXTS | {""} and not name.startswith(_SKIPPED) and (ROOT / name).is_file()
    ]


def _rewrite_imports_of_modules(moves: Mapping[str, str]) -> None:
    """Rewrite `from package import module`, and the uses of that name."""
    names = {dotted(old): dotted(new) for old, new in moves.items()}
    for path in _files():
        if path.suffix == ".py" and not path.is_symlink():
            text = path.read_text()
            renames: dict[str, str] = {}
            edits: list[tuple[int, int, str]] = []
            tree = ast.parse(text)
            for node in ast.walk(tree):
                if not (isinstance(node, ast.ImportFrom) and node.module and node.level == 0):
                    continue
                moved = [one for one in node.names if f"{node.module}.{one.name}" in names]
                if not moved:
                    continue
                lines: list[str] = []
                if rest := [one for one in node.names if one not in moved]:
                    lines.append(f"from {node.module} import {', '.join(_aliased(one) for one in rest)}")
                for one in moved:
                    package, name = names[f"{node.module}.{one.name}"].rsplit(".", 1)
                    lines.append(f"from {package} import {name}{f' as {one.asname}' if one.asname else ''}")
                    if not one.asname and name != one.name:
                        renames[one.name] = name
                indent = " " * node.col_offset
                assert node.end_lineno is not None
                edits.append((node.lineno, node.end_lineno, "\n".join(indent + line for line in lines)))
            if edits:
                _apply(path, text, tree, edits, renames)


def _aliased(one: ast.alias) -> str:
    return f"{one.name} as {one.asname}" if one.asname else one.name


def _apply(
    path: Path, text: str, tree: ast.AST, edits: list[tuple[int, int, str]], renames: Mapping[str, str]
) -> None:
    lines = text.split("\n")
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in renames]
    for node in sorted(uses, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()
        end = node.col_offset + len(node.id)
        lines[node.lineno - 1] = (line[: node.col_offset] + renames[node.id].encode() + line[end:]).decode()
    for start, end, new in sorted(edits, reverse=True):
        lines[start - 1 : end] = new.split("\n")
    path.write_text("\n".join(lines))


def _rewrite_names(moves: Mapping[str, str]) -> None:
    pattern, names = names_of(moves)
    for path in _files():
        if path.is_symlink():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        new = pattern.sub(lambda match: match[0].replace(match[1], names[match[1]]), text)
        if new != text:
            path.write_text(new)


def _move_files(moves: Mapping[str, str]) -> None:
    texts = {old: (ROOT / f"{old}.py").read_text() for old in moves}
    sources: dict[str, list[str]] = {}
    for old, new in moves.items():
        stays = new not in moves and (ROOT / f"{new}.py").is_file()
        if stays and new not in texts:
            texts[new] = (ROOT / f"{new}.py").read_text()
        sources.setdefault(new, [new] if stays else []).append(old)
    for old in moves:
        (ROOT / f"{old}.py").unlink()
    for new, olds in sources.items():
        target = ROOT / f"{new}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(merged([texts[old] for old in olds], {dotted(new)}))
    for new in sources:
        for folder in (ROOT / new).parents:
            if folder.is_relative_to(ROOT) and folder != ROOT and "tests" not in folder.parts:
                (folder / "__init__.py").touch()
    subprocess.run(["git", "add", "--all"], cwd=ROOT, check=True)


def merged(texts: list[str], own: set[str]) -> str:
    """Return one module of several: the first one's docstring, all imports but those of each other, all code."""
    if len(texts) == 1:
        return texts[0]
    heads: list[str] = []
    bodies: list[str] = []
    doc = ""
    for number, text in enumerate(texts):
        tree = ast.parse(text)
        lines = text.split("\n")
        at = 0
        for node in tree.body:
            is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and at == 0
            if not (is_doc or isinstance(node, ast.Import | ast.ImportFrom)):
                break
            assert node.end_lineno is not None
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if is_doc:
                doc = source if number == 0 else doc
            elif not (isinstance(node, ast.ImportFrom) and node.module in own):
                heads.append(source)
            at = node.end_lineno
        bodies.append("\n".join(lines[at:]).strip("\n"))
    return "\n".join([doc, "", *heads, "", "", "\n\n\n".join(bodies), ""])


if __name__ == "__main__":
    sys.exit(main())
