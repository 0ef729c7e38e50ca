"""JSON output of commands. Field names are part of the public contract."""

from typing import cast

from holdfast.hosts.cli.console import iso, seconds_of
from holdfast.hosts.cli.run_facts import RunDetails, StageItem, StageSummary
from holdfast.hosts.cli.step_table import StepSummary
from holdfast.hosts.inspection.annotations import AnnotationInfo
from holdfast.hosts.inspection.logs import ProgressInfo
from holdfast.hosts.inspection.run_info import error_text
from holdfast.kernel.history import events
from holdfast.ports.clock import micros
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HEARTBEAT, HistoryRow, OutputRow
from holdfast.ports.records.job import Job, limit_of_attempts
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros, Payload

Document = dict[str, object]


def run_document(run: Run, now: Micros) -> Document:
    """Return a run's row. `duration_seconds` of an active run counts until now."""
    error = cast("Document", parse(run.error)) if run.error else None
    if error is not None:
        error.pop("arguments", None)  # only code that knows the error's class can use the arguments
    return {
        "id": run.id,
        "key": run.key,
        "generation": run.generation,
        "rerun_of": None if run.rerun_of is None else run.generation - 1,
        "rerun_from": run.rerun_from,
        "is_continued": run.is_continued,
        "is_retried": run.is_retried,
        "namespace": run.namespace,
        "workflow": run.workflow,
        "version": run.version,
        "status": run.status.value,
        "queue": run.queue,
        "priority": run.priority,
        "created_at": iso(run.created_at),
        "updated_at": iso(run.updated_at),
        "ended_at": iso(run.ended_at),
        "start_at": iso(run.start_at),
        "deadline": iso(run.deadline),
        "concurrency_key": run.concurrency_key,
        "concurrency_limit": run.concurrency_limit,
        "duration_seconds": seconds_of(run_length(run, now)),
        "attributes": parse(run.attributes) if run.attributes else {},
        "error": None if error is None else {**error, "text": error_text(run)},
    }


def facts_document(facts: RunDetails) -> Document:
    """Return a run with its stages, its steps if it is a durable function, and its live jobs."""
    return {
        **run_document(facts.run, facts.now),
        "started_by": None if facts.starter is None else facts.starter.data,
        "cancelled_by": None if facts.canceller is None else facts.canceller.data,
        "stages": [_stage_document(stage, facts.now) for stage in facts.stages],
        "attempt": facts.attempt,
        "max_attempts": None if facts.attempt is None else limit_of_attempts(facts.plan.run_attempts),
        "steps": None if facts.steps is None else [_step_document(step) for step in facts.steps],
        "blocked": facts.blocked,
        "jobs": [_job_document(job, facts.holders.get(job.session or "")) for job in facts.jobs],
        "history_rows": facts.run.last_row,
        "unread": list(mailbox_from(facts.run.mailbox).unread),
        "annotations": [annotation_document(annotation) for annotation in facts.annotations],
        "progress": [_progress_document(info) for info in facts.progress],
        "published": {one.name: cast("object", parse(one.text)) for one in facts.published},
    }


def row_document(row: HistoryRow) -> Document:
    """Return a history row with its payload: the value, or the key of the blob that holds it."""
    return {
        "number": row.number,
        "type": row.type,
        "at": iso(row.at),
        "stage": row.node,
        "item": row.item,
        "epoch": row.epoch,
        "data": events.facts_of(row),
        "payload": _payload_document(row.payload),
    }


def note_document(note: OutputRow, place: StageItem | None) -> Document:
    """Return a row of attempt output: a log line, progress or heartbeat details."""
    stage, item = place or (None, None)
    return {
        "at": iso(note.at),
        "kind": note.kind,
        "stage": stage,
        "item": item,
        "job": note.job,
        "epoch": note.epoch,
        **(
            {"details": cast("object", parse(note.data))}
            if note.kind == HEARTBEAT
            else cast("Document", parse(note.data))
        ),
    }


def annotation_document(annotation: AnnotationInfo) -> Document:
    """Return an annotation of a run."""
    return {
        "name": annotation.name,
        "value": annotation.value,
        "at": iso(micros(annotation.at)),
        "scope": annotation.scope.value,
        "stage": annotation.stage,
        "item": annotation.item,
        "epoch": annotation.epoch,
        "actor": {
            "kind": annotation.actor.kind,
            "id": annotation.actor.id,
            "version": annotation.actor.version,
        },
        "reason": annotation.reason,
        "key": annotation.key,
    }


def _progress_document(progress: ProgressInfo) -> Document:
    return {
        "stage": progress.stage,
        "item": progress.item,
        "attempt": progress.attempt,
        "epoch": progress.epoch,
        "done": progress.done,
        "of": progress.of,
        "message": progress.message,
        "at": iso(micros(progress.at)),
    }


def run_length(run: Run, now: Micros) -> Micros:
    """Return the duration of a run in microseconds; of an active run until now."""
    return max(0, (now if run.ended_at is None else run.ended_at) - run.created_at)


def _stage_document(stage: StageSummary, now: Micros) -> Document:
    return {
        "name": stage.name,
        "mapped": stage.mapped,
        "state": stage.state,
        "kept_of": stage.kept_of,
        "items_done": stage.done if stage.mapped else None,
        "items_total": stage.total if stage.mapped else None,
        "attempts": stage.attempts,
        "failed_attempts": stage.failed,
        "lost_attempts": stage.lost,
        "started_at": iso(stage.started_at),
        "duration_seconds": seconds_of(stage.length(now)),
        "host": stage.host,
        "error": stage.error,
    }


def _step_document(step: StepSummary) -> Document:
    return {
        "call": step.call,
        "step": step.step,
        "state": step.state,
        "attempts": step.attempts,
        "lost_attempts": step.lost_attempts,
        "site": step.site,
        "started_at": iso(step.started_at),
        "ended_at": iso(step.last_at if step.is_over else None),
        "retry_at": iso(step.retry_at),
        "duration_seconds": seconds_of(step.length),
        "host": step.host,
        "error": step.error,
        "kept_of": step.kept_of,
    }


def _job_document(job: Job, holder: Session | None) -> Document:
    return {
        "id": job.key.text,
        "kind": job.kind.value,
        "stage": job.node,
        "item": job.item,
        "state": job.state.value,
        "queue": job.queue,
        "epoch": job.epoch,
        "attempts": job.attempts,
        "lost_attempts": job.lost_attempts,
        "max_attempts": limit_of_attempts(job.max_attempts),
        "wake_at": iso(job.wake_at),
        "leased_at": iso(job.leased_at),
        "session": job.session,
        "host": holder.host if holder is not None else None,
    }


def _payload_document(payload: Payload | None) -> Document | None:
    if payload is None:
        return None
    if payload.inline is not None:
        return {"value": parse(payload.inline)}
    return {"blob": payload.blob}
