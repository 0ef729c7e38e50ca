"""Dispatches commands, and carries out what follows from their replies.

A command can make others possible: a slot is free, a child run has ended, blobs belong to a run that was removed. The
dispatcher does these at once, after the commit. If it fails, or its process ends in between, periodic maintenance does
the same: nothing is lost, it only takes longer.
"""

import logging
from collections.abc import Sequence
from typing import TypeVar

from holdfast.hosts.execution.child_results import RunEndDelivery
from holdfast.hosts.execution.topic_delivery import deliver_topics
from holdfast.hosts.execution.trigger_firer import TriggerFirer
from holdfast.hosts.wiring.services import CLOCK_AGE_MAX, Core
from holdfast.kernel.commands import Command, FollowUp, RunRemoved, follow_up_of
from holdfast.ports.errors import CommandError, HoldfastError
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

R = TypeVar("R")


_log = logging.getLogger("holdfast.engine")


@frozen
class CarriedOut:
    """What was done after replies."""

    admitted: int = 0
    """How many runs and jobs were admitted."""
    wakes_at: tuple[Micros, ...] = ()
    """When jobs wake that wait under rate limits, for a caller that can wake them. Maintenance may do it too late."""
    delivered: int = 0
    """How many ends of runs were delivered."""


class Dispatcher:
    """Dispatches commands for one host. Synchronous; safe from any thread."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._run_ends = RunEndDelivery(core.inputs, core.payloads)

    def dispatch(self, command: Command[R]) -> R:
        """Dispatch a command, and carry out what follows. Raises what `Kernel.dispatch` raises."""
        self.core.trust_clock(CLOCK_AGE_MAX)
        reply = self._send(command)
        self.follow_up(reply)
        return reply

    def _send(self, command: Command[R]) -> R:
        return self.core.kernel.dispatch(command)

    def dispatch_all(self, commands: Sequence[Command[R]]) -> list[R]:
        """Dispatch commands as `dispatch_many` does. Raises the first refusal."""
        replies: list[R] = []
        refused: list[CommandError] = []
        for answer in self.dispatch_many(commands):
            if isinstance(answer, CommandError):
                refused.append(answer)
            else:
                replies.append(answer)
        if refused:
            raise refused[0]
        return replies

    def dispatch_many(self, commands: Sequence[Command[R]]) -> list[R | CommandError]:
        """Dispatch commands as `Kernel.dispatch_many` does, and carry out what follows. Return replies and refusals."""
        self.core.trust_clock(CLOCK_AGE_MAX)
        answers = self.core.kernel.dispatch_many(commands)
        self.follow_up(*answers)
        return answers

    def dispatch_together(self, commands: Sequence[Command[R]]) -> list[R]:
        """Dispatch commands as `Kernel.dispatch_together` does, all or none, and carry out what follows."""
        self.core.trust_clock(CLOCK_AGE_MAX)
        replies = self.core.kernel.dispatch_together(commands)
        self.follow_up(*replies)
        return replies

    def follow_up(self, *replies: object) -> CarriedOut:
        """Carry out what follows from replies: admissions, results of child runs, blobs of removed runs.

        A failure is logged only: the commands are committed, and maintenance does the same.
        """
        done = CarriedOut()
        try:
            done = self.carry_out(follow_up_of(replies))
        except HoldfastError as error:
            _log.warning("maintenance must complete a command: %s", error)
        for reply in replies:
            if isinstance(reply, RunRemoved):
                self._forget(reply)
        return done

    def carry_out(self, follow_up: FollowUp) -> CarriedOut:
        """Admit the runs and jobs of a follow-up, deliver results and messages. Raises errors of the store."""
        admitted, wakes_at = self.core.kernel.admit(self.core.namespace, follow_up)
        delivered = self.deliver_child_results() if follow_up.deliveries else 0
        for topic in follow_up.topics:
            self._deliver_topic(topic)
        return CarriedOut(admitted, wakes_at, delivered)

    def _deliver_topic(self, topic: str) -> None:
        """Deliver the messages of a topic, and start the runs of its triggers."""
        limit = self.core.topic_deliveries
        deliver_topics(self.core.kernel, self.core.namespace, (topic,), limit=limit)
        TriggerFirer(self.core).fire((topic,))

    def deliver_child_results(self) -> int:
        """Deliver the ends of runs to parent and child runs. Return how many were delivered."""
        return self._run_ends.deliver_all(self.core.kernel)

    def _forget(self, removed: RunRemoved) -> None:
        core = self.core
        try:
            core.payloads.delete_blobs(core.namespace, removed.runs, removed.inputs)
        except Exception as error:  # noqa: BLE001  # whatever a blob store raises: the run is removed
            _log.warning("blobs of removed runs %s could not be deleted: %s", ", ".join(removed.runs), error)
