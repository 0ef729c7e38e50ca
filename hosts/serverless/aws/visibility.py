"""Keeps messages unseen for as long as their bodies run, from a thread of its own."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from holdfast.hosts.serverless.aws.invocations import Messages, Record

VISIBILITY: Final = 60.0
"""Seconds for which messages are kept unseen each time. What a function holds that is killed comes again after that."""


class Unseen:
    """Keeps records unseen until each is released. Others who saw one would find its job held: nothing but waste.

    The first request is made after a third of `seconds`: most bodies have ended by then, and cost none.
    """

    def __init__(self, messages: Messages, records: Sequence[Record], seconds: float) -> None:
        self._messages = messages
        self._seconds = seconds
        self._held = {record.receipt: record for record in records}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._extend, name="holdfast-unseen", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Stop. What was released last, or never was, is as long unseen as it was."""
        self._over.set()
        self._thread.join()

    def release(self, record: Record) -> None:
        """Let a record be, which is done with."""
        with self._lock:
            self._held.pop(record.receipt, None)

    def _extend(self) -> None:
        while not self._over.wait(self._seconds / 3):
            with self._lock:
                held = list(self._held.values())
            for source in dict.fromkeys(record.source for record in held):
                waits = {record.receipt: self._seconds for record in held if record.source == source}
                self._messages.show_in(source, waits)
