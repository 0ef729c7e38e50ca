"""The handle to one run, for synchronous code."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from typing import Any, Final, Generic, Literal, Unpack, cast, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.queries import UpdateReplyReader, answer_query, store_update
from holdfast.hosts.execution.artifacts import (
    ArtifactInfo,
    artifact_bytes,
    artifact_info,
    artifacts_of,
    check_artifact_query,
)
from holdfast.hosts.execution.event_loops import CLOSED
from holdfast.hosts.functions.history_document import RunHistory, read_history
from holdfast.hosts.functions.published_values import PublishedValueReader, published_value
from holdfast.hosts.inspection.ai_calls import AiCallFilter, AiCallInfo, AiTotals, ai_calls_of, ai_totals_of
from holdfast.hosts.inspection.annotations import (
    AnnotateOptions,
    AnnotationInfo,
    AnnotationOptions,
    annotate_command,
    annotations_of,
)
from holdfast.hosts.inspection.children import ChildInfo, ChildOptions, children_of
from holdfast.hosts.inspection.logs import (
    FOLLOW_INTERVAL,
    LogLine,
    LogOptions,
    LogReader,
    ProgressInfo,
    progress_of,
)
from holdfast.hosts.inspection.messages import MessageInfo, message_of, messages_of
from holdfast.hosts.inspection.run_details import RunDetails, read_run, read_steps
from holdfast.hosts.inspection.run_info import (
    RunEvent,
    RunInfo,
    ended_reason,
    error_text,
    find_run,
    raised_of,
    read_events,
    read_info,
)
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.values import input_text, part_result_text, result_text
from holdfast.hosts.inspection.why import WaitReason, why_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import (
    RunAnnotated,
    RunCancel,
    RunCreated,
    RunPause,
    RunPaused,
    RunRemove,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunSignal,
    RunSignalled,
    RunStopped,
    RunTerminate,
    StagesWoken,
    StageWake,
)
from holdfast.kernel.history.exceptions import error_if_known
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.kernel.values import decode
from holdfast.ports.actors import Actor
from holdfast.ports.durations import Duration, length_of
from holdfast.ports.errors import (
    EngineClosedError,
    NothingToWakeError,
    RunCancelledError,
    RunFailedError,
    UnreadableRowError,
)
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.validation import TEXT, TRUTH, an, check, duration, integer

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

NEW_SECONDS: Final = 0.02
"""Seconds for which `result_of_new` waits for a notification before it reads a run that was just started."""


class SyncRunHandle(Generic[Out]):
    """A handle to one run, for synchronous code. It refers to the newest generation of the run.

    `Engine.start` and `Engine.handle` return handles. Each method reads the store, and raises UnavailableError if the
    store can't be reached.

    Attributes:
        id: The run id.
        joined: Whether the start that returned this handle joined a run, which was gathering starts.
    """

    def __init__(
        self,
        client: Client,
        id: str,
        output_type: object,
        key: str | None = None,
        *,
        joined: bool = False,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._client = client
        self._core = client.core
        self._output_type = output_type
        self.id = id
        self.joined = joined
        self._part = part
        self.newest_key = key
        """The key of the newest generation that this handle has read; None before the first read."""

    @property
    def core(self) -> Core:
        """The services of the engine, for operations that the handle has no method for."""
        return self._core

    def info(self, *, generation: int | None = None) -> RunInfo:
        """Return the status of the run, when it started, changed and ended, and its parent if it is a child run.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return read_info(self._core, self._row(generation))

    def details(self, *, generation: int | None = None) -> RunDetails:
        """Return the run with its stages or steps, live jobs, child runs and outputs, as `holdfast run show` does.

        Long lists and values are cut; the fields say where.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return read_run(self._core, self._row(generation, "details"))

    def steps(self, *, generation: int | None = None) -> tuple[StepDetails, ...]:
        """Return the last 1,000 steps that a durable function called, the latest change last; empty for a pipeline.

        They are derived from the first 20,000 rows of the history. `result_of` returns a result that was cut.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return read_steps(self._core, self._row(generation, "steps"))

    def children(
        self, *, generation: int | None = None, **options: Unpack[ChildOptions]
    ) -> Iterator[ChildInfo]:
        """Return the child runs that a generation of the run started, newest first. They are read page by page.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.
            options: `after` and `limit`. See `ChildOptions`.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        return children_of(self._core, self._row(generation, "children"), options)

    @overload
    def input(self, /, *, generation: int | None = None) -> object: ...
    @overload
    def input(self, type: TypeForm[T], /, *, generation: int | None = None) -> T: ...
    def input(self, type: Any = object, /, *, generation: int | None = None) -> object:
        """Return the input of the run; of a durable function, a dict of its arguments by name.

        Args:
            type: The type of the input; plain JSON if omitted.
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            InvalidValueError: The input does not have this type.
            BlobMissingError: The blob of the input is missing.
        """
        return decode(input_text(self._core, self._row(generation, "input")), type)

    @overload
    def result_of(
        self, point: AnyNode[object] | Step[..., object] | str, /, *, generation: int | None = None
    ) -> object: ...
    @overload
    def result_of(
        self,
        point: AnyNode[object] | Step[..., object] | str,
        type: TypeForm[T],
        /,
        *,
        generation: int | None = None,
    ) -> T: ...
    def result_of(
        self,
        point: AnyNode[object] | Step[..., object] | str,
        type: Any = object,
        /,
        *,
        generation: int | None = None,
    ) -> object:
        """Return the result of a stage, or of a step of a durable function.

        Args:
            point: A stage or a step, or its name. Of a step that was called more than once, `"charge#2"` is the second
                call, and `"3.1"` the call of this name in `steps()`. Of a mapped stage, the result is the list of the
                results of its completed items.
            type: The type of the result; plain JSON if omitted.
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            ResultMissingError: There is no such stage or step, it has not completed, or there are several such calls.
            InvalidValueError: The result does not have this type.
            BlobMissingError: The blob of the result is missing.
        """
        check("result_of", _POINT, point=point)
        name = point.name if isinstance(point, PlanNode | Step) else point
        return decode(part_result_text(self._core, self._row(generation, "result_of"), name), type)

    def result(self, *, timeout: Duration | None = None) -> Out:
        """Wait until the run ends, and return its result.

        If the workflow splits the results of gathered starts, the handle that a start returned gives its own part.

        Waits for the generation that is the newest at the time of the call, and follows continue-as-new and the
        attempts of a run that is retried as a whole. If the run is rerun in the meantime, the call raises
        RunCancelledError; call it again to wait for the new generation.

        Args:
            timeout: How long to wait, a timedelta or a number of seconds; no limit if omitted.

        Raises:
            TimeoutError: The run did not end within `timeout`. It continues.
            RunFailedError: The run failed. If the original exception is known, it is the `__cause__`.
            RunCancelledError: The run was cancelled or terminated.
            RunNotFoundError: The run does not exist.
            InvalidArgumentError: `timeout` is not a duration.
            InvalidValueError: The result does not have the output type of the workflow.
            EngineClosedError: The engine was closed during the wait.
            BlockedLoopError: The call would block the event loop of a worker of this engine.
        """
        seconds = seconds_of(timeout)
        self._core.lifecycle.check_may_block("result()")
        monotonic = self._core.stores.clock.monotonic
        until = None if seconds is None else monotonic() + seconds
        while True:
            # Subscribe before reading: a run that ends in between would go unnoticed.
            listened = self.newest_key
            end = None if listened is None else self._core.listener.when_ended(listened)
            try:
                run = self.row()
                if run.status not in TERMINAL:
                    if end is None or run.key != listened:
                        continue
                    run = end.result(None if until is None else max(0.0, until - monotonic()))
            except FutureTimeoutError:
                raise TimeoutError(result_timeout_message(self.id, timeout)) from None
            except CancelledError:
                raise EngineClosedError(CLOSED) from None
            finally:
                if end is not None:
                    end.cancel()
            if not run.has_successor:
                break
        return self.output(run)

    def history(self, *, after: int = 0, limit: int = 1_000, generation: int | None = None) -> list[RunEvent]:
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
        return read_events(self._core, self._row(generation, "history").key, after, limit)

    def export_history(self, *, generation: int | None = None) -> RunHistory:
        """Return the input and the whole history of the run, with all values, as one document.

        Pass it to `holdfast.testing.replay`, or save its `to_json()`, which is what `holdfast history export` writes.
        It contains the secrets in the inputs and results of the run.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            BlobMissingError: The blob of a value is missing.
        """
        return read_history(self._core, self._row(generation, "export_history"))

    def annotate(self, values: Mapping[str, object], /, **options: Unpack[AnnotateOptions]) -> RunAnnotated:
        """Attach annotations to the run: values by name. They are never changed; annotating again adds new ones.

        Runs are found by strings, numbers, booleans, datetimes and lists of strings, also by older ones:
        `engine.runs(annotations={"cents": Range(at_least=500)})`.

        Args:
            values: 1 to 100 values by name: plain JSON, or aware datetimes, which are stored as texts in UTC. A name
                has at most 200 characters, a value at most 16,384 characters as JSON.
            options: `actor` (the author), `reason`, `stage` and `item` (what it is about, if not the whole run), and
                `key` (annotate only once under this key). See `AnnotateOptions`.

        Returns:
            Its `stored` is the number of annotations stored, 0 if the `key` was used before.

        Raises:
            RunNotFoundError: The run does not exist.
            UnstorableValueError: A value can't be stored as JSON.
            InvalidCommandError: A name or value is too long, or the stage does not exist.
            InvalidArgumentError: An option has the wrong type.
        """
        command = annotate_command(self._core.namespace, self.id, values, options)
        return self._client.dispatch(command)

    def annotations(self, **options: Unpack[AnnotationOptions]) -> Iterator[AnnotationInfo]:
        """Return the annotations of the run, oldest first. They are read page by page.

        Args:
            options: Filters: `name`, `prefix`, `actor_kind`, `actor_id`, `scope`, `stage`, `item`, `since` and `until`;
                and `after` and `limit`. See `AnnotationOptions`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        return annotations_of(self._core, self._row().key, options)

    def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> Iterator[LogLine]:
        """Return the log lines of the run, in order of time. They are read page by page.

        Args:
            follow: Wait for further lines until the run ends. A line arrives within about two seconds. Each is returned
                once, in the order in which they were stored.
            options: Filters: `level`, `stage`, `item` and `after`. See `LogOptions`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        reader = self.log_reader(options)
        return _followed(reader) if follow else reader.all()

    def progress(self) -> list[ProgressInfo]:
        """Return the latest progress of each stage, and of each item of a mapped stage. Raises RunNotFoundError."""
        return list(progress_of(self._core, self._row().key))

    def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts of the run, without their bytes, in the order of the jobs. Raises RunNotFoundError."""
        run = self._row()
        return [
            artifact_info(one) for one in artifacts_of(self._core.stores.persistence, run.key, run.inherited)
        ]

    def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the bytes of an artifact.

        Args:
            name: The name of the artifact.
            stage: The stage that stored it; required if several stages stored one of this name.
            item: The index of the map item that stored it.

        Raises:
            RunNotFoundError: The run does not exist.
            ArtifactMissingError: No artifact matches, or more than one does.
            BlobMissingError: The blob of the artifact is missing.
            BlobCorruptError: The blob does not have the content that was stored.
            NoBlobStoreError: The engine has no blob store.
        """
        check_artifact_query("artifact", name, stage, item)
        run, core = self._row(), self._core
        return artifact_bytes(
            core.stores.persistence, core.payloads, run.key, run.inherited, name, stage, item
        )

    def ai_calls(self, **options: Unpack[AiCallFilter]) -> Iterator[AiCallInfo]:
        """Return the model calls that were logged in the run, oldest first. They are read page by page.

        Args:
            options: Filters: `topic` and `model`; `texts` to include prompts and responses; and `after` and `limit`.
                See `AiCallFilter`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        return ai_calls_of(self._core, self._row().key, options)

    def ai_totals(self, *, topic: str | None = None, by: Literal["model", "topic"] = "model") -> AiTotals:
        """Return the number, tokens, cost and duration of the run's model calls. The store adds them up.

        Args:
            topic: Only calls of this topic and of the topics below it.
            by: Whether `parts` has the totals per `model` or per `topic`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: `by` is neither.
        """
        check("ai_totals", TEXT.or_none, topic=topic)
        return ai_totals_of(self._core, self._row().key, topic, by)

    def log_reader(self, options: LogOptions) -> LogReader:
        """Return a reader of the run's log. Raises RunNotFoundError and InvalidFilterError."""
        return LogReader(self._core, self._row(), options)

    def cancel(self, *, reason: str = "", actor: Actor | None = None) -> RunStopped:
        """Cancel the run. Does nothing if it has ended.

        A durable function gets a CancelledError at the point where it waits, and may clean up and run its
        compensations. The run is `cancelling` until it has finished.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        check("cancel", TEXT, reason=reason)
        command = RunCancel(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._client.acting_as(actor).dispatch(command)

    def terminate(self, *, reason: str = "", actor: Actor | None = None) -> RunStopped:
        """End the run at once as cancelled, without cleanup or compensations. Does nothing if it has ended.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        check("terminate", TEXT, reason=reason)
        command = RunTerminate(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._client.acting_as(actor).dispatch(command)

    def signal(
        self, signal: Signal, /, *, idempotency_key: str | None = None, actor: Actor | None = None
    ) -> RunSignalled:
        """Send a message to the run: `run.signal(approval(decision))`. The message is stored when this returns.

        The function receives it from its channel, whether it waits there already or receives later; paused and pending
        runs get it too. If the run ends without receiving it, its next generation gets it, if there is one. `message`
        returns the state of the message.

        Args:
            signal: A message with its channel.
            idempotency_key: Sending again with the same key sends nothing and returns the first reply.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            The position of the message, for `message`; its `status` is that of the run.

        Raises:
            RunNotFoundError: The run does not exist.
            SignalRefusedError: The run has ended or is a pipeline; or this engine has the code of its function, which
                has no such channel.
            ChannelClosedError: The function has closed the channel, and is about to end.
            InvalidValueError: The message does not have the type of the channel.
            IdempotencyConflictError: The key was used for another command.
            InvalidArgumentError: `signal` is not a signal.
        """
        check(
            "signal", an("a message with its channel, as channel(message) returns it", Signal), signal=signal
        )
        check("signal", TEXT.or_none, idempotency_key=idempotency_key)
        command = RunSignal(
            namespace=self._core.namespace,
            idempotency_key=idempotency_key,
            run_id=self.id,
            signal=self._client.sent(signal, idempotency_key, self.id),
        )
        return self._client.acting_as(actor).dispatch(command)

    def messages(self, *, generation: int | None = None) -> list[MessageInfo]:
        """Return the messages of one generation in the order of arrival, each with its state.

        A generation has the messages that were sent to it and those handed on to it.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return messages_of(self._core, self._row(generation, "messages"))

    def message(self, sent: RunSignalled, /) -> MessageInfo:
        """Return a message and its state: `run.message(sent).state`. Follows it to later generations.

        Args:
            sent: What `signal` returned.

        Raises:
            RunNotFoundError: The run was removed.
            InvalidArgumentError: `sent` is not what `signal` returned.
        """
        check("message", an("what signal returned", RunSignalled), sent=sent)
        return message_of(self._core, sent)

    def query(self, call: QueryCall[T], /) -> T:
        """Query the run: `run.query(Board.status())`. Nothing is stored, and no worker is needed.

        Replays the function in this process up to the end of its history and calls the query on the object that it
        exposes. So it takes as long as a replay, and the engine must have the workflow's code. It works for ended runs
        too.

        Args:
            call: A query with its arguments.

        Raises:
            RunNotFoundError: The run does not exist.
            UnknownWorkflowError: The engine does not have the run's workflow in its version.
            NotExposedError: The function exposes no object with this query, or not yet; or the run is a pipeline.
            QueryFailedError: The query raised an error, changed the object, or made a call that only a workflow may
                make.
            NondeterminismError: The code does not make the calls that the history records.
            InvalidValueError: The arguments do not have the types of the query.
            InvalidArgumentError: `call` is not a query with its arguments.
        """
        check("query", _QUERY, call=call)
        return call.decoded(answer_query(self._core, self._row(), call.query, call.arguments))

    def update(
        self,
        call: UpdateCall[T],
        /,
        *,
        timeout: Duration | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
    ) -> T:
        """Send an update to the run and return its reply: `run.update(Board.move_to("e4"))`.

        If the update has a validator, and the engine has the code, the validator runs here first, on a replay of the
        function; a rejected update is not stored. A stored update is never lost. The worker that drives the run runs
        the validator again, then the update. An update that arrives before the function has exposed an object waits for
        it.

        Args:
            call: An update with its arguments.
            timeout: How long to wait for the reply, a timedelta or a number of seconds; no limit if omitted.
            idempotency_key: Sending again with the same key stores nothing and waits for the same reply.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Raises:
            RunNotFoundError: The run does not exist.
            UpdateRefusedError: The run has ended or is a pipeline.
            NotExposedError: The function exposes no object with this update, or not yet.
            UpdateRejectedError: The validator rejected the update; its exception is the `__cause__`.
            UpdateFailedError: The update raised an exception, which is the `__cause__`.
            UpdateLostError: The run ended before the update was carried out.
            TimeoutError: No reply within `timeout`. The update stays stored and will be carried out.
            NondeterminismError: The code does not make the calls that the history records.
            InvalidValueError: The arguments do not have the types of the update.
            InvalidArgumentError: `call` is not an update with its arguments, or `timeout` is not a duration.
            EngineClosedError: The engine was closed during the wait.
            BlockedLoopError: The call would block the event loop of a worker of this engine.
        """
        seconds_of(timeout, "update")  # an invalid timeout is refused before anything is stored
        self._core.lifecycle.check_may_block("update()")
        reply = self.submit_update(call, idempotency_key=idempotency_key, actor=actor)
        return call.decoded(wait_for_reply(self._core, reply, timeout))

    def submit_update(
        self, call: UpdateCall[object], *, idempotency_key: str | None = None, actor: Actor | None = None
    ) -> UpdateReplyReader:
        """Store an update and return a reader of its reply. Raises the errors that `update` raises before it waits."""
        check("update", UPDATE, call=call)
        check("update", TEXT.or_none, idempotency_key=idempotency_key)
        stored = store_update(self._client.acting_as(actor), self._row(), call, idempotency_key)
        return UpdateReplyReader(self._core, stored)

    @overload
    def published(self, name: str, /) -> object: ...
    @overload
    def published(self, name: str, type: TypeForm[T], /) -> T | None: ...
    def published(self, name: str, type: Any = object, /) -> object:
        """Return the latest value that the function published under a name; None if it has published none.

        The value is available as soon as it is stored, and after the run has ended. The run's code is not needed.

        Args:
            name: The name given to `publish`.
            type: The type of the value; plain JSON if omitted.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: The value does not have this type.
        """
        check("published", TEXT, name=name)
        return published_value(self._core, self._row(), name, type)

    @overload
    def published_values(self, name: str, /, *, follow: bool = False) -> Iterator[object]: ...
    @overload
    def published_values(self, name: str, type: TypeForm[T], /, *, follow: bool = False) -> Iterator[T]: ...
    def published_values(self, name: str, type: Any = object, /, *, follow: bool = False) -> Iterator[object]:
        """Return the values that the function has published under a name, in order.

        If several were published under one name before a row was recorded, only the last of them was stored.

        Args:
            name: The name given to `publish`.
            type: The type of the values; plain JSON if omitted.
            follow: Whether to wait for further values until the run has ended, with its next generations.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: A value does not have this type.
            EngineClosedError: The engine was closed during the wait.
            BlockedLoopError: The wait would block the event loop of a worker of this engine.
        """
        check("published_values", TEXT, name=name)
        check("published_values", TRUTH, follow=follow)
        if follow:
            self._core.lifecycle.check_may_block("published_values(follow=True)")
        return self._published(self.published_reader(name, type), follow=follow)

    def _published(self, reader: PublishedValueReader, *, follow: bool) -> Iterator[object]:
        yield from reader.read_new()
        while follow and not reader.ended:
            self._wait_past(reader, None)
            yield from reader.read_new()

    def published_reader(self, name: str, type: Any) -> PublishedValueReader:
        """Return a reader of published values, for hosts. RunNotFoundError."""
        return PublishedValueReader(self._core, self._row(), name, type)

    @overload
    def wait_for_published(self, name: str, /, *, timeout: Duration | None = None) -> object: ...
    @overload
    def wait_for_published(
        self, name: str, type: TypeForm[T], /, *, timeout: Duration | None = None
    ) -> T | None: ...
    def wait_for_published(
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
            EngineClosedError: The engine was closed during the wait.
            BlockedLoopError: The wait would block the event loop of a worker of this engine.
        """
        check("wait_for_published", TEXT, name=name)
        seconds = seconds_of(timeout, "wait_for_published")
        self._core.lifecycle.check_may_block("wait_for_published()")
        monotonic = self._core.stores.clock.monotonic
        until = None if seconds is None else monotonic() + seconds
        reader = self.published_reader(name, type)
        while not (values := reader.read_new()) and not reader.ended:
            left = None if until is None else max(0.0, until - monotonic())
            if not self._wait_past(reader, left):
                raise TimeoutError(published_timeout_message(self.id, name, timeout))
        return values[-1] if values else None

    def _wait_past(self, reader: PublishedValueReader, seconds: float | None) -> bool:
        """Wait until the run has new rows, or has ended. Return whether it has within this time."""
        future = self._core.listener.when_past(reader.run, reader.last_read_row)
        try:
            future.result(seconds)
        except FutureTimeoutError:
            return False
        except CancelledError:
            raise EngineClosedError(CLOSED) from None
        finally:
            future.cancel()
        return True

    def pause(self, *, reason: str = "", actor: Actor | None = None) -> RunPaused:
        """Pause the run: nothing new starts until it is resumed. Bodies that are running finish as usual.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        check("pause", TEXT, reason=reason)
        command = RunPause(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._client.acting_as(actor).dispatch(command)

    def resume(self, *, reason: str = "", actor: Actor | None = None) -> RunPaused:
        """Resume a paused or blocked run where it stopped.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        check("resume", TEXT, reason=reason)
        command = RunResume(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._client.acting_as(actor).dispatch(command)

    def remove(self, *, actor: Actor | None = None) -> bool:
        """Delete an ended run from the store, with all its generations, annotations and blobs.

        Its child runs stay, and so does what it delivered to others, such as its result in its parent's history. Who
        removed it is only logged.

        Args:
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            Whether it was removed; False if the run was rerun in the meantime.

        Raises:
            RunNotFoundError: The run does not exist.
            RemoveRefusedError: The run has not ended; its end is not delivered yet to its parent or to a sink; or
                external work is still to be cancelled.
        """
        command = RunRemove(namespace=self._core.namespace, run_id=self.id)
        return self._client.acting_as(actor).dispatch(command).removed

    def rerun_from(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        reason: str = "",
        version: str | None = None,
        actor: Actor | None = None,
    ) -> RunRerun:
        """Run the run again from a stage, step or history row, as a new generation that keeps what comes before.

        An active generation is terminated. The new one has idempotency keys of its own, so external effects are
        repeated; `preview_rerun` shows which stages or steps would run again.

        Args:
            point: Where to start. For a pipeline: a stage, or its name. Completed stages of the same `parallel` are
                kept; a mapped stage runs whole. For a durable function: a step, its name, `"charge#2"` for the second
                of its calls, or a call as `holdfast run show` lists it, `"3.1"`; all rows before the first row of this
                call are kept. If omitted, the run continues where it failed or stopped, and a completed run starts from
                the beginning.
            row: For a durable function, instead of `point`: the number of the first history row not to keep. 1 keeps
                nothing.
            reason: A text for the history.
            version: The version of the workflow to run; the same one if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            The new `generation`, and the stages that it `runs` and `keeps`.

        Raises:
            RunNotFoundError: The run does not exist.
            RerunRefusedError: The plan has no such stage, or the history no such call or row; or what comes before
                can't be kept.
            ConcurrencyFullError: Too many runs of its concurrency key are open.
            UnknownWorkflowError: The engine does not have this version of the workflow.
            InvalidCommandError: Both `point` and `row` are given.
        """
        return self._client.acting_as(actor).dispatch(self._rerun(point, row, reason, version))

    def preview_rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        version: str | None = None,
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, without changing anything. Raises the same errors."""
        return preview_rerun(
            self._core.stores.persistence, self._core.kernel.workflows, self._rerun(point, row, "", version)
        )

    def wake(
        self, stage: AnyNode[object] | str, /, *, item: int | None = None, actor: Actor | None = None
    ) -> StagesWoken:
        """Check the external work of a stage now, instead of at its next poll.

        If the stage's body is still running, the work is checked as soon as the body has submitted it.

        Args:
            stage: The external stage, or its name.
            item: The index of one item of a mapped stage; all items if omitted.
            actor: Who issues the command, for the log; the engine's actor if omitted (see `SyncEngine.acting_as`).

        Returns:
            How many stages or items are `woken`, and how many of these are `early`: not suspended yet.

        Raises:
            NothingToWakeError: The stage is not suspended, and its body is not running.
            RunNotFoundError: The run does not exist.
        """
        check("wake", STAGE, stage=stage)
        check("wake", integer(0).or_none, item=item)
        name = stage if isinstance(stage, str) else stage.name
        command = StageWake(namespace=self._core.namespace, run_id=self.id, stage=name, item=item)
        try:
            return self._client.acting_as(actor).dispatch(command)
        except NothingToWakeError:
            self._row()
            raise

    def why(self) -> tuple[WaitReason, ...]:
        """Explain what the run waits for, or how it ended: one reason per cause. Raises RunNotFoundError."""
        try:
            return why_of(self._core, self._row())
        except UnreadableRowError as error:
            return (WaitReason(code="unreadable", text=f"{error}."),)

    def row(self) -> Run:
        """Return the row of the newest generation. Raises RunNotFoundError."""
        run = self._row()
        self.newest_key = run.key
        return run

    def output(self, run: Run) -> Out:
        """Return the result of an ended run. Raises RunFailedError or RunCancelledError if it has none."""
        if run.status is RunStatus.COMPLETED:
            whole = cast("Out", decode(result_text(self._core, run), cast("Any", self._output_type)))
            if self._part is None:
                return whole
            first, items = self._part
            return cast("Out", cast("list[object]", whole)[first : first + items])
        if run.status is RunStatus.FAILED:
            raise RunFailedError(run.id, error_text(run) or "") from error_if_known(raised_of(run))
        raise RunCancelledError(run.id, ended_reason(run))

    def _rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None,
        row: int | None,
        reason: str,
        version: str | None,
    ) -> RunRerunFrom:
        check("rerun_from", _POINT.or_none, point=point)
        check("rerun_from", integer(1).or_none, row=row)
        check("rerun_from", TEXT, reason=reason)
        check("rerun_from", TEXT.or_none, version=version)
        return RunRerunFrom(
            namespace=self._core.namespace,
            run_id=self.id,
            stage=point.name if isinstance(point, PlanNode | Step) else point,
            reason=reason,
            version=version,
            row=row,
        )

    def _row(self, generation: int | None = None, where: str = "") -> Run:
        if where:
            check(where, integer(1).or_none, generation=generation)
        return find_run(self._core, self.id, generation)


_QUERY: Final = an("a query with its arguments, as Board.status()", QueryCall)
UPDATE: Final = an('an update with its arguments, as Board.move_to("e4")', UpdateCall)
_POINT: Final = an("a stage, a step, or the name of one", PlanNode, Step, str)
STAGE: Final = an("a stage, or the name of one", PlanNode, str)
"""The check for an argument that names a stage."""


def _followed(reader: LogReader) -> Iterator[LogLine]:
    while True:
        yield from reader.read_new()
        if reader.ended:
            return
        time.sleep(FOLLOW_INTERVAL)


def result_of_new(handle: SyncRunHandle[Out]) -> Out:
    """Wait for the result of a run that this call has just created; otherwise as `SyncRunHandle.result`.

    Skips the first read: the run has hardly ended, and the read would delay the hint that starts it. If the end was
    missed, `handle.result` finds it after `NEW_SECONDS`.
    """
    core, known = handle.core, handle.newest_key
    end = None if known is None else core.listener.when_ended(known)
    try:
        run = None if end is None else end.result(NEW_SECONDS)
    except FutureTimeoutError:
        run = None
    except CancelledError:
        raise EngineClosedError(CLOSED) from None
    finally:
        if end is not None:
            end.cancel()
    return handle.result() if run is None or run.has_successor else handle.output(run)


def seconds_of(timeout: Duration | None, what: str = "result") -> float | None:
    """Return a timeout in seconds, at least 0; None for no limit. Raises InvalidArgumentError."""
    if timeout is None:
        return None
    return max(0.0, duration(what, "timeout", timeout, least=timedelta.min).total_seconds())


def update_timeout_message(id: str, update: str, timeout: Duration | None) -> str:
    """Return the message of the TimeoutError of an update."""
    return (
        f"run {id!r} has not answered update {update!r} within {length_of(timeout)}; it is stored, and will be carried"
        " out: ask again with the same idempotency_key to wait on"
    )


def published_timeout_message(id: str, name: str, timeout: Duration | None) -> str:
    """Return the message of the TimeoutError of `wait_for_published`."""
    return f"run {id!r} has published nothing as {name!r} within {length_of(timeout)}; it continues"


def result_timeout_message(id: str, timeout: Duration | None) -> str:
    """Return the message of the TimeoutError of `result`."""
    return f"run {id!r} has not ended within {length_of(timeout)}; it continues"


def wait_for_reply(core: Core, reply: UpdateReplyReader, timeout: Duration | None) -> str:
    """Wait for the reply to a stored update and return its JSON text. TimeoutError, EngineClosedError."""
    seconds = seconds_of(timeout, "update")
    monotonic = core.stores.clock.monotonic
    until = None if seconds is None else monotonic() + seconds
    while (text := reply.read_reply()) is None:
        future = core.listener.when_past(reply.run, reply.last_read_row)
        try:
            future.result(None if until is None else max(0.0, until - monotonic()))
        except FutureTimeoutError:
            raise TimeoutError(update_timeout_message(reply.run_id, reply.update, timeout)) from None
        except CancelledError:
            raise EngineClosedError(CLOSED) from None
        finally:
            future.cancel()
    return text


def handle_of_start(client: Client, call: Call[R], created: RunCreated) -> SyncRunHandle[R]:
    """Return the handle of a start: to its run, and to its part of the result if that is split."""
    definition, part = call.definition, None
    if created.first_item is not None and isinstance(definition, Workflow):
        gather = definition.gather
        if gather is not None and gather.split:
            part = (created.first_item, created.items or 0)
    return SyncRunHandle(
        client, created.run_id, definition.output_type, created.run, joined=created.joined, part=part
    )
