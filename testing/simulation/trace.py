"""The trace of a simulation, line by line, with its hash. Equal seeds have equal hashes."""

import hashlib
import json
from typing import Final, cast

from holdfast.ports.changes import (
    AdvanceStreams,
    CancelExternalWork,
    Change,
    Delete,
    DeleteJobs,
    DeleteJobsOfNode,
    Insert,
    Update,
)
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.outbox import Stream
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import Payload, PlanRow
from holdfast.testing.simulation.fibers import START

_SHORT: Final = 200


class Trace:
    """The trace of one simulation."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def hash(self) -> str:
        """The SHA-256 of all lines so far, in hex."""
        return hashlib.sha256("".join(self.lines).encode()).hexdigest()

    def add(self, now: int, who: str, what: str) -> None:
        """Add a line."""
        self.lines.append(f"{(now - START) / 1_000_000:.6f} {who} {what}")


def described(change: Change) -> str:
    """Return a change as one line. Without tracebacks, which depend on the machine and the Python version."""
    match change:
        case Update(Run() as run):
            return _run("run", run)
        case Insert(HistoryRow() as row):
            where = "" if row.node is None else f" {row.node}{'' if row.item is None else f'[{row.item}]'}"
            epoch = "" if row.epoch is None else f" e{row.epoch}"
            return (
                f"row {row.run[-6:]}/{row.number} {row.type}{where}{epoch}{_payload(row.payload)}"
                f" {_without_traceback(row.data)} at {row.at - START}"
            )
        case Update(Job() as job):
            return _job("job", job)
        case Insert(Job() as job):
            return _job("+job", job)
        case Delete(key=JobKey() as key):
            return f"-job {key.run[-6:]}.{key.number}"
        case CancelExternalWork(key, node, attempts):
            return f"cancel {key[-6:]} {node} {attempts}"
        case DeleteJobs(key):
            return f"-jobs {key[-6:]}"
        case DeleteJobsOfNode(key, node):
            return f"-jobs {key[-6:]} {node}"
        case Insert(Run() as run):
            return f"{_run('+run', run)} {run.workflow}@{run.version} {run.key} parent={run.parent}"
        case Insert(Session() as session):
            return (
                f"session {session.id[-6:]} {session.host} {session.state} until {session.expires_at - START}"
            )
        case Update(LeaderLease() as leader):
            return f"leader {leader.name} {leader.session[-6:]} until {leader.expires_at - START}"
        case Insert(OutputRow() as note):
            return f"+note {note.run[-6:]}.{note.job} e{note.epoch} {note.kind} {note.data[:_SHORT]}"
        case AdvanceStreams(head):
            return f"outbox-head {head.sink[-6:]} {head.run[-6:]} {head.head_row}"
        case Update(Stream() as stream):
            due = None if stream.due_at is None else stream.due_at - START
            return (
                f"stream {stream.sink[-6:]} {stream.run[-6:]} {stream.delivered}/{stream.head_row}"
                f" {stream.state}"
                f" due {due} refused {stream.refused_row} attempts {stream.attempts}"
            )
        case Insert(PlanRow() as plan):
            return f"+plan {plan.workflow}@{plan.version} {plan.fingerprint[:8]}"
        case _:
            return str(change)


def _run(verb: str, run: Run) -> str:
    ended = f" result={run.result} error={_without_traceback(run.error)}" if run.ended_at else ""
    return (
        f"{verb} {run.key[-6:]} {run.id}.{run.generation} {run.status} rows={run.last_row}"
        f" jobs={run.open_jobs}"
        f" at {run.progress}{ended}"
    )


def _job(verb: str, job: Job) -> str:
    item = "" if job.item is None else f"[{job.item}]"
    wake = "" if job.wake_at is None else f" wake={job.wake_at - START}"
    held = "" if job.session is None else f" by={job.session[-6:]}"
    return (
        f"{verb} {job.run[-6:]}.{job.number} {job.kind} {job.node}{item} {job.state} e{job.epoch}"
        f" {job.attempts}/{job.max_attempts} lost={job.lost_attempts}{wake}{held} in={job.input[:_SHORT]}"
    )


def _payload(payload: Payload | None) -> str:
    if payload is None:
        return ""
    return f" ={payload.inline[:_SHORT]}" if payload.inline is not None else f" =blob {payload.blob}"


def _without_traceback(text: str | None) -> str:
    if text is None:
        return "-"
    if '"traceback"' not in text:
        return text
    return json.dumps(_stripped(json.loads(text)), sort_keys=True)


def _stripped(value: object) -> object:
    """Return a JSON value without the tracebacks at any depth."""
    match value:
        case dict():
            facts = cast("dict[str, object]", value)
            return {name: _stripped(one) for name, one in facts.items() if name != "traceback"}
        case list():
            return [_stripped(one) for one in cast("list[object]", value)]
        case _:
            return value
