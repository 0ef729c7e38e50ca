"""The workloads that the command line simulates, by name."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, TypeAlias

from holdfast.testing.simulation.gathering_workload import draw_gathering
from holdfast.testing.simulation.last_step_workload import draw_last_steps
from holdfast.testing.simulation.limit_workload import draw_changed_limits
from holdfast.testing.simulation.message_workload import draw_messages
from holdfast.testing.simulation.scenarios import Scenario, Sizes
from holdfast.testing.simulation.schedule_workload import draw_schedules
from holdfast.testing.simulation.topic_workload import draw_topics
from holdfast.testing.simulation.update_workload import draw_updates
from holdfast.testing.simulation.workload import draw_workload

Make: TypeAlias = Callable[[Random], tuple[Scenario, Sizes]]

RUNS: Final = "runs"
SCHEDULES: Final = "schedules"
GATHERING: Final = "gathering"
LIMITS: Final = "limits"
MESSAGES: Final = "messages"
TOPICS: Final = "topics"
UPDATES: Final = "updates"
LAST_STEPS: Final = "last_steps"
WORKLOADS: Final[Mapping[str, Make]] = {
    RUNS: draw_workload,
    SCHEDULES: draw_schedules,
    GATHERING: draw_gathering,
    LIMITS: draw_changed_limits,
    MESSAGES: draw_messages,
    TOPICS: draw_topics,
    UPDATES: draw_updates,
    LAST_STEPS: draw_last_steps,
}


def has_faultless_phase(workload: str) -> bool:
    """Whether a workload can be simulated without faults: downtimes, which lose attempts, are a part of schedules."""
    return workload != SCHEDULES
