"""Operations that act on runs: cancel, pause, rerun, signal, update, query, annotate, remove."""

import inspect
from collections.abc import Mapping
from typing import Any, Final

import attrs

from holdfast.hosts.client.queries import StoredUpdate, UpdateReplyReader, store_update
from holdfast.hosts.client.stored_workflows import check_registered_signal
from holdfast.hosts.http.operations import (
    NAMESPACE,
    RUN,
    Hint,
    Invocation,
    Nothing,
    Operation,
    Reason,
    Table,
    Wait,
)
from holdfast.hosts.http.outcomes import UpdateState
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.run_reads import PlainValue
from holdfast.hosts.inspection.annotations import named_values
from holdfast.hosts.inspection.run_info import find_run
from holdfast.kernel.authoring.call_types import CallForm
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.commands import (
    RunAnnotate,
    RunCancel,
    RunPause,
    RunPaused,
    RunRemove,
    RunRerunFrom,
    RunResume,
    RunStopped,
    RunTerminate,
    StageWake,
)
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.ports.errors import (
    ChannelClosedError,
    ConcurrencyFullError,
    IdempotencyConflictError,
    InvalidCommandError,
    InvalidValueError,
    NotExposedError,
    NothingToWakeError,
    QueryFailedError,
    RemoveRefusedError,
    RerunRefusedError,
    RunNotFoundError,
    SignalRefusedError,
    UnknownChannelError,
    UnknownWorkflowError,
    UnstorableValueError,
    UpdateFailedError,
    UpdateLostError,
    UpdateRefusedError,
    UpdateRejectedError,
)
from holdfast.ports.json import compact, parse
from holdfast.ports.records.run import RunStatus

UPDATE_ERRORS: Final = (
    UpdateRefusedError,
    NotExposedError,
    UpdateRejectedError,
    UpdateFailedError,
    UpdateLostError,
    QueryFailedError,
)
"""What an update raises beside what any command does."""
_PLAIN: Final = CallForm(
    what="a call", signature=inspect.Signature(), hints={}, arguments=object, output=object
)
"""A call form that takes and returns any JSON."""


@attrs.frozen(kw_only=True)
class RunChanged:
    """What an action did to a run."""

    run_id: str
    """The run id."""
    status: RunStatus
    """Its status afterwards."""
    changed: bool
    """Whether the action changed it; false if its status did not allow that."""


@attrs.frozen(kw_only=True)
class RerunPoint:
    """Where a rerun starts. Without a stage and a row, it continues where the run failed or stopped."""

    stage: str | None = None
    """The stage; of a durable function, a step by name, `charge#2` for its second call, or a call such as `3.1`."""
    row: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """For durable functions, instead of a stage: the number of the first history row that is not kept."""
    version: str | None = None
    """The version of the workflow to run; the same one if omitted."""


@attrs.frozen(kw_only=True)
class RerunRequest(RerunPoint, Reason):
    """A rerun."""


@attrs.frozen(kw_only=True)
class StartedRerun:
    """The newest generation of a run, after a rerun."""

    run_id: str
    """The run id."""
    generation: int
    """The number of the generation, from 1."""
    status: RunStatus
    """Its status."""
    started: bool
    """Whether this request created it."""
    stage: str | None
    """The stage, or call of a durable function, at which it starts; null for the beginning."""
    runs: tuple[str, ...]
    """The stages that it runs, in the order of the plan."""
    keeps: tuple[str, ...]
    """The stages whose results it keeps."""


@attrs.frozen(kw_only=True)
class Message:
    """A message to a run."""

    message: object = None
    """The message, of the channel's type."""


@attrs.frozen(kw_only=True)
class SentMessage:
    """A message that is stored."""

    run_id: str
    """The run id."""
    channel: str
    """The channel."""
    number: int
    """The number of its history row."""
    status: RunStatus
    """The status of the run."""


@attrs.frozen(kw_only=True)
class Arguments:
    """The arguments of a query or an update."""

    arguments: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """The arguments by name."""


