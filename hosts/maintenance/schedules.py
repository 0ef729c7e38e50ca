"""Fires the schedules of the workflows that this process has.

Every process with code fires, not only the leader of maintenance: the leader may lack the code of a schedule. Firing
shares the transactions of maintenance, so schedules cost an idle worker no transaction of their own.
"""

import logging
from collections.abc import Sequence
from typing import Final

from holdfast.hosts.text import counted
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import ScheduleFire, ScheduleReplan, SchedulesFired
from holdfast.ports.clock import micros
from holdfast.ports.errors import CommandError, HoldfastError
from holdfast.ports.records.values import Micros

REPLAN_INTERVAL: Final = 3_600.0
"""Seconds between two checks for schedules that were planned with older time zone data, from the start on."""

_log = logging.getLogger("holdfast.maintenance")


class ScheduleFirer:
    """Makes the commands that fire schedules, and remembers when the next one is due. Losing that does no harm."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._next_at: Micros | None = None
        self._replan_at = 0.0

    @property
    def commands(self) -> Sequence[ScheduleFire]:
        """The command that fires what is due; none if this process has no workflow."""
        workflows = tuple(dict.fromkeys(plan.workflow for plan in self._core.registry.plans))
        if not workflows:
            return ()
        return (ScheduleFire(namespace=self._core.namespace, workflows=workflows),)

    @property
    def due_commands(self) -> Sequence[ScheduleFire]:
        """The same, if a schedule that this process knows of is due."""
        if self._next_at is None or micros(self._core.clock.now()) < self._next_at:
            return ()
        return self.commands

    def note(self, replies: Sequence[object]) -> tuple[int, tuple[Micros, ...], bool]:
        """Remember the replies among these to commands that fired.

        Returns:
            How many runs were started, when the next schedule is due, and whether more are due now.
        """
        fired = [reply for reply in replies if isinstance(reply, SchedulesFired)]
        for refused in replies:
            if isinstance(refused, CommandError):
                _log.error("schedules can't fire: %s", refused)
        if not fired:
            return 0, (), False
        next_at = fired[-1].next_at
        # A batch has a limit. What is left of it is due at once, although the next time that was found is a later one.
        self._next_at = 0 if fired[-1].more else next_at
        runs = [run for reply in fired for run in reply.runs]
        if runs:
            _log.info("schedules started %s: %s", counted(len(runs), "run"), ", ".join(runs[:10]))
        if missed := sum(reply.missed for reply in fired):
            _log.warning(
                "schedules missed %s while no worker ran that has their code", counted(missed, "time")
            )
        return len(runs), () if next_at is None else (next_at,), fired[-1].more

    def replan(self) -> None:
        """Once an hour, plan again what was planned with older time zone data than this process has."""
        now = self._core.clock.monotonic()
        if now < self._replan_at:
            return
        self._replan_at = now + REPLAN_INTERVAL
        zones = self._core.adapters.zones
        if zones is None:  # this process plans nothing that depends on time zones
            return
        version = zones.version
        workflows = tuple(dict.fromkeys(plan.workflow for plan in self._core.registry.plans))
        after: str | None = ""
        while after is not None and workflows:
            command = ScheduleReplan(
                namespace=self._core.namespace, workflows=workflows, version=version, after=after
            )
            try:
                reply = self._core.kernel.dispatch(command)
            except HoldfastError as error:
                _log.warning("schedules could not be planned again with tzdata %s: %s", version, error)
                return
            for name in reply.moved:
                _log.warning("tzdata %s moved the next time of the schedule %s", version, name)
            after = reply.next
