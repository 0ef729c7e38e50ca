# Generated from hosts/client/sync_run_handle.py by `python -m tools.async_facade`. Do not edit.
"""The handle to one run, for async code. Each method calls the one of `SyncRunHandle` in a thread."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic, Literal, Unpack, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client import async_bodies
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.execution.artifacts import ArtifactInfo
from holdfast.hosts.execution.threads import in_thread, iterate_in_thread
from holdfast.hosts.functions.history_document import RunHistory
from holdfast.hosts.inspection.ai_calls import AiCallFilter, AiCallInfo, AiTotals
from holdfast.hosts.inspection.annotations import AnnotateOptions, AnnotationInfo, AnnotationOptions
from holdfast.hosts.inspection.children import ChildInfo, ChildOptions
from holdfast.hosts.inspection.logs import LogLine, LogOptions, ProgressInfo
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.hosts.inspection.run_details import RunDetails
from holdfast.hosts.inspection.run_info import RunEvent, RunInfo
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.why import WaitReason
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import RunAnnotated, RunPaused, RunRerun, RunSignalled, RunStopped, StagesWoken
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.actors import Actor
from holdfast.ports.durations import Duration

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)


class RunHandle(Generic[Out]):
    """A handle to one run, for async code. It refers to the newest generation of the run.

    `Engine.start` and `Engine.handle` return handles. Each method reads the store, and raises UnavailableError if the
    store can't be reached.

    Attributes:
        id: The run id.
        joined: Whether the start that returned this handle joined a run, which was gathering starts.
    """

    def __init__(self, sync: SyncRunHandle[Out]) -> None:
        self._sync = sync
        self.id = sync.id
        self.joined = sync.joined

    async def info(self, *, generation: int | None = None) -> RunInfo:
        """Return the status of the run, when it started, changed and ended, and its parent if it is a child run.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await in_thread(lambda: self._sync.info(generation=generation))

    async def details(self, *, generation: int | None = None) -> RunDetails:
        """Return the run with its stages or steps, live jobs, child runs and outputs, as `holdfast run show` does.

        Long lists and values are cut; the fields say where.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await in_thread(lambda: self._sync.details(generation=generation))

    async def steps(self, *, generation: int | None = None) -> tuple[StepDetails, ...]:
        """Return the last 1,000 steps that a durable function called, the latest change last; empty for a pipeline.

        They are derived from the first 20,000 rows of the history. `result_of` returns a result that was cut.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await in_thread(lambda: self._sync.steps(generation=generation))

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
        found = await in_thread(lambda: self._sync.children(generation=generation, **options))
        async for one in iterate_in_thread(found):
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
            BlobMissingError: The blob of the input is missing.
        """
        return await in_thread(lambda: self._sync.input(type, generation=generation))

    @overload
    async def result_of(
        self, point: AnyNode[object] | Step[..., object] | str, /, *, generation: int | None = None
    ) -> object: ...
    @overload
    async def result_of(
        self,
        point: AnyNode[object] | Step[..., object] | str,
        type: TypeForm[T],
        /,
        *,
        generation: int | None = None,
    ) -> T: ...
    async def result_of(
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
        return await in_thread(lambda: self._sync.result_of(point, type, generation=generation))

    async def result(self, *, timeout: Duration | None = None) -> Out:
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
        """
        return await async_bodies.result(self._sync, timeout=timeout)

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
        return await in_thread(lambda: self._sync.history(after=after, limit=limit, generation=generation))

    async def export_history(self, *, generation: int | None = None) -> RunHistory:
        """Return the input and the whole history of the run, with all values, as one document.

        Pass it to `holdfast.testing.replay`, or save its `to_json()`, which is what `holdfast history export` writes.
        It contains the secrets in the inputs and results of the run.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
            BlobMissingError: The blob of a value is missing.
        """
        return await in_thread(lambda: self._sync.export_history(generation=generation))

    async def annotate(
        self, values: Mapping[str, object], /, **options: Unpack[AnnotateOptions]
    ) -> RunAnnotated:
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
        return await in_thread(lambda: self._sync.annotate(values, **options))

    async def annotations(self, **options: Unpack[AnnotationOptions]) -> AsyncIterator[AnnotationInfo]:
        """Return the annotations of the run, oldest first. They are read page by page.

        Args:
            options: Filters: `name`, `prefix`, `actor_kind`, `actor_id`, `scope`, `stage`, `item`, `since` and `until`;
                and `after` and `limit`. See `AnnotationOptions`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        found = await in_thread(lambda: self._sync.annotations(**options))
        async for one in iterate_in_thread(found):
            yield one

    def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> AsyncIterator[LogLine]:
        """Return the log lines of the run, in order of time. They are read page by page.

        Args:
            follow: Wait for further lines until the run ends. A line arrives within about two seconds. Each is returned
                once, in the order in which they were stored.
            options: Filters: `level`, `stage`, `item` and `after`. See `LogOptions`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        return async_bodies.logs(self._sync, follow=follow, **options)

    async def progress(self) -> list[ProgressInfo]:
        """Return the latest progress of each stage, and of each item of a mapped stage. Raises RunNotFoundError."""
        return await in_thread(self._sync.progress)

    async def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts of the run, without their bytes, in the order of the jobs. Raises RunNotFoundError."""
        return await in_thread(self._sync.artifacts)

    async def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
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
        return await in_thread(lambda: self._sync.artifact(name, stage=stage, item=item))

    async def ai_calls(self, **options: Unpack[AiCallFilter]) -> AsyncIterator[AiCallInfo]:
        """Return the model calls that were logged in the run, oldest first. They are read page by page.

        Args:
            options: Filters: `topic` and `model`; `texts` to include prompts and responses; and `after` and `limit`.
                See `AiCallFilter`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: An option has an invalid value.
        """
        found = await in_thread(lambda: self._sync.ai_calls(**options))
        async for one in iterate_in_thread(found):
            yield one

    async def ai_totals(
        self, *, topic: str | None = None, by: Literal["model", "topic"] = "model"
    ) -> AiTotals:
        """Return the number, tokens, cost and duration of the run's model calls. The store adds them up.

        Args:
            topic: Only calls of this topic and of the topics below it.
            by: Whether `parts` has the totals per `model` or per `topic`.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidFilterError: `by` is neither.
        """
        return await in_thread(lambda: self._sync.ai_totals(topic=topic, by=by))

    async def cancel(self, *, reason: str = "", actor: Actor | None = None) -> RunStopped:
        """Cancel the run. Does nothing if it has ended.

        A durable function gets a CancelledError at the point where it waits, and may clean up and run its
        compensations. The run is `cancelling` until it has finished.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await in_thread(lambda: self._sync.cancel(reason=reason, actor=actor))

    async def terminate(self, *, reason: str = "", actor: Actor | None = None) -> RunStopped:
        """End the run at once as cancelled, without cleanup or compensations. Does nothing if it has ended.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await in_thread(lambda: self._sync.terminate(reason=reason, actor=actor))

    async def signal(
        self, signal: Signal, /, *, idempotency_key: str | None = None, actor: Actor | None = None
    ) -> RunSignalled:
        """Send a message to the run: `await run.signal(approval(decision))`. The message is stored when this returns.

        The function receives it from its channel, whether it waits there already or receives later; paused and pending
        runs get it too. If the run ends without receiving it, its next generation gets it, if there is one. `message`
        returns the state of the message.

        Args:
            signal: A message with its channel.
            idempotency_key: Sending again with the same key sends nothing and returns the first reply.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

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
        return await in_thread(
            lambda: self._sync.signal(signal, idempotency_key=idempotency_key, actor=actor)
        )

    async def messages(self, *, generation: int | None = None) -> list[MessageInfo]:
        """Return the messages of one generation in the order of arrival, each with its state.

        A generation has the messages that were sent to it and those handed on to it.

        Args:
            generation: The number of a generation, from 1; the newest one if omitted.

        Raises:
            RunNotFoundError: The run or the generation does not exist.
        """
        return await in_thread(lambda: self._sync.messages(generation=generation))

    async def message(self, sent: RunSignalled, /) -> MessageInfo:
        """Return a message and its state: `(await run.message(sent)).state`. Follows it to later generations.

        Args:
            sent: What `signal` returned.

        Raises:
            RunNotFoundError: The run was removed.
            InvalidArgumentError: `sent` is not what `signal` returned.
        """
        return await in_thread(lambda: self._sync.message(sent))

    async def query(self, call: QueryCall[T], /) -> T:
        """Query the run: `await run.query(Board.status())`. Nothing is stored, and no worker is needed.

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
        return await in_thread(lambda: self._sync.query(call))

    async def update(
        self,
        call: UpdateCall[T],
        /,
        *,
        timeout: Duration | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
    ) -> T:
        """Send an update to the run and return its reply: `await run.update(Board.move_to("e4"))`.

        If the update has a validator, and the engine has the code, the validator runs here first, on a replay of the
        function; a rejected update is not stored. A stored update is never lost. The worker that drives the run runs
        the validator again, then the update. An update that arrives before the function has exposed an object waits for
        it.

        Args:
            call: An update with its arguments.
            timeout: How long to wait for the reply, a timedelta or a number of seconds; no limit if omitted.
            idempotency_key: Sending again with the same key stores nothing and waits for the same reply.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

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
        """
        return await async_bodies.update(
            self._sync, call, timeout=timeout, idempotency_key=idempotency_key, actor=actor
        )

    @overload
    async def published(self, name: str, /) -> object: ...
    @overload
    async def published(self, name: str, type: TypeForm[T], /) -> T | None: ...
    async def published(self, name: str, type: Any = object, /) -> object:
        """Return the latest value that the function published under a name; None if it has published none.

        The value is available as soon as it is stored, and after the run has ended. The run's code is not needed.

        Args:
            name: The name given to `publish`.
            type: The type of the value; plain JSON if omitted.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: The value does not have this type.
        """
        return await in_thread(lambda: self._sync.published(name, type))

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

        If several were published under one name before a row was recorded, only the last of them was stored.

        Args:
            name: The name given to `publish`.
            type: The type of the values; plain JSON if omitted.
            follow: Whether to wait for further values until the run has ended, with its next generations.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidValueError: A value does not have this type.
            EngineClosedError: The engine was closed during the wait.
        """
        return async_bodies.published_values(self._sync, name, type, follow=follow)

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
            EngineClosedError: The engine was closed during the wait.
        """
        return await async_bodies.wait_for_published(self._sync, name, type, timeout=timeout)

    async def pause(self, *, reason: str = "", actor: Actor | None = None) -> RunPaused:
        """Pause the run: nothing new starts until it is resumed. Bodies that are running finish as usual.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await in_thread(lambda: self._sync.pause(reason=reason, actor=actor))

    async def resume(self, *, reason: str = "", actor: Actor | None = None) -> RunPaused:
        """Resume a paused or blocked run where it stopped.

        Args:
            reason: A text for the history.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            The `status` of the run now, and whether it has `changed`.

        Raises:
            RunNotFoundError: The run does not exist.
        """
        return await in_thread(lambda: self._sync.resume(reason=reason, actor=actor))

    async def remove(self, *, actor: Actor | None = None) -> bool:
        """Delete an ended run from the store, with all its generations, annotations and blobs.

        Its child runs stay, and so does what it delivered to others, such as its result in its parent's history. Who
        removed it is only logged.

        Args:
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            Whether it was removed; False if the run was rerun in the meantime.

        Raises:
            RunNotFoundError: The run does not exist.
            RemoveRefusedError: The run has not ended; its end is not delivered yet to its parent or to a sink; or
                external work is still to be cancelled.
        """
        return await in_thread(lambda: self._sync.remove(actor=actor))

    async def rerun_from(
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
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

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
        return await in_thread(
            lambda: self._sync.rerun_from(point, row=row, reason=reason, version=version, actor=actor)
        )

    async def preview_rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        version: str | None = None,
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, without changing anything. Raises the same errors."""
        return await in_thread(lambda: self._sync.preview_rerun(point, row=row, version=version))

    async def wake(
        self, stage: AnyNode[object] | str, /, *, item: int | None = None, actor: Actor | None = None
    ) -> StagesWoken:
        """Check the external work of a stage now, instead of at its next poll.

        If the stage's body is still running, the work is checked as soon as the body has submitted it.

        Args:
            stage: The external stage, or its name.
            item: The index of one item of a mapped stage; all items if omitted.
            actor: Who issues the command, for the log; the engine's actor if omitted (see `Engine.acting_as`).

        Returns:
            How many stages or items are `woken`, and how many of these are `early`: not suspended yet.

        Raises:
            NothingToWakeError: The stage is not suspended, and its body is not running.
            RunNotFoundError: The run does not exist.
        """
        return await in_thread(lambda: self._sync.wake(stage, item=item, actor=actor))

    async def why(self) -> tuple[WaitReason, ...]:
        """Explain what the run waits for, or how it ended: one reason per cause. Raises RunNotFoundError."""
        return await in_thread(self._sync.why)
