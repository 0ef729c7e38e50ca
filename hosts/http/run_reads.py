"""Operations that read runs: lists, counts, details, results, histories, logs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.http.log_events import LINE, LogEvents, log_events, log_state
from holdfast.hosts.http.operations import (
    NAMESPACE,
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
from holdfast.hosts.http.outcomes import RunOutcome, outcome_of
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_events import GenerationStarted, HistoryReader, RunEnded, history_reader
from holdfast.hosts.inspection.annotations import AnnotationInfo
from holdfast.hosts.inspection.children import ChildInfo
from holdfast.hosts.inspection.filters import CountOptions, FilterOptions, run_filter
from holdfast.hosts.inspection.logs import LogLine, LogOptions
from holdfast.hosts.inspection.run_details import RunDetails
from holdfast.hosts.inspection.run_info import RunEvent, RunInfo, find_run
from holdfast.hosts.inspection.value_filters import ValueFilter, value_from_wire
from holdfast.hosts.inspection.why import RunReasons, reasons_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.attempt_context import Level
from holdfast.ports.errors import (
    BlobMissingError,
    InvalidFilterError,
    RunNotFoundError,
)
from holdfast.ports.queries.runs import CountRuns
from holdfast.ports.records.run import RunStatus

COUNT_MAX: Final = 10_000
"""At which number a count of runs stops."""


@attrs.frozen(kw_only=True)
class RunConditions:
    """Filters for runs. A run must match all of them."""

    workflow: str | None = None
    """The name of the workflow, in any version."""
    status: tuple[RunStatus, ...] = ()
    """The run has one of these statuses. May be repeated."""
    attributes: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Attributes that the run was started with, at most 10: `attributes[tier]=gold`."""
    annotations: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Annotations of the run with string values, at most 10: `annotations[verdict]=good`."""
    attributes_where: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Conditions on attributes as JSON, at most 10: `{"at_least": "a", "below": "b"}`, `{"prefix": "a"}` or
    `{"one_of": ["a", "b"]}`."""
    annotations_where: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Conditions on annotations as JSON, at most 10: a value such as `7` or `true`, or an object such as
    `{"at_least": 10, "below": 20}`, `{"prefix": "a"}` or `{"one_of": [1, 2]}`. An instant is a string as it is stored:
    `"2026-11-29T08:00:00.000000Z"`."""
    since: datetime | None = None
    """Created at this instant or later."""
    until: datetime | None = None
    """Created before this instant."""
    ended_before: datetime | None = None
    """Ended before this instant."""
    ids: tuple[str, ...] | None = None
    """The run id is one of these, 1 to 100. May be repeated."""
    id_prefix: str | None = None
    """How the run id begins, in 1 to 256 characters; case counts."""
    queue: str | None = None
    """The queue of the run."""
    children_of: str | None = None
    """The id of the parent run."""
    error_code: str | None = None
    """The code of the error with which the run has ended."""
    error_type: str | None = None
    """The class of that error."""
    waiting: bool = False
    """Whether only runs count that wait: they are `running`, and none of their jobs is queued or runs."""

    @property
    def conditions(self) -> FilterOptions:
        """The filters as the engine takes them."""
        return FilterOptions(
            workflow=self.workflow,
            status=self.status or None,
            attributes=_values("attributes_where", self.attributes, self.attributes_where),
            annotations=_values("annotations_where", self.annotations, self.annotations_where),
            since=self.since,
            until=self.until,
            ended_before=self.ended_before,
            ids=self.ids,
            id_prefix=self.id_prefix,
            queue=self.queue,
            children_of=self.children_of,
            error_code=self.error_code,
            error_type=self.error_type,
            waiting=self.waiting,
        )


@attrs.frozen(kw_only=True)
class RunsFilter(RunConditions):
    """Filters for runs. A run must match all of them."""

    all_generations: bool = False
    """Whether older generations count too."""

    @property
    def options(self) -> CountOptions:
        """The filters as the engine takes them."""
        return CountOptions(**self.conditions, all_generations=self.all_generations)


@attrs.frozen(kw_only=True)
class RunsQuery(RunsFilter, PageQuery):
    """The query parameters of a list of runs."""

    oldest_first: bool = False
    """Whether the oldest run comes first; otherwise the newest."""


@attrs.frozen(kw_only=True)
class RunPage:
    """A page of a list of runs."""

    items: tuple[RunInfo, ...]
    """The runs."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class RunCount:
    """A number of runs."""

    total: int
    """How many runs match; 10,000 if there are more."""
    by_status: Mapping[RunStatus, int]
    """How many of those that were counted have each status."""
    more: bool
    """Whether there are more than were counted."""


