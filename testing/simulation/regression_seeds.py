"""Regression seeds: seeds that once found a bug. They are simulated before all others."""

from collections.abc import Mapping
from typing import Final

REGRESSION_SEEDS: Final[Mapping[int, str]] = {
    4: "a host's clock was ahead of the store's after a slow request for the store's time",
    113: "a run with overrides followed a plan without conditions: `when` always ran its first stage",
    129: "a paused function with one running and one due step kept its worker busy",
    218: "the store refused the result of a child run for its parent, and the delivery was retried for ever",
    345: "a host with a slow clock moved a run back in time, and a sink never received its events",
    365: "a host with a fast clock woke sleeping jobs too early",
    1030070: "the end of a child arrived after its parent's function had ended, and the delivering worker stopped",
    454408: "a function whose result the store refused failed without its compensations",
    451448: "after a slow request for the store's time, a function slept too short on that host",
    451870: "a function slept too short on a host that had been frozen",
    10758: "a forked function that kept its first turn started with messages that were received later",
    10266: "the check of lost attempts took a step's attempts kept by a fork for attempts that never started",
    4005060: "a host with a slow clock did not count a lost attempt, and started it again",
    30130499: "a worker that was taken for lost began a retry that had become due since, and so did the next worker",
}
"""The bug that each seed found, in the workload of that day. A seed draws other things when the workload changes."""