@attrs.frozen(kw_only=True)
class NewAnnotations(Reason):
    """Annotations of a run."""

    values: Mapping[str, object]
    """The values by name."""
    key: str | None = None
    """Annotate only once under this key: repeating the request stores nothing."""
    stage: str | None = None
    """The stage that they are about, instead of the run."""
    item: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))
    """The item of the mapped stage that they are about."""


@attrs.frozen(kw_only=True)
class StoredAnnotations:
    """The outcome of an annotation."""

    run_id: str
    """The run id."""
    generation: int
    """The number of the annotated generation."""
    stored: int
    """How many annotations were stored; those that the run has under the same key are not stored again."""


@attrs.frozen(kw_only=True)
class Removed:
    """The outcome of a removal."""

    removed: bool
    """Whether it existed, and was removed."""


@attrs.frozen(kw_only=True)
class WakeRequest:
    """Which external work to check now."""

    stage: str
    """The external stage."""
    item: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))
    """One item of a mapped stage; all items if omitted."""


@attrs.frozen(kw_only=True)
class Woken:
    """How much external work is checked now."""

    woken: int
    """How many stages or items are checked."""


def cancel_run(call: Invocation[Nothing, Reason]) -> RunChanged:
    """Cancel a run. It may clean up first, and does nothing if it has ended."""
    return _changed(call, call.engine.client.dispatch(RunCancel(**_fields(call))))


def terminate_run(call: Invocation[Nothing, Reason]) -> RunChanged:
    """End a run at once as cancelled, without cleanup."""
    return _changed(call, call.engine.client.dispatch(RunTerminate(**_fields(call))))


def pause_run(call: Invocation[Nothing, Reason]) -> RunChanged:
    """Pause a run: nothing new starts until it is resumed."""
    return _changed(call, call.engine.client.dispatch(RunPause(**_fields(call))))


def resume_run(call: Invocation[Nothing, Reason]) -> RunChanged:
    """Resume a paused or blocked run."""
    return _changed(call, call.engine.client.dispatch(RunResume(**_fields(call))))


def _fields(call: Invocation[Nothing, Reason]) -> dict[str, Any]:
    """Return the fields that the commands have in common."""
    return {
        "namespace": call.namespace,
        "idempotency_key": call.idempotency_key,
        "run_id": call.path["run_id"],
        "reason": call.body.reason,
        "generation": call.generation,
    }


def _changed(call: Invocation[Nothing, Reason], reply: RunStopped | RunPaused) -> RunChanged:
    if not reply.changed:
        _check_generation(call)
    return RunChanged(run_id=call.path["run_id"], status=reply.status, changed=reply.changed)


def _check_generation(call: Invocation[Any, Any]) -> None:
    """Raise HttpError if nothing was changed because the run has another generation."""
    if call.generation is None:
        return
    newest = find_run(call.engine.core, call.path["run_id"]).generation
    if newest != call.generation:
        raise HttpError("generation_changed", f"the run has generation {newest}")


def rerun(call: Invocation[Nothing, RerunRequest]) -> StartedRerun:
    """Run a run again from a stage, step or history row, as a new generation that keeps what comes before.

    An active generation is terminated.
    """
    reply = call.engine.client.dispatch(
        _rerun_command(call, call.body, reason=call.body.reason, key=call.idempotency_key)
    )
    if not reply.started:
        _check_generation(call)
    return StartedRerun(
        run_id=reply.run_id,
        generation=reply.generation,
        status=reply.status,
        started=reply.started,
        stage=reply.stage,
        runs=reply.runs,
        keeps=reply.keeps,
    )


def preview(call: Invocation[RerunPoint, Nothing]) -> RerunPreview:
    """Show what a rerun would do, without changing anything."""
    core = call.engine.core
    return preview_rerun(core.stores.persistence, core.kernel.workflows, _rerun_command(call, call.query))


def _rerun_command(
    call: Invocation[Any, Any], point: RerunPoint, *, reason: str = "", key: str | None = None
) -> RunRerunFrom:
    """Return the command of a rerun."""
    return RunRerunFrom(
        namespace=call.namespace,
        idempotency_key=key,
        run_id=call.path["run_id"],
        stage=point.stage,
        row=point.row,
        version=point.version,
        reason=reason,
        generation=call.generation,
    )


