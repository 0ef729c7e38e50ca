"""The port for delayed wake-ups of serverless hosts, which do not live long enough to wait. Not cron.

A scheduler sends one command once, later. Starts by the clock are decisions of the kernel, like starts with a
`start_at`: see `kernel/rules/admissions.py` for the rule and `hosts/maintenance/tick.py` for the round that applies it.
"""

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
