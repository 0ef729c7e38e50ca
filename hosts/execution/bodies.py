"""Attempts ready to run: they call user functions with their input and turn results and errors into outcomes."""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.hosts.execution.attempt_runtime import AttemptParts, AttemptRuntime, Origin
from holdfast.hosts.execution.child_results import RunEndDelivery
from holdfast.hosts.execution.failures import MESSAGE_MAX, failure_of, timeout_failure, total_failure
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.execution.last_steps import LastSteps
from holdfast.hosts.execution.output_buffer import OutputBuffer
from holdfast.hosts.execution.step_policies import StepPolicies
from holdfast.hosts.execution.trigger_firer import TriggerFirer
from holdfast.hosts.text import printable
from holdfast.hosts.wiring.history_watch import RunListeners
from holdfast.hosts.wiring.input_loader import NOTHING_PRELOADED, LoadedAttempt, Preloaded
from holdfast.hosts.wiring.interceptors import (
    BodyCall,
    BodyInterceptor,
    FunctionInterceptor,
    around_bodies,
    around_functions,
    attributes_of,
)
from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.start_calls import (
    StartInterceptor,
    StartRefusedError,
    around_starts,
    options_of_child,
)
from holdfast.kernel.authoring.body_types import Shape
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.external import CANCEL_RETRY, ExternalStage, NotReady, Suspended
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import Condition
from holdfast.kernel.authoring.scheduled_runs import scheduled_from
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    Cancelled,
    ChildRunStarted,
    Completed,
    ConditionEvaluated,
    Failed,
    Failure,
    JobSettle,
    MapExpanded,
    Outcome,
    PollNotReady,
    QueuedStepCompleted,
    StageSuspended,
)
from holdfast.kernel.dispatch.command_bounds import ID_MAX
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.pipelines.headers import headers_of, joined_headers
from holdfast.kernel.pipelines.input_attributes import attributes_in, joined_attributes
from holdfast.kernel.pipelines.plan import ChildPlan, StagePlan, stage_of
from holdfast.kernel.values import encode
from holdfast.kernel.values.codec import class_name, json_name
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.actors import Actor
from holdfast.ports.clock import Clock, instant, micros
from holdfast.ports.errors import InvalidValueError, UnreadableInputError
from holdfast.ports.json import compact, parse
from holdfast.ports.persistence import Persistence
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.records.job import JobKind, job_key, limit_of_attempts, remote_stage_of
from holdfast.ports.records.run import GivenOptions, Run, attribute_texts
from holdfast.ports.records.values import Micros
from holdfast.ports.references import located, reference_from
from holdfast.ports.structs import frozen

_log = logging.getLogger("holdfast.worker")

_NEVER_BLOCKING: Final = (JobKind.CANCEL, JobKind.WORKFLOW)
"""Kinds of jobs whose unreadable input does not block the run here.

After a cancellation the run may have ended; durable functions are blocked by their driver.
"""

_UNRECORDED: Final = {JobKind.POLL: "the check", JobKind.CANCEL: "the attempt to cancel external work"}
"""Kinds of jobs whose failed attempts leave no history row, with their names in the log."""

INTERCEPTOR_FAILED: Final = "interceptor_failed"
"""The code of the failure that blocks a run whose interceptor raised before a function or a child run."""

External: TypeAlias = ExternalStage[Any, Any, Any, Any]


@frozen
class BodyResult:
    """The result of a body."""

    outcome: Outcome | None
    """The outcome; None if a value must be stored first."""
    text: str = ""
    """The JSON text of the value to store."""
    suspended: Suspended[object, object] | None = None
    """How an external stage was suspended; None if it was not. Then the value is its state."""


