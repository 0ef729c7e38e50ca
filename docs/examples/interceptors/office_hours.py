"""A policy: runs are started in office hours only, and say for which customer they are."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime

from holdfast.errors import CommandError
from holdfast.kernel.commands import RunCreate
from holdfast.plugins import CommandBatch
from holdfast.ports.records.run import attribute_texts

OPENS, CLOSES = 8, 18


class PolicyError(CommandError):
    """A start that is against the rules of the house."""

    code = "policy"


class OfficeHours:
    """Refuses starts outside office hours, and those without a customer. All else is left alone."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    @contextmanager
    def dispatch(self, batch: CommandBatch) -> Generator[None]:
        """Refuse single commands; the others of the batch are carried out."""
        for command in batch.commands:
            if not isinstance(command, RunCreate):
                continue
            if not OPENS <= self._now().hour < CLOSES:
                batch.refuse(command, PolicyError(f"runs are started from {OPENS} to {CLOSES} o'clock"))
            elif "customer" not in attribute_texts(command.attributes):
                batch.refuse(command, PolicyError("say for which customer: attributes={'customer': ...}"))
        yield
