"""The port for delayed wake-ups, for serverless hosts that do not live long enough to wait."""

from datetime import datetime
from typing import Protocol


class Scheduler(Protocol):
    """Sends a command later. Only a hint: it may arrive late, twice or never, and the store decides what is due."""

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        """Send a command (its JSON text) at `at`.

        - A wake-up with the same key is replaced, unless it is being sent.
        - ValueError if `at` is naive.
        - UnavailableError if the service can't be reached: then the command may or may not be sent.
        """
        ...

    def cancel(self, key: str, /) -> None:
        """Cancel a wake-up, unless it is being sent. Does nothing if the key is unknown. UnavailableError."""
        ...
