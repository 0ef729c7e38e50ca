"""The operations that start runs: one, many, or one with an update."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, Final, Literal, cast
from urllib.parse import quote

import attrs

from holdfast.hosts.client.client import Client, key_of_start
from holdfast.hosts.client.json_calls import call_with, takes_nothing
from holdfast.hosts.client.queries import store_update_with_start
from holdfast.hosts.client.stored_workflows import create_registered, find_registered
from holdfast.hosts.http.operations import NAMESPACE, Hint, Invocation, Nothing, Operation, Table, Wait
from holdfast.hosts.http.outcomes import StartedRun, UpdateState, with_outcome
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_actions import UPDATE_ERRORS, plain_update, with_reply
from holdfast.hosts.wiring.registry import Authored
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.concurrency import Concurrency, FullName
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.commands import RunCreate, RunCreated
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import (
    ChannelClosedError,
    ConcurrencyFullError,
    DefinitionError,
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidCommandError,
    InvalidValueError,
    QuotaExceededError,
    RateExceededError,
    RunExistsError,
    SignalRefusedError,
    UnknownChannelError,
    UnknownWorkflowError,
    UnstorableValueError,
)
from holdfast.ports.json import compact
from holdfast.ports.records.run import TERMINAL

STARTS_MAX: Final = 500
"""How many runs one request starts, at most."""
_OF_ONE: Final = ("id", "if_exists", "if_active", "if_ended")
"""The fields of the body that are options of the start of one run, under the same names."""
_SETTINGS: Final = (
    *("queue", "priority", "start_at", "deadline", "weight", "attributes", "headers", "annotations"),
)
"""Those that are options of starts of several."""


@attrs.frozen(kw_only=True)
class ConcurrencyBound:
    """A limit on how many runs with the same key run at a time. It needs a `key` or a `by`."""

    key: str | None = None
    """The key."""
    by: str | None = None
    """The attribute whose text is the key, for runs of the same workflow."""
    limit: int = 1
    """How many runs of the key run at a time."""
    waiting: int | None = None
    """How many more may wait. By default any number with `wait`, 1 with `replace`, otherwise 0."""
    full: FullName = "wait"
    """If more were open: wait, refuse the start, return the newest, cancel the oldest that waits (`replace`), or end
    the oldest that runs (`cancel`, `terminate`)."""


@attrs.frozen(kw_only=True)
class NewMessage:
    """A message that a run receives at its start."""

    channel: str
    """The name of the channel."""
    message: object = None
    """The message, of the channel's type."""


@attrs.frozen(kw_only=True, slots=False)  # another class inherits from it and from one class more
class NewCall:
    """A workflow with its input."""

    workflow: str
    """The name of the workflow."""
    version: str | None = None
    """Its version; if omitted the newest one of the server's code, or else the one registered last."""
    input: object = None
    """The input as JSON, of the type that the workflow declares; of a durable function, an object of its arguments."""


@attrs.frozen(kw_only=True, slots=False)  # as above
class RunSettings:
    """What is set for the runs of a start."""

    queue: str | None = None
    """The queue of its jobs, unless a stage has its own."""
    priority: int | None = None
    """A head start in the queue, in minutes."""
    start_at: datetime | None = None
    """The instant before which it does not start."""
    deadline: timedelta | None = None
    """After this time it fails if it has not ended."""
    weight: int | None = None
    """How many turns its key gets for each one of the others, if the workflow shares its workers by key."""
    attributes: Mapping[str, str] | None = None
    """Texts to find the run by."""
    headers: Mapping[str, str] | None = None
    """Texts that its steps and child runs have too, such as a `traceparent`: at most 16, of 4,096 characters in all."""
    annotations: Mapping[str, object] | None = None
    """Values that are attached to it."""
    concurrency: ConcurrencyBound | None = None
    """A limit on the runs of a key."""
    signals: tuple[NewMessage, ...] = attrs.field(default=(), validator=attrs.validators.max_len(100))
    """Messages that are stored with it, for durable functions."""


