"""Shows the demo: a line that is redrawn on a terminal, a few lines where the output is kept."""

import sys
import time
from typing import Final

_WIDTH: Final = 30
_PARTS: Final = 5


class Screen:
    """Prints lines, and below them one line of progress."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._drawn = ""
        self._told = -1
        self._began = time.monotonic()

    def say(self, text: str = "") -> None:
        """Print a line that stays."""
        self._wipe()
        print(text, flush=True)

    def event(self, text: str) -> None:
        """Print a line that says when it happened."""
        self.say(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def progress(self, what: str, done: int, of: int) -> None:
        """Show how far something is: at once on a terminal, otherwise now and then."""
        share = done / of if of else 0.0
        if self._live:
            bar = ("█" * round(share * _WIDTH)).ljust(_WIDTH, "░")
            line = f"{time.monotonic() - self._began:6.1f} s  {what} {bar} {done:>4} of {of}"
            if line != self._drawn:
                print(f"\r\x1b[K{line}", end="", flush=True)
                self._drawn = line
        elif int(share * _PARTS) != self._told:
            self._told = int(share * _PARTS)
            self.event(f"{what}: {done} of {of}")

    def _wipe(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="")
            self._drawn = ""