@attrs.frozen(kw_only=True)
class HistoryQuery(GenerationQuery):
    """The query parameters of a history."""

    after: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """Only events with a greater number."""
    limit: int = attrs.field(default=100, validator=[attrs.validators.ge(1), attrs.validators.le(1_000)])
    """The maximum number of events, at most 1,000."""


@attrs.frozen(kw_only=True)
class HistoryPage:
    """A page of the history of a run."""

    items: tuple[RunEvent, ...]
    """The events, in order."""
    next: int | None
    """The `after` of the next page; null if there was none when this page was read."""


@attrs.frozen(kw_only=True)
class ChildrenQuery(GenerationQuery, PageQuery):
    """The query parameters of a list of child runs."""


@attrs.frozen(kw_only=True)
class ChildPage:
    """A page of a list of child runs."""

    items: tuple[ChildInfo, ...]
    """The child runs, newest first."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class LogQuery(PageQuery):
    """The query parameters of a log."""

    level: Level | None = None
    """Lines of this level or a higher one."""
    stage: str | None = None
    """Only lines of this stage."""
    item: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))
    """Only lines of this item of the stage."""


@attrs.frozen(kw_only=True)
class LogPage:
    """A page of the log of a run."""

    items: tuple[LogLine, ...]
    """The lines, in order of time."""
    next: str | None
    """The `after` of the next page; null if there was none when this page was read."""


@attrs.frozen(kw_only=True)
class AnnotationsQuery(PageQuery):
    """The query parameters of a list of annotations."""

    name: str | None = None
    """Only annotations with this name."""
    prefix: str | None = None
    """Only annotations whose name begins with this."""
    stage: str | None = None
    """Only annotations of this stage, its items or its attempts."""


@attrs.frozen(kw_only=True)
class AnnotationPage:
    """A page of the annotations of a run."""

    items: tuple[AnnotationInfo, ...]
    """The annotations, oldest first."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class PlainValue:
    """A value."""

    value: object
    """The value as JSON."""


def _values(option: str, texts: Mapping[str, str], where: Mapping[str, str]) -> dict[str, ValueFilter]:
    """Return both kinds of conditions on values by their names. Raises InvalidFilterError."""
    for name in where:
        if name in texts:
            raise InvalidFilterError(
                option, f"has {name!r:.80}, for which there is a text too; leave one out"
            )
    return {**texts, **{name: value_from_wire(option, text) for name, text in where.items()}}


def list_runs(call: Invocation[RunsQuery, Nothing]) -> RunPage:
    """List runs, newest first."""
    query = call.query
    found = call.engine.runs(
        **query.options, oldest_first=query.oldest_first, after=query.after, limit=query.limit + 1
    )
    items, last = page_of(found, query.limit)
    return RunPage(items=items, next=None if last is None else last.cursor)


def count_runs(call: Invocation[RunsFilter, Nothing]) -> RunCount:
    """Count runs, up to 10,000.

    A count of all runs takes as long as there are runs, so this one stops.
    """
    return count_upto(call.engine.core, call.query, COUNT_MAX)


def count_upto(core: Core, which: RunsFilter, most: int) -> RunCount:
    """Count runs, up to a number."""
    conditions = run_filter(core.namespace, which.options, "count")
    core.connect()
    found = core.stores.persistence.read(CountRuns(conditions, most + 1))
    total = sum(found.values())
    by_status = {status: found[status] for status in RunStatus if found.get(status)}
    return RunCount(total=min(total, most), by_status=by_status, more=total > most)