@attrs.frozen(kw_only=True, slots=False)  # as above
class NewRun(RunSettings, NewCall):
    """The start of a run."""

    id: str | None = None
    """The run's id; generated if omitted."""
    if_exists: Literal["error", "return"] | None = None
    """If a run has this id: refuse, or return that run."""
    if_active: Literal["error", "return", "terminate"] | None = None
    """If that run has not ended: refuse, return it, or terminate it and start the next generation."""
    if_ended: Literal["error", "return", "rerun", "rerun_failed"] | None = None
    """If that run has ended: refuse, return it, or start the next generation, always or unless it completed."""


@attrs.frozen(kw_only=True)
class NewRuns(RunSettings):
    """The start of many runs. What is set applies to each."""

    calls: tuple[NewCall, ...] = attrs.field(
        validator=[attrs.validators.min_len(1), attrs.validators.max_len(STARTS_MAX)]
    )
    """The workflows with their inputs, 1 to 500."""
    first: int = attrs.field(default=0, validator=[attrs.validators.ge(0), attrs.validators.le(10**9)])
    """The number of the first call: the n-th one, from this number on, has the `Idempotency-Key` with `/n` appended."""


@attrs.frozen(kw_only=True)
class StartedRuns:
    """The runs of a start of many."""

    items: tuple[StartedRun, ...]
    """The runs, in the order of the calls. None of them has a result yet, unless its start was repeated."""


@attrs.frozen(kw_only=True)
class NewRunWithUpdate(NewRun):
    """The start of a run with an update. It needs an `id`, by which later requests find the run."""

    arguments: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """The arguments of the update by name."""


def start_run(call: Invocation[Nothing, NewRun]) -> StartedRun:
    """Start a run.

    A server without the code of the workflow takes the plan and the schema of its input from what a worker has
    registered. With `Prefer: wait=N`, the answer waits until the run has ended, and has its result.
    """
    created = _dispatched(call, call.body)
    started = _started(created)
    # A start that returns a run which has ended waits for nothing, and still has its result.
    return _with_outcome(call, started) if created.status in TERMINAL else started


def start_runs(call: Invocation[Nothing, NewRuns]) -> StartedRuns:
    """Start many runs, in one transaction if they have at most 4 MiB.

    All calls are checked before any is stored. If one is refused, as the key was used for another command say, the
    others may be stored: with an `Idempotency-Key` it is safe to repeat the request.
    """
    body, client, key = call.body, call.engine.client, call.idempotency_key
    options = _settings(body, key)
    check_options(options, StartAllOptions, "start_all")
    numbered = list(enumerate(body.calls, body.first))
    coded: list[tuple[int, Call[object]]] = []
    commands: dict[int, RunCreate] = {}
    plans: list[Plan] = []
    registered = cache(partial(find_registered, client.core))
    for number, one in numbered:
        workflow = client.core.registry.find_workflow(one.workflow, one.version)
        if workflow is not None:
            coded.append((number, call_with(workflow, _input_of(workflow, one))))
            continue
        found = registered(one.workflow, one.version)
        own = cast("StartOptions", {**options, "idempotency_key": key_of_start(key, number)})
        if key is None:
            del own["idempotency_key"]
        commands[number] = create_registered(client, found, one.input, own)
        plans.append(found.plan)
    made = client.create_numbered(coded, cast("StartAllOptions", options))
    commands |= zip((number for number, _ in coded), made, strict=True)
    sender = client.with_plans((*client.core.registry.plans, *plans)) if plans else client
    replies = sender.dispatch_all([commands[number] for number, _ in numbered])
    return StartedRuns(items=tuple(map(_started, replies)))


def update_with_start(call: Invocation[Nothing, NewRunWithUpdate]) -> UpdateState:
    """Start a run, or use the one that has the id, and send it an update. Both are stored, or neither.

    A rejected update is not stored, and starts nothing, if its validator ran before: on a run that was active already.
    The types of its arguments are checked before, by the code or by the schema that a worker has registered.

    With `Prefer: wait=N`, the answer waits for the reply of the update. Repeating the request with its
    `Idempotency-Key` waits on.
    """
    body = call.body
    if body.id is None:
        raise InvalidArgumentError("id", "an id is needed, by which later requests find the run")
    client, command = _create(call, body)
    _, stored = store_update_with_start(client, command, plain_update(call.path["name"], body.arguments))
    return with_reply(
        call, UpdateState(run_id=stored.run_id, run=stored.run, update=stored.update, number=stored.number)
    )


