"""What an `AttemptRunner` runs for durable functions: the functions themselves, and the steps of queues."""

from collections.abc import Mapping
from typing import Final

from holdfast.hosts.execution.attempt_runner import BodyRunner
from holdfast.hosts.functions.driver import drive
from holdfast.hosts.functions.step_runner import run_queued
from holdfast.ports.records.job import JobKind

FUNCTION_RUNNERS: Final[Mapping[JobKind, BodyRunner]] = {JobKind.WORKFLOW: drive, JobKind.STEP: run_queued}
