"""A planted bug, and the copy of the package in which it is planted; never the checkout."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGES: Final = ("adapters", "hosts", "kernel", "ports", "testing")


class DoesNotApplyError(Exception):
    """The code has changed: what a mutant replaces is not in it, or not once."""


@attrs.frozen
class Edit:
    """One piece of text in one file, which occurs there exactly once, and what takes its place."""

    file: str
    old: str
    new: str


@attrs.frozen(kw_only=True)
class Mutant:
    """A bug.

    Attributes:
        name: What it is called.
        breaks: What the code does then, in a line.
        caught_by: The invariants of which at least one must not hold then; L1 is that not all comes to its end.
        edits: What makes the bug.
    """

    name: str
    breaks: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...]


def mutated(mutant: Mutant) -> Mapping[str, str]:
    """Return the files of the checkout that a mutant changes, by path, with their changed text. DoesNotApplyError."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.get(edit.file) or (ROOT / edit.file).read_text()
        times = text.count(edit.old)
        if times != 1:
            raise DoesNotApplyError(
                f"mutant {mutant.name}: {edit.file} has this {times} times, not once; look at what became of it,"
                f" and change the mutant:\n{edit.old}"
            )
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def plant(mutant: Mutant, folder: Path) -> None:
    """Copy the package into a folder, as `holdfast`, with the bug in it. DoesNotApplyError."""
    package = folder / "holdfast"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, package / name)
    for one in (ROOT / "src" / "holdfast").iterdir():
        if one.is_file():
            shutil.copy2(one, package / one.name)
    for file, text in mutated(mutant).items():
        path = package / file
        path.write_text(text)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()
