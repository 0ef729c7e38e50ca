"""Turns attempts into calls of users' functions, and what these give or raise into outcomes."""

from collections.abc import Sequence
from typing import Any, cast

import attrs

from holdfast.hosts.ai_log import AiSettings
from holdfast.hosts.failures import failure_of, timeout_failure, total_failure
from holdfast.hosts.inputs import NOTHING_KNOWN, Inputs, Known, Work
from holdfast.hosts.interceptors import BodyCall, BodyInterceptor
from holdfast.hosts.payloads import Payloads, Place
from holdfast.hosts.registry import Registry
from holdfast.hosts.runtime import AttemptRuntime, Origin
from holdfast.kernel.authoring.context import StageContext
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.commands import Attempt, Completed, Expanded, Failed, Failure, JobSettle, Outcome
from holdfast.kernel.plan import StagePlan, stage_of
from holdfast.kernel.values import decode, encode
from holdfast.ports.clock import Clock, instant, micros
from holdfast.ports.errors import InvalidValueError
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import Persistence
from holdfast.ports.records import JobKind, Micros, job_key
from holdfast.ports.said import Actor


@attrs.frozen(kw_only=True)
class Body:
    """One attempt, ready to run."""

    work: Work
    stage: Stage[Any, object]
    runtime: AttemptRuntime
    payloads: Payloads
    place: Place
    started_at: Micros
    host: str
    interceptors: tuple[BodyInterceptor, ...] = ()

    @property
    def attempt(self) -> Attempt:
        """The attempt that this is."""
        return self.work.attempt

    @property
    def is_expansion(self) -> bool:
        """Whether there is no user code to call: only `expand`."""
        return self.attempt.kind is JobKind.EXPAND

    @property
    def timeout(self) -> float | None:
        """How many seconds the body may take; None if for ever."""
        until = self._until
        return None if until is None else max(0.0, (until - self.started_at) / 1_000_000)

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time for all attempts was over before this one could begin."""
        until = self.attempt.total_until
        return until is not None and self.started_at >= until

    @property
    def _until(self) -> Micros | None:
        """When the attempt times out: by itself, or because the time for all attempts is over."""
        timeout = self._plan.timeout_us
        ends = (None if timeout is None else self.started_at + timeout, self.attempt.total_until)
        return min((end for end in ends if end is not None), default=None)

    @property
    def _plan(self) -> StagePlan:
        return stage_of(self.work.plan.node(self.attempt.node))

    @property
    def call(self) -> BodyCall:
        """What interceptors are told of it."""
        attempt, run = self.attempt, self.work.run
        return BodyCall(
            namespace=run.namespace,
            run_id=run.id,
            workflow=run.workflow,
            version=run.version,
            stage=attempt.node,
            item=attempt.item,
            attempt=attempt.attempt,
            max_attempts=attempt.max_attempts,
            epoch=attempt.epoch,
            queue=attempt.queue,
            idempotency_key=idempotency_key(attempt),
        )

    def arguments(self) -> tuple[object, ...]:
        """Return what to call the stage's body with. InvalidValueError if the input is not what it takes."""
        if self.work.error is not None:
            raise self.work.error
        value = decode(self.work.input, self.stage.input_type) if self.stage.shape.values else None
        return self.stage.arguments(value, self._context())

    def expand(self) -> Outcome:
        """Return the items that a map goes over."""
        try:
            if self.work.error is not None:
                raise self.work.error
            data: object = parse(self.work.input)
            if not isinstance(data, list):
                raise InvalidValueError(f"what {self.attempt.node!r} goes over", ("$: it is not a list",))
            items = (canonical(item) for item in cast("list[object]", data))
            return Expanded(items=tuple(self.payloads.put(item, self.place) for item in items))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this attempt's failure
            return self.failed(error)

    def encoded(self, value: object) -> str:
        """Return the text of what the body gave. Raises what a user's class likes to, when it is encoded."""
        return encode(value, self.stage.output_type)

    def completed(self, text: str) -> Outcome:
        """Return the outcome of a body that gave a value of this text. Stores it if it is large."""
        return Completed(output=self.payloads.put(text, self.place))

    def failed(self, error: BaseException) -> Outcome:
        """Return the outcome of a body that raised `error`."""
        return Failed(failure=failure_of(error, self.stage, self._plan))

    def timed_out(self) -> Outcome:
        """Return the outcome of a body that took too long."""
        attempt = self.attempt
        if attempt.total_until is not None and self._until == attempt.total_until:
            return Failed(failure=self._total_failure(attempt.attempt, started=True))
        return Failed(failure=timeout_failure(self.timeout or 0, self.stage, self._plan))

    def out_of_time(self) -> Outcome:
        """Return the outcome of an attempt that may not begin any more."""
        return Failed(failure=self._total_failure(self.attempt.attempt - 1, started=False))

    def _total_failure(self, attempts: int, *, started: bool) -> Failure:
        return total_failure(attempts, self._plan.timeout_total_us or 0, started=started)

    def settle(self, outcome: Outcome) -> JobSettle:
        """Return the command that ends this attempt."""
        return JobSettle(
            namespace=self.work.run.namespace,
            job=self.attempt.job,
            epoch=self.attempt.epoch,
            outcome=outcome,
            started_at=self.started_at,
            host=self.host,
            said=self.runtime.take_said(at_end=True),
            # Those of a failed attempt are dropped: what it was about to do has not happened.
            events=self.runtime.published if isinstance(outcome, Completed) else (),
        )

    def _context(self) -> StageContext[Any] | None:
        if not self.stage.shape.takes_context:
            return None
        attempt, plan = self.attempt, self._plan
        ends = (self._until, self.work.run.deadline)
        until = min((end for end in ends if end is not None), default=None)
        return StageContext(
            run_id=self.work.run.id,
            workflow=self.work.run.workflow,
            stage=attempt.node,
            item=attempt.item,
            attempt=attempt.attempt,
            epoch=attempt.epoch,
            idempotency_key=idempotency_key(attempt),
            deadline=None if until is None else instant(until),
            config=self.stage.read_config(plan.config),
            runtime=self.runtime,
        )


