"""Takes planted bugs along: they name text of files by path, and have to name it as it is now."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.codemod.server import ROOT, Place

FOLDER: Final = ROOT / "tests" / "mutants"


def follow(changes: Mapping[Place, str], before: Mapping[Path, str]) -> list[str]:
    """Rewrite the texts of planted bugs in files that were changed; return those that are to be looked at by hand."""
    doubts: list[str] = []

    def rewritten(file: str, old: str, new: str) -> tuple[str, str] | None:
        path = ROOT / file
        text = before.get(path)
        if text is None:
            return None
        before_it = (old, new)
        if text.count(old) != 1:
            doubts.append(f"{file}: {old!r}")
            return None
        start = text.index(old)
        inside = _inside(changes, path, text, start, start + len(old))
        names = _names(changes, path, text)
        then = old
        for at, word, becomes in sorted(inside, reverse=True):
            then = f"{then[: at - start]}{becomes}{then[at - start + len(word) :]}"
            names[word] = becomes
        for word, becomes in names.items():
            new = re.sub(rf"(?<![\w\"'])(?:(?<=\.)|(?=\w+=)|(?=\w+\()|\b){word}\b", becomes, new)
        if (then, new) == before_it:
            return None
        return then, new

    for path in sorted(FOLDER.rglob("*.py")):
        _rewrite(path, rewritten)
    return doubts


def _inside(
    changes: Mapping[Place, str], path: Path, text: str, start: int, end: int
) -> list[tuple[int, str, str]]:
    """Return the changes within a part of a file: where each begins, what stands there, what takes its place."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    found: list[tuple[int, str, str]] = []
    for place, new in changes.items():
        if place.path == path:
            at = starts[place.line] + place.start
            if start <= at < end:
                found.append((at, text[at : at + place.end - place.start], new))
    return found


def _names(changes: Mapping[Place, str], path: Path, text: str) -> dict[str, str]:
    """Return what becomes of the names of a file, of those that become one thing wherever they are changed."""
    lines = text.split("\n")
    found: dict[str, set[str]] = {}
    for place, new in changes.items():
        if place.path == path:
            found.setdefault(lines[place.line][place.start : place.end].strip("\"'"), set()).add(
                new.strip("\"'")
            )
    return {word: becomes.pop() for word, becomes in found.items() if len(becomes) == 1}


Rewritten = Callable[[str, str, str], "tuple[str, str] | None"]


def _rewrite(path: Path, rewritten: Rewritten) -> None:
    source = path.read_text()
    lines = source.split("\n")
    edits: list[tuple[ast.expr, str]] = []
    for file, old, new in _texts(ast.parse(source)):
        known = (ast.literal_eval(file), ast.literal_eval(old), ast.literal_eval(new))
        then = rewritten(*known)
        if then is not None:
            edits += [(old, then[0]), (new, then[1])]
    for node, text in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        assert node.end_lineno is not None
        head = lines[node.lineno - 1].encode()[: node.col_offset].decode()
        tail = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
        lines[node.lineno - 1 : node.end_lineno] = f"{head}{_literal(text)}{tail}".split("\n")
    if edits:
        path.write_text("\n".join(lines))


def _texts(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """Yield file, old and new of each edit that is written out: three strings in a row, of which one is a path."""
    for node in ast.walk(tree):
        arguments = (
            [one for one in getattr(node, "args", ()) if _is_text(one)] if isinstance(node, ast.Call) else []
        )
        for file, old, new in zip(arguments, arguments[1:], arguments[2:], strict=False):
            if str(ast.literal_eval(file)).endswith(".py"):
                yield file, old, new


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _literal(text: str) -> str:
    """Return a text as source: a string for each line, in the form of JSON, which is one of Python's."""
    return "\n".join(json.dumps(part, ensure_ascii=False) for part in text.splitlines(keepends=True)) or '""'
