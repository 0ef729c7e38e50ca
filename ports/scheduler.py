"""Wake-ups at a given time, for hosts that do not live long enough to wait."""

from datetime import datetime
from typing import Protocol


class Scheduler(Protocol):
    """Sends a command later. Only a wake-up: it may come late, twice or never, and the store decides what is due."""

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        """Send the command (its JSON text) at `at`. A wake-up of the same key is replaced, unless it is on its way.

        ValueError if `at` is naive; UnavailableError if it can't be asked, and then it may or may not be sent.
        """
        ...

    def cancel(self, key: str, /) -> None:
        """Forget a wake-up, unless it is on its way; nothing happens if there is none. UnavailableError."""
        ...
