"""A stderr that tolerates a closed pipe, as in `holdfast worker 2>&1 | head -1`."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, cast

from typing_extensions import override


class TolerantStream(TextIOWrapper):
    """A text stream that discards output without an error once its pipe is broken."""

    @override
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            self._forget()
            return len(text)

    @override
    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            self._forget()

    def _forget(self) -> None:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            # Python flushes the buffer at exit, which must not fail again.
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


@contextmanager
def tolerant_stderr() -> Generator[None]:
    """Replace stderr by a tolerant stream for the length of the block, if it is a real stream."""
    stderr = sys.stderr
    if stderr is None:  # stderr was closed when the program began
        with Path(os.devnull).open("w") as nowhere:
            sys.stderr = nowhere
            try:
                yield
            finally:
                sys.stderr = stderr
        return
    if not isinstance(stderr, TextIOWrapper):  # replaced, for example by a test
        yield
        return
    stderr.flush()
    real = cast("TextIOWrapper[BinaryIO]", stderr)
    sys.stderr = tolerant = TolerantStream(
        real.buffer, encoding=stderr.encoding, errors="backslashreplace", line_buffering=True
    )
    try:
        yield
    finally:
        tolerant.flush()
        tolerant.detach()
        sys.stderr = stderr
