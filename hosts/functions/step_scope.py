"""The scope of one attempt of a step: its context and the services behind that, created at their first use."""

import threading
from collections.abc import Mapping
from typing import Final

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.bodies import Body, node_of
from holdfast.hosts.functions.pending_calls import StepAttempt
from holdfast.hosts.functions.step_heartbeats import StepHeartbeat
from holdfast.kernel.authoring.attempt_context import Level
from holdfast.kernel.authoring.step_context import StepContext
from holdfast.kernel.commands import AttemptOutput, PublishedEvent
from holdfast.kernel.pipelines.headers import headers_of
from holdfast.ports.clock import instant
from holdfast.ports.records.values import Micros

_creation: Final = threading.Lock()
"""Held while a scope creates its parts: threads of one body may ask at the same time."""


class StepScope:
    """The scope of an attempt, by default without any parts: a step takes microseconds, and few use them."""

    __slots__ = ("_body", "_context", "_heartbeat", "_runtime", "_until", "one")

    def __init__(
        self, body: Body, one: StepAttempt, until: Micros | None, heartbeat: StepHeartbeat | None
    ) -> None:
        self.one = one
        self._body = body
        self._until = until
        self._heartbeat = heartbeat
        self._runtime: AttemptRuntime | None = None
        self._context: StepContext | None = None

    def context(self) -> StepContext:
        """Return what `step_context()` returns in the body."""
        if self._context is None:
            runtime, run = self._services(), self._body.work.run
            self._context = StepContext(
                run_id=run.id,
                workflow=run.workflow,
                step=self.one.request.step,
                attempt=self.one.number,
                idempotency_key=idempotency_key_of(self._body, self.one),
                deadline=None if self._until is None else instant(self._until),
                headers=headers_of(run.headers),
                runtime=runtime,
            )
        return self._context

    def log(self, message: str, fields: Mapping[str, str | float | bool], /, level: Level = "info") -> None:
        """See `OutputTarget.log`. For records of Python's `logging`."""
        self._services().log(message, fields, level)

    def cancel(self) -> None:
        """Make `cancelled` true in a body that runs on in a thread."""
        if self._runtime is not None:
            self._runtime.cancel()

    @property
    def stored_with_result(self) -> tuple[tuple[PublishedEvent, ...], tuple[AttemptOutput, ...]]:
        """The events and artifacts of the body, which are stored with its result."""
        runtime = self._runtime
        return ((), ()) if runtime is None else (runtime.published, runtime.artifact_outputs)

    def _services(self) -> AttemptRuntime:
        with _creation:
            if self._runtime is None:
                one = self.one
                self._runtime = self._body.runtime.of_step(
                    one.request.step, one.request.call, one.number, self._heartbeat
                )
            return self._runtime


def idempotency_key_of(body: Body, one: StepAttempt) -> str:
    """Return the idempotency key of a step: the same for all attempts of the call, even in a later generation."""
    return f"{one.run or body.work.attempt.run}/{node_of(body.work)}/{one.request.call}"
