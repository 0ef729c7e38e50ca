"""Operations that read what a run was sent, and what its attempts wrote.

Messages, artifacts, calls of AI models, progress, and whole values.
"""

from hashlib import sha256
from typing import Final, Literal

import attrs

from holdfast.hosts.execution.artifacts import ArtifactInfo, artifact_info, artifacts_of
from holdfast.hosts.http.downloads import BYTES, SHOWN_TYPES, Download, check_size
from holdfast.hosts.http.operations import (
    RUN,
    GenerationQuery,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Table,
    Wait,
    page_of,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.inspection.ai_calls import AiCallInfo, AiTotals
from holdfast.hosts.inspection.logs import ProgressInfo
from holdfast.hosts.inspection.messages import MessageInfo, newest_messages
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.inspection.values import part_result_text
from holdfast.ports.errors import (
    ArtifactMissingError,
    BlobCorruptError,
    BlobMissingError,
    InvalidFilterError,
    NoBlobStoreError,
    ResultMissingError,
    RunNotFoundError,
)
from holdfast.ports.queries.history import HistoryOf

ITEM: Final = attrs.validators.optional(attrs.validators.ge(0))


@attrs.frozen(kw_only=True, slots=False)  # another inherits from it and from one class more
class ArtifactQuery:
    """The query parameters that select artifacts."""

    stage: str | None = None
    """Only those of this stage or step."""
    item: int | None = attrs.field(default=None, validator=ITEM)
    """Only those of this item of the stage."""


@attrs.frozen(kw_only=True)
class ArtifactsQuery(ArtifactQuery):
    """The query parameters of a list of artifacts."""

    name: str | None = None
    """Only artifacts of this name."""
    after: int = attrs.field(default=0, validator=[attrs.validators.ge(0), attrs.validators.le(1_000_000)])
    """The `next` of the page before."""
    limit: int = attrs.field(default=50, validator=[attrs.validators.ge(1), attrs.validators.le(1_000)])
    """The maximum number of artifacts, at most 1,000."""


@attrs.frozen(kw_only=True)
class ArtifactPage:
    """A page of the artifacts of a run."""

    items: tuple[ArtifactInfo, ...]
    """The artifacts, in the order of the jobs."""
    next: int | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class MessagesQuery(GenerationQuery):
    """The query parameters of a list of messages."""

    after: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    """The `next` of the page before."""
    limit: int = attrs.field(default=50, validator=[attrs.validators.ge(1), attrs.validators.le(1_000)])
    """The maximum number of messages, at most 1,000."""


@attrs.frozen(kw_only=True)
class MessagePage:
    """A page of the messages of one generation of a run."""

    items: tuple[MessageInfo, ...]
    """The messages, newest first, each with its state."""
    next: int | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class AiCallsQuery(PageQuery):
    """The query parameters of a list of calls of AI models."""

    topic: str | None = None
    """Only calls of this topic and of the topics below it."""
    model: str | None = None
    """Only calls of this model."""
    texts: bool = False
    """Whether prompts and responses are read too; otherwise they are null."""


@attrs.frozen(kw_only=True)
class AiCallPage:
    """A page of the calls of AI models that a run made."""

    items: tuple[AiCallInfo, ...]
    """The calls, oldest first."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class AiTotalsQuery:
    """The query parameters of the totals of calls of AI models."""

    topic: str | None = None
    """Only calls of this topic and of the topics below it."""
    by: Literal["model", "topic"] = "model"
    """Whether `parts` has the totals of each model or of each topic."""


@attrs.frozen(kw_only=True)
class ProgressList:
    """The progress of a run."""

    items: tuple[ProgressInfo, ...]
    """The latest progress of each stage, and of each item of a mapped stage. At most 1,000."""


def list_messages(call: Invocation[MessagesQuery, Nothing]) -> MessagePage:
    """List the messages that a run was sent, with their states but without their values.

    A generation has the messages that were sent to it and those handed on to it. The value of a message is in its row
    of the [history](#runhistory).
    """
    query, core = call.query, call.engine.core
    run = find_run(core, call.path["run_id"], query.generation)
    items = newest_messages(core, run, query.after, query.limit)
    is_last = len(items) < query.limit
    return MessagePage(items=items, next=None if is_last else items[-1].number)


def list_artifacts(call: Invocation[ArtifactsQuery, Nothing]) -> ArtifactPage:
    """List the artifacts of a run, without their bytes."""
    query, core = call.query, call.engine.core
    run = find_run(core, call.path["run_id"])
    found = (
        one
        for one in artifacts_of(core.stores.persistence, run.key, run.inherited, query.name)
        if query.stage in {None, one.node} and query.item in {None, one.item}
    )
    end = query.after + query.limit
    listed = [one for index, one in zip(range(end + 1), found, strict=False) if index >= query.after]
    items = tuple(map(artifact_info, listed[: query.limit]))
    return ArtifactPage(items=items, next=end if len(listed) > query.limit else None)


def read_artifact(call: Invocation[ArtifactQuery, Nothing]) -> Download:
    """Read the bytes of an artifact, at most 64 MiB.

    Its media type is kept if it is one that browsers show and don't run. Anything else is sent as
    `application/octet-stream`, to be saved as a file. Name the stage or the item if several have stored one of this
    name.
    """
    query, core, name = call.query, call.engine.core, call.path["name"]
    run = find_run(core, call.path["run_id"])
    named = artifacts_of(core.stores.persistence, run.key, run.inherited, name)
    found = next(
        (one for one in named if query.stage in {None, one.node} and query.item in {None, one.item}), None
    )
    if found is not None:
        check_size(found.size)
    content = call.run.artifact(name, stage=query.stage, item=query.item)
    media_type = BYTES if found is None else found.content_type
    digest = sha256(content).hexdigest()
    return Download(
        content=content, media_type=media_type, filename=name.rpartition("/")[2] or "artifact", sha256=digest
    )


def list_ai_calls(call: Invocation[AiCallsQuery, Nothing]) -> AiCallPage:
    """List the calls of AI models that a run made, oldest first."""
    query = call.query
    found = call.run.ai_calls(
        topic=query.topic, model=query.model, texts=query.texts, after=query.after, limit=query.limit + 1
    )
    items, last = page_of(found, query.limit)
    return AiCallPage(items=items, next=None if last is None else last.cursor)


def add_up_ai_calls(call: Invocation[AiTotalsQuery, Nothing]) -> AiTotals:
    """Add up the calls of AI models that a run made: number, tokens, cost, duration."""
    return call.run.ai_totals(topic=call.query.topic, by=call.query.by)


def list_progress(call: Invocation[Nothing, Nothing]) -> ProgressList:
    """List the latest progress of each stage of a run, and of each item of a mapped stage."""
    return ProgressList(items=tuple(call.run.progress()[:1_000]))


def read_part_result(call: Invocation[GenerationQuery, Nothing]) -> Download:
    """Read the whole result of a stage, or of a step of a durable function, as JSON.

    Of a mapped stage, it is the list of the results of its items. A step that was called several times is named with
    its number, as in `charge#2`.
    """
    core, name = call.engine.core, call.path["name"]
    return _json_of(
        part_result_text(core, find_run(core, call.path["run_id"], call.query.generation), name), name
    )


def read_row_value(call: Invocation[GenerationQuery, Nothing]) -> Download:
    """Read the whole value of a history row, as JSON: an input, a result, a message. 404 if it has none."""
    core, number = call.engine.core, call.path["number"]
    run = find_run(core, call.path["run_id"], call.query.generation)
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        raise HttpError("not_found", f"{number[:50]!r} is not the number of a history row")
    rows = core.stores.persistence.read(HistoryOf(run.key, int(number) - 1, 1)) if int(number) else ()
    if not rows or rows[0].number != int(number) or rows[0].payload is None:
        raise HttpError("not_found", f"the history row {number} has no value, or does not exist")
    return _json_of(core.payloads.get(rows[0].payload), f"row-{number}")


def _json_of(text: str, name: str) -> Download:
    content = text.encode()
    check_size(len(content))
    return Download(
        content=content,
        media_type="application/json",
        filename=f"{name}.json",
        sha256=sha256(content).hexdigest(),
    )


_BLOBS: Final = (BlobMissingError, BlobCorruptError, NoBlobStoreError)

OPERATIONS: Final[Table] = (
    Operation(
        name="run.messages",
        method="GET",
        path=f"{RUN}/messages",
        scope=Scope.READ,
        query=MessagesQuery,
        reply=MessagePage,
        handler=list_messages,
        wait=Wait.CHANGE,
        errors=(RunNotFoundError,),
    ),
    Operation(
        name="run.artifacts",
        method="GET",
        path=f"{RUN}/artifacts",
        scope=Scope.PAYLOADS,
        query=ArtifactsQuery,
        reply=ArtifactPage,
        handler=list_artifacts,
        wait=Wait.CHANGE,
        changes_without_rows=True,
        errors=(RunNotFoundError, InvalidFilterError),
    ),
    Operation(
        name="run.artifact",
        method="GET",
        path=f"{RUN}/artifacts/{{name}}",
        scope=Scope.PAYLOADS,
        query=ArtifactQuery,
        reply=Download,
        handler=read_artifact,
        media_types=(BYTES, *sorted(SHOWN_TYPES)),
        errors=(RunNotFoundError, ArtifactMissingError, InvalidFilterError, *_BLOBS),
    ),
    Operation(
        name="run.ai_calls",
        method="GET",
        path=f"{RUN}/ai-calls",
        scope=Scope.PAYLOADS,
        query=AiCallsQuery,
        reply=AiCallPage,
        handler=list_ai_calls,
        wait=Wait.CHANGE,
        changes_without_rows=True,
        errors=(RunNotFoundError, InvalidFilterError, *_BLOBS),
    ),
    Operation(
        name="run.ai_totals",
        method="GET",
        path=f"{RUN}/ai-totals",
        scope=Scope.PAYLOADS,
        query=AiTotalsQuery,
        reply=AiTotals,
        handler=add_up_ai_calls,
        wait=Wait.CHANGE,
        changes_without_rows=True,
        errors=(RunNotFoundError, InvalidFilterError),
    ),
    Operation(
        name="run.progress",
        method="GET",
        path=f"{RUN}/progress",
        scope=Scope.PAYLOADS,
        reply=ProgressList,
        handler=list_progress,
        wait=Wait.CHANGE,
        changes_without_rows=True,
        errors=(RunNotFoundError,),
    ),
    Operation(
        name="run.part_result",
        method="GET",
        path=f"{RUN}/results/{{name}}",
        scope=Scope.PAYLOADS,
        query=GenerationQuery,
        reply=Download,
        handler=read_part_result,
        errors=(RunNotFoundError, ResultMissingError, *_BLOBS),
    ),
    Operation(
        name="run.row_value",
        method="GET",
        path=f"{RUN}/history/{{number}}/value",
        scope=Scope.PAYLOADS,
        query=GenerationQuery,
        reply=Download,
        handler=read_row_value,
        errors=(RunNotFoundError, *_BLOBS),
    ),
)