@frozen
class Parts:
    """The dependencies of a driver of durable functions."""

    kernel: Kernel
    persistence: Persistence
    clock: Clock
    trusted_now: Callable[[], Micros]
    """Returns the time; reads it from the store if the clock is not trusted. Blocks: not on an event loop."""
    run_notifier: RunListeners = attrs.field(factory=RunListeners)
    """Notifies drivers of new history rows."""
    park_after: Micros = 1_000_000
    """Microseconds. A function that waits for longer leaves its slot: it is kept in the `cache`, or evicted."""
    drive_for: Micros | None = None
    """Microseconds after which nothing more is started for a function: its job is released. None: no limit."""
    is_leaving: Callable[[], bool] = lambda: False
    """Whether the host is shutting down, so that nothing more may be started here."""
    cache: FunctionCache = attrs.field(factory=FunctionCache)
    """Keeps waiting functions in memory."""
    last_steps: LastSteps = attrs.field(factory=LastSteps)
    """Knows which steps are the last ones of their functions."""
    step: Callable[[Step[..., Any]], Step[..., Any]] = lambda step: step
    """Replaces steps, for tests that stub them."""
    retry: Retry | None = None
    """The engine's default retry policy."""
    fire_triggers: Callable[[Collection[str]], object] = lambda _: None
    """Starts the runs of messages of these topics, which were delivered."""
    deliver_results: Callable[[], object] = lambda: None
    """Delivers the replies to updates of other runs that were recorded."""


