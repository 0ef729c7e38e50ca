"""All files of a program, parsed on demand, and the imports between them."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.hosts.devtools.lint.files import File, shown_path
from holdfast.hosts.devtools.lint.findings import Unreadable
from holdfast.hosts.devtools.lint.modules import Definition, Module, read_module
from holdfast.hosts.devtools.lint.scopes import Imported

MARK: Final = "@"
"""Prefix of the program's own modules: `@random` is a file of the program, `random` is Python's."""


class Program:
    """The files to lint. No other file is read."""

    def __init__(self, files: Sequence[File]) -> None:
        self.files = files
        self.unreadable: dict[Path, Unreadable] = {}
        self._sources: dict[Path, bytes] = {}
        self._read: dict[Path, Module | None] = {}
        self._names: dict[str, list[Path]] = {}
        self._keys: dict[Path, str] = {}
        self._paths: dict[str, Path] = {}
        self._packages: dict[Path, bool] = {}
        here = Path.cwd()
        for file in files:
            self._register(file.path, here)

    def source(self, path: Path) -> bytes:
        """Return the content of a file; empty if it can't be read, which is recorded."""
        if path not in self._sources:
            try:
                self._sources[path] = path.read_bytes()
            except OSError as error:
                self._sources[path] = b""
                self._note(path, error.strerror or str(error))
        return self._sources[path]

    def module(self, path: Path) -> Module | None:
        """Return the parsed file; None if it can't be parsed, which is recorded."""
        if path not in self._read:
            self._read[path] = self._load(path)
        return self._read[path]

    def module_of(self, key: str) -> Module | None:
        """Return the module with a key; None without such a module."""
        path = self._paths.get(key)
        return None if path is None else self.module(path)

    def loaded(self) -> Iterator[Module]:
        """Yield the parsed modules, in the order of files."""
        for file in self.files:
            module = self._read.get(file.path)
            if module is not None:
                yield module

    def definition(self, origin: str) -> Definition | None:
        """Return the definition with an origin; None if the program has no such definition."""
        module, qualname = self.split(origin)
        return None if module is None else module.definitions.get(qualname)

    def split(self, origin: str) -> tuple[Module | None, str]:
        """Split an origin into a module of the program and the name in it; None and the origin for other modules."""
        end = len(origin) if origin.startswith(MARK) else 0
        while end > 0:
            key = origin[:end]
            if key in self._paths:
                return self.module_of(key), origin[end + 1 :]
            end = origin.rfind(".", 0, end)
        return None, origin

    def imported(self, what: Imported, module: Module) -> str:
        """Return the origin of an import: the key of a module, a name in one, or an external name."""
        name = what.module
        if what.level:
            place = module.path.parent
            for _ in range(what.level - 1):
                place = place.parent
            path = place.joinpath(*name.split(".")) if name else place
            key = self._key_at(path)
            inside = self._key_at(path / what.name) if what.name else None
            base = key or f"?{path}"
        else:
            base = self._find(name, module.path) or name
            inside = self._find(f"{name}.{what.name}", module.path) if what.name else None
        if inside is not None:
            return inside
        return f"{base}.{what.name}" if what.name else base

    def _key_at(self, path: Path) -> str | None:
        for file in (path / "__init__.py", path.with_name(path.name + ".py")):
            if file in self._keys:
                return self._keys[file]
        return None

    def _find(self, name: str, importer: Path) -> str | None:
        """Return the key of an imported module: of several with this name, the one nearest to the importing file."""
        found = self._names.get(name)
        if not found or name.partition(".")[0] in sys.stdlib_module_names:
            return None
        nearest = max(found, key=lambda path: len(os.path.commonpath([path, importer])))
        return self._keys[nearest]

    def _register(self, path: Path, here: Path) -> None:
        if path in self._keys:
            return
        top, parts = self._place(path)
        name = ".".join(parts) or path.stem
        key, number = f"{MARK}{name}", 1
        while key in self._paths:
            number += 1
            key = f"{MARK}{name}#{number}"
        self._keys[path] = key
        self._paths[key] = path
        self._names.setdefault(name, []).append(path)
        # Also register names through namespace packages, which have no __init__.py.
        while here in top.parents:
            name = f"{top.name}.{name}"
            self._names.setdefault(name, []).append(path)
            top = top.parent

    def _load(self, path: Path) -> Module | None:
        source = self.source(path)
        if path in self.unreadable or path not in self._keys:
            return None
        key = self._keys[path]
        try:
            return read_module(path, shown_path(path), key[len(MARK) :].partition("#")[0], key, source)
        except SyntaxError as error:
            self._note(path, f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg))
        except (RecursionError, MemoryError):
            self._note(path, "nested too deeply to be read")
        except ValueError as error:
            self._note(path, str(error))
        return None

    def _note(self, path: Path, reason: str) -> None:
        shown = shown_path(path)
        self.unreadable[path] = Unreadable(path=shown, reason=reason)

    def _place(self, path: Path) -> tuple[Path, list[str]]:
        """Return the folder from which a file is imported, and the parts of its module name."""
        parts = [] if path.stem == "__init__" else [path.stem]
        folder = path.parent
        while self._is_package(folder) and folder.parent != folder:
            parts.insert(0, folder.name)
            folder = folder.parent
        return folder, parts

    def _is_package(self, folder: Path) -> bool:
        if folder not in self._packages:
            self._packages[folder] = (folder / "__init__.py").is_file()
        return self._packages[folder]
