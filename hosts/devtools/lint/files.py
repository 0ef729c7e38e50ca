"""The files to lint: from paths, or from module names, which are resolved without an import."""

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
    """A file to lint."""

    path: Path
    """The absolute path."""
    is_named: bool = False
    """Whether the user named the file itself; False if it was found in a folder."""


def find_files(named: Sequence[str]) -> list[File]:
    """Return the Python files to lint, each once, sorted by path.

    Args:
        named: Files, folders, or modules and packages as they are imported from the current folder.

    Raises:
        InvalidArgumentError: A name is none of these.
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
    """Yield the Python files in a folder, without hidden ones, caches and virtual environments."""
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
    """Return the folder of a package, or the file of a module. Raises InvalidArgumentError."""
    parts = name.split(".")
    if all(part.isidentifier() for part in parts):
        for top in ("", *sys.path):
            place = Path(top or ".", *parts)
            if (place / "__init__.py").is_file():
                return place
            if (file := place.with_name(place.name + ".py")).is_file():
                return file
    raise InvalidArgumentError(
        "what to lint", f"{name!r} is not a file, a folder, or a module that can be found from here"
    )


def shown_path(path: Path) -> str:
    """Return a path for messages: relative to the current folder if it is below it."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
