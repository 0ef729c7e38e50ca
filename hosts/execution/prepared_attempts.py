"""Turns attempts into calls of users' functions, and what these give or raise into outcomes."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.hosts.execution.ai_call_log import AiSettings
from holdfast.hosts.execution.attempt_runtime import AttemptRuntime, Origin
from holdfast.hosts.execution.failures import MESSAGE_MAX, failure_of, timeout_failure, total_failure
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.execution.history_watch import RunListeners
from holdfast.hosts.wiring.input_loader import NOTHING_KNOWN, Inputs, Known, Work
from holdfast.hosts.wiring.interceptors import BodyCall, BodyInterceptor
from holdfast.hosts.wiring.payloads import Payloads, Place
from holdfast.hosts.wiring.registry import Registry
from holdfast.kernel.authoring.body_types import Shape
from holdfast.kernel.authoring.child_stages import ChildStage
from holdfast.kernel.authoring.external import CANCEL_RETRY, ExternalStage, NotYet, Suspended
from holdfast.kernel.authoring.pipeline_builder import Test
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
)
from holdfast.kernel.commands import NotReady as CheckedNotYet
from holdfast.kernel.commands import Suspended as JobSuspended
from holdfast.kernel.dispatch.command_bounds import ID_MAX
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.pipelines.plan import ChildPlan, StagePlan, stage_of
from holdfast.kernel.values import encode
from holdfast.kernel.values.stored_values import decode_recorded
from holdfast.ports.attempt_output import Actor
from holdfast.ports.clock import Clock, instant, micros
from holdfast.ports.errors import InvalidValueError, UnreadableInputError
from holdfast.ports.json import compact, parse
from holdfast.ports.persistence import Persistence
from holdfast.ports.records import JobKind, Micros, Run, job_key
from holdfast.ports.references import located, reference_from
from holdfast.ports.structs import frozen

_log = logging.getLogger("holdfast.worker")

_NEVER_BLOCKING: Final = (JobKind.CANCEL, JobKind.WORKFLOW)
"""The kinds of jobs that do not block a run by what they are given: it may have ended; or they say so themselves."""

_UNRECORDED: Final = {JobKind.POLL: "the check", JobKind.CANCEL: "the attempt to cancel external work"}
"""What failed attempts are called in the log that leave no row in the history."""

External: TypeAlias = ExternalStage[Any, Any, Any, Any]


@frozen
class BodyResult:
    """What a function gave: an outcome, or the text of a value that is to be stored, and how it was suspended."""

    outcome: Outcome | None
    text: str = ""
    suspended: Suspended[object, object] | None = None


@frozen
class Parts:
    """What a function is driven with: where it is recorded, by which clock, and how it hears that there is news.

    `trusted_now` asks the store what time it is, if the clock can't be trusted: not where an event loop runs.

    A function that waits for longer than `park_after`, in microseconds, rests meanwhile: in the `cache`, or nowhere.
    After `drive_for`, if that is set, or once `is_leaving`, nothing more of it is begun here: somebody else goes on.
    `step` gives what is done in place of a step: for tests, in which something stands for what can't be called.
    """

    kernel: Kernel
    persistence: Persistence
    clock: Clock
    trusted_now: Callable[[], Micros]
    run_notifier: RunListeners = attrs.field(factory=RunListeners)
    park_after: Micros = 1_000_000
    drive_for: Micros | None = None
    is_leaving: Callable[[], bool] = lambda: False
    cache: FunctionCache = attrs.field(factory=FunctionCache)
    step: Callable[[Step[..., Any]], Step[..., Any]] = lambda step: step


@frozen(kw_only=True)
class Body:
    """One attempt, ready to run. `test` is what it calls if it is to decide which node is done.

    `ends_at` is when whoever runs it has to be done with it: soon after, the process may be no more. `read_at` is a
    moment of the clock's `monotonic` before its run was read, if that was read for this attempt.
    """

    work: Work
    stage: Stage[Any, object]
    test: Test | None
    runtime: AttemptRuntime
    payloads: Payloads
    place: Place
    started_at: Micros
    host: str
    parts: "Parts"
    interceptors: tuple[BodyInterceptor, ...] = ()
    ends_at: Micros | None = None
    read_at: float | None = None

    @property
    def attempt(self) -> Attempt:
        """The attempt that this is."""
        return self.work.attempt

    @property
    def node(self) -> str:
        """The stage that it is of; of a step, that of the function which has called it."""
        return node_of(self.work)

    @property
    def is_ours(self) -> bool:
        """Whether there is no user code to call: only `done`."""
        return self.attempt.kind in {JobKind.EXPAND_MAP, JobKind.CHILD}

    @property
    def is_async(self) -> bool:
        """Whether calling the function gives something to await, rather than the result."""
        if self.test is not None:
            return False
        if self.attempt.kind is JobKind.STEP:
            return True
        if self._cancelled is not None:
            return self._cancelled.is_cancel_async
        return self.stage.is_async if self._checked is None else self._checked.is_check_async

    @property
    def _checked(self) -> External | None:
        """The stage whose external work is asked about, if this is a check."""
        return _external(self.stage) if self.attempt.kind is JobKind.POLL else None

    @property
    def _cancelled(self) -> External | None:
        """The stage whose external work is to be cancelled, if this does that."""
        return _external(self.stage) if self.attempt.kind is JobKind.CANCEL else None

    @property
    def timeout(self) -> float | None:
        """How many seconds the body may take; None if for ever."""
        until = self._until
        return None if until is None else max(0.0, (until - self.started_at) / 1_000_000)

    @property
    def lacks_time(self) -> bool:
        """Whether whoever runs it ends before the time that its stage allows one attempt is over."""
        timeout = self._timeout_us
        return timeout is not None and self.ends_at is not None and self.started_at + timeout > self.ends_at

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time for all attempts was over before this one could begin."""
        until = self.attempt.total_until
        return until is not None and self.started_at >= until

    @property
    def _until(self) -> Micros | None:
        """When the attempt times out: by itself, because the time for all is over, or with whoever runs it."""
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
        """What interceptors are told of it."""
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
            max_attempts=attempt.max_attempts + attempt.lost_attempts,
            epoch=attempt.epoch,
            queue=attempt.queue,
            idempotency_key=idempotency_key(attempt),
        )

    def invoked(self) -> object:
        """Call the function that the attempt is about, which may give something to await. Raises what that does."""
        return self._function(*self.arguments())

    def arguments(self) -> tuple[object, ...]:
        """Return what to call the function with. UnreadableInputError if the input is not what it takes."""
        if self.work.error is not None:
            raise self.work.error
        stage = self.stage
        if self.test is not None:
            return (self._read(self.test.takes, "what the test of a stage is given, of"),)
        if self._checked is not None:
            state = self._read(self._checked.state_type, "what was left by stage")
            return self._checked.check_arguments(state, self._context())
        if self._cancelled is not None:
            state = self._read(self._cancelled.state_type, "what was left by stage")
            return self._cancelled.cancel_arguments(state, self._context())
        value = self._read(stage.input_type, "the input of stage") if stage.shape.values else None
        return stage.arguments(value, self._context())

    def check_input(self) -> None:
        """Read what the attempt is given, and call nothing. UnreadableInputError."""
        if self.attempt.kind is JobKind.STEP:
            self._read(self.stage.input_type, "the arguments of step", self.stage.name)
        elif self.attempt.kind is JobKind.CHILD:
            self._started()
        elif not self.is_ours:
            self.arguments()

    def _read(self, form: object, what: str, name: str | None = None) -> object:
        """Return the value that the attempt is given, which is `what`, and of this type."""
        if self.work.error is not None:
            raise self.work.error
        attempt = self.attempt
        reference = located("", reference_from(attempt.input))[1]
        item = "" if attempt.item is None else f", item {attempt.item}"
        row = reference if isinstance(reference, int) else None
        return decode_recorded(self.work.input, form, f"{what} {name or attempt.node!r}{item}", row)

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
        """Return the outcome of an attempt that calls no function: the items of a map, or the start of a child."""
        try:
            if self.work.error is not None:
                raise self.work.error
            return self._expanded() if self.attempt.kind is JobKind.EXPAND_MAP else self._started()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this attempt's failure
            return self.failed(error)

    def _expanded(self) -> Outcome:
        data: object = parse(self.work.input)
        if not isinstance(data, list):
            raise InvalidValueError(f"what {self.attempt.node!r} goes over", ("$: it is not a list",))
        items = (compact(item) for item in cast("list[object]", data))
        return MapExpanded(items=tuple(self.payloads.put(item, self.place) for item in items))

    def _started(self) -> Outcome:
        child = self._plan.child
        assert child is not None
        return ChildRunStarted(
            run_id=child_id(self.work.run, _where(self.attempt)),
            workflow=child.workflow,
            version=child.version,
            # Not in a place of this run's: it is the child's, and goes with that.
            input=self.payloads.put(
                self._child_input(child),
                attrs.evolve(self.place, run=self.attempt.job.replace(".", "-")),
            ),
            close_policy=child.close_policy,
        )

    def _child_input(self, child: ChildPlan) -> str:
        """Return what a child is given of what its stage takes, with the defaults that its function has now."""
        text = _child_input(child, self.work.input)
        stage = self.stage
        if child.parameters is None or not isinstance(stage, ChildStage):
            return text
        workflow = stage.workflow
        what = f"the input of stage {self.attempt.node!r}"
        return workflow.input_text(decode_recorded(text, workflow.input_type, what))

    def encoded_result(self, value: object) -> BodyResult:
        """Return what the function gave, ready to be stored. Raises what a user's class does when it is encoded."""
        if self.test is not None:
            if not isinstance(value, bool):
                raise InvalidValueError(f"what the test of {self.attempt.node!r} said", ("$: it is no bool",))
            return BodyResult(ConditionEvaluated(passed=value))
        if self.attempt.kind is JobKind.CANCEL:
            return BodyResult(Cancelled())
        if isinstance(value, NotYet) and self.attempt.kind is JobKind.POLL:
            return BodyResult(CheckedNotYet(check_after=_micros(value.check_after)))
        external = _external(self.stage)
        if external is not None and self.attempt.kind is JobKind.STAGE:
            return self._external_result(external, value)
        return BodyResult(None, encode(value, self.stage.output_type))

    def _external_result(self, stage: External, value: object) -> BodyResult:
        if not isinstance(value, Suspended):
            problem = f"$: it is {type(value).__name__}, and neither suspend(...) nor finished(...)"
            raise InvalidValueError(f"what {stage.name!r} gave", (problem,))
        suspended = cast("Suspended[object, object]", value)
        if suspended.is_finished:
            return BodyResult(None, encode(suspended.value, stage.output_type))
        return BodyResult(None, encode(suspended.state, stage.state_type), suspended)

    def stored(self, result: BodyResult) -> Outcome:
        """Return the outcome of a body that gave this. Stores it if it is large."""
        if result.outcome is not None:
            return result.outcome
        payload = self.payloads.put(result.text, self.place)
        suspended = result.suspended
        if suspended is None:
            return Completed(output=payload)
        return JobSuspended(
            state=payload,
            check_after=_micros(suspended.check_after) or 1,
            give_up_at=None if suspended.give_up_at is None else micros(suspended.give_up_at),
            key=suspended.key or idempotency_key(self.attempt),
        )

    def failed(self, error: BaseException) -> Outcome:
        """Return the outcome of a body that raised `error`."""
        if isinstance(error, UnreadableInputError) and self.attempt.kind not in _NEVER_BLOCKING:
            run = self.work.run
            _log.warning("run %s of %s is blocked: %s", run.id, run.workflow, error)
            return Blocked(failure=Failure(code=error.code, message=str(error)[:MESSAGE_MAX]))
        stage = self.stage
        if self._checked is not None and self._checked.check_retry is not None:
            stage = attrs.evolve(stage, retry=self._checked.check_retry)
        if self._cancelled is not None:
            stage = attrs.evolve(stage, retry=self._cancelled.cancel_retry or CANCEL_RETRY)
        return self._failed(failure_of(error, stage, self._plan))

    def _failed(self, failure: Failure) -> Outcome:
        what = _UNRECORDED.get(self.attempt.kind)
        if what is not None and failure.retryable:
            # It leaves no row in the history, which a check that fails for days would fill.
            self.runtime.log(f"{what} failed: {failure.type}: {failure.message}", {})
        return Failed(failure=failure)

    def timed_out(self) -> Outcome:
        """Return the outcome of a body that took too long."""
        attempt = self.attempt
        if attempt.total_until is not None and self._until == attempt.total_until:
            return Failed(failure=self._total_failure(attempt.attempt, started=True))
        cut = self.ends_at is not None and self._until == self.ends_at
        return self._failed(timeout_failure(self.timeout or 0, self.stage, self._plan, cut=cut))

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
            outputs=self.runtime.take_outputs(at_end=True),
            # Those of a failed attempt are dropped: what it was about to do has not happened.
            events=self.runtime.published if isinstance(outcome, Completed) else (),
            received=self.runtime.received,
        )

    def _context(self) -> StageContext[Any] | None:
        if not self._shape.takes_context:
            return None
        attempt, plan = self.attempt, self._plan
        # What a run still owes is not bound by the time that it had.
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
        trusted_now: Callable[[], Micros],
        host: str,
        interceptors: tuple[BodyInterceptor, ...] = (),
        ai: AiSettings,
        kernel: Kernel,
    ) -> None:
        self.substitute: Callable[[Body], Body] = lambda body: body
        """Gives what is called in place of a body. For tests, in which something stands for what can't be called."""
        self._ai = ai
        self._parts = Parts(kernel, persistence, clock, trusted_now)
        self.run_notifier = self._parts.run_notifier
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
        stages = {attempt.job: self._stage(attempt) for attempt in attempts}
        ours = [attempt for attempt in attempts if stages[attempt.job] is not None]
        bodies: list[Body] = []
        now = self._clock.monotonic()
        for work in self._inputs.load(
            ours, lambda attempt: _takes_input(attempt, stages[attempt.job]), known
        ):
            stage = stages[work.attempt.job]
            assert stage is not None
            read_at = None if work.run.key in known.runs else now
            bodies.append(self.substitute(self._body(work, stage, read_at)))
        return bodies, [attempt for attempt in attempts if stages[attempt.job] is None]

    def _stage(self, attempt: Attempt) -> Stage[Any, object] | None:
        """Return the stage that an attempt is of, if this process has its code: what cancels may have come later."""
        if attempt.kind is JobKind.STEP:
            return self._registry.step(attempt.definition)
        stage = self._registry.stage(attempt.definition, attempt.node)
        if stage is None or attempt.kind is not JobKind.CANCEL:
            return stage
        external = _external(stage)
        return None if external is None or external.cancel_body is None else stage

    def _body(self, work: Work, stage: Stage[Any, object], read_at: float | None) -> Body:
        run, attempt, node = work.run, work.attempt, node_of(work)
        # The steps of a function that are jobs count epochs of their own, each from 1.
        where = node if attempt.kind is not JobKind.STEP else f"{node}-{job_key(attempt.job).number}"
        place = Place(namespace=run.namespace, run=run.key, stage=where, epoch=attempt.epoch)
        actor = _actor(run.workflow, node, run.version)
        runtime = AttemptRuntime(
            origin=Origin(
                run=run.key,
                stage=node,
                item=attempt.item,
                attempt=attempt.attempt,
                actor=actor,
            ),
            kept=run.inherited,
            job=job_key(attempt.job),
            place=place,
            persistence=self._persistence,
            inputs=self._inputs,
            payloads=self._payloads,
            clock=self._clock,
            ai=self._ai,
        )
        is_test = attempt.kind is JobKind.CONDITION
        return Body(
            work=work,
            stage=stage,
            test=self._registry.test(attempt.definition, attempt.node) if is_test else None,
            runtime=runtime,
            payloads=self._payloads,
            place=place,
            started_at=micros(self._clock.now()),
            host=self._host,
            parts=self._parts,
            interceptors=self._interceptors,
            read_at=read_at,
        )