class Bodies:
    """Makes bodies of attempts."""

    def __init__(
        self,
        *,
        registry: Registry,
        persistence: Persistence,
        inputs: Inputs,
        payloads: Payloads,
        clock: Clock,
        host: str,
        interceptors: tuple[BodyInterceptor, ...] = (),
        ai: AiSettings,
    ) -> None:
        self._ai = ai
        self._registry = registry
        self._persistence = persistence
        self._inputs = inputs
        self._payloads = payloads
        self._clock = clock
        self._host = host
        self._interceptors = interceptors

    def prepare(
        self, attempts: Sequence[Attempt], known: Known = NOTHING_KNOWN
    ) -> tuple[list[Body], list[Attempt]]:
        """Return bodies for attempts, and the attempts for which this process has no code. Reads what is not known."""
        stages = {attempt.job: self._registry.stage(attempt.definition, attempt.node) for attempt in attempts}
        ours = [attempt for attempt in attempts if stages[attempt.job] is not None]
        bodies: list[Body] = []
        for work in self._inputs.load(
            ours, lambda attempt: _takes_input(attempt, stages[attempt.job]), known
        ):
            stage = stages[work.attempt.job]
            assert stage is not None
            bodies.append(self._body(work, stage))
        return bodies, [attempt for attempt in attempts if stages[attempt.job] is None]

    def _body(self, work: Work, stage: Stage[Any, object]) -> Body:
        run, attempt = work.run, work.attempt
        place = Place(namespace=run.namespace, run=run.key, stage=attempt.node, epoch=attempt.epoch)
        actor = Actor(kind="stage", id=f"{run.workflow}/{attempt.node}", version=run.version)
        runtime = AttemptRuntime(
            origin=Origin(
                run=run.key,
                stage=attempt.node,
                item=attempt.item,
                attempt=attempt.attempt,
                actor=actor,
            ),
            kept=run.kept,
            job=job_key(attempt.job),
            place=place,
            persistence=self._persistence,
            inputs=self._inputs,
            payloads=self._payloads,
            clock=self._clock,
            ai=self._ai,
        )
        return Body(
            work=work,
            stage=stage,
            runtime=runtime,
            payloads=self._payloads,
            place=place,
            started_at=micros(self._clock.now()),
            host=self._host,
            interceptors=self._interceptors,
        )


def _takes_input(attempt: Attempt, stage: Stage[Any, object] | None) -> bool:
    return attempt.kind is JobKind.EXPAND or (stage is not None and stage.shape.values > 0)


def idempotency_key(attempt: Attempt) -> str:
    """Return the same text for every attempt of a stage of a run, and of an item of a map."""
    key = f"{attempt.run}/{attempt.node}"
    return key if attempt.item is None else f"{key}/{attempt.item}"