def _dispatched(call: Invocation[Nothing, Any], body: NewRun) -> RunCreated:
    client, command = _create(call, body)
    return client.dispatch(command)


def _create(call: Invocation[Nothing, Any], body: NewRun) -> tuple[Client, RunCreate]:
    """Return the command that starts a run, and the client that carries it out."""
    client, options = call.engine.client, _options(body, call.idempotency_key)
    workflow = client.core.registry.find_workflow(body.workflow, body.version)
    if workflow is not None:
        return client, client.create(call_with(workflow, _input_of(workflow, body)), options)
    registered = find_registered(client.core, body.workflow, body.version)
    command = create_registered(client, registered, body.input, options)
    return client.with_plans((registered.plan,)), command


def _input_of(workflow: Authored, call: NewCall) -> str | None:
    return None if call.input is None and takes_nothing(workflow) else compact(call.input)


def _started(created: RunCreated) -> StartedRun:
    return StartedRun(
        run_id=created.run_id,
        generation=created.generation,
        status=created.status,
        created=created.created,
        joined=created.joined,
        first_item=created.first_item,
        items=created.items,
        ended=created.ended,
    )


def _options(body: NewRun, key: str | None) -> StartOptions:
    given = _settings(body, key)
    given |= {name: value for name in _OF_ONE if (value := getattr(body, name)) is not None}
    check_options(given, StartOptions, "start")
    return cast("StartOptions", given)


def _settings(body: RunSettings, key: str | None) -> dict[str, Any]:
    """Return the options that several runs can have in common. They are not checked."""
    given: dict[str, Any] = {name: value for name in _SETTINGS if (value := getattr(body, name)) is not None}
    if key is not None:
        given["idempotency_key"] = key
    if body.concurrency is not None:
        given["concurrency"] = Concurrency(
            **attrs.asdict(body.concurrency, filter=lambda _, value: value is not None)
        )
    if body.signals:
        given["signals"] = tuple(Signal(one.channel, compact(one.message)) for one in body.signals)
    return given


def _with_outcome(call: Invocation[Nothing, NewRun], started: StartedRun) -> StartedRun:
    workflow = call.engine.core.registry.find_workflow(call.body.workflow, call.body.version)
    is_split = isinstance(workflow, Workflow) and workflow.gather is not None and workflow.gather.split
    return with_outcome(call.engine.client, started, is_split=is_split)


def _location(call: Invocation[Nothing, NewRun], started: StartedRun) -> str | None:
    place = f"/v1/namespaces/{quote(call.namespace, safe='')}/runs/{quote(started.run_id, safe='')}"
    return place if started.created else None


_ERRORS: Final = (
    UnknownWorkflowError,
    ConcurrencyFullError,
    QuotaExceededError,
    RateExceededError,
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidValueError,
    UnstorableValueError,
    SignalRefusedError,
    ChannelClosedError,
    UnknownChannelError,
    InvalidCommandError,
    DefinitionError,
)
"""What every start raises."""

OPERATIONS: Final[Table] = (
    Operation(
        name="run.start",
        method="POST",
        path=f"{NAMESPACE}/runs",
        scope=Scope.START,
        body=NewRun,
        reply=StartedRun,
        handler=start_run,
        hint=Hint.CHANGES,
        location=_location,
        wait=Wait.END,
        reread=_with_outcome,
        idempotent=True,
        errors=(RunExistsError, *_ERRORS),
    ),
    Operation(
        name="run.start_all",
        method="POST",
        path=f"{NAMESPACE}/bulk/start",
        scope=Scope.START,
        body=NewRuns,
        reply=StartedRuns,
        handler=start_runs,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=_ERRORS,
    ),
    Operation(
        name="run.update_with_start",
        method="POST",
        path=f"{NAMESPACE}/updates/{{name}}",
        scope=Scope.START,
        body=NewRunWithUpdate,
        reply=UpdateState,
        handler=update_with_start,
        hint=Hint.CHANGES,
        idempotent=True,
        wait=Wait.REPLY,
        reread=with_reply,
        errors=(RunExistsError, *UPDATE_ERRORS, *_ERRORS),
    ),
)