def get_run(call: Invocation[GenerationQuery, Nothing]) -> RunDetails:
    """Get a run, with its stages or steps, jobs, child runs and outputs.

    Long lists and values are cut; the fields say where.
    """
    return call.run.details(generation=call.query.generation)


def get_outcome(call: Invocation[GenerationQuery, Nothing]) -> RunOutcome:
    """Get the result of a run, or why it has none.

    A run that continues as new, or is retried as a whole, is followed to its newest generation.
    """
    return outcome_of(
        call.engine.core, find_run(call.engine.core, call.path["run_id"], call.query.generation)
    )


def get_input(call: Invocation[GenerationQuery, Nothing]) -> PlainValue:
    """Get the input of a run; of a durable function, an object of its arguments by name."""
    return PlainValue(value=call.run.input(generation=call.query.generation))


def get_reasons(call: Invocation[GenerationQuery, Nothing]) -> RunReasons:
    """Explain why a run does not proceed, or how it ended."""
    core = call.engine.core
    return reasons_of(core, find_run(core, call.path["run_id"], call.query.generation))


def get_history(call: Invocation[HistoryQuery, Nothing]) -> HistoryPage:
    """Read the history of a run.

    As a stream, it begins after the event of `Last-Event-ID`, or after `after`, and continues into later generations.
    The id of an event is `<generation>/<number>`. `generation` announces the rows of another generation. `end` is sent
    when the run has ended and all rows were sent. A client that reconnects then gets 204.
    """
    query = call.query
    found = call.run.history(after=query.after, limit=query.limit + 1, generation=query.generation)
    items, last = page_of(found, query.limit)
    return HistoryPage(items=items, next=None if last is None else last.number)


def stream_history(call: Invocation[HistoryQuery, Nothing], last: str | None) -> HistoryReader:
    """Return a reader of the history as events."""
    return history_reader(
        call.engine.core,
        call.path["run_id"],
        generation=call.query.generation,
        after=call.query.after,
        last=last,
        sees_values=call.sees_values(),
    )


def list_children(call: Invocation[ChildrenQuery, Nothing]) -> ChildPage:
    """List the child runs that a run started, newest first."""
    query = call.query
    found = call.run.children(generation=query.generation, after=query.after, limit=query.limit + 1)
    items, last = page_of(found, query.limit)
    return ChildPage(items=items, next=None if last is None else last.cursor)


def read_log(call: Invocation[LogQuery, Nothing]) -> LogPage:
    """Read the log lines of a run.

    As a stream, it has each line once, with the type `line` and the id `<generation>/<number>`, in the order in which
    the lines were stored: a worker may store a line later than lines that were logged after it. It continues into later
    generations. `generation` announces the lines of another generation. `end` is sent when the run has ended and all
    lines were sent. A client that reconnects then gets 204. `limit` does not count.
    """
    items, last = page_of(call.run.logs(**_log_options(call.query)), call.query.limit)
    return LogPage(items=items, next=None if last is None else last.cursor)


def stream_log(call: Invocation[LogQuery, Nothing], last: str | None) -> LogEvents:
    """Return a reader of the log as events."""
    return log_events(call.engine.core, call.path["run_id"], last, _log_options(call.query))


def state_of_log(call: Invocation[LogQuery, Nothing]) -> object:
    """Return what differs whenever the stream of the log has something new."""
    return log_state(call.engine.core, call.path["run_id"])


def _log_options(query: LogQuery) -> LogOptions:
    options = LogOptions(stage=query.stage, item=query.item, after=query.after)
    if query.level is not None:
        options["level"] = query.level
    return options


def list_annotations(call: Invocation[AnnotationsQuery, Nothing]) -> AnnotationPage:
    """List the annotations of a run, oldest first."""
    query = call.query
    found = call.run.annotations(
        name=query.name, prefix=query.prefix, stage=query.stage, after=query.after, limit=query.limit + 1
    )
    items, last = page_of(found, query.limit)
    return AnnotationPage(items=items, next=None if last is None else last.cursor)


