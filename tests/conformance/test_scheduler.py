"""Conformance of the wake-up schedulers."""

from collections.abc import Sequence
from datetime import datetime

from typing_extensions import override

from holdfast.ports.scheduler import Scheduler
from holdfast.testing.conformance.scheduler import SchedulerContract
from holdfast.testing.scheduler import MemoryScheduler


class TestMemoryScheduler(SchedulerContract):
    @override
    def make_scheduler(self) -> Scheduler:
        return MemoryScheduler()

    @override
    def sent(self, scheduler: Scheduler, now: datetime, /) -> Sequence[str]:
        assert isinstance(scheduler, MemoryScheduler)
        return [wake_up.command for wake_up in scheduler.due(now)]
