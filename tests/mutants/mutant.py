"""A planted bug, and the copy of the package in which it is planted; never the checkout."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PACKAGES: Final = ("adapters", "hosts", "kernel", "ports", "testing")


class DoesNotApplyError(Exception):
    """The code has changed: the text that a mutant replaces is missing or occurs more than once."""


@attrs.frozen
class Edit:
    """A replacement of a text that occurs exactly once in a file."""

    file: str
    old: str
    new: str


@attrs.frozen(kw_only=True)
class Mutant:
    """A planted bug.

    Attributes:
        name: Its name.
        breaks: The wrong behaviour, in a line.
        caught_by: The invariants of which at least one must be violated; L1 means that not everything ends.
        edits: The edits that plant it.
        workload: The workload of the simulator that is to find it.
    """

    name: str
    breaks: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...]
    workload: str = "runs"


def mutated(mutant: Mutant) -> Mapping[str, str]:
    """Return the files that a mutant changes, by path, with the changed text. Raises DoesNotApplyError."""
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
    """Copy the package into a folder, as `holdfast`, with the bug planted. Raises DoesNotApplyError."""
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
