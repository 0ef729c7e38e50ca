"""Blobs as files below one folder, on a POSIX system.

A key's parts become folders, and its hash the name of a file, prefixed with `.`, which no part may start with: so a
blob and a folder never have the same name. Every folder on the way is opened relative to its parent's descriptor,
without following links: whatever a key or the contents of the root are, nothing outside the root is reached.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.ports.blobs import check_blob_key, is_blob_key
from holdfast.ports.errors import (
    BlobCorruptError,
    BlobMissingError,
    InvalidKeyError,
    StorageFullError,
    UnavailableError,
)

_TEMPORARY: Final = ".tmp"
_STALE_SECONDS: Final = 24 * 3600
"""A put takes seconds, so an older temporary file was left by a process that died."""

_TRIES_MAX: Final = 100
"""The most restarts of a put because another process has just removed the folder that it was about to use."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""The errors of the system if a part of a path does not exist, or is not a real folder."""


class FileBlobStore:
    """Blobs in a folder shared by all processes of an installation: a local disk, or a network file system.

    A put writes and syncs a temporary file, renames it, and syncs the folders on the way. So a key that can be read is
    complete, and survives a power loss once its put has returned. Anything but a regular file counts as absent, and a
    link is never followed. UnavailableError if the file system refuses (full, read-only).
    """

    def __init__(self, root: str | os.PathLike[str], *, fsync: Callable[[int], None] = os.fsync) -> None:
        """Use a root folder, which the first put creates if it does not exist.

        `fsync` makes the file or folder of a descriptor durable. UnavailableError if the root is not writable.
        """
        self._root = Path(root).resolve()
        self._fsync = fsync
        self._is_made = False
        with _reported(f"use {str(self._root)!r} as the folder of blobs"):
            _check_writable(self._root)

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes durably. An existing key is left as it is; InvalidKeyError if the key is malformed."""
        *folders, name = _parts(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise InvalidKeyError(f"{key!r} does not end in the sha256 of its bytes")
        with _reported("store a blob"):
            for _ in range(_TRIES_MAX):
                try:
                    self._make_root()
                    self._put(folders, name, data)
                except FileNotFoundError:
                    continue
                return
        raise UnavailableError("the folder of blobs was removed repeatedly while storing a blob in it")

    def get(self, key: str, /) -> bytes:
        """Return the bytes. BlobMissingError if the key does not exist; BlobCorruptError if the hash does not match."""
        *folders, name = _parts(key)
        with _reported("read a blob"):
            try:
                with self._folder(folders) as folder:
                    data = _read(folder, name)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                data = None
        if data is None:
            raise BlobMissingError(key)
        if sha256(data).hexdigest() != key[-64:]:
            raise BlobCorruptError(key)
        return data

    def exists(self, key: str, /) -> bool:
        """Return whether a blob with this key exists."""
        *folders, name = _parts(key)
        with _reported("look for a blob"):
            try:
                with self._folder(folders) as folder:
                    return _is_file(folder, name)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                return False

    def delete(self, key: str, /) -> None:
        """Delete a blob and the folders that it leaves empty. Does nothing if the key does not exist."""
        *folders, name = _parts(key)
        with _reported("delete a blob"):
            try:
                with self._folder(folders) as folder:
                    if _is_file(folder, name):
                        os.unlink(name, dir_fd=folder)
                self._prune(folders)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, ascending. Concurrent changes may or may not be included."""
        folder = prefix.rpartition("/")[0]
        parts = tuple(folder.split("/")) if folder else ()
        if all(part.isascii() and part.isprintable() and not part.startswith(".") for part in parts):
            yield from self._walk(parts, prefix)

    def _make_root(self) -> None:
        """Create the root durably at this object's first put. If it vanishes later, blobs are lost, and put fails."""
        if self._is_made:
            return
        ancestors = (self._root, *self._root.parents)
        made = [folder for folder in ancestors if not folder.exists()] or [self._root]
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in made:
            # Without permission to read the folder above, nothing was created there that could be lost.
            with suppress(PermissionError), _opened(folder.parent) as parent:
                self._fsync(parent)
        with self._folder((_TEMPORARY,), make=True) as temporary:
            _remove_stale(temporary)
        self._is_made = True

    def _put(self, folders: Sequence[str], name: str, data: bytes) -> None:
        with self._folder(folders, make=True) as folder:
            if not _is_file(folder, name):
                with self._folder((_TEMPORARY,), make=True) as temporary:
                    self._write(temporary, folder, name, data)
            # Another process may have created the file or a folder and not synced it yet. So each put
            # syncs its whole path before it returns.
            self._fsync(folder)
        for depth in range(len(folders)):
            with self._folder(folders[:depth]) as folder:
                self._fsync(folder)

    def _write(self, temporary: int, folder: int, name: str, data: bytes) -> None:
        draft = secrets.token_hex(16)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(draft, flags, 0o600, dir_fd=temporary)
        try:
            try:
                remaining = memoryview(data)
                while remaining:
                    remaining = remaining[os.write(file, remaining) :]
                self._fsync(file)
            finally:
                os.close(file)
            os.rename(draft, name, src_dir_fd=temporary, dst_dir_fd=folder)
        except BaseException:
            os.unlink(draft, dir_fd=temporary)
            raise

    def _prune(self, folders: Sequence[str]) -> None:
        for depth in range(len(folders), 0, -1):
            with self._folder(folders[: depth - 1]) as parent:
                try:
                    os.rmdir(folders[depth - 1], dir_fd=parent)
                except OSError:
                    return  # another blob or a concurrent put uses it

    def _walk(self, parts: tuple[str, ...], prefix: str) -> Iterator[str]:
        try:
            with _reported("list blobs"), self._folder(parts) as folder, os.scandir(folder) as found:
                entries = [_entry(entry) for entry in found]
        except UnavailableError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _ABSENT:
                return
            raise
        # A folder sorts by its name and the `/` that follows, so the walk yields whole keys in order.
        for name in sorted(entry for entry in entries if entry):
            path = "/".join((*parts, name))
            if name.endswith("/"):
                if path.startswith(prefix) or prefix.startswith(path):
                    yield from self._walk((*parts, name[:-1]), prefix)
            elif path.startswith(prefix) and is_blob_key(path):
                yield path

    @contextmanager
    def _folder(self, parts: Sequence[str], *, make: bool = False) -> Generator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(self._root, flags)
        try:
            for part in parts:
                if make:
                    _make_folder(folder, part)
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _opened(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_writable(root: Path) -> None:
    """Raise OSError unless this folder is writable or, if it does not exist, can be created."""
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    if not nearest.is_dir():
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def _reported(doing: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        kind = StorageFullError if error.errno in _FULL else UnavailableError
        raise kind(f"could not {doing}: {error.strerror or error}") from error


def _parts(key: str) -> list[str]:
    check_blob_key(key)
    *folders, name = key.split("/")
    return [*folders, f".{name}"]


def _make_folder(parent: int, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)


def _is_file(folder: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _read(folder: int, name: str) -> bytes | None:
    # O_NONBLOCK: a pipe in the place of the file must not block the reader.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        with open(file, "rb", closefd=False) as opened:
            return opened.read()
    finally:
        os.close(file)


def _entry(entry: "os.DirEntry[str]") -> str | None:
    """Return the part of a key that a file or folder stands for; a folder's ends in `/`. None for anything else."""
    if entry.is_dir(follow_symlinks=False):
        return None if entry.name.startswith(".") else f"{entry.name}/"
    return entry.name[1:] if entry.name.startswith(".") and entry.is_file(follow_symlinks=False) else None


def _remove_stale(temporary: int) -> None:
    now = _touch(temporary)
    with os.scandir(temporary) as entries:
        for entry in entries:
            # Best effort: another process may be faster, or another user may own the file.
            with suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > _STALE_SECONDS:
                    os.unlink(entry.name, dir_fd=temporary)


def _touch(folder: int) -> float:
    """Return the current time by the file system's clock, which sets the times of files."""
    os.utime(folder)
    return os.fstat(folder).st_mtime