def get_published(call: Invocation[Nothing, Nothing]) -> PlainValue:
    """Get the latest value that a durable function published under a name; null if it has published none."""
    return PlainValue(value=call.run.published(call.path["name"]))


OPERATIONS: Final[Table] = (
    Operation(
        name="run.list",
        method="GET",
        path=f"{NAMESPACE}/runs",
        scope=Scope.READ,
        query=RunsQuery,
        reply=RunPage,
        handler=list_runs,
        wait=Wait.CHANGE,
        errors=(InvalidFilterError,),
    ),
    Operation(
        name="run.count",
        method="GET",
        path=f"{NAMESPACE}/runs:count",
        scope=Scope.READ,
        query=RunsFilter,
        reply=RunCount,
        handler=count_runs,
        wait=Wait.CHANGE,
        errors=(InvalidFilterError,),
    ),
    Operation(
        name="run.get",
        method="GET",
        path=RUN,
        scope=Scope.READ,
        query=GenerationQuery,
        reply=RunDetails,
        handler=get_run,
        wait=Wait.CHANGE,
        errors=(RunNotFoundError,),
    ),
    Operation(
        name="run.result",
        method="GET",
        path=f"{RUN}/result",
        scope=Scope.PAYLOADS,
        query=GenerationQuery,
        reply=RunOutcome,
        handler=get_outcome,
        wait=Wait.END,
        errors=(RunNotFoundError, BlobMissingError),
    ),
    Operation(
        name="run.input",
        method="GET",
        path=f"{RUN}/input",
        scope=Scope.PAYLOADS,
        query=GenerationQuery,
        reply=PlainValue,
        handler=get_input,
        errors=(RunNotFoundError, BlobMissingError),
    ),
    Operation(
        name="run.why",
        method="GET",
        path=f"{RUN}/why",
        scope=Scope.READ,
        query=GenerationQuery,
        reply=RunReasons,
        handler=get_reasons,
        wait=Wait.CHANGE,
        errors=(RunNotFoundError,),
    ),
    Operation(
        name="run.history",
        method="GET",
        path=f"{RUN}/history",
        scope=Scope.READ,
        query=HistoryQuery,
        reply=HistoryPage,
        handler=get_history,
        wait=Wait.ROWS,
        stream=stream_history,
        events={"": RunEvent, "generation": GenerationStarted, "end": RunEnded},
        errors=(RunNotFoundError,),
    ),
    Operation(
        name="run.children",
        method="GET",
        path=f"{RUN}/children",
        scope=Scope.READ,
        query=ChildrenQuery,
        reply=ChildPage,
        handler=list_children,
        wait=Wait.CHANGE,
        errors=(RunNotFoundError, InvalidFilterError),
    ),
    Operation(
        name="run.logs",
        method="GET",
        path=f"{RUN}/logs",
        scope=Scope.PAYLOADS,
        query=LogQuery,
        reply=LogPage,
        handler=read_log,
        wait=Wait.CHANGE,
        stream=stream_log,
        stream_state=state_of_log,
        events={LINE: LogLine, "generation": GenerationStarted, "end": RunEnded},
        changes_without_rows=True,
        errors=(RunNotFoundError, InvalidFilterError),
    ),
    Operation(
        name="run.annotations",
        method="GET",
        path=f"{RUN}/annotations",
        scope=Scope.PAYLOADS,
        query=AnnotationsQuery,
        reply=AnnotationPage,
        handler=list_annotations,
        wait=Wait.CHANGE,
        changes_without_rows=True,
        errors=(RunNotFoundError, InvalidFilterError),
    ),
    Operation(
        name="run.published",
        method="GET",
        path=f"{RUN}/published/{{name}}",
        scope=Scope.PAYLOADS,
        reply=PlainValue,
        handler=get_published,
        wait=Wait.CHANGE,
        errors=(RunNotFoundError,),
    ),
)
