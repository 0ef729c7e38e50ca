"""Rules for annotations, artifacts, AI calls and logs: from `run.annotate`, heartbeats and settles."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from holdfast.kernel.commands import (
    AiCallOutput,
    AnnotationOutput,
    ArtifactOutput,
    AttemptOutput,
    Failed,
    JobHeartbeat,
    JobRecord,
    JobSettle,
    JobSettled,
    PublishedEvent,
    QueuedStepFailed,
    RunAnnotate,
    RunAnnotated,
    RunCreate,
)
from holdfast.kernel.commands.codec import from_data
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AiCall, Annotation, AnnotationScope, Artifact
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, RunNotFoundError
from holdfast.ports.events import EVENT_BYTES_MAX, is_event_type
from holdfast.ports.json import parse
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.job import Job, job_key
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import ANNOTATIONS

T = TypeVar("T")

_DecideSettle: TypeAlias = Callable[[State, JobSettle, Micros, Ids], Decision[JobSettled]]


def reads_of_annotate(command: RunAnnotate) -> Reads:
    """Lock the newest generation of the run; read its annotations under the key."""
    name = RunName(command.namespace, command.run_id)
    return Reads(names=(name,), annotation_keys=((name, command.key),) if command.key is not None else ())


def decide_annotate(state: State, command: RunAnnotate, now: Micros, ids: Ids) -> Decision[RunAnnotated]:
    """Store the annotations, except names that the run already has under this key. Raises RunNotFoundError."""
    run = state.tables.run_named(RunName(command.namespace, command.run_id))
    if run is None:
        raise RunNotFoundError(command.run_id)
    _check_place(state, run, command)
    known = state.tables.names[ANNOTATIONS]
    of_stage = AnnotationScope.STAGE if command.item is None else AnnotationScope.ITEM
    scope = AnnotationScope.RUN if command.stage is None else of_stage
    author = command.actor or Actor()
    changes = tuple(
        Insert(
            Annotation(
                run=run.key,
                at=now,
                id=ids.new(),
                namespace=run.namespace,
                name=one.name,
                value=one.value,
                scope=scope,
                node=command.stage,
                item=command.item,
                actor_kind=author.kind,
                actor_id=author.id,
                actor_version=author.version,
                reason=command.reason,
                key=command.key,
            )
        )
        for one in command.annotations
        if (run.key, command.key, one.name) not in known
    )
    return Decision(RunAnnotated(run=run.key, generation=run.generation, stored=len(changes)), changes)


def annotations_at_start(run: Run, command: RunCreate, ids: Ids) -> Iterator[Change]:
    """Yield the changes that store the annotations of a new run."""
    if not command.annotations:
        return
    author = command.actor or Actor()
    for one in command.annotations:
        yield Insert(
            Annotation(
                run=run.key,
                at=run.created_at,
                id=ids.new(),
                namespace=run.namespace,
                name=one.name,
                value=one.value,
                actor_kind=author.kind,
                actor_id=author.id,
                actor_version=author.version,
            )
        )


def annotation_keys(command: JobHeartbeat | JobSettle | JobRecord) -> tuple[tuple[str, str], ...]:
    """Return the run and key of each annotation in this command that has a key."""
    attempts = command.attempts if isinstance(command, JobHeartbeat) else (command,)
    return tuple(
        (job_key(attempt.job).run, key)
        for attempt in attempts
        for one in attempt.outputs
        if one.kind == "annotation" and (key := _annotation(one).key) is not None
    )


def known_annotations(state: State) -> set[tuple[str, str, str]]:
    """Return the run, key and name of stored annotations, as far as they were read."""
    return set(state.tables.names[ANNOTATIONS])


def output_changes(
    job: Job,
    epoch: int,
    outputs: Iterable[AttemptOutput],
    ids: Ids,
    known: set[tuple[str, str, str]],
    *,
    artifacts: bool = False,
) -> list[Change]:
    """Return the changes that store an attempt's output; artifacts only with `artifacts`.

    `known` are the annotations with keys that are stored or decided already (see `known_annotations`). They are not
    stored again, and those of this output are added to the set.
    """
    changes: list[Change] = []
    for one in outputs:
        match one.kind:
            case "log" | "progress" | "heartbeat":
                changes.append(Insert(_note(job, epoch, one, ids)))
            case "annotation":
                annotation = _annotation(one)
                under = (job.run, annotation.key or "", annotation.name)
                if annotation.key is None or under not in known:
                    changes.append(Insert(_annotated(job, epoch, one, annotation, ids)))
                    known.add(under)
            case "artifact":
                if artifacts:
                    changes.append(Insert(_artifact(job, epoch, one)))
            case "ai_call":
                changes.append(Insert(_ai_call(job, epoch, one, ids)))
    return changes


def settle_reads_with_output(reads: Callable[[JobSettle], Reads]) -> Callable[[JobSettle], Reads]:
    """Return the function that lists the rows that a settle with output reads."""

    def reads_of_settle(command: JobSettle) -> Reads:
        """Read what the outcome needs, and the annotations with the keys of the output."""
        needed = reads(command)
        return evolve(needed, annotation_keys=annotation_keys(command)) if command.outputs else needed

    return reads_of_settle


def settle_with_output(decide: _DecideSettle) -> _DecideSettle:
    """Return the function that decides a settle with output and published events."""

    def decide_settle(state: State, command: JobSettle, now: Micros, ids: Ids) -> Decision[JobSettled]:
        """Settle the attempt, and store its output with it. The artifacts of a failed body are dropped."""
        decision = decide(state, command, now, ids)
        job = state.tables.job(job_key(command.job))
        if decision.reply.status == "fenced" or job is None:
            return decision
        check_published(command.events)
        if not command.outputs:
            return decision
        has_failed = isinstance(command.outcome, Failed | QueuedStepFailed)
        known = known_annotations(state)
        reported = output_changes(job, command.epoch, command.outputs, ids, known, artifacts=not has_failed)
        return evolve(decision, changes=(*decision.changes, *reported))

    return decide_settle


def check_published(published: Iterable[PublishedEvent]) -> None:
    """Raise InvalidCommandError if an event that a body publishes is not valid."""
    for event in published:
        if not is_event_type(event.type):
            raise InvalidCommandError(
                f"{event.type[:120]!r} is not an event type: use words of a-z 0-9 _ and dots"
            )
        if len(event.payload.inline or "") > EVENT_BYTES_MAX or event.payload.inline is None:
            raise InvalidCommandError(
                f"the event {event.type} is inline JSON text of at most {EVENT_BYTES_MAX:,} bytes"
            )


def _check_place(state: State, run: Run, command: RunAnnotate) -> None:
    if command.stage is None and command.item is not None:
        raise InvalidCommandError("item needs a stage")
    if command.item is not None and command.item < 0:
        raise InvalidCommandError(f"item is {command.item}; items count from 0")
    if command.stage is not None and command.stage not in state.plan_of(run).nodes:
        raise InvalidCommandError(f"run {run.id!r} has no stage {command.stage!r}")


def _note(job: Job, epoch: int, output: AttemptOutput, ids: Ids) -> OutputRow:
    return OutputRow(
        id=output.id or ids.new(),
        run=job.run,
        job=job.number,
        call=output.call,
        epoch=epoch,
        at=output.at,
        kind=output.kind,
        data=output.data,
    )


def _annotation(output: AttemptOutput) -> AnnotationOutput:
    return _data(output, AnnotationOutput)


def _annotated(
    job: Job, epoch: int, output: AttemptOutput, annotation: AnnotationOutput, ids: Ids
) -> Annotation:
    actor: Actor = annotation.actor
    of_stage = annotation.scope is not AnnotationScope.RUN
    return Annotation(
        run=job.run,
        at=output.at,
        id=ids.new(),
        namespace=job.namespace,
        name=annotation.name,
        value=annotation.value,
        scope=annotation.scope,
        node=(output.node or job.node) if of_stage else None,
        item=job.item if of_stage and annotation.scope is not AnnotationScope.STAGE else None,
        job=job.number,
        epoch=epoch,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_version=actor.version,
        reason=annotation.reason,
        key=annotation.key,
    )


def _artifact(job: Job, epoch: int, output: AttemptOutput) -> Artifact:
    artifact = _data(output, ArtifactOutput)
    return Artifact(
        run=job.run,
        job=job.number,
        epoch=epoch,
        name=artifact.name,
        call=output.call,
        node=output.node or job.node,
        item=job.item,
        at=output.at,
        content_type=artifact.content_type,
        size=artifact.size,
        sha256=artifact.sha256,
        blob=artifact.blob,
    )


def _ai_call(job: Job, epoch: int, output: AttemptOutput, ids: Ids) -> AiCall:
    call = _data(output, AiCallOutput)
    return AiCall(
        run=job.run,
        at=output.at,
        id=call.id or ids.new(),
        job=job.number,
        epoch=epoch,
        node=output.node or job.node,
        item=job.item,
        topic=call.topic,
        model=call.model,
        kind=call.kind,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cost=call.cost,
        duration=call.duration,
        batch=call.batch,
        batch_index=call.batch_index,
        prompt=call.prompt,
        response=call.response,
        error=call.error,
        metadata=call.metadata,
    )


def _data(output: AttemptOutput, kind: type[T]) -> T:
    try:
        return from_data(parse(output.data), kind)
    except ValueError:
        raise InvalidCommandError(f"the data of {output.kind} is not JSON") from None
