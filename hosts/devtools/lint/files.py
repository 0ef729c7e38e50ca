"""Which files are meant: by paths, or by the names of modules, which are looked up and not imported."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from holdfast.ports.errors import InvalidArgumentError

_NEVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


@attrs.frozen
class File:
    """A file to look at, by its full path. `is_named` says that it was asked for by name, not found in a folder."""

    path: Path
    is_named: bool = False


def find_files(named: Sequence[str]) -> list[File]:
    """Return the Python files that are meant, each once, in the order of their paths.

    Args:
        named: Files, folders, or modules and packages as they are imported from the current folder.

    Raises:
        InvalidArgumentError: One of them is none of these.
    """
    found: dict[Path, File] = {}
    for name in named:
        path = Path(name)
        if not name or not path.exists():
            path = _module_named(name)
        path = Path(os.path.abspath(path))
        for file in _below(path) if path.is_dir() else [File(path, is_named=True)]:
            if file.path not in found or file.is_named:
                found[file.path] = file
    return [found[place] for place in sorted(found)]


def _below(folder: Path) -> Iterator[File]:
    """Yield the Python files in a folder, but for what is hidden, installed or made by Python."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NEVER
            and not name.startswith(".")
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        )
        for name in names:
            if name.endswith((".py", ".pyw")):
                yield File(Path(place, name))


def _module_named(name: str) -> Path:
    """Return where a module is: the folder of a package, or a file."""
    parts = name.split(".")
    if all(part.isidentifier() for part in parts):
        for top in ("", *sys.path):
            place = Path(top or ".", *parts)
            if (place / "__init__.py").is_file():
                return place
            if (file := place.with_name(place.name + ".py")).is_file():
                return file
    raise InvalidArgumentError(
        "what to lint", f"{name!r} is no file, no folder, and no module that can be found from here"
    )


def shown_path(path: Path) -> str:
    """Return a full path as people write it here: from the current folder, if it is below it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