@frozen(kw_only=True)
class Body:
    """One attempt, ready to run."""

    work: LoadedAttempt
    stage: Stage[Any, object]
    test: Condition | None
    """The condition to call, if the attempt chooses a branch."""
    runtime: AttemptRuntime
    payloads: Payloads
    place: BlobOwner
    started_at: Micros
    host: str
    parts: Parts
    interceptors: tuple[BodyInterceptor, ...] = ()
    around_function: tuple[FunctionInterceptor, ...] = ()
    around_starts: tuple[StartInterceptor, ...] = ()
    ends_at: Micros | None = None
    """When the process that runs it must be done, because it may end soon after. None: no limit."""
    read_at: float | None = None
    """A reading of the monotonic clock before its run was read, if it was read for this attempt."""

    @property
    def attempt(self) -> Attempt:
        """The attempt."""
        return self.work.attempt

    @property
    def node(self) -> str:
        """The name of its stage; for a queued step, that of the durable function that called it."""
        return node_of(self.work)

    @property
    def has_no_user_code(self) -> bool:
        """Whether there is no user code to call, only `done`."""
        return self.attempt.kind in {JobKind.EXPAND_MAP, JobKind.CHILD}

    @property
    def is_async(self) -> bool:
        """Whether calling the function returns an awaitable."""
        if self.test is not None:
            return False
        if self.attempt.kind is JobKind.STEP:
            return True
        if self._cancelled is not None:
            return self._cancelled.is_cancel_async
        return self.stage.is_async if self._checked is None else self._checked.is_check_async

    @property
    def _checked(self) -> External | None:
        """The external stage that a poll job checks."""
        return _external(self.stage) if self.attempt.kind is JobKind.POLL else None

    @property
    def _cancelled(self) -> External | None:
        """The external stage whose work a cancel job cancels."""
        return _external(self.stage) if self.attempt.kind is JobKind.CANCEL else None

    @property
    def timeout(self) -> float | None:
        """How many seconds the body may take; None for no limit."""
        until = self._until
        return None if until is None else max(0.0, (until - self.started_at) / 1_000_000)

    @property
    def lacks_time(self) -> bool:
        """Whether the process that runs it ends before the timeout of one attempt of its stage."""
        timeout = self._timeout_us
        return timeout is not None and self.ends_at is not None and self.started_at + timeout > self.ends_at

    @property
    def is_out_of_time(self) -> bool:
        """Whether the total timeout for all attempts passed before this one could start."""
        until = self.attempt.total_until
        return until is not None and self.started_at >= until

    @property
    def _until(self) -> Micros | None:
        """When the attempt must end: its own timeout, the total timeout, or the end of the process."""
        timeout = self._timeout_us
        own = None if timeout is None else self.started_at + timeout
        ends = (own, self.attempt.total_until, self.ends_at)
        return min((end for end in ends if end is not None), default=None)

    @property
    def _timeout_us(self) -> Micros | None:
        if self.attempt.kind is JobKind.STEP:
            return None if self.stage.timeout is None else self.stage.timeout // timedelta(microseconds=1)
        plan = self._plan
        if self.attempt.kind is JobKind.CANCEL and plan.cancel:
            return plan.cancel.timeout_us
        return plan.check.timeout_us if self.attempt.kind is JobKind.POLL and plan.check else plan.timeout_us

    @property
    def _plan(self) -> StagePlan:
        return stage_of(self.work.plan.node(self.attempt.node))

    @property
    def call(self) -> BodyCall:
        """The description of the attempt that interceptors receive."""
        attempt, run = self.attempt, self.work.run
        return BodyCall(
            namespace=run.namespace,
            job=attempt.job,
            run_id=run.id,
            workflow=run.workflow,
            version=run.version,
            stage=self.node,
            item=attempt.item,
            attempt=attempt.attempt,
            max_attempts=limit_of_attempts(attempt.max_attempts + attempt.lost_attempts),
            epoch=attempt.epoch,
            queue=attempt.queue,
            idempotency_key=idempotency_key(attempt),
            attributes=attributes_of(run.attributes),
            headers=headers_of(run.headers),
        )

    def invoked(self) -> object:
        """Call the function of the attempt; return its result, which may be awaitable. Raises its errors."""
        return self._function(*self.arguments())

    def arguments(self) -> tuple[object, ...]:
        """Return the arguments of the function. UnreadableInputError if the input does not have their types."""
        if self.work.error is not None:
            raise self.work.error
        stage = self.stage
        if self.test is not None:
            return (self._read(self.test.input_type, "the input of the condition of"),)
        if self._checked is not None:
            state = self._read(self._checked.state_type, "the external work of stage")
            return self._checked.check_arguments(state, self._context())
        if self._cancelled is not None:
            state = self._read(self._cancelled.state_type, "the external work of stage")
            return self._cancelled.cancel_arguments(state, self._context())
        value = self._read(stage.input_type, "the input of stage") if stage.shape.values else None
        return stage.arguments(value, self._context())

    def check_input(self) -> None:
        """Decode the input without calling the function. UnreadableInputError."""
        if self.attempt.kind is JobKind.STEP:
            self._read(self.stage.input_type, "the arguments of step", self.stage.name)
        elif self.attempt.kind is JobKind.CHILD:
            self._started()
        elif not self.has_no_user_code:
            self.arguments()

    def _read(self, form: object, what: str, name: str | None = None) -> object:
        """Decode the input of the attempt as type `form`; errors name it as `what`. UnreadableInputError."""
        if self.work.error is not None:
            raise self.work.error
        attempt = self.attempt
        reference = located("", reference_from(attempt.input))[1]
        item = "" if attempt.item is None else f", item {attempt.item}"
        row = reference if isinstance(reference, int) else None
        return decode_recorded(self.work.input, form, f"{what} {name or attempt.node!r}{item}", row)

    @property
    def step_policies(self) -> StepPolicies:
        """The retry policies of the steps of a durable function's run."""
        plan = self.work.plan
        steps = None if plan.function is None else stage_of(plan.node(plan.function)).steps
        return StepPolicies(steps, self.parts.retry)

    @property
    def _function(self) -> Callable[..., object]:
        if self.test is not None:
            return self.test.function
        if self._checked is not None and self._checked.check_body is not None:
            return self._checked.check_body
        if self._cancelled is not None and self._cancelled.cancel_body is not None:
            return self._cancelled.cancel_body
        return self.stage.body

    def done(self) -> Outcome:
        """Return the outcome of an attempt that calls no function: the items of a map, or the start of a child run."""
        try:
            if self.work.error is not None:
                raise self.work.error
            return self._expanded() if self.attempt.kind is JobKind.EXPAND_MAP else self._started()
        except Exception as error:  # noqa: BLE001  # any error is the failure of this attempt
            return self.failed(error)

    def _expanded(self) -> Outcome:
        data: object = parse(self.work.input)
        if not isinstance(data, list):
            raise InvalidValueError(
                f"the items of map {self.attempt.node!r}", (f"$: expected list, got {json_name(data)}",)
            )
        items = (compact(item) for item in cast("list[object]", data))
        return MapExpanded(items=tuple(self.payloads.put(item, self.place) for item in items))

    def _started(self) -> Outcome:
        child = self._plan.child
        assert child is not None
        text = self._child_input(child)
        taken = attributes_in(text, child.attributes_from or (), child.workflow)
        given = None if child.attributes is None else attribute_texts(child.attributes)
        run, run_id = self.work.run, child_id(self.work.run, _where(self.attempt))
        options = GivenOptions(
            attributes=joined_attributes(run.attributes, taken, given),
            headers=joined_headers(run.headers, child.headers),
            deadline=child.deadline_us,
            weight=child.weight,
        )
        if self.around_starts:
            options = options_of_child(
                self.around_starts,
                run,
                options,
                run_id=run_id,
                workflow=child.workflow,
                version=child.version,
            )
        return ChildRunStarted(
            run_id=run_id,
            workflow=child.workflow,
            version=child.version,
            # Stored under a key of its own: the blob belongs to the child, and is removed with it.
            input=self.payloads.put(text, attrs.evolve(self.place, run=self.attempt.job.replace(".", "-"))),
            close_policy=child.close_policy,
            options=options,
        )

    def _child_input(self, child: ChildPlan) -> str:
        """Return the input of a child run, completed with the current defaults of its function."""
        text = _child_input(child, self.work.input)
        stage = self.stage
        if child.parameters is None or not isinstance(stage, ChildStage):
            return text
        workflow = stage.workflow
        what = f"the input of stage {self.attempt.node!r}"
        return workflow.input_text(decode_recorded(text, workflow.input_type, what))

    def encoded_result(self, value: object) -> BodyResult:
        """Encode what the function returned. Raises whatever a user's class raises when it is encoded."""
        if self.test is not None:
            if not isinstance(value, bool):
                raise InvalidValueError(
                    f"the result of the condition of stage {self.attempt.node!r}",
                    (f"$: expected bool, got {class_name(value)}",),
                )
            return BodyResult(ConditionEvaluated(passed=value))
        if self.attempt.kind is JobKind.CANCEL:
            return BodyResult(Cancelled())
        if isinstance(value, NotReady) and self.attempt.kind is JobKind.POLL:
            return BodyResult(PollNotReady(check_after=_micros(value.check_after)))
        external = _external(self.stage)
        if external is not None and self.attempt.kind is JobKind.STAGE:
            return self._external_result(external, value)
        return BodyResult(None, encode(value, self.stage.output_type))

    def _external_result(self, stage: External, value: object) -> BodyResult:
        if not isinstance(value, Suspended):
            problem = f"$: expected suspend(...) or completed(...), got {class_name(value)}"
            raise InvalidValueError(f"the output of stage {stage.name!r}", (problem,))
        suspended = cast("Suspended[object, object]", value)
        if suspended.is_finished:
            return BodyResult(None, encode(suspended.value, stage.output_type))
        return BodyResult(None, encode(suspended.state, stage.state_type), suspended)

    def stored(self, result: BodyResult) -> Outcome:
        """Return the outcome for a result; stores the value as a blob if it is large."""
        if result.outcome is not None:
            return result.outcome
        payload = self.payloads.put(result.text, self.place)
        suspended = result.suspended
        if suspended is None:
            return Completed(output=payload)
        return StageSuspended(
            state=payload,
            check_after=_micros(suspended.check_after) or 1,
            give_up_at=None if suspended.give_up_at is None else micros(suspended.give_up_at),
            key=suspended.key or idempotency_key(self.attempt),
        )

    def failed(self, error: BaseException) -> Outcome:
        """Return the outcome of a body that raised `error`."""
        if isinstance(error, StartRefusedError):
            return Blocked(
                failure=Failure(code=INTERCEPTOR_FAILED, message=printable(str(error))[:MESSAGE_MAX])
            )
        if isinstance(error, UnreadableInputError) and self.attempt.kind not in _NEVER_BLOCKING:
            run = self.work.run
            _log.warning("run %s of %s is blocked: %s", run.id, run.workflow, error)
            return Blocked(failure=Failure(code=error.code, message=printable(str(error))[:MESSAGE_MAX]))
        stage = self.stage
        if self._checked is not None and self._checked.check_retry is not None:
            stage = attrs.evolve(stage, retry=self._checked.check_retry)
        if self._cancelled is not None:
            stage = attrs.evolve(stage, retry=self._cancelled.cancel_retry or CANCEL_RETRY)
        return self._failed(failure_of(error, stage, self._plan))

    def _failed(self, failure: Failure) -> Outcome:
        what = _UNRECORDED.get(self.attempt.kind)
        if what is not None and failure.retryable:
            # Checks that fail for days would fill the history: they leave no row.
            self.runtime.log(f"{what} failed: {failure.type}: {failure.message}", {})
        return Failed(failure=failure)

    def timed_out(self) -> Outcome:
        """Return the outcome of a body that exceeded its time."""
        attempt = self.attempt
        if attempt.total_until is not None and self._until == attempt.total_until:
            return Failed(failure=self._total_failure(attempt.attempt, started=True))
        cut = self.ends_at is not None and self._until == self.ends_at
        return self._failed(timeout_failure(self.timeout or 0, self.stage, self._plan, cut=cut))

    def out_of_time(self) -> Outcome:
        """Return the outcome of an attempt that may not start any more."""
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
            outputs=(*self.runtime.take_all(), *self.runtime.artifact_outputs),
            # Events of a failed attempt are dropped: they announce work that was not done.
            events=self.runtime.published if isinstance(outcome, Completed | QueuedStepCompleted) else (),
            received=self.runtime.received,
        )

    def _context(self) -> StageContext[Any] | None:
        if not self._shape.takes_context:
            return None
        attempt, plan = self.attempt, self._plan
        # Cancelling external work is not bound by the deadline of the run.
        ends = (self._until, None if attempt.kind is JobKind.CANCEL else self.work.run.deadline)
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
            headers=headers_of(self.work.run.headers),
            scheduled=scheduled_from(self.work.run.scheduled),
            runtime=self.runtime,
        )

    @property
    def _shape(self) -> Shape:
        shape = self.stage.shape
        if self._checked is not None:
            shape = self._checked.check_shape or shape
        if self._cancelled is not None:
            shape = self._cancelled.cancel_shape or shape
        return shape


