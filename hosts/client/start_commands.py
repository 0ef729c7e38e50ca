"""Builds the commands that start runs from calls of workflows. Options shared by many calls are evaluated once."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Literal, TypedDict

from holdfast.hosts.client.message_checks import MessageChecks
from holdfast.hosts.inspection.annotations import named_values
from holdfast.hosts.wiring.payloads import INLINE_MAX
from holdfast.hosts.wiring.registry import Registry
from holdfast.hosts.wiring.start_calls import StartCall, StartKind, around_starts, intercepted
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import StartOptions, given_options
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.stage_overrides import stage_overrides
from holdfast.kernel.commands import ChannelMessage, NewAnnotation, RunCreate, StageOverride
from holdfast.kernel.limits.start_bounds import limited
from holdfast.kernel.pipelines.headers import headers_of, headers_text
from holdfast.kernel.pipelines.input_attributes import attributes_in, joined_attributes
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.values import encode
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.json import canonical
from holdfast.ports.records.limits import RunRatePlan
from holdfast.ports.records.run import attribute_texts
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import frozen


@frozen
class _Started:
    """A workflow to be started, with the overrides of its stages."""

    definition: WorkflowDefinition[object]
    name: str
    version: str
    input_type: object
    overrides: tuple[StageOverride, ...]
    is_gathered: bool
    """Whether its starts join the run that waits."""
    takes_attributes: bool
    """Whether it takes attributes from its input."""


class _SharedFields(TypedDict):
    """The fields of `RunCreate` that are the same for all calls."""

    namespace: str
    id: str | None
    if_exists: Literal["error", "return"]
    if_active: Literal["error", "return", "terminate"] | None
    if_ended: Literal["error", "return", "rerun", "rerun_failed"] | None
    queue: str | None
    priority: int | None
    attributes: str | None
    headers: str | None
    annotations: tuple[NewAnnotation, ...]
    start_at: Micros | None
    deadline: Micros | None
    weight: int | None
    rate: RunRatePlan | None
    units: int | None
    actor: Actor | None


class StartCommandBuilder:
    """Builds the commands that start runs.

    `stored` returns the payload of a text, given what it is (`input`, `signal`) and the idempotency key. Those of the
    `interceptors` that have a method `start` are called for each command; `kind` is what the command is for.
    """

    def __init__(
        self,
        namespace: str,
        registry: Registry,
        stored: Callable[[str, str, str | None], Payload],
        interceptors: Iterable[object],
        kind: StartKind = "run",
    ) -> None:
        self._namespace = namespace
        self._registry = registry
        self._stored = stored
        self._around = around_starts(interceptors)
        self._kind: StartKind = kind
        self._checks = MessageChecks(registry)

    def commands(
        self, calls: Iterable[tuple[Call[object], str | None]], options: StartOptions
    ) -> list[RunCreate]:
        """Return the commands that start calls, each paired with its idempotency key. `options` must be checked.

        Raises InvalidArgumentError, UnknownWorkflowError, InvalidValueError, UnstorableValueError or
        InvalidOverrideError.
        """
        made: list[RunCreate] = []
        shared: _SharedFields | None = None
        workflow: _Started | None = None
        signals = options.get("signals", ())
        concurrency = options.get("concurrency")
        for call, key in calls:
            check_call(call)
            if workflow is None or workflow.definition is not call.definition:
                workflow = self._started(call.definition, options)
            definition = workflow.definition
            text = definition.input_text(call.value)
            items = _gathered_items(definition, call.value, options) if workflow.is_gathered else None
            fields = shared = shared or self._shared_fields(options)
            if workflow.takes_attributes:
                fields = _with_attributes(fields, definition.attributes_in(text), options)
            if self._around:
                fields = self._intercepted(fields, workflow.name, workflow.version)
            payload = self._stored(text, "input", key)
            command = RunCreate(
                idempotency_key=key,
                workflow=workflow.name,
                version=workflow.version,
                input=payload,
                given=None
                if key is None
                else idempotency_payload(encode(call.value, workflow.input_type), text),
                items=items,
                input_size=len(text.encode()) if workflow.is_gathered and payload.blob is not None else None,
                overrides=workflow.overrides,
                signals=self._all_sent(signals, key, shared["id"] or "", definition) if signals else (),
                **fields,
            )
            made.append(command if concurrency is None else limited(command, concurrency.plan))
        return made

    def without_input(self, definition: WorkflowDefinition[object], options: StartOptions) -> RunCreate:
        """Return the command that starts a workflow, with null in place of the input. `options` must be checked.

        Raises UnknownWorkflowError or InvalidOverrideError.
        """
        workflow, concurrency = self._started(definition, options), options.get("concurrency")
        command = RunCreate(
            workflow=workflow.name,
            version=workflow.version,
            input=Payload(inline="null"),
            overrides=workflow.overrides,
            **self._intercepted(self._shared_fields(options), workflow.name, workflow.version),
        )
        return command if concurrency is None else limited(command, concurrency.plan)

    def command_of(self, plan: Plan, text: str, options: StartOptions) -> RunCreate:
        """Return the command that starts a run of a plan, whose code this process lacks, with an input as JSON text.

        Nothing of it is checked here but the attributes that are taken from the input. Raises InvalidArgumentError.
        """
        key, concurrency = options.get("idempotency_key"), options.get("concurrency")
        signals = enumerate(options.get("signals", ()))
        taken = attributes_in(text, plan.attributes_from, plan.workflow)
        fields = _with_attributes(self._shared_fields(options), taken, options)
        fields = self._intercepted(fields, plan.workflow, plan.version)
        command = RunCreate(
            idempotency_key=key,
            workflow=plan.workflow,
            version=plan.version,
            input=self._stored(text, "input", key),
            signals=tuple(
                self.channel_message(one, f"{key}/{number}" if key else None) for number, one in signals
            ),
            **fields,
        )
        return command if concurrency is None else limited(command, concurrency.plan)

    def _intercepted(self, fields: _SharedFields, workflow: str, version: str) -> _SharedFields:
        """Return the fields with what interceptors of starts add. Raises what they raise."""
        if not self._around:
            return fields
        call = StartCall(
            kind=self._kind,
            namespace=self._namespace,
            workflow=workflow,
            version=version,
            run_id=fields["id"],
            attributes=attribute_texts(fields["attributes"]),
            headers=headers_of(fields["headers"]),
        )
        changed, found = intercepted(self._around, call), fields.copy()
        if changed.attributes != call.attributes:
            found["attributes"] = canonical(dict(changed.attributes)) if changed.attributes else None
        if changed.headers != call.headers:
            found["headers"] = headers_text(changed.headers)
        return found

    def _all_sent(
        self, signals: Iterable[Signal], key: str | None, run_id: str, definition: WorkflowDefinition[object]
    ) -> tuple[ChannelMessage, ...]:
        return tuple(
            self.channel_message(signal, f"{key}/{number}" if key else None, run_id, lambda: definition)
            for number, signal in enumerate(signals)
        )

    def channel_message(
        self,
        signal: Signal,
        idempotency_key: str | None,
        run_id: str = "",
        workflow: Callable[[], WorkflowDefinition[object] | None] = lambda: None,
    ) -> ChannelMessage:
        """Return a message to a run as it is stored. It is checked if `workflow` returns the code of the run.

        Raises SignalRefusedError or InvalidValueError.
        """
        as_made = signal.text
        if self._checks.may_be_invalid(signal) and isinstance(code := workflow(), Workflow):
            signal = self._checks.check(signal, run_id, code)
        return ChannelMessage(
            channel=signal.channel,
            payload=self._stored(signal.text, "signal", idempotency_key),
            checked=signal.checked,
            given=idempotency_payload(as_made, signal.text) if idempotency_key else None,
        )

    def check_update(self, call: UpdateCall[object], workflow: Workflow[..., object]) -> None:
        """Check the types of an update's arguments, if inspection finds it. Raises InvalidValueError."""
        self._checks.check_update(call, workflow)

    def _started(self, definition: WorkflowDefinition[object], options: StartOptions) -> _Started:
        name, version = definition.name, definition.version
        if self._registry.find_workflow(name, version) is not definition:
            raise self._registry.unknown_workflow(name, version)
        overrides = stage_overrides(definition, options.get("overrides", ()))
        return _Started(
            definition=definition,
            name=name,
            version=version,
            input_type=definition.input_type,
            overrides=overrides,
            is_gathered=isinstance(definition, Workflow) and definition.gather is not None,
            takes_attributes=bool(definition.attributes_from),
        )

    def _shared_fields(self, options: StartOptions) -> _SharedFields:
        given = given_options(options)
        return _SharedFields(
            namespace=self._namespace,
            id=options.get("id"),
            if_exists=options.get("if_exists", "error"),
            if_active=options.get("if_active"),
            if_ended=options.get("if_ended"),
            queue=given.queue,
            priority=given.priority,
            attributes=given.attributes if options.get("attributes") else None,
            headers=given.headers,
            annotations=named_values(options.get("annotations", {})),
            start_at=given.start_at,
            deadline=given.deadline,
            weight=options.get("weight"),
            rate=given.rate,
            units=given.units,
            actor=options.get("actor"),
        )


