"""Code uses the words of the field: no private vocabulary in identifiers, nor in first lines of docstrings."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import holdfast.kernel

ROOT = Path(holdfast.kernel.__file__).parent.parent
PACKAGES = ("kernel", "ports", "adapters", "hosts", "testing")

_PRIVATE = """
told tell tells telling said say says saying unsaid asked asking asks gave gives giver news owed
owes owe owing debt debts duty duties rest rests rested resting restless stir stirs stirring pulse
pulses mend mends mended mender mending hands room rooms whoever whom nobody somebody anybody heard
hear hears hearing unheard astray unsound kin leavings lane lanes parked parks silent betaken
"""
IN_IDENTIFIERS = frozenset(_PRIVATE.split())
"""Words that no identifier has as a part. Each has a word of the field: see the glossary."""

IN_DOCSTRINGS = IN_IDENTIFIERS - {"silent"} | {"whichever", "wherefrom", "whereof", "thereof"}
_PHRASES = """
is none; are none; is no more; goes on; go on; has come; have come; come of; comes of; came of;
becomes of; became of; by itself; who has; who had; what has; what there is; that there is; that
there are; is to be had; what it was given; of which nothing; all that; somebody else; how many-th
"""
PHRASES = tuple(phrase.strip() for phrase in _PHRASES.split(";"))
"""What no first line of a docstring says: a noun and a verb of the field can stand there."""


def words_of(identifier: str) -> set[str]:
    """Return the words of an identifier in either style, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what a module names itself: definitions, parameters, variables, attributes of `self`."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if not name.startswith("test_"):  # the names of tests are sentences
                    yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def first_lines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first line of each docstring, those of fields and constants too."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value.strip().partition("\n")[0]


def files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@lru_cache(maxsize=1)
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def wrong_identifiers(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for line, name in identifiers(parsed(path))
        if words_of(name) & IN_IDENTIFIERS
    ]


def wrong_docstrings(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for line, text in first_lines(parsed(path))
        if set(re.findall(r"[a-z]+", text.lower())) & IN_DOCSTRINGS
        or any(re.search(rf"\b{phrase}\b", text) for phrase in PHRASES)
    ]


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in files()}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_modules_of_a_folder_use_the_words_of_the_field(folder: Path) -> None:
    modules = [path for path in files() if path.parent == folder]
    assert modules
    assert [wrong for path in modules for wrong in wrong_identifiers(path) + wrong_docstrings(path)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_is_imported_under_another_name(package: str) -> None:
    """Two classes of one name in one module would need that: each has a name that says what it is."""
    aliased = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {one.name} as {one.asname}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search(r" as [A-Z]", path.read_text())
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast")
        for one in node.names
        if one.asname and one.name[0].isupper()
    ]
    assert aliased == []
