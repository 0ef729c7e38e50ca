"""The operation that starts a run."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, cast
from urllib.parse import quote

import attrs

from holdfast.hosts.client.json_calls import call_with, takes_nothing
from holdfast.hosts.client.stored_workflows import find_registered, start_registered
from holdfast.hosts.http.operations import NAMESPACE, Hint, Invocation, Nothing, Operation, Table, Wait
from holdfast.hosts.http.outcomes import StartedRun, with_outcome
from holdfast.hosts.http.principals import Scope
from holdfast.kernel.authoring.concurrency import Concurrency, FullName
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import StartOptions, check_options
from holdfast.kernel.authoring.signals import Signal
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

_OPTIONS: Final = (
    *("id", "if_exists", "if_active", "if_ended", "queue", "priority", "start_at", "deadline", "weight"),
    *("attributes", "headers", "annotations"),
)
"""The fields of the body that are options of a start, under the same names."""


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


@attrs.frozen(kw_only=True)
class NewRun:
    """The start of a run."""

    workflow: str
    """The name of the workflow."""
    version: str | None = None
    """Its version; if omitted the newest one of the server's code, or else the one registered last."""
    input: object = None
    """The input as JSON, of the type that the workflow declares; of a durable function, an object of its arguments."""
    id: str | None = None
    """The run's id; generated if omitted."""
    if_exists: Literal["error", "return"] | None = None
    """If a run has this id: refuse, or return that run."""
    if_active: Literal["error", "return", "terminate"] | None = None
    """If that run has not ended: refuse, return it, or terminate it and start the next generation."""
    if_ended: Literal["error", "return", "rerun", "rerun_failed"] | None = None
    """If that run has ended: refuse, return it, or start the next generation, always or unless it completed."""
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


def start_run(call: Invocation[Nothing, NewRun]) -> StartedRun:
    """Start a run.

    A server without the code of the workflow takes the plan and the schema of its input from what a worker has
    registered. With `Prefer: wait=N`, the answer waits until the run has ended, and has its result.
    """
    body, client = call.body, call.engine.client
    options = _options(body, call.idempotency_key)
    workflow = client.core.registry.find_workflow(body.workflow, body.version)
    if workflow is None:
        registered = find_registered(client.core, body.workflow, body.version)
        created = start_registered(client, registered, body.input, options)
    else:
        text = None if body.input is None and takes_nothing(workflow) else compact(body.input)
        created = client.dispatch(client.create(call_with(workflow, text), options))
    started = StartedRun(
        run_id=created.run_id,
        generation=created.generation,
        status=created.status,
        created=created.created,
        joined=created.joined,
        first_item=created.first_item,
        items=created.items,
        ended=created.ended,
    )
    # A start that returns a run which has ended waits for nothing, and still has its result.
    return _with_outcome(call, started) if created.status in TERMINAL else started


def _options(body: NewRun, key: str | None) -> StartOptions:
    given: dict[str, Any] = {name: value for name in _OPTIONS if (value := getattr(body, name)) is not None}
    if key is not None:
        given["idempotency_key"] = key
    if body.concurrency is not None:
        given["concurrency"] = Concurrency(
            **attrs.asdict(body.concurrency, filter=lambda _, value: value is not None)
        )
    if body.signals:
        given["signals"] = tuple(Signal(one.channel, compact(one.message)) for one in body.signals)
    check_options(given, StartOptions, "start")
    return cast("StartOptions", given)


def _with_outcome(call: Invocation[Nothing, NewRun], started: StartedRun) -> StartedRun:
    workflow = call.engine.core.registry.find_workflow(call.body.workflow, call.body.version)
    is_split = isinstance(workflow, Workflow) and workflow.gather is not None and workflow.gather.split
    return with_outcome(call.engine.client, started, is_split=is_split)


def _location(call: Invocation[Nothing, NewRun], started: StartedRun) -> str | None:
    place = f"/v1/namespaces/{quote(call.namespace, safe='')}/runs/{quote(started.run_id, safe='')}"
    return place if started.created else None


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
        errors=(
            UnknownWorkflowError,
            RunExistsError,
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
        ),
    ),
)
