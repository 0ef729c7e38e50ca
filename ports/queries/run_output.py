"""Queries for what attempts and operators recorded about a run: output, annotations, artifacts, calls of AI models."""

from typing import Literal, NamedTuple

import attrs

from holdfast.ports.attempt_output import AiCall, AiTotal, Annotation, AnnotationScope, Artifact
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Query
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.values import Micros


@attrs.frozen
class NotesInOrder(Query[tuple[OutputRow, ...]]):
    """The attempt output of a run, by `at` and id."""

    run: str
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    """The position of the last row of the page before."""
    kinds: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """The kinds to return; empty for all."""
    limit: int = attrs.field(default=1_000, kw_only=True)


class StoredLine(NamedTuple):
    """A log line with its place in the order in which the lines of its run were stored."""

    number: int
    note: OutputRow


@attrs.frozen
class LogOf(Query[tuple[StoredLine, ...]]):
    """The log lines of a run, in the order in which they were stored, after the line with number `after`.

    Numbers grow from 1. Once a line can be read, none with a lower number is stored. Some numbers have no line.
    """

    run: str
    after: int = 0
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen
class NewestLine(Query[int]):
    """The number of the log line of a run that was stored last (see `LogOf`); 0 if it has none."""

    run: str


@attrs.frozen
class NewestProgress(Query[tuple[OutputRow, ...]]):
    """The newest `progress` row of each job and call of a run that has one, by job and call."""

    run: str
    after: tuple[int, str] = attrs.field(default=(0, ""), kw_only=True)
    """Job number and call of the last row of the page before."""
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen(kw_only=True)
class AnnotationFilter:
    """A filter for annotations; all given conditions must hold."""

    name: str | None = None
    prefix: str | None = None
    """A prefix of the name."""
    actor_kind: str | None = None
    actor_id: str | None = None
    scope: AnnotationScope | None = None
    node: str | None = None
    item: int | None = None
    since: Micros | None = None
    """The first instant that counts."""
    until: Micros | None = None
    """The first instant that no longer counts."""


@attrs.frozen
class AnnotationsOf(Query[tuple[Annotation, ...]]):
    """The annotations of a run, oldest first."""

    run: str
    which: AnnotationFilter = attrs.field(factory=AnnotationFilter)
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    """The position of the last annotation of the page before."""
    limit: int = attrs.field(default=100, kw_only=True)


@attrs.frozen
class ArtifactsOf(Query[tuple[Artifact, ...]]):
    """The artifacts of a run, by job, epoch, call and name."""

    run: str
    name: str | None = attrs.field(default=None, kw_only=True)
    """If set, only artifacts of this name are returned."""
    after: tuple[int, int, str, str] | None = attrs.field(default=None, kw_only=True)
    """Job, epoch, call and name of the last artifact of the page before."""
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen
class AiCallsOf(Query[tuple[AiCall, ...]]):
    """The calls of AI models that a run made, oldest first."""

    run: str
    topic: str | None = attrs.field(default=None, kw_only=True)
    """If set, only calls of this topic and of those below it are returned."""
    model: str | None = attrs.field(default=None, kw_only=True)
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    """The position of the last call of the page before."""
    limit: int = attrs.field(default=100, kw_only=True)


@attrs.frozen
class AiTotalsOf(Query[tuple[AiTotal, ...]]):
    """The totals of the calls of AI models that a run made, sorted by model or by topic."""

    run: str
    topic: str | None = attrs.field(default=None, kw_only=True)
    """If set, only calls of this topic and of those below it count."""
    by: Literal["model", "topic"] = attrs.field(default="model", kw_only=True)
