"""Builders of valid rows for tests; a test names only the fields that matter to it."""

from typing import Final

from attrs import evolve
from typing_extensions import TypedDict, Unpack

from holdfast.ports.attempt_output import AiCall, AiCallKind, Annotation, AnnotationScope, Artifact
from holdfast.ports.json import compact
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential, CredentialKind
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKind, JobState, rank_of
from holdfast.ports.records.outbox import Sink, Stream, StreamState
from holdfast.ports.records.run import ClosePolicy, Run, RunStatus
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import LeaderLease, Session, SessionState
from holdfast.ports.records.values import IdempotencyReply, MapItems, Micros, Payload, PlanRow

NOW: Final[Micros] = 1_767_225_600_000_000
"""2026-01-01T00:00Z."""

SECOND: Final[Micros] = 1_000_000
NAMESPACE: Final = "default"
QUEUE: Final = "main"
DEFINITION: Final = "orders@1"


def a_key(number: int) -> str:
    """Return a key in the form of a ULID; a higher number sorts later."""
    return f"01TESTKEY{number:017d}"


class RunFields(TypedDict, total=False):
    """Fields of a Run."""

    key: str
    namespace: str
    id: str
    generation: int
    workflow: str
    version: str
    plan: str
    status: RunStatus
    queue: str
    priority: int
    created_at: Micros
    updated_at: Micros
    ended_at: Micros | None
    last_row: int
    last_job: int
    open_jobs: int
    progress: str
    result: str | None
    error: str | None
    attributes: str | None
    headers: str | None
    rerun_of: str | None
    rerun_from: str | None
    inherited: str | None
    parent: str | None
    parent_run: str | None
    close_policy: ClosePolicy
    children: int
    queue_position: Micros
    mailbox: str | None
    scheduled: str | None


class JobFields(TypedDict, total=False):
    """Fields of a Job."""

    namespace: str
    queue: str
    definition: str
    kind: JobKind
    node: str
    item: int | None
    state: JobState
    priority: int
    queue_position: Micros
    wake_at: Micros | None
    epoch: int
    attempts: int
    max_attempts: int
    session: str | None
    leased_at: Micros | None
    lost_attempts: int
    input: str
    timeout_total: Micros | None
    first_claimed_at: Micros | None
    heartbeat_timeout: Micros | None
    heartbeat_by: Micros | None
    waiting_for: str | None
    check_after: Micros | None
    give_up_at: Micros | None
    turn: int | None


class RowFields(TypedDict, total=False):
    """Fields of a HistoryRow."""

    type: str
    at: Micros
    node: str | None
    item: int | None
    epoch: int | None
    payload: Payload | None
    data: str | None


class ScheduleFields(TypedDict, total=False):
    """Fields of a ScheduleRow."""

    key: str
    namespace: str
    name: str
    workflow: str
    start: str
    timing: str
    policy: str
    zones: str
    next_at: Micros | None
    handled_until: Micros
    last_local: str | None
    started: int
    skipped: int
    missed: int
    failures: int
    recent: str
    changes: str
    open_runs: str
    paused: str | None
    problem: str | None
    declared: str | None
    updated_at: Micros


class SessionFields(TypedDict, total=False):
    """Fields of a Session."""

    host: str
    state: SessionState
    opened_at: Micros
    expires_at: Micros
    namespace: str
    principal: str | None
    is_registered: int


class ReplyFields(TypedDict, total=False):
    """Fields of an IdempotencyReply."""

    namespace: str
    fingerprint: str
    body: str
    created_at: Micros


class SinkFields(TypedDict, total=False):
    """Fields of a Sink."""

    key: str
    namespace: str
    since: Micros
    created_at: Micros
    options: str | None
    failures: int
    retry_at: Micros | None
    succeeded_at: Micros | None
    swept_at: Micros | None
    batch: str | None
    error: str | None


class StreamFields(TypedDict, total=False):
    """Fields of a Stream."""

    head_row: int
    delivered: int
    state: StreamState
    due_at: Micros | None
    holder: str | None
    attempts: int
    refused_row: int | None
    failed_at: Micros | None
    dead_lettered_at: Micros | None
    error: str | None
    skipped_rows: str | None


class NoteFields(TypedDict, total=False):
    """Fields of an OutputRow."""

    job: int
    epoch: int
    call: str
    at: Micros
    kind: str
    data: str


class AnnotationFields(TypedDict, total=False):
    """Fields of an Annotation."""

    at: Micros
    namespace: str
    name: str
    value: str
    scope: AnnotationScope
    node: str | None
    item: int | None
    job: int | None
    epoch: int | None
    actor_kind: str
    actor_id: str
    actor_version: str
    reason: str
    key: str | None