def _with_attributes(fields: _SharedFields, taken: Mapping[str, str], options: StartOptions) -> _SharedFields:
    """Return the fields with the attributes that are taken from an input. Those of the options come first."""
    if not taken:
        return fields
    found = fields.copy()
    found["attributes"] = joined_attributes(None, taken, options.get("attributes"))
    return found


def _gathered_items(
    definition: WorkflowDefinition[object], value: object, options: StartOptions
) -> int | None:
    """Return how many items the call adds to the joined list, if lists are joined. InvalidArgumentError.

    A start that is gathered has no id and no `start_at`.
    """
    if not isinstance(definition, Workflow) or definition.gather is None:
        return None
    for option, instead in (
        ("id", "an idempotency_key starts once, and `by` keeps starts apart"),
        ("start_at", "`quiet` and `within` of its Gather say when it begins"),
    ):
        if option in options:
            raise InvalidArgumentError(
                option,
                f"start: {definition.name!r} gathers its starts, so a start has no {option}: leave it out; {instead}",
            )
    return definition.gathered_items(value)


def idempotency_payload(given: str, text: str) -> Payload | None:
    """Return what identifies a repeated command if its stored text has defaults added; None if it has not.

    The payload is only compared, never stored. A long text is replaced by its hash.
    """
    if given == text:
        return None
    return Payload(
        inline=given if len(given) <= INLINE_MAX else canonical(sha256(given.encode()).hexdigest())
    )


def check_call(call: object) -> None:
    """Raise InvalidArgumentError if this is not the call of a workflow."""
    if not isinstance(call, Call):
        hint = f"; call it with its input: {call.name}(...)" if isinstance(call, WorkflowDefinition) else ""
        raise InvalidArgumentError(
            "call", f"start() expects the call of a workflow, such as order(...), got {call!r}{hint}"
        )
