"""The handle to one run of a server, for async code."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic, Literal, Unpack, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client.sync_run_handle import (
    STAGE,
    published_timeout_message,
    result_timeout_message,
    seconds_of,
    update_timeout_message,
)
from holdfast.hosts.execution.artifacts import ArtifactInfo
from holdfast.hosts.http.log_events import LINE
from holdfast.hosts.http.operations import PageQuery
from holdfast.hosts.http.outcomes import RunOutcome, UpdateState
from holdfast.hosts.http.output_reads import (
    AiCallPage,
    AiCallsQuery,
    AiTotalsQuery,
    ArtifactPage,
    ArtifactQuery,
    ArtifactsQuery,
    MessagePage,
    MessagesQuery,
    ProgressList,
)
from holdfast.hosts.http.published_reads import PublishedItem, PublishedPage
from holdfast.hosts.http.run_actions import (
    Arguments,
    Message,
    NewAnnotations,
    Removed,
    RerunRequest,
    RunChanged,
    SentMessage,
    StartedRerun,
    StoredAnnotations,
    WakeRequest,
    Woken,
)
from holdfast.hosts.http.run_events import GenerationStarted, RunEnded
from holdfast.hosts.http.run_reads import (
    AnnotationPage,
    AnnotationsQuery,
    ChildPage,
    ChildrenQuery,
    HistoryPage,
    HistoryQuery,
    LogPage,
    LogQuery,
    PlainValue,
)
from holdfast.hosts.http_client.answers import structured
from holdfast.hosts.http_client.server import Server, Waiter
from holdfast.hosts.http_client.starts import (
    arguments_of,
    checked_generation,
    decoded,
    generation_query,
    new_key,
    plain,
    plain_annotations,
    reason_of,
    rerun_point,
)
from holdfast.hosts.inspection.ai_calls import AiCallFilter, AiCallInfo, AiTotals
from holdfast.hosts.inspection.annotations import AnnotationInfo
from holdfast.hosts.inspection.children import ChildInfo, ChildOptions
from holdfast.hosts.inspection.filters import check_names, checked_limit
from holdfast.hosts.inspection.logs import LogLine, LogOptions, ProgressInfo
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.hosts.inspection.run_details import RunDetails
from holdfast.hosts.inspection.run_info import RunEvent
from holdfast.hosts.inspection.why import RunReasons, WaitReason
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.durations import Duration
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.json import parse
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.ports.validation import TEXT, TRUTH, check, integer

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_HISTORY_PAGE = 1_000


class RemoteRunHandle(Generic[Out]):
    """A handle to one run of a server, for async code. It refers to the newest generation of the run.

    `Client.start` and `Client.handle` return handles. Each method sends a request, which is repeated while the
    server can't be reached. Every method raises UnavailableError if it is not answered in time, and AccessDeniedError
    if the key lacks a scope.

    Attributes:
        id: The run id.
        joined: Whether the start that returned this handle joined a run, which was gathering starts.
    """

    def __init__(
        self,
        server: Server,
        id: str,
        output_type: object = object,
        *,
        joined: bool = False,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._server = server
        self._output_type = output_type
        self._part = part
        self.id = id
        self.joined = joined

    async def info(self, *, generation: int | None = None) -> RunDetails:
        """Return the status of the run, when it started, changed and ended. It is the answer of `details`.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await self.details(generation=generation)

    async def details(self, *, generation: int | None = None) -> RunDetails:
        """Return the run with its stages or steps, live jobs, child runs and outputs.

        Long lists and values are cut; the fields say where.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await self._server.call(
            "run.get", RunDetails, self._path(), query=generation_query(generation)
        )

    async def children(
        self, *, generation: int | None = None, **options: Unpack[ChildOptions]
    ) -> AsyncIterator[ChildInfo]:
        """Return the child runs that a generation of the run started, newest first. They are read page by page.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.
            options: `after` and `limit`. See `ChildOptions`.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        check_names(cast("dict[str, object]", options), ChildOptions, "children")
        query = ChildrenQuery(generation=checked_generation(generation), after=options.get("after"))
        limit = checked_limit(options.get("limit"))
        async for one in self._server.pages("run.children", ChildPage, self._path(), query, limit):
            yield one

    @overload
    async def input(self, /, *, generation: int | None = None) -> object: ...
    @overload
    async def input(self, type: TypeForm[T], /, *, generation: int | None = None) -> T: ...
    async def input(self, type: Any = object, /, *, generation: int | None = None) -> object:
        """Return the input of the run; of a durable function, a dict of its arguments by name.

        Args:
            type: The type of the input; plain JSON if omitted.
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            InvalidValueError: The input does not have this type.
        """
        found = await self._server.call(
            "run.input", PlainValue, self._path(), query=generation_query(generation)
        )
        return decoded(found.value, type)

    async def result_of(
        self, point: AnyNode[object] | Step[..., object] | str, /, *, generation: int | None = None
    ) -> object:
        """Return the whole result of a stage or a step of the run, as plain JSON.

        Args:
            point: A stage or a step, or its name. Of a step that was called more than once, `"charge#2"` is the second
                call. Of a mapped stage, the result is the list of the results of its completed items.
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            ResultMissingError: It has no result, or there is no such stage or step.
        """
        name = point if isinstance(point, str) else point.name
        check("result_of", TEXT, point=name)
        path = {**self._path(), "name": name}
        query = generation_query(generation)
        return parse((await self._server.content("run.part_result", path, query=query)).decode())

    async def row_value(self, number: int, /, *, generation: int | None = None) -> object:
        """Return the whole value of a history row, which a read of the history may cut, as plain JSON.

        Args:
            number: The number of the row.
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            ResultMissingError: There is no such row, or it has no value.
        """
        check("row_value", integer(1), number=number)
        path = {**self._path(), "number": str(number)}
        query = generation_query(generation)
        return parse((await self._server.content("run.row_value", path, query=query)).decode())

    async def progress(self) -> list[ProgressInfo]:
        """Return the progress that active bodies have reported.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return list((await self._server.call("run.progress", ProgressList, self._path())).items)

    async def messages(self, *, generation: int | None = None) -> list[MessageInfo]:
        """Return the messages of one generation in the order of arrival, each with its state.

        A generation has the messages that were sent to it and those handed on to it.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        query = MessagesQuery(generation=checked_generation(generation), limit=1_000)
        found: list[MessageInfo] = []
        while True:
            page = await self._server.call("run.messages", MessagePage, self._path(), query=query)
            found += page.items
            if page.next is None:
                return found[::-1]
            query = attrs.evolve(query, after=page.next)

    async def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts of the run, without their content.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        query, found = ArtifactsQuery(limit=1_000), list[ArtifactInfo]()
        while True:
            page = await self._server.call("run.artifacts", ArtifactPage, self._path(), query=query)
            found += page.items
            if page.next is None:
                return found
            query = attrs.evolve(query, after=page.next)

    async def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the content of an artifact, of at most 64 MiB.

        Args:
            name: The name of the artifact.
            stage: The stage that stored it; required if several stages stored one of this name.
            item: The index of the map item that stored it.

        Raises:
            RunNotFoundError: The run does not exist.
            ArtifactMissingError: No artifact matches, or more than one does.
            BlobMissingError: The blob of the artifact is missing.
            BlobCorruptError: The blob does not have the content that was stored.
        """
        check("artifact", TEXT, name=name)
        check("artifact", TEXT.or_none, stage=stage)
        check("artifact", integer(0).or_none, item=item)
        query = ArtifactQuery(stage=stage, item=item)
        return await self._server.content("run.artifact", {**self._path(), "name": name}, query=query)

    async def ai_calls(self, **options: Unpack[AiCallFilter]) -> AsyncIterator[AiCallInfo]:
        """Return the model calls of the run, oldest first. They are read page by page.

        Args:
            options: Filters: `topic` and `model`; `texts` to include prompts and responses; and `after` and `limit`.
                See `AiCallFilter`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        check_names(cast("dict[str, object]", options), AiCallFilter, "ai_calls")
        query = AiCallsQuery(
            topic=options.get("topic"),
            model=options.get("model"),
            texts=options.get("texts", False),
            after=options.get("after"),
        )
        limit = checked_limit(options.get("limit"))
        async for one in self._server.pages("run.ai_calls", AiCallPage, self._path(), query, limit):
            yield one

    async def ai_totals(
        self, *, topic: str | None = None, by: Literal["model", "topic"] = "model"
    ) -> AiTotals:
        """Return the tokens and the cost of the model calls of the run.

        Args:
            topic: Only calls of this topic and of the topics below it.
            by: Whether `parts` has the totals per `model` or per `topic`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: `by` is neither.
        """
        check("ai_totals", TEXT.or_none, topic=topic)
        query = AiTotalsQuery(topic=topic, by=by)
        return await self._server.call("run.ai_totals", AiTotals, self._path(), query=query)

    async def outcome(self, *, generation: int | None = None) -> RunOutcome:
        """Return the result of the run, or why it has none, as it is now. Nothing is waited for.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await self._server.call(
            "run.result", RunOutcome, self._path(), query=generation_query(generation)
        )

    async def result(self, *, timeout: Duration | None = None) -> Out:
        """Wait until the run ends, and return its result.

        The server answers as soon as the run has ended. Follows continue-as-new, the attempts of a run that is retried
        as a whole, and reruns.

        Args:
            timeout: How long to wait, a timedelta or a number of seconds; no limit if omitted.

        Raises:
            TimeoutError: The run did not end within `timeout`. It continues.
            RunFailedError: The run failed.
            RunCancelledError: The run was cancelled or terminated.
            RunNotFoundError: The run does not exist.
            InvalidArgumentError: `timeout` is not a duration.
            InvalidValueError: The result does not have the output type of the workflow.
        """
        waiter = Waiter(seconds_of(timeout))
        while (wait := await waiter.next_wait()) is not None:
            outcome = await self._server.call("run.result", RunOutcome, self._path(), wait=wait)
            if outcome.status in TERMINAL:
                return self.result_in(outcome)
        raise TimeoutError(result_timeout_message(self.id, timeout))

    def whole(self) -> "RemoteRunHandle[Out]":
        """Return a handle to the same run, whose result is not only a part of the run's."""
        return RemoteRunHandle(self._server, self.id, self._output_type)

    def result_in(self, outcome: RunOutcome) -> Out:
        """Return the result in an outcome. Raises RunFailedError or RunCancelledError if it has none."""
        text = "" if outcome.error is None else outcome.error.text
        if outcome.status is RunStatus.FAILED:
            raise RunFailedError(self.id, text)
        if outcome.status is not RunStatus.COMPLETED:
            raise RunCancelledError(self.id, "" if outcome.error is None else outcome.error.message)
        whole = decoded(outcome.result, self._output_type)
        if self._part is None:
            return cast("Out", whole)
        first, items = self._part
        return cast("Out", whole[first : first + items])

    async def history(
        self, *, after: int = 0, limit: int = 1_000, generation: int | None = None
    ) -> list[RunEvent]:
        """Return the history of the run as events, in order.

        Args:
            after: Return only events with a greater number; 0 for all.
            limit: The maximum number of events.
            generation: The number of a generation, from 1; the newest one if omitted. Each has its own history.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            InvalidArgumentError: An argument is not an integer, or out of bounds.
        """
        check("history", integer(0), after=after)
        check("history", integer(1), limit=limit)
        query = HistoryQuery(generation=checked_generation(generation), after=after)
        events: list[RunEvent] = []
        while len(events) < limit:
            size = min(limit - len(events), _HISTORY_PAGE)
            page = await self._server.call(
                "run.history", HistoryPage, self._path(), query=attrs.evolve(query, limit=size)
            )
            events += page.items
            if page.next is None:
                break
            query = attrs.evolve(query, after=page.next)
        return events

    async def events(
        self, *, after: int = 0, generation: int | None = None
    ) -> AsyncIterator[RunEvent | GenerationStarted | RunEnded]:
        """Follow the history of the run: yield its events, also those that are still to come, until it has ended.

        No event is lost or repeated: after a lost connection, the stream continues after the last event, on any server
        of the same store. A `GenerationStarted` says that the events which follow are those of another generation, and
        `RunEnded` is the last one. Nothing is yielded if nothing comes after `after`, and the run has ended.

        Args:
            after: Begin after the event with this number; 0 for all.
            generation: The number of the generation to begin with, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        check("events", integer(0), after=after)
        query = HistoryQuery(generation=checked_generation(generation), after=after)
        has_seen = False
        async for frame in self._server.events("run.history", self._path(), query):
            kind = {"generation": GenerationStarted, "end": RunEnded}.get(frame.type, RunEvent)
            has_seen = True
            yield structured("the stream", frame.data, kind)
            if frame.is_end:
                return
        if has_seen:  # the connection was lost before `end`, and all else had been read
            run = await self.details()
            yield RunEnded(run_id=self.id, generation=run.generation, status=run.status)

    async def annotate(
        self,
        values: Mapping[str, object],
        /,
        *,
        reason: str = "",
        key: str | None = None,
        stage: str | None = None,
        item: int | None = None,
    ) -> StoredAnnotations:
        """Attach annotations to the run: values by name. They are never changed; annotating again adds new ones.

        Args:
            values: 1 to 100 values by name: plain JSON, or aware datetimes, which are stored as texts in UTC.
            reason: Why, for people.
            key: Annotate only once under this key: a repeated call stores nothing.
            stage: Annotate this stage instead of the run.
            item: Annotate this item of the mapped stage.

        Returns:
            Its `stored` is the number of annotations stored, 0 if the `key` was used before.

        Raises:
            RunNotFoundError: The run does not exist.
            UnstorableValueError: A value can't be stored as JSON.
            InvalidCommandError: A name or value is too long, or the stage does not exist.
        """
        check("annotate", TEXT, reason=reason)
        check("annotate", TEXT.or_none, key=key, stage=stage)
        check("annotate", integer(0).or_none, item=item)
        body = NewAnnotations(
            values=plain_annotations(values), reason=reason, key=key, stage=stage, item=item
        )
        return await self._server.call("run.annotate", StoredAnnotations, self._path(), body=body)

    async def annotations(
        self,
        *,
        name: str | None = None,
        prefix: str | None = None,
        stage: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[AnnotationInfo]:
        """Return the annotations of the run, oldest first. They are read page by page.

        Args:
            name: With this name.
            prefix: With a name that starts with this.
            stage: About this stage, its items or its attempts.
            after: Start after this position: the `cursor` of an `AnnotationInfo`.
            limit: The maximum number, at least 1; no limit if omitted.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        check("annotations", TEXT.or_none, name=name, prefix=prefix, stage=stage, after=after)
        query = AnnotationsQuery(name=name, prefix=prefix, stage=stage, after=after)
        limit = checked_limit(limit)
        async for one in self._server.pages("run.annotations", AnnotationPage, self._path(), query, limit):
            yield one

    async def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> AsyncIterator[LogLine]:
        """Return the log lines of the run, in order of time. They are read page by page.

        Args:
            follow: Wait for further lines until the run ends. A line arrives within about three seconds. Each is
                returned once, in the order in which they were stored, also over lost connections, and over reruns.
            options: Filters: `level`, `stage`, `item` and `after`. See `LogOptions`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        check_names(cast("dict[str, object]", options), LogOptions, "logs")
        query = LogQuery(**options)
        if not follow:
            async for line in self._server.pages("run.logs", LogPage, self._path(), query, None):
                yield line
            return
        async for frame in self._server.events("run.logs", self._path(), query):
            if frame.type == LINE:
                yield structured("the stream", frame.data, LogLine)

    async def cancel(self, *, reason: str = "") -> RunChanged:
        """Cancel the run. It may clean up first. Does nothing if it has ended.

        Args:
            reason: A text for the history.

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await self._server.call(
            "run.cancel", RunChanged, self._path(), body=reason_of("cancel", reason)
        )

    async def terminate(self, *, reason: str = "") -> RunChanged:
        """End the run at once as cancelled, without cleanup or compensations. Does nothing if it has ended.

        Args:
            reason: A text for the history.

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        body = reason_of("terminate", reason)
        return await self._server.call("run.terminate", RunChanged, self._path(), body=body)

    async def pause(self, *, reason: str = "") -> RunChanged:
        """Pause the run: nothing new starts until it is resumed. Bodies that are running finish as usual.

        Args:
            reason: A text for the history.

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await self._server.call("run.pause", RunChanged, self._path(), body=reason_of("pause", reason))

    async def resume(self, *, reason: str = "") -> RunChanged:
        """Resume a paused or blocked run where it stopped.

        Args:
            reason: A text for the history.

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await self._server.call(
            "run.resume", RunChanged, self._path(), body=reason_of("resume", reason)
        )

    @overload
    async def signal(self, signal: Signal, /, *, idempotency_key: str | None = None) -> SentMessage: ...
    @overload
    async def signal(
        self, channel: str, message: object = None, /, *, idempotency_key: str | None = None
    ) -> SentMessage: ...
    async def signal(
        self, signal: Signal | str, message: object = None, /, *, idempotency_key: str | None = None
    ) -> SentMessage:
        """Send a message to the run: `run.signal(approval(decision))`, or `run.signal("approval", {...})`.

        The message is stored when this returns.

        Args:
            signal: A message with its channel, or the name of a channel.
            message: With a name: the message, as plain JSON.
            idempotency_key: Sending again with the same key sends nothing and returns the first reply.

        Raises:
            RunNotFoundError: The run does not exist.
            SignalRefusedError: The run has ended, is a pipeline, or has no such channel.
            ChannelClosedError: The function has closed the channel, and is about to end.
            InvalidValueError: The message does not have the type of the channel.
            IdempotencyConflictError: The key was used for another command.
        """
        check("signal", TEXT.or_none, idempotency_key=idempotency_key)
        if isinstance(signal, Signal):
            channel, content = signal.channel, parse(signal.text)
        else:
            check("signal", TEXT, channel=signal)
            channel, content = signal, plain(message)
        path = {**self._path(), "channel": channel}
        return await self._server.call(
            "run.signal", SentMessage, path, body=Message(message=content), key=idempotency_key
        )

    @overload
    async def query(self, call: QueryCall[T], /) -> T: ...
    @overload
    async def query(self, name: str, arguments: Mapping[str, object] | None = None, /) -> object: ...
    async def query(
        self, call: QueryCall[T] | str, arguments: Mapping[str, object] | None = None, /
    ) -> T | object:
        """Query the run: `run.query(Board.status())`, or `run.query("Board.status", {...})`. Nothing is stored.

        The server replays the function, so it must have the workflow's code.

        Args:
            call: A query with its arguments, or the name of one.
            arguments: With a name: the arguments by name, as plain JSON.

        Raises:
            RunNotFoundError: The run does not exist.
            UnknownWorkflowError: The server does not have the run's workflow in its version.
            NotExposedError: The function exposes no object with this query, or not yet; or the run is a pipeline.
            QueryFailedError: The query raised an error, or did more than read.
            InvalidValueError: The arguments do not have the types of the query.
        """
        if isinstance(call, QueryCall):
            name, given = call.query, cast("dict[str, object]", parse(call.arguments))
        else:
            check("query", TEXT, name=call)
            name, given = call, arguments_of(arguments)
        path = {**self._path(), "name": name}
        found = await self._server.call("run.query", PlainValue, path, body=Arguments(arguments=given))
        return decoded(found.value, call.form.output) if isinstance(call, QueryCall) else found.value

    @overload
    async def update(
        self, call: UpdateCall[T], /, *, timeout: Duration | None = None, idempotency_key: str | None = None
    ) -> T: ...
    @overload
    async def update(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        /,
        *,
        timeout: Duration | None = None,
        idempotency_key: str | None = None,
    ) -> object: ...
    async def update(
        self,
        call: UpdateCall[T] | str,
        arguments: Mapping[str, object] | None = None,
        /,
        *,
        timeout: Duration | None = None,
        idempotency_key: str | None = None,
    ) -> T | object:
        """Send an update to the run and return its reply: `run.update(Board.move_to("e4"))`.

        A stored update is never lost. If the server has the workflow's code, the validator runs there first, and a
        rejected update is not stored. The worker that executes the run runs the validator again, then the update.

        Args:
            call: An update with its arguments, or the name of one.
            arguments: With a name: the arguments by name, as plain JSON.
            timeout: How long to wait for the reply, a timedelta or a number of seconds; no limit if omitted.
            idempotency_key: Sending again with the same key stores nothing and waits for the same reply.

        Raises:
            RunNotFoundError: The run does not exist.
            UpdateRefusedError: The run has ended or is a pipeline.
            NotExposedError: The function exposes no object with this update, or not yet.
            UpdateRejectedError: The validator rejected the update.
            UpdateFailedError: The update raised an exception.
            UpdateLostError: The run ended before the update was carried out.
            TimeoutError: No reply within `timeout`. The update stays stored and will be carried out.
            InvalidValueError: The arguments do not have the types of the update.
        """
        check("update", TEXT.or_none, idempotency_key=idempotency_key)
        if isinstance(call, UpdateCall):
            name, given = call.update, cast("dict[str, object]", parse(call.arguments))
        else:
            check("update", TEXT, name=call)
            name, given = call, arguments_of(arguments)
        waiter = Waiter(seconds_of(timeout, "update"))
        key = idempotency_key or new_key()
        path = {**self._path(), "name": name}
        while (wait := await waiter.next_wait()) is not None:
            state = await self._server.call(
                "run.update", UpdateState, path, body=Arguments(arguments=given), key=key, wait=wait
            )
            if state.is_done:
                return decoded(state.reply, call.form.output) if isinstance(call, UpdateCall) else state.reply
        raise TimeoutError(update_timeout_message(self.id, name, timeout))

    @overload
    async def published(self, name: str, /) -> object: ...
    @overload
    async def published(self, name: str, type: TypeForm[T], /) -> T | None: ...
    async def published(self, name: str, type: Any = object, /) -> object:
        """Return the latest value that the function published under a name; None if it has published none.

        Args:
            name: The name given to `publish`.
            type: The type of the value; plain JSON if omitted.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: The value does not have this type.
        """
        check("published", TEXT, name=name)
        found = await self._server.call("run.published", PlainValue, {**self._path(), "name": name})
        return None if found.value is None else decoded(found.value, type)

    @overload
    def published_values(self, name: str, /, *, follow: bool = False) -> AsyncIterator[object]: ...
    @overload
    def published_values(
        self, name: str, type: TypeForm[T], /, *, follow: bool = False
    ) -> AsyncIterator[T]: ...
    def published_values(
        self, name: str, type: Any = object, /, *, follow: bool = False
    ) -> AsyncIterator[object]:
        """Return the values that the function has published under a name, in order.

        If several were published under one name before a row was recorded, only the last of them was stored. Of those
        that are stored, none is lost or repeated: after a lost connection, the stream continues after the last one.

        Args:
            name: The name given to `publish`.
            type: The type of the values; plain JSON if omitted.
            follow: Whether to wait for further values until the run has ended, with its next generations.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: A value does not have this type.
        """
        check("published_values", TEXT, name=name)
        check("published_values", TRUTH, follow=follow)
        return self._published_values(name, type, follow=follow)

    async def _published_values(self, name: str, type: Any, *, follow: bool) -> AsyncIterator[object]:
        path = {**self._path(), "name": name}
        if not follow:
            async for one in self._server.pages(
                "run.published_values", PublishedPage, path, PageQuery(), None
            ):
                yield decoded(one.value, type)
            return
        async for frame in self._server.events("run.published_values", path, PageQuery()):
            if not frame.is_end:
                yield decoded(structured("the stream", frame.data, PublishedItem).value, type)

    @overload
    async def wait_for_published(self, name: str, /, *, timeout: Duration | None = None) -> object: ...
    @overload
    async def wait_for_published(
        self, name: str, type: TypeForm[T], /, *, timeout: Duration | None = None
    ) -> T | None: ...
    async def wait_for_published(
        self, name: str, type: Any = object, /, *, timeout: Duration | None = None
    ) -> object:
        """Wait until the function has published a value under a name, and return the latest one.

        Args:
            name: The name given to `publish`.
            type: The type of the value; plain JSON if omitted.
            timeout: How long to wait, a timedelta or a number of seconds; no limit if omitted.

        Returns:
            The value; None if the run has ended without one.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: The value does not have this type.
            TimeoutError: There is no value within `timeout`. The run continues.
            InvalidArgumentError: `timeout` is not a duration.
        """
        check("wait_for_published", TEXT, name=name)
        waiter = Waiter(seconds_of(timeout, "wait_for_published"))
        path, query = {**self._path(), "name": name}, PageQuery(limit=1)
        while (wait := await waiter.next_wait()) is not None:
            page = await self._server.call(
                "run.published_values", PublishedPage, path, query=query, wait=wait
            )
            if page.items:
                return await self.published(name, type)
            if page.ended:
                return None
            query = attrs.evolve(query, after=page.place)
        raise TimeoutError(published_timeout_message(self.id, name, timeout))

    async def remove(self) -> bool:
        """Delete an ended run from the store, with all its generations, annotations and blobs.

        Returns:
            Whether it was removed; False if the run was rerun in the meantime.

        Raises:
            RunNotFoundError: The run does not exist.
            RemoveRefusedError: The run has not ended, or something of it is still to be delivered.
        """
        return (await self._server.call("run.remove", Removed, self._path())).removed

    async def rerun_from(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        reason: str = "",
        version: str | None = None,
    ) -> StartedRerun:
        """Run the run again from a stage, step or history row, as a new generation that keeps what comes before.

        An active generation is terminated. `preview_rerun` shows which stages or steps would run again.

        Args:
            point: Where to start: a stage or a step, or its name; of a durable function also `"charge#2"` or a call
                such as `"3.1"`. If omitted, the run continues where it failed or stopped.
            row: For a durable function, instead of `point`: the number of the first history row not to keep.
            reason: A text for the history.
            version: The version of the workflow to run; the same one if omitted.

        Returns:
            The new `generation`, and the stages that it `runs` and `keeps`.

        Raises:
            RunNotFoundError: The run does not exist.
            RerunRefusedError: There is no such stage, call or row; or what comes before can't be kept.
            ConcurrencyFullError: Too many runs of its concurrency key are open.
            UnknownWorkflowError: The server does not have this version of the workflow.
            InvalidCommandError: Both `point` and `row` are given.
        """
        check("rerun_from", TEXT, reason=reason)
        where = rerun_point("rerun_from", point, row, version)
        body = RerunRequest(stage=where.stage, row=where.row, version=where.version, reason=reason)
        return await self._server.call("run.rerun", StartedRerun, self._path(), body=body)

    async def preview_rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        version: str | None = None,
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, without changing anything. Raises the same errors."""
        query = rerun_point("preview_rerun", point, row, version)
        return await self._server.call("run.preview_rerun", RerunPreview, self._path(), query=query)

    async def wake(self, stage: AnyNode[object] | str, /, *, item: int | None = None) -> Woken:
        """Check the external work of a stage now, instead of at its next poll.

        Args:
            stage: The external stage, or its name.
            item: The index of one item of a mapped stage; all items if omitted.

        Returns:
            How many stages or items are `woken`.

        Raises:
            NothingToWakeError: The stage is not suspended, and its body is not running.
            RunNotFoundError: The run does not exist.
        """
        check("wake", STAGE, stage=stage)
        check("wake", integer(0).or_none, item=item)
        body = WakeRequest(stage=stage if isinstance(stage, str) else stage.name, item=item)
        return await self._server.call("run.wake", Woken, self._path(), body=body)

    async def why(self) -> tuple[WaitReason, ...]:
        """Explain what the run waits for, or how it ended: one reason per cause. Raises RunNotFoundError."""
        return (await self.reasons()).reasons

    async def reasons(self) -> RunReasons:
        """Return what `why` returns, with the status of the run and the schedule that started it."""
        return await self._server.call("run.why", RunReasons, self._path())

    def _path(self) -> dict[str, str]:
        return {"run_id": self.id}