Substitute: TypeAlias = Callable[[Body], Body]
"""Replaces bodies, for tests that stub them."""
Driving: TypeAlias = Callable[[Parts], Parts]
"""Changes how durable functions are driven."""


def unchanged(body: Body) -> Body:
    """Return a body as it is: the substitute of every real process."""
    return body


class Bodies:
    """Prepares the bodies of attempts."""

    def __init__(
        self, core: Core, *, substitute: Substitute = unchanged, driving: Driving = lambda parts: parts
    ) -> None:
        self._core = core
        self._substitute = substitute
        self._driving = driving
        self._interceptors = around_bodies(core.interceptors)
        self._around_functions = around_functions(core.interceptors)
        self._around_starts = around_starts(core.interceptors)
        self._parts: Parts | None = None
        renew_in_forks(self)

    def renew(self) -> None:
        """Start anew in a forked child, where no function of the parent runs."""
        self._parts = None

    @property
    def parts(self) -> Parts:
        """What functions are driven with here."""
        if self._parts is None:
            core = self._core
            self._parts = self._driving(
                Parts(
                    core.kernel,
                    core.stores.persistence,
                    core.clock,
                    core.trusted_now,
                    core.run_notifier,
                    retry=core.registry.retry,
                    fire_triggers=TriggerFirer(core).try_to_fire,
                    deliver_results=partial(
                        RunEndDelivery(core.inputs, core.payloads).try_to_deliver_all, core.kernel
                    ),
                )
            )
        return self._parts

    def prepare(
        self, attempts: Sequence[Attempt], known: Preloaded = NOTHING_PRELOADED
    ) -> tuple[list[Body], list[Attempt]]:
        """Return the bodies of attempts, and the attempts for which this process has no code.

        Reads runs and inputs from the store unless they are in `known`.
        """
        stages = {attempt.job: self._stage(attempt) for attempt in attempts}
        ours = [attempt for attempt in attempts if stages[attempt.job] is not None]
        bodies: list[Body] = []
        now = self._core.clock.monotonic()
        for work in self._core.inputs.load(
            ours, lambda attempt: _takes_input(attempt, stages[attempt.job]), known
        ):
            stage = stages[work.attempt.job]
            assert stage is not None
            read_at = None if work.run.key in known.runs else now
            bodies.append(self._substitute(self._body(work, stage, read_at)))
        return bodies, [attempt for attempt in attempts if stages[attempt.job] is None]

    def _stage(self, attempt: Attempt) -> Stage[Any, object] | None:
        """Return the stage of an attempt if this process has its code. A cancel body may be missing in older code."""
        if attempt.kind is JobKind.STEP:
            return self._core.registry.step(attempt.definition)
        if (
            remote_stage_of(attempt.definition) is not None
        ):  # only tests claim it, to take the place of remote workers
            return self._core.registry.remote_stages.get(attempt.definition)
        stage = self._core.registry.stage(attempt.definition, attempt.node)
        if stage is None or attempt.kind is not JobKind.CANCEL:
            return stage
        external = _external(stage)
        return None if external is None or external.cancel_body is None else stage

    def _body(self, work: LoadedAttempt, stage: Stage[Any, object], read_at: float | None) -> Body:
        run, attempt, node = work.run, work.attempt, node_of(work)
        # Queued steps of a function have epochs of their own, each from 1: the job number keeps their keys apart.
        where = node if attempt.kind is not JobKind.STEP else f"{node}-{job_key(attempt.job).number}"
        place = BlobOwner(namespace=run.namespace, run=run.key, stage=where, epoch=attempt.epoch)
        is_of_function = attempt.kind in {JobKind.WORKFLOW, JobKind.STEP}
        actor = _actor(run.workflow, "" if is_of_function else node, run.version)
        runtime = AttemptRuntime(
            Origin(run=run.key, stage=node, item=attempt.item, attempt=attempt.attempt, actor=actor),
            AttemptParts(
                kept=run.inherited,
                job=job_key(attempt.job),
                place=place,
                persistence=self._core.stores.persistence,
                inputs=self._core.inputs,
                payloads=self._core.payloads,
                clock=self._core.clock,
                ai=self._core.ai,
            ),
            OutputBuffer(),
        )
        is_test = attempt.kind is JobKind.CONDITION
        return Body(
            work=work,
            stage=stage,
            test=self._core.registry.condition(attempt.definition, attempt.node) if is_test else None,
            runtime=runtime,
            payloads=self._core.payloads,
            place=place,
            started_at=micros(self._core.clock.now()),
            host=self._core.host,
            parts=self.parts,
            interceptors=self._interceptors,
            around_function=self._around_functions,
            around_starts=self._around_starts,
            read_at=read_at,
        )


