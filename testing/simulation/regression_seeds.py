"""Regression seeds: seeds that once found a bug. They are simulated before all others."""

from collections.abc import Mapping
from typing import Final

REGRESSION_SEEDS: Final[Mapping[int, str]] = {
    4: "a host's clock was ahead of the store's where the question for its time was slow on its way",
    113: "a run with overrides followed a plan without tests: `when` always did its first stage",
    129: "a paused function, one step under way and another due, kept its worker busy",
    218: "what a child gave was refused by the store when its parent was to get it, and was tried for ever",
    345: "a host with a clock that was behind set a run back in time, and a sink never got its events",
    365: "a host with a clock that ran too fast woke sleepers before their time",
    1030070: "the end of a child came when its parent's function was over, and the worker that told it stopped",
    454408: "a function whose result the store refused failed, and took back nothing of what it had done",
    451448: "a host whose store had been slow to say what time it was had a function sleep too short",
    451870: "a host that had stood still had a function sleep too short",
    10758: "a function whose beginning was kept by a fork began with messages that had come since",
    10266: "the rule of losses took what a fork had kept of a step's tries for tries that had never begun",
    4005060: "a try that was lost was not counted by a host with a clock that was behind, and begun again",
}
"""The bug that each seed found, in the workload of that day. A seed draws other things when the workload changes."""
