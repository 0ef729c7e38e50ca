"""Extends the visibility timeout of SQS messages while their jobs run, in a thread."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from holdfast.hosts.serverless.aws.invocations import Messages, Record

VISIBILITY: Final = 60.0
"""The visibility timeout set each time, in seconds; after it, messages of a killed function are delivered again."""


class VisibilityExtender:
    """Extends the visibility timeout of records until each is released.

    Without it, other functions would receive them early, only to find their jobs leased. The first extension is after a
    third of `seconds`: most bodies have ended by then, and need none.
    """

    def __init__(self, messages: Messages, records: Sequence[Record], seconds: float) -> None:
        self._messages = messages
        self._seconds = seconds
        self._held = {record.receipt: record for record in records}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._extend, name="holdfast-unseen", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Stop the thread. The last visibility timeouts stay in effect."""
        self._over.set()
        self._thread.join()

    def release(self, record: Record) -> None:
        """Stop extending the timeout of a record."""
        with self._lock:
            self._held.pop(record.receipt, None)

    def _extend(self) -> None:
        while not self._over.wait(self._seconds / 3):
            with self._lock:
                held = list(self._held.values())
            for source in dict.fromkeys(record.source for record in held):
                waits = {record.receipt: self._seconds for record in held if record.source == source}
                self._messages.show_in(source, waits)
