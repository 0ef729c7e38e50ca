"""When a process fires schedules beside its sweeps."""

from holdfast import Engine, workflow
from holdfast.hosts.maintenance.schedules import ScheduleFirer
from holdfast.kernel.commands import SchedulesFired
from holdfast.ports.clock import micros

HOUR = 3_600_000_000


@workflow
async def report() -> None:
    """Do nothing."""


def test_what_is_left_of_a_batch_is_due_at_once() -> None:
    """Of more schedules than one transaction fires, the others do not wait for the next sweep."""
    with Engine.open("memory://", workflows=[report]).sync as engine:
        firer = ScheduleFirer(engine.core)
        later = micros(engine.core.clock.now()) + HOUR
        assert firer.due_commands == ()

        assert firer.note([SchedulesFired(runs=("a",), next_at=later, more=True)]) == (1, (later,), True)
        assert firer.due_commands == firer.commands != ()

        assert firer.note([SchedulesFired(runs=("b",), next_at=later)]) == (1, (later,), False)
        assert firer.due_commands == ()