@lru_cache
def _actor(workflow: str, stage: str, version: str) -> Actor:
    """Return the author of a body's annotations: a stage, or without one a durable function."""
    kind, author = ("stage", f"{workflow}/{stage}") if stage else ("workflow", workflow)
    return Actor(kind=kind, id=author, version=version)


def node_of(work: LoadedAttempt) -> str:
    """Return the stage of an attempt; for a queued step, that of the durable function that called it."""
    attempt = work.attempt
    return work.plan.function or "" if attempt.kind is JobKind.STEP else attempt.node


def _child_input(child: ChildPlan, text: str) -> str:
    """Return the JSON text of a child's input, made from the JSON text of its stage's input."""
    names = child.parameters
    if names is None:
        return text
    value = parse(text)
    values = cast("list[object]", value) if len(names) > 1 else [value]
    return compact(dict(zip(names, values, strict=False)))


def _external(stage: Stage[Any, object]) -> External | None:
    if not isinstance(stage, ExternalStage):
        return None
    external: External = cast("Any", stage)
    return external


def _takes_input(attempt: Attempt, stage: Stage[Any, object] | None) -> bool:
    return attempt.kind is not JobKind.STAGE or (stage is not None and stage.shape.values > 0)


def idempotency_key(attempt: Attempt) -> str:
    """Return the idempotency key, which is the same for every attempt of a stage or map item of a run."""
    key = f"{attempt.run}/{attempt.node}"
    return key if attempt.item is None else f"{key}/{attempt.item}"


def _where(attempt: Attempt) -> str:
    return attempt.node if attempt.item is None else f"{attempt.node}/{attempt.item}"


def child_id(run: Run, where: str) -> str:
    """Return the id of a child run, which is the same for every attempt.

    `where` is the stage, map item or call of the parent that starts it.
    """
    parent = run.id if run.generation == 1 else f"{run.id}~{run.generation}"
    named = f"{parent}/{where}"
    return named if len(named) <= ID_MAX else f"{run.key}/{where}"


def _micros(time: timedelta | None) -> Micros | None:
    return None if time is None else max(1, time // timedelta(microseconds=1))
