"""Wake-ups at a given time, for hosts that do not live long enough to wait."""

from datetime import datetime
from typing import Protocol


class Scheduler(Protocol):
    """Sends a command later. Only a wake-up: it may come late, twice or never, and the store decides what is due."""

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        """Send the command (its JSON text) at `at`. A wake-up of the same key is replaced."""
        ...

    def cancel(self, key: str, /) -> None:
        """Forget a wake-up; nothing happens if there is none."""
        ...
