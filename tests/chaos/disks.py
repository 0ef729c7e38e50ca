"""A small disk for tests that fill it: a file system in memory."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MIB: Final = 1 << 20
_PIECES: Final = (MIB, 4096, 1)
# In a namespace of its own nobody has to be root; it lasts as long as its process, which ends with our pipe.
_OWN: Final = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


class NoDiskError(Exception):
    """This machine does not allow mounting file systems."""


class SmallDisk:
    """A folder with a fixed capacity in MiB. Entering it raises NoDiskError where it cannot be mounted."""

    def __init__(self, mib: int) -> None:
        self._mib = mib
        self._folder = Path()
        self._holder: subprocess.Popen[bytes] | None = None
        self.path = Path()

    @property
    def room(self) -> int:
        """Return the free bytes."""
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for piece in _PIECES:
                with contextlib.suppress(OSError):
                    while file.write(bytes(piece)) == piece:
                        pass

    def make_room(self) -> None:
        """Free the space again."""
        (self.path / "ballast").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self._mib}m,mode=700", "tmpfs", str(self._folder)]
        self.path = self._folder
        if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            return self
        script = f"{' '.join(mount)} && echo mounted && cat"
        self._holder = subprocess.Popen(
            [*_OWN, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        self.path = Path(f"/proc/{self._holder.pid}/root{self._folder}")
        if said != b"mounted\n" or not os.access(self.path, os.W_OK):
            self.__exit__(None, None, None)
            raise NoDiskError("nothing can be mounted here")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._holder is None:
            subprocess.run(["umount", "--lazy", str(self._folder)], check=True)
        else:
            assert self._holder.stdin is not None
            assert self._holder.stdout is not None
            self._holder.stdin.close()
            self._holder.stdout.close()
            self._holder.wait()
        self._folder.rmdir()