def send_signal(call: Invocation[Nothing, Message]) -> SentMessage:
    """Send a message to a durable function.

    It is stored when this is answered. It is validated before, by the code of the run's workflow if the server has it,
    or else by the schema that a worker has registered.
    """
    channel, core = call.path["channel"], call.engine.core
    check_registered_signal(core, find_run(core, call.path["run_id"]), channel, call.body.message)
    sent = call.run.signal(Signal(channel, compact(call.body.message)), idempotency_key=call.idempotency_key)
    return SentMessage(run_id=call.path["run_id"], channel=channel, number=sent.number, status=sent.status)


def send_update(call: Invocation[Nothing, Arguments]) -> UpdateState:
    """Send an update to a durable function.

    Its arguments are validated before, by the code of the run's workflow if the server has it, or else by the schema
    that a worker has registered.

    With `Prefer: wait=N`, the answer waits for the reply of the update. Repeating the request with its
    `Idempotency-Key` waits on.
    """
    update = plain_update(call.path["name"], call.body.arguments)
    run = find_run(call.engine.core, call.path["run_id"])
    stored = store_update(call.engine.client, run, update, call.idempotency_key)
    state = UpdateState(run_id=stored.run_id, run=stored.run, update=stored.update, number=stored.number)
    return with_reply(call, state)


def plain_update(name: str, arguments: Mapping[str, object]) -> UpdateCall[object]:
    """Return an update with arguments that are plain JSON, which its function checks."""
    return UpdateCall[object](update=name, arguments=compact(arguments), form=_PLAIN, checked=False)


def with_reply(call: Invocation[Nothing, Any], state: UpdateState) -> UpdateState:
    """Return a stored update with its reply, if it has been carried out. Raises what it has raised."""
    stored = StoredUpdate(run_id=state.run_id, run=state.run, update=state.update, number=state.number)
    text = UpdateReplyReader(call.engine.core, stored).read_reply()
    return state if text is None else attrs.evolve(state, is_done=True, reply=parse(text))


def query_run(call: Invocation[Nothing, Arguments]) -> PlainValue:
    """Query the object that a durable function exposes. Nothing is stored.

    The server replays the function, so it must have the workflow's code.
    """
    query = QueryCall[object](query=call.path["name"], arguments=compact(call.body.arguments), form=_PLAIN)
    return PlainValue(value=call.run.query(query))


def annotate_run(call: Invocation[Nothing, NewAnnotations]) -> StoredAnnotations:
    """Attach annotations to a run. They are never changed; annotating again adds new ones."""
    body = call.body
    reply = call.engine.client.dispatch(
        RunAnnotate(
            namespace=call.namespace,
            idempotency_key=call.idempotency_key,
            run_id=call.path["run_id"],
            annotations=named_values(body.values),
            reason=body.reason,
            key=body.key,
            stage=body.stage,
            item=body.item,
        )
    )
    return StoredAnnotations(run_id=call.path["run_id"], generation=reply.generation, stored=reply.stored)


def remove_run(call: Invocation[Nothing, Nothing]) -> Removed:
    """Delete an ended run, with all its generations, annotations and blobs."""
    command = RunRemove(
        namespace=call.namespace, idempotency_key=call.idempotency_key, run_id=call.path["run_id"]
    )
    return Removed(removed=call.engine.client.dispatch(command).removed)


def wake_stage(call: Invocation[Nothing, WakeRequest]) -> Woken:
    """Check the external work of a stage now, instead of at its next poll."""
    command = StageWake(
        namespace=call.namespace,
        idempotency_key=call.idempotency_key,
        run_id=call.path["run_id"],
        stage=call.body.stage,
        item=call.body.item,
    )
    return Woken(woken=call.engine.client.dispatch(command).woken)


def wake_by_key(call: Invocation[Nothing, Nothing]) -> Woken:
    """Check external work now, by the key that its stage passed to `suspend`. For webhooks, for instance."""
    command = StageWake(namespace=call.namespace, idempotency_key=call.idempotency_key, key=call.path["key"])
    return Woken(woken=call.engine.client.dispatch(command).woken)