class ArtifactFields(TypedDict, total=False):
    """Fields of an Artifact."""

    epoch: int
    call: str
    node: str
    item: int | None
    at: Micros
    content_type: str
    size: int
    sha256: str
    blob: str


class AiCallFields(TypedDict, total=False):
    """Fields of an AiCall."""

    at: Micros
    job: int
    epoch: int
    node: str
    item: int | None
    topic: str
    model: str
    kind: AiCallKind
    input_tokens: int
    output_tokens: int
    cost: int | None
    duration: Micros | None
    batch: str | None
    batch_index: int | None
    prompt: Payload | None
    response: Payload | None
    error: str | None
    metadata: str | None


def a_run(number: int = 1, **fields: Unpack[RunFields]) -> Run:
    """Return a run with status running. Its key and id come from its number; higher numbers are newer."""
    run = Run(
        key=a_key(number),
        namespace=NAMESPACE,
        id=f"run-{number}",
        generation=1,
        workflow="orders",
        version="1",
        plan="f" * 64,
        status=RunStatus.RUNNING,
        queue=QUEUE,
        priority=0,
        created_at=NOW + number,
        updated_at=NOW + number,
        queue_position=rank_of(NOW, fields.get("priority", 0)),
    )
    return evolve(run, **fields)


def a_job(run: int | str = 1, number: int = 1, **fields: Unpack[JobFields]) -> Job:
    """Return a queued job of a run, which is given by its number or key."""
    job = Job(
        run=_run_key(run),
        number=number,
        namespace=NAMESPACE,
        queue=QUEUE,
        definition=DEFINITION,
        kind=JobKind.STAGE,
        node="bill",
        max_attempts=3,
        queue_position=rank_of(NOW, fields.get("priority", 0)),
    )
    return evolve(job, **fields)


def a_leased_job(run: int | str = 1, number: int = 1, *, session: str) -> Job:
    """Return a job that a session has leased."""
    job = a_job(run, number, state=JobState.LEASED, session=session)
    return evolve(job, epoch=1, attempts=1, leased_at=NOW)


def a_row(run: int | str = 1, number: int = 1, **fields: Unpack[RowFields]) -> HistoryRow:
    """Return a row of a run's history."""
    row = HistoryRow(run=_run_key(run), number=number, type="stage.retrying", at=NOW + number)
    return evolve(row, **fields)


def a_completed_row(
    run: int | str = 1, number: int = 1, *, node: str = "bill", item: int | None = None, output: str = "1"
) -> HistoryRow:
    """Return the history row of a completed stage or map item. `output` is JSON text."""
    payload = Payload(inline=output)
    return a_row(run, number, type="stage.completed", node=node, item=item, epoch=1, payload=payload)


def a_failed_row(
    run: int | str = 1, number: int = 1, *, node: str = "bill", item: int | None = None, why: str = "{}"
) -> HistoryRow:
    """Return the history row of a failed map item, in a map that tolerates failures. `why` is JSON text."""
    payload = Payload(inline=why)
    return a_row(run, number, type="stage.failed", node=node, item=item, epoch=1, payload=payload)


def a_page(
    run: int | str = 1, page: int = 0, *, node: str = "bill", items: tuple[Payload, ...] = ()
) -> MapItems:
    """Return a page of the items of a map."""
    text = compact([[item.inline, item.blob] for item in items])
    return MapItems(run=_run_key(run), node=node, page=page, items=text)


def a_plan(number: int = 1, body: str = '{"groups":[]}') -> PlanRow:
    """Return a plan."""
    return PlanRow(fingerprint=f"{number:064x}", workflow="orders", version="1", body=body)


def a_schedule(number: int = 1, **fields: Unpack[ScheduleFields]) -> ScheduleRow:
    """Return a schedule that is due at NOW. Its key and name come from its number; higher numbers sort later."""
    schedule = ScheduleRow(
        key=a_key(number),
        namespace=NAMESPACE,
        name=f"schedule-{number:03d}",
        workflow="orders",
        start='{"input":{"inline":"1"},"workflow":"orders"}',
        timing='[{"anchor":0,"end":null,"kind":"every","length":60000000,"start":null}]',
        policy="{}",
        next_at=NOW,
        handled_until=NOW - 60 * SECOND,
        created_at=NOW,
        updated_at=NOW,
    )
    return evolve(schedule, **fields)