@lru_cache
def _actor(workflow: str, node: str, version: str) -> Actor:
    return Actor(kind="stage", id=f"{workflow}/{node}", version=version)


def node_of(work: Work) -> str:
    """Return the stage that an attempt is of; of a step, that of the function which has called it."""
    attempt = work.attempt
    return work.plan.function or "" if attempt.kind is JobKind.STEP else attempt.node


def _child_input(child: ChildPlan, text: str) -> str:
    """Return what a child gets of what its stage takes, both as JSON texts."""
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
    """Return the same text for every attempt of a stage of a run, and of an item of a map."""
    key = f"{attempt.run}/{attempt.node}"
    return key if attempt.item is None else f"{key}/{attempt.item}"


def _where(attempt: Attempt) -> str:
    return attempt.node if attempt.item is None else f"{attempt.node}/{attempt.item}"


def child_id(run: Run, where: str) -> str:
    """Return the id of a child of a run, which is one of its stages, an item, or a call: the same for every attempt."""
    parent = run.id if run.generation == 1 else f"{run.id}~{run.generation}"
    named = f"{parent}/{where}"
    return named if len(named) <= ID_MAX else f"{run.key}/{where}"


def _micros(time: timedelta | None) -> Micros | None:
    return None if time is None else max(1, time // timedelta(microseconds=1))