def _action(name: str, handler: Any, hint: Hint) -> Operation[Nothing, Reason, RunChanged]:
    return Operation(
        name=f"run.{name}",
        method="POST",
        path=f"{RUN}/{name}",
        scope=Scope.OPERATE,
        body=Reason,
        reply=RunChanged,
        handler=handler,
        hint=hint,
        if_match=True,
        idempotent=True,
        errors=(RunNotFoundError, IdempotencyConflictError, InvalidCommandError),
    )


OPERATIONS: Final[Table] = (
    _action("cancel", cancel_run, Hint.DESTROYS),
    _action("terminate", terminate_run, Hint.DESTROYS),
    _action("pause", pause_run, Hint.CHANGES),
    _action("resume", resume_run, Hint.CHANGES),
    Operation(
        name="run.rerun",
        method="POST",
        path=f"{RUN}/rerun",
        scope=Scope.OPERATE,
        body=RerunRequest,
        reply=StartedRerun,
        handler=rerun,
        hint=Hint.CHANGES,
        if_match=True,
        idempotent=True,
        errors=(
            RunNotFoundError,
            RerunRefusedError,
            UnknownWorkflowError,
            ConcurrencyFullError,
            IdempotencyConflictError,
            InvalidCommandError,
        ),
    ),
    Operation(
        name="run.preview_rerun",
        method="GET",
        path=f"{RUN}/rerun-preview",
        scope=Scope.READ,
        query=RerunPoint,
        reply=RerunPreview,
        handler=preview,
        errors=(RunNotFoundError, RerunRefusedError, UnknownWorkflowError, InvalidCommandError),
    ),
    Operation(
        name="run.signal",
        method="POST",
        path=f"{RUN}/signals/{{channel}}",
        scope=Scope.START,
        body=Message,
        reply=SentMessage,
        handler=send_signal,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(
            RunNotFoundError,
            SignalRefusedError,
            ChannelClosedError,
            UnknownChannelError,
            InvalidValueError,
            UnstorableValueError,
            IdempotencyConflictError,
        ),
    ),
    Operation(
        name="run.update",
        method="POST",
        path=f"{RUN}/updates/{{name}}",
        scope=Scope.START,
        body=Arguments,
        reply=UpdateState,
        handler=send_update,
        hint=Hint.CHANGES,
        idempotent=True,
        wait=Wait.REPLY,
        reread=with_reply,
        errors=(RunNotFoundError, InvalidValueError, IdempotencyConflictError, *UPDATE_ERRORS),
    ),
    Operation(
        name="run.query",
        method="POST",
        path=f"{RUN}/queries/{{name}}",
        scope=Scope.PAYLOADS,
        body=Arguments,
        reply=PlainValue,
        handler=query_run,
        errors=(
            RunNotFoundError,
            UnknownWorkflowError,
            NotExposedError,
            QueryFailedError,
            InvalidValueError,
        ),
    ),
    Operation(
        name="run.annotate",
        method="POST",
        path=f"{RUN}/annotations",
        scope=Scope.OPERATE,
        body=NewAnnotations,
        reply=StoredAnnotations,
        handler=annotate_run,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(RunNotFoundError, InvalidCommandError, UnstorableValueError, IdempotencyConflictError),
    ),
    Operation(
        name="run.remove",
        method="DELETE",
        path=RUN,
        scope=Scope.ADMIN,
        reply=Removed,
        handler=remove_run,
        hint=Hint.DESTROYS,
        idempotent=True,
        errors=(RunNotFoundError, RemoveRefusedError, IdempotencyConflictError),
    ),
    Operation(
        name="run.wake",
        method="POST",
        path=f"{RUN}/wake",
        scope=Scope.START,
        body=WakeRequest,
        reply=Woken,
        handler=wake_stage,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(RunNotFoundError, NothingToWakeError, IdempotencyConflictError),
    ),
    Operation(
        name="wake.send",
        method="POST",
        path=f"{NAMESPACE}/wakes/{{key}}",
        scope=Scope.START,
        reply=Woken,
        handler=wake_by_key,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(NothingToWakeError, IdempotencyConflictError),
    ),
)