def a_session(number: int = 1, **fields: Unpack[SessionFields]) -> Session:
    """Return an open session, which expires 30 seconds after NOW."""
    session = Session(
        id=a_key(number), host="host-1", state=SessionState.OPEN, opened_at=NOW, expires_at=NOW + 30 * SECOND
    )
    return evolve(session, **fields)


def a_reply(key: str = "key-1", **fields: Unpack[ReplyFields]) -> IdempotencyReply:
    """Return the stored reply to a command with an idempotency key."""
    reply = IdempotencyReply(
        namespace=NAMESPACE, key=key, fingerprint="a" * 64, body='{"ok":true}', created_at=NOW
    )
    return evolve(reply, **fields)


def a_leader_lease(
    name: str = "maintenance", *, session: int = 1, until: Micros = NOW + SECOND
) -> LeaderLease:
    """Return a leader lease that a session holds."""
    return LeaderLease(name=name, session=a_key(session), expires_at=until)


def a_sink(name: str = "audit", **fields: Unpack[SinkFields]) -> Sink:
    """Return a sink that receives events from NOW on. Its key is derived from its name."""
    return evolve(
        Sink(key=f"01SINK{name.upper()}", namespace=NAMESPACE, name=name, since=NOW, created_at=NOW), **fields
    )


def a_stream(run: int | str = 1, sink: str = "audit", **fields: Unpack[StreamFields]) -> Stream:
    """Return the stream of a run to the sink of `a_sink(sink)`, with one row to deliver."""
    stream = Stream(sink=a_sink(sink).key, run=_run_key(run), head_row=1, due_at=NOW)
    return evolve(stream, **fields)


def a_note(number: int = 1, run: int | str = 1, **fields: Unpack[NoteFields]) -> OutputRow:
    """Return a row of attempt output."""
    note = OutputRow(
        id=a_key(number), run=_run_key(run), job=1, epoch=1, at=NOW + number, kind="log", data='"hello"'
    )
    return evolve(note, **fields)


def an_annotation(number: int = 1, run: int | str = 1, **fields: Unpack[AnnotationFields]) -> Annotation:
    """Return an annotation of a run; a higher number is later."""
    annotation = Annotation(
        run=_run_key(run),
        at=NOW + number,
        id=a_key(number),
        namespace=NAMESPACE,
        name="reviewed",
        value='"yes"',
    )
    return evolve(annotation, **fields)


def an_artifact(
    name: str = "report", run: int | str = 1, job: int = 1, **fields: Unpack[ArtifactFields]
) -> Artifact:
    """Return an artifact of a run's job."""
    artifact = Artifact(
        run=_run_key(run),
        job=job,
        epoch=1,
        name=name,
        node="bill",
        at=NOW,
        content_type="text/plain",
        size=3,
        sha256="a" * 64,
        blob=f"default/x/{name}",
    )
    return evolve(artifact, **fields)


def an_ai_call(number: int = 1, run: int | str = 1, **fields: Unpack[AiCallFields]) -> AiCall:
    """Return a model call; a higher number is later."""
    call = AiCall(
        run=_run_key(run),
        at=NOW + number,
        id=a_key(number),
        job=1,
        epoch=1,
        node="bill",
        topic="report",
        model="m-1",
        kind=AiCallKind.TEXT,
    )
    return evolve(call, **fields)


def a_credential(number: int = 1) -> Credential:
    """Return a credential; one with a higher number has a higher id."""
    return Credential(
        id=f"credential{number:02d}",
        kind=CredentialKind.KEY,
        label=f"label-{number}",
        unique_label=f"label-{number}",
        principal="ann",
        scopes="read start",
        namespaces=NAMESPACE,
        hash="a" * 64,
        created_at=NOW,
    )


def a_browser_session(number: int = 1) -> BrowserSession:
    """Return a browser session; one with a higher number has a higher id."""
    return BrowserSession(
        id=f"browser{number:05d}",
        hash=f"{number:064x}",
        kind="key",
        principal="ann",
        credential="credential01",
        credential_hash="a" * 64,
        scopes="read",
        namespaces=NAMESPACE,
        created_at=NOW,
        used_at=NOW,
        idle=10 * SECOND,
        expires_at=NOW + 60 * SECOND,
        ends_at=NOW + 10 * SECOND,
    )


def an_audit_entry(number: int = 1) -> AuditEntry:
    """Return an audit entry; one with a higher number has a higher id."""
    return AuditEntry(
        namespace=NAMESPACE, at=NOW, id=a_key(number), action="run.remove", target="x", details="{}"
    )


def _run_key(run: int | str) -> str:
    return a_key(run) if isinstance(run, int) else run
