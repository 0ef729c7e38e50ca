"""The application's side: start runs, wait for them, look at them, end them."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, Self, Unpack, cast

import anyio
import attrs
from anyio import to_thread
from typing_extensions import TypeVar

from holdfast.hosts.ai import AiCallFilter, AiCallInfo, AiTotals, ai_calls_of, ai_totals_of
from holdfast.hosts.ai_log import AiSettings
from holdfast.hosts.annotating import (
    AnnotationInfo,
    AnnotationOptions,
    SayOptions,
    annotate_command,
    annotations_of,
)
from holdfast.hosts.artifacts import ArtifactInfo, artifact_bytes, artifact_info, artifacts_of
from holdfast.hosts.bulk import (
    CANCEL,
    PAUSE,
    RERUN,
    RESUME,
    TERMINATE,
    Action,
    BulkResult,
    act_on_all,
    chosen_runs,
    command_for,
)
from holdfast.hosts.core import Core
from holdfast.hosts.finding import (
    CountOptions,
    FilterOptions,
    ListOptions,
    Wanted,
    checked_limit,
    run_filter,
    wanted_runs,
)
from holdfast.hosts.flushing import Flushed, Flusher
from holdfast.hosts.hearing import (
    FOLLOW_INTERVAL,
    LogLine,
    LogOptions,
    LogReader,
    ProgressInfo,
    progress_of,
)
from holdfast.hosts.interceptors import Interceptor
from holdfast.hosts.loops import caller_into_loop
from holdfast.hosts.sinks import (
    DeadLetterInfo,
    SinkInfo,
    dead_letters,
    list_sinks,
    register_sink,
    remove_sink,
    replay_dead_letters,
)
from holdfast.hosts.stores import Stores, open_stores
from holdfast.kernel.authoring.ai import Price, Redact
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.nodes import AnyNode, Node
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.commands import (
    RunAnnotated,
    RunCancel,
    RunEnded,
    RunPause,
    RunPaused,
    RunRerun,
    RunRerunFrom,
    RunResume,
    RunTerminate,
    StagesWoken,
    StageWake,
)
from holdfast.kernel.kernel import Kernel
from holdfast.kernel.previews import RerunPreview
from holdfast.kernel.values import decode
from holdfast.ports.clock import instant
from holdfast.ports.errors import RunCancelledError, RunFailedError, RunNotFoundError
from holdfast.ports.events import USER_EVENTS, EventSink
from holdfast.ports.json import parse
from holdfast.ports.persistence import CountRuns, FindRun, HistoryOf, ListRuns
from holdfast.ports.records import TERMINAL, HistoryRow, Run, RunName, RunStatus, attribute_texts
from holdfast.ports.references import reference_from

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_PAGE = 100
_CLOSED = "the engine was closed while a run was waited for"


@attrs.frozen(kw_only=True)
class RunInfo:
    """A run as it was when it was asked for. Instants are aware, in UTC.

    Attributes:
        error: Why it failed or was cancelled, for people; None if neither.
        attributes: The texts that it was started with.
        cursor: Its place in lists of runs: give it to `runs(after=...)` for those that follow. Opaque.
        rerun_of: The number of the generation that this one runs again; None if it runs none again.
        rerun_from: The stage with which it began then; None if from the start.
    """

    id: str
    generation: int
    workflow: str
    version: str
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    error: str | None
    attributes: dict[str, str]
    cursor: str
    rerun_of: int | None = None
    rerun_from: str | None = None


@attrs.frozen(kw_only=True)
class RunEvent:
    """Something that happened to a run.

    Attributes:
        number: Its place in the run's history, from 1 without gaps.
        type: Such as `run.created`, `stage.completed` or `stage.retrying`.
        at: When it was stored.
        stage: The stage that it is about, if it is about one.
        item: Which item of a mapped stage; None if the stage is not mapped.
        data: Small facts: the attempt, the error, when its body started and on which host. For an event that a stage
            published, what it published; if that is no object, as `data` in one.
    """

    number: int
    type: str
    at: datetime
    stage: str | None
    item: int | None
    data: Mapping[str, object]


class SyncRunHandle(Generic[Out]):
    """One run, seen from sync code. Always its newest generation."""

    def __init__(self, core: Core, id: str, output_type: object) -> None:
        self._core = core
        self._output_type = output_type
        self.id = id

    def info(self, *, generation: int | None = None) -> RunInfo:
        """Return where the run is, or where an older generation of it ended. RunNotFoundError."""
        return info_of(self._row(generation))

    def result(self, *, timeout: timedelta | None = None) -> Out:
        """Wait until the run ends, and return what it gave.

        That is the generation of it which is the newest when this is called. If it is run again meanwhile, what is
        waited for ends with a RunCancelledError that says so, and the next call waits for the new one.

        Raises:
            TimeoutError: It has not ended within `timeout`. It goes on.
            TypeError: `timeout` is no timedelta.
            RunFailedError: It failed.
            RunCancelledError: It was cancelled.
            RunNotFoundError: There is no such run.
        """
        seconds = _seconds(timeout)
        run = self._row()
        if run.status not in TERMINAL:
            future = self._core.listener.when_ended(run.key)
            try:
                # It may have ended before anybody listened for it.
                run = self._row()
                if run.status not in TERMINAL:
                    run = future.result(seconds)
            except FutureTimeoutError:
                raise TimeoutError(_too_long(self.id, timeout)) from None
            except CancelledError:
                raise RuntimeError(_CLOSED) from None
            finally:
                future.cancel()
        return self.output(run)

    def history(self, *, after: int = 0, limit: int = 1_000, generation: int | None = None) -> list[RunEvent]:
        """Return what has happened to the run since event `after`, at most `limit` events. RunNotFoundError.

        Each generation has a history of its own; without a number it is that of the newest.
        """
        query = HistoryOf(self._row(generation).key, after, limit)
        return [_event(row) for row in self._core.stores.persistence.read(query)]

    def annotate(self, said: Mapping[str, object], /, **options: Unpack[SayOptions]) -> RunAnnotated:
        """Say something of the run, for those who look at it or look for it: plain JSON by name.

        What was said is never changed. Runs are found by texts that were said of them: `runs(annotations=...)`.

        Args:
            said: 1 to 100 names, each of at most 200 characters, with values of at most 16,384 characters as JSON.
            options: Who says it, as `actor`, and why, as `reason`; of which `stage` and `item`, if not of the run; and
                under which `key`, so that it is said once. See `SayOptions`.

        Raises:
            RunNotFoundError: There is no such run.
            UnstorableValueError: A value is no plain JSON.
            InvalidCommandError: Something is too long, or there is no such stage.
        """
        command = annotate_command(self._core.namespace, self.id, said, options)
        return self._core.kernel.dispatch(command)

    def annotations(self, **options: Unpack[AnnotationOptions]) -> Iterator[AnnotationInfo]:
        """Return what was said of the run, oldest first, read some at a time.

        Args:
            options: Which of it, by `name`, `prefix`, `actor_kind`, `actor_id`, `scope`, `stage`, `item`, `since` and
                `until`; and how many, by `after` and `limit`. See `AnnotationOptions`.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidFilterError: An option can't be.
        """
        return annotations_of(self._core, self._row().key, options)

    def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> Iterator[LogLine]:
        """Return what the run's stages have logged, in the order in which it was said.

        With `follow` the lines go on until the run ends, each within about two seconds.

        Args:
            follow: Wait for more until the run ends.
            options: Which lines, by `level`, `stage`, `item` and `after`. See `LogOptions`.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidFilterError: An option can't be.
        """
        reader = self.log_reader(options)
        return _followed(reader) if follow else reader.all()

    def progress(self) -> list[ProgressInfo]:
        """Return how far stages, and items of mapped ones, said that they are: the newest of each. RunNotFoundError."""
        return progress_of(self._core, self._row().key)

    def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts that stages of the run have put, in the order of their jobs. RunNotFoundError."""
        run = self._row()
        return [artifact_info(one) for one in artifacts_of(self._core.stores.persistence, run.key, run.kept)]

    def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the bytes of an artifact.

        Args:
            name: Its name.
            stage: Which stage put it, if several put one of this name.
            item: Which item of a mapped stage put it.

        Raises:
            RunNotFoundError: There is no such run.
            ArtifactMissingError: There is no such artifact, or there are several.
            BlobMissingError: Its bytes are not there any more.
            BlobCorruptError: Its bytes are not those that were put.
            NoBlobStoreError: This process has no blob store.
        """
        run, core = self._row(), self._core
        return artifact_bytes(core.stores.persistence, core.payloads, run.key, run.kept, name, stage, item)

    def ai_calls(self, **options: Unpack[AiCallFilter]) -> Iterator[AiCallInfo]:
        """Return the calls of models that stages of the run have logged, oldest first, read some at a time.

        Args:
            options: Which ones, by `topic` and `model`; with `texts` also prompts and responses; and how many, by
                `after` and `limit`. See `AiCallFilter`.

        Raises:
            RunNotFoundError: There is no such run.
            InvalidFilterError: An option can't be.
        """
        return ai_calls_of(self._core, self._row().key, options)

    def ai_totals(self, *, topic: str | None = None, by: Literal["model", "topic"] = "model") -> AiTotals:
        """Return what the calls of models of the run come to, added up by the store.

        Args:
            topic: Only those of this topic, and those below it.
            by: What the parts are by: `model` or `topic`.

        Raises:
            RunNotFoundError: There is no such run.
        """
        return ai_totals_of(self._core, self._row().key, topic, by)

    def log_reader(self, options: LogOptions) -> LogReader:
        """Return what reads the run's log. RunNotFoundError, InvalidFilterError."""
        return LogReader(self._core, self._row().key, options)

    def cancel(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled, unless it has ended. RunNotFoundError."""
        return self._end(RunCancel(namespace=self._core.namespace, run_id=self.id, reason=reason))

    def terminate(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled at once, whatever it has left to clean up. RunNotFoundError."""
        return self._end(RunTerminate(namespace=self._core.namespace, run_id=self.id, reason=reason))

    def pause(self, *, reason: str = "") -> RunPaused:
        """Start nothing more of the run until it is resumed; what is under way ends as ever. RunNotFoundError."""
        command = RunPause(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._core.dispatch(command)

    def resume(self, *, reason: str = "") -> RunPaused:
        """Let a paused run go on where it is. RunNotFoundError."""
        command = RunResume(namespace=self._core.namespace, run_id=self.id, reason=reason)
        return self._core.dispatch(command)

    def rerun_from(
        self, stage: AnyNode[object] | str | None = None, /, *, reason: str = "", version: str | None = None
    ) -> RunRerun:
        """Run it again from a stage on, as a new generation that keeps what the stages before have given.

        A generation that is active is terminated by it. What runs has idempotency keys of its own, so whatever it does
        outside is done again: `preview_rerun` tells what that would be.

        Args:
            stage: The stage, or its name. Without it the run goes on where it failed or stopped; if it was completed,
                it runs again from the start. Of the stages beside it, in a `parallel`, those that were completed are
                kept. A mapped stage runs whole.
            reason: For people; kept in the history.
            version: The version of the code to run it with; the same if left out.

        Raises:
            RunNotFoundError: There is no such run.
            RerunRefusedError: The plan has no such stage, or a stage before it has given nothing to keep.
            UnknownWorkflowError: The engine was not given this version of the workflow.
        """
        return self._core.dispatch(self._rerun(stage, reason, version))

    def preview_rerun(
        self, stage: AnyNode[object] | str | None = None, /, *, version: str | None = None
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, and change nothing. Raises what that does."""
        return self._core.kernel.preview(self._rerun(stage, "", version))

    def wake(self, stage: AnyNode[object] | str, /, *, item: int | None = None) -> StagesWoken:
        """Have the external work of a stage checked now: of all its items, or of one, if it is mapped.

        If its body runs still, the work is checked as soon as that has handed it on.

        Raises:
            NothingToWakeError: The stage is not suspended, and no body of it runs.
        """
        name = stage if isinstance(stage, str) else stage.name
        command = StageWake(namespace=self._core.namespace, run_id=self.id, stage=name, item=item)
        return self._core.kernel.dispatch(command)

    def row(self) -> Run:
        """Return the run's row in the store. RunNotFoundError."""
        return self._row()

    def output(self, run: Run) -> Out:
        """Return what a run that has ended gave, or raise why it gave nothing."""
        if run.status is RunStatus.COMPLETED:
            text = self._core.inputs.text(run.key, reference_from(run.result or "null"))
            return cast("Out", decode(text, cast("Any", self._output_type)))
        if run.status is RunStatus.FAILED:
            raise RunFailedError(run.id, error_text(run) or "")
        raise RunCancelledError(run.id, _reason(run))

    def _rerun(self, stage: AnyNode[object] | str | None, reason: str, version: str | None) -> RunRerunFrom:
        return RunRerunFrom(
            namespace=self._core.namespace,
            run_id=self.id,
            stage=stage.name if isinstance(stage, Node) else stage,
            reason=reason,
            version=version,
        )

    def _end(self, command: RunCancel | RunTerminate) -> RunEnded:
        ended = self._core.kernel.dispatch(command)
        if ended.owes:
            self._core.tell_ends()
        return ended

    def _row(self, generation: int | None = None) -> Run:
        self._core.connect()
        name = RunName(self._core.namespace, self.id)
        run = self._core.stores.persistence.read(FindRun(name, generation))
        if run is None:
            raise RunNotFoundError(self.id, generation)
        return run


class RunHandle(Generic[Out]):
    """One run, seen from async code. Always its newest generation."""

    def __init__(self, core: Core, id: str, output_type: object) -> None:
        self._core = core
        self._sync: SyncRunHandle[Out] = SyncRunHandle(core, id, output_type)
        self.id = id

    async def info(self, *, generation: int | None = None) -> RunInfo:
        """Return where the run is, or where an older generation of it ended. RunNotFoundError."""
        return await to_thread.run_sync(partial(self._sync.info, generation=generation))

    async def result(self, *, timeout: timedelta | None = None) -> Out:
        """Wait until the run ends, and return what it gave. Raises what `SyncRunHandle.result` does."""
        seconds = _seconds(timeout)
        run = await to_thread.run_sync(self._sync.row)
        if run.status not in TERMINAL:
            future = self._core.listener.when_ended(run.key)
            try:
                # It may have ended before anybody listened for it.
                run = await to_thread.run_sync(self._sync.row)
                if run.status not in TERMINAL:
                    with anyio.fail_after(seconds):
                        run = await _resolved(future)
            except TimeoutError:
                raise TimeoutError(_too_long(self.id, timeout)) from None
            finally:
                future.cancel()
        return await to_thread.run_sync(self._sync.output, run)

    async def history(
        self, *, after: int = 0, limit: int = 1_000, generation: int | None = None
    ) -> list[RunEvent]:
        """Return what has happened to the run since event `after`. See `SyncRunHandle.history`."""
        call = partial(self._sync.history, after=after, limit=limit, generation=generation)
        return await to_thread.run_sync(call)

    async def annotate(self, said: Mapping[str, object], /, **options: Unpack[SayOptions]) -> RunAnnotated:
        """Say something of the run. See `SyncRunHandle.annotate`."""
        return await to_thread.run_sync(partial(self._sync.annotate, said, **options))

    async def annotations(self, **options: Unpack[AnnotationOptions]) -> AsyncIterator[AnnotationInfo]:
        """Return what was said of the run. See `SyncRunHandle.annotations`."""
        found = await to_thread.run_sync(partial(self._sync.annotations, **options))
        async for one in _awaited(found):
            yield one

    async def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> AsyncIterator[LogLine]:
        """Return what the run's stages have logged. See `SyncRunHandle.logs`."""
        reader = await to_thread.run_sync(self._sync.log_reader, options)
        if not follow:
            async for line in _awaited(reader.all()):
                yield line
        while follow:
            for line in await to_thread.run_sync(reader.look):
                yield line
            if reader.ended:
                return
            await anyio.sleep(FOLLOW_INTERVAL)

    async def progress(self) -> list[ProgressInfo]:
        """Return how far the run's stages said that they are. See `SyncRunHandle.progress`."""
        return await to_thread.run_sync(self._sync.progress)

    async def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts that stages of the run have put. See `SyncRunHandle.artifacts`."""
        return await to_thread.run_sync(self._sync.artifacts)

    async def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the bytes of an artifact. See `SyncRunHandle.artifact`."""
        return await to_thread.run_sync(partial(self._sync.artifact, name, stage=stage, item=item))

    async def ai_calls(self, **options: Unpack[AiCallFilter]) -> AsyncIterator[AiCallInfo]:
        """Return the calls of models of the run. See `SyncRunHandle.ai_calls`."""
        found = await to_thread.run_sync(partial(self._sync.ai_calls, **options))
        async for one in _awaited(found):
            yield one

    async def ai_totals(
        self, *, topic: str | None = None, by: Literal["model", "topic"] = "model"
    ) -> AiTotals:
        """Return what the calls of models of the run come to. See `SyncRunHandle.ai_totals`."""
        return await to_thread.run_sync(partial(self._sync.ai_totals, topic=topic, by=by))

    async def cancel(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled, unless it has ended. RunNotFoundError."""
        return await to_thread.run_sync(partial(self._sync.cancel, reason=reason))

    async def terminate(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled at once, whatever it has left to clean up. RunNotFoundError."""
        return await to_thread.run_sync(partial(self._sync.terminate, reason=reason))

    async def pause(self, *, reason: str = "") -> RunPaused:
        """Start nothing more of the run until it is resumed; what is under way ends as ever. RunNotFoundError."""
        return await to_thread.run_sync(partial(self._sync.pause, reason=reason))

    async def resume(self, *, reason: str = "") -> RunPaused:
        """Let a paused run go on where it is. RunNotFoundError."""
        return await to_thread.run_sync(partial(self._sync.resume, reason=reason))

    async def rerun_from(
        self, stage: AnyNode[object] | str | None = None, /, *, reason: str = "", version: str | None = None
    ) -> RunRerun:
        """Run it again from a stage on, as a new generation. See `SyncRunHandle.rerun_from`."""
        call = partial(self._sync.rerun_from, stage, reason=reason, version=version)
        return await to_thread.run_sync(call)

    async def preview_rerun(
        self, stage: AnyNode[object] | str | None = None, /, *, version: str | None = None
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, and change nothing. Raises what that does."""
        return await to_thread.run_sync(partial(self._sync.preview_rerun, stage, version=version))

    async def wake(self, stage: AnyNode[object] | str, /, *, item: int | None = None) -> StagesWoken:
        """Have the external work of a stage checked now. See `SyncRunHandle.wake`."""
        return await to_thread.run_sync(partial(self._sync.wake, stage, item=item))


class SyncEngine:
    """`Engine` for code without an event loop."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def __enter__(self) -> Self:
        """Connect."""
        self.core.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Give up all connections."""
        self.core.close()

    @property
    def kernel(self) -> Kernel:
        """The kernel, for commands that the engine has no method for."""
        return self.core.kernel

    def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run. It is stored when this returns.

        Raises:
            UnstorableValueError: The input is not of the declared type, or can't be stored.
            RunExistsError: There is a run of this id.
            IdempotencyConflictError: The key was used for another start.
            UnknownWorkflowError: The engine was not given this workflow.
            UnavailableError: The store did not answer; with an idempotency key, starting again is safe.
        """
        command = self.core.create(call, options)
        created = self.core.dispatch(command)
        return SyncRunHandle(self.core, created.run_id, call.definition.output_type)

    def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run and wait for its result. Some worker must be running."""
        return self.start(call, **options).result()

    def handle(self, workflow: Definition[R], id: str, /) -> SyncRunHandle[R]:
        """Return a handle of a run, which need not exist."""
        return SyncRunHandle(self.core, id, workflow.output_type)

    def wake(self, key: str, /) -> StagesWoken:
        """Have external work checked now, by the key that `suspend` was given: for webhooks, say.

        Raises:
            NothingToWakeError: No stage waits for work of this key. If it may not be suspended yet, try again later.
        """
        return self.core.kernel.dispatch(StageWake(namespace=self.core.namespace, key=key))

    def runs(self, **options: Unpack[ListOptions]) -> Iterator[RunInfo]:
        """Return the runs of this namespace one by one, newest first, read some at a time.

        Args:
            options: Which ones, by `workflow`, `status`, `attributes`, `since` and `until`, and whether with
                `all_generations`; in what order, by `oldest_first`; and how many, by `after` and `limit`. See
                `ListOptions`.

        Raises:
            InvalidFilterError: One of these can't be. Nothing was asked of the store.
        """
        return self._listed(wanted_runs(self.core.namespace, options, "runs"))

    def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Return how many runs there are of each status that is asked for, which may be none.

        Args:
            options: Which ones, by `workflow`, `status`, `attributes`, `since` and `until`, and whether with
                `all_generations`. See `CountOptions`.

        Raises:
            InvalidFilterError: One of these can't be. Nothing was asked of the store.
        """
        which = run_filter(self.core.namespace, options, "count")
        self.core.connect()
        found = self.core.stores.persistence.read(CountRuns(which))
        return {status: found.get(status, 0) for status in RunStatus if status in (which.statuses or found)}

    def cancel_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled, oldest first, in transactions of at most 500.

        To repeat it does no harm, and it has an end: runs that are started meanwhile do not count.

        Args:
            reason: For people; kept in the histories.
            limit: How many runs at most.
            which: Which ones, by `workflow`, `status`, `attributes`, `annotations`, `since` and `until`. Without a
                status all that are active.

        Raises:
            InvalidFilterError: One of these can't be, or no run of such a status can be cancelled.
            UnavailableError: The store did not answer; some may be cancelled, and some not.
        """
        return self._act(CANCEL, which, reason, limit)

    def terminate_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled at once, whatever they have left to clean up. Otherwise as `cancel_all`."""
        return self._act(TERMINATE, which, reason, limit)

    def pause_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Start nothing more of all these runs until they are resumed. Otherwise as `cancel_all`."""
        return self._act(PAUSE, which, reason, limit)

    def resume_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Let all these runs, which are paused, go on. Otherwise as `cancel_all`."""
        return self._act(RESUME, which, reason, limit)

    def rerun_all(
        self,
        stage: AnyNode[object] | str | None = None,
        /,
        *,
        version: str | None = None,
        reason: str = "",
        limit: int | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Run all these runs again, in transactions of at most 100. Without a status, those that have failed.

        What becomes of each is as with `rerun_from` of its handle; those from which it can't be done are refused, and
        the others are not affected. Otherwise as `cancel_all`.
        """
        name = stage.name if isinstance(stage, Node) else stage
        return self._act(RERUN, which, reason, limit, stage=name, version=version)

    def _act(
        self,
        action: Action,
        which: FilterOptions,
        reason: str,
        limit: int | None,
        *,
        stage: str | None = None,
        version: str | None = None,
    ) -> BulkResult:
        checked_limit(limit)
        runs = chosen_runs(self.core, action, which, f"{action.name} all")
        command = command_for(action, reason=reason, stage=stage, version=version)
        return act_on_all(self.core, action, runs, command, limit=limit)

    def register_sink(
        self, name: str, /, *, since: datetime | None = None, types: Collection[str] = ()
    ) -> SinkInfo:
        """Let events go to the sink of this name. One that is there stays as it is.

        Args:
            name: 1 to 100 of `a-z 0-9 _ . -`. What takes the events is given to workers under this name.
            since: Events stored from then on go there; from now on if not given. Aware.
            types: Only these types of events: `run.failed`, or `user.*` for all that begin so. All if there are none.

        Raises:
            InvalidCommandError: The name or a type can't be.
        """
        register_sink(self.core, name, since, types)
        return next(sink for sink in list_sinks(self.core) if sink.name == name)

    def remove_sink(self, name: str, /) -> bool:
        """Forget a sink, what it had to get, and its dead letters. Return whether there was one."""
        return remove_sink(self.core, name)

    def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, by name."""
        return list_sinks(self.core)

    def flush(self, sinks: Mapping[str, EventSink], /) -> Flushed:
        """Bring what has happened to these sinks, until there is nothing left that they take now.

        Workers do this all the time for the sinks that they are given.
        """
        self.core.connect()
        return Flusher(self.core, sinks).flush()

    def dead_letters(self, *, sink: str = "", run_id: str = "") -> Iterator[DeadLetterInfo]:
        """Return one by one the runs whose events are parked: of one sink, of one run, or all."""
        return dead_letters(self.core, sink, run_id)

    def replay_dead_letters(
        self, *, sink: str = "", run_id: str = "", skip: bool = False, reason: str = ""
    ) -> int:
        """Let parked events go on from the one that was refused: of one sink, one run, or all. Return of how many runs.

        Args:
            sink: Only those of this sink.
            run_id: Only those of this run.
            skip: Leave the refused event out. The sink gets an `event.skipped` in its place, with the `reason`.
            reason: For people.
        """
        return replay_dead_letters(self.core, sink, run_id, skip=skip, reason=reason)

    def _listed(self, wanted: Wanted) -> Iterator[RunInfo]:
        after, left = wanted.after, wanted.limit
        while left is None or left > 0:
            page = _PAGE if left is None else min(_PAGE, left)
            query = ListRuns(wanted.which, after=after, oldest_first=wanted.oldest_first, limit=page)
            self.core.connect()
            rows = self.core.stores.persistence.read(query)
            yield from map(info_of, rows)
            if len(rows) < page:
                return
            after, left = rows[-1].place, None if left is None else left - page


class Engine:
    """An application's way to its runs. Connects when it is first used, so it may be a global."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._sync = SyncEngine(core)

    @classmethod
    def open(
        cls,
        url: str,
        /,
        *,
        workflows: Iterable[Definition[object]] = (),
        blobs: str | None = None,
        namespace: str = "default",
        migrate: bool = True,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> Self:
        """Return an engine on a store.

        Args:
            url: `memory://`, `sqlite:///path/to/file.db` or `postgresql://user@host/database`.
            workflows: What runs can be started of here, and what a worker of this engine runs.
            blobs: Where large values go, as `file:///an/absolute/folder`.
            namespace: Runs, keys and jobs of one namespace are not seen from another. 1 to 200 of
                `A-Z a-z 0-9 _ . @ = + -`, the first a letter, a digit or `_`.
            migrate: Whether to make or update the tables at the first use; otherwise `holdfast db upgrade` does it.
            prices: What models cost, by name, for calls that stages log without a cost.
            redact: What takes out of prompts, responses, errors and metadata of such calls what is not to be stored.
            interceptors: What is put around every dispatch of commands and every body, the first outermost.

        Raises:
            InvalidUrlError: A URL has none of these forms.
            InvalidNamespaceError: The namespace has other characters, or too many.
            DefinitionError: Two workflows have one name and version.
        """
        return cls.on(
            open_stores(url, blobs),
            workflows=workflows,
            namespace=namespace,
            migrate=migrate,
            prices=prices,
            redact=redact,
            interceptors=interceptors,
        )

    @classmethod
    def on(
        cls,
        stores: Stores,
        /,
        *,
        workflows: Iterable[Definition[object]] = (),
        namespace: str = "default",
        migrate: bool = True,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> Self:
        """Return an engine on adapters of your own."""
        ai = AiSettings(prices=dict(prices or {}), redact=redact)
        return cls(
            Core(stores, workflows, namespace=namespace, migrate=migrate, ai=ai, interceptors=interceptors)
        )

    async def __aenter__(self) -> Self:
        """Connect."""
        await to_thread.run_sync(self.core.connect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Give up all connections."""
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self.core.close)

    @property
    def sync(self) -> SyncEngine:
        """The same engine for code without an event loop."""
        return self._sync

    @property
    def kernel(self) -> Kernel:
        """The kernel, for commands that the engine has no method for. Its methods block: call them in a thread."""
        return self.core.kernel

    async def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> RunHandle[R]:
        """Start a run. It is stored when this returns. Raises what `SyncEngine.start` does."""
        handle = await to_thread.run_sync(partial(self._sync.start, call, **options))
        return RunHandle(self.core, handle.id, call.definition.output_type)

    async def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run and wait for its result. Some worker must be running."""
        handle = await self.start(call, **options)
        return await handle.result()

    def handle(self, workflow: Definition[R], id: str, /) -> RunHandle[R]:
        """Return a handle of a run, which need not exist."""
        return RunHandle(self.core, id, workflow.output_type)

    async def wake(self, key: str, /) -> StagesWoken:
        """Have external work checked now, by its key. See `SyncEngine.wake`."""
        return await to_thread.run_sync(self._sync.wake, key)

    def runs(self, **options: Unpack[ListOptions]) -> AsyncIterator[RunInfo]:
        """Return the runs of this namespace one by one. See `SyncEngine.runs`."""
        return _awaited(self._sync.runs(**options))

    async def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Return how many runs there are of each status. See `SyncEngine.count`."""
        return await to_thread.run_sync(partial(self._sync.count, **options))

    async def cancel_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled. See `SyncEngine.cancel_all`."""
        call = partial(self._sync.cancel_all, reason=reason, limit=limit, **which)
        return await to_thread.run_sync(call)

    async def terminate_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled at once. See `SyncEngine.terminate_all`."""
        call = partial(self._sync.terminate_all, reason=reason, limit=limit, **which)
        return await to_thread.run_sync(call)

    async def pause_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Start nothing more of all these runs until they are resumed. See `SyncEngine.pause_all`."""
        call = partial(self._sync.pause_all, reason=reason, limit=limit, **which)
        return await to_thread.run_sync(call)

    async def resume_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Let all these runs, which are paused, go on. See `SyncEngine.resume_all`."""
        call = partial(self._sync.resume_all, reason=reason, limit=limit, **which)
        return await to_thread.run_sync(call)

    async def rerun_all(
        self,
        stage: AnyNode[object] | str | None = None,
        /,
        *,
        version: str | None = None,
        reason: str = "",
        limit: int | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Run all these runs again. See `SyncEngine.rerun_all`."""
        call = partial(self._sync.rerun_all, stage, version=version, reason=reason, limit=limit, **which)
        return await to_thread.run_sync(call)

    async def register_sink(
        self, name: str, /, *, since: datetime | None = None, types: Collection[str] = ()
    ) -> SinkInfo:
        """Let events go to the sink of this name. See `SyncEngine.register_sink`."""
        return await to_thread.run_sync(partial(self._sync.register_sink, name, since=since, types=types))

    async def remove_sink(self, name: str, /) -> bool:
        """Forget a sink. See `SyncEngine.remove_sink`."""
        return await to_thread.run_sync(self._sync.remove_sink, name)

    async def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, by name."""
        return await to_thread.run_sync(self._sync.sinks)

    async def flush(self, sinks: Mapping[str, EventSink], /) -> Flushed:
        """Bring what has happened to these sinks. See `SyncEngine.flush`."""
        return await to_thread.run_sync(self._sync.flush, sinks)

    def dead_letters(self, *, sink: str = "", run_id: str = "") -> AsyncIterator[DeadLetterInfo]:
        """Return one by one the runs whose events are parked. See `SyncEngine.dead_letters`."""
        return _awaited(self._sync.dead_letters(sink=sink, run_id=run_id))

    async def replay_dead_letters(
        self, *, sink: str = "", run_id: str = "", skip: bool = False, reason: str = ""
    ) -> int:
        """Let parked events go on. See `SyncEngine.replay_dead_letters`."""
        replay = partial(self._sync.replay_dead_letters, sink=sink, run_id=run_id, skip=skip, reason=reason)
        return await to_thread.run_sync(replay)


async def _awaited(found: Iterator[T]) -> AsyncIterator[T]:
    nothing = object()
    following: Callable[[], object] = partial(next, found, nothing)
    while (one := await to_thread.run_sync(following)) is not nothing:
        yield cast("T", one)


def _followed(reader: LogReader) -> Iterator[LogLine]:
    while True:
        yield from reader.look()
        if reader.ended:
            return
        time.sleep(FOLLOW_INTERVAL)


def info_of(run: Run) -> RunInfo:
    """Return a run's row as users see it."""
    return RunInfo(
        id=run.id,
        generation=run.generation,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        created_at=instant(run.created_at),
        updated_at=instant(run.updated_at),
        ended_at=None if run.ended_at is None else instant(run.ended_at),
        error=error_text(run),
        attributes=attribute_texts(run.attributes),
        cursor=run.place.text,
        # What is run again is the newest generation, always.
        rerun_of=None if run.rerun_of is None else run.generation - 1,
        rerun_from=run.rerun_from,
    )


def _event(row: HistoryRow) -> RunEvent:
    return RunEvent(
        number=row.number,
        type=row.type,
        at=instant(row.at),
        stage=row.node,
        item=row.item,
        data=_facts(row),
    )


def _facts(row: HistoryRow) -> dict[str, object]:
    if row.type.startswith(USER_EVENTS) and row.payload is not None:
        published = parse(row.payload.inline or "null")
        return cast("dict[str, object]", published) if isinstance(published, dict) else {"data": published}
    return cast("dict[str, object]", parse(row.data)) if row.data else {}


def error_text(run: Run) -> str | None:
    """Return why a run failed or was cancelled, in a line; None if it was neither."""
    if run.error is None:
        return None
    error = cast("dict[str, Any]", parse(run.error))
    if "stage" not in error:
        return f"{error['code']}: {error['message']}" if error["message"] else str(error["code"])
    where = f"stage {error['stage']!r}" + (f", item {error['item']}" if "item" in error else "")
    what = f"{error['type']}: {error['message']}" if error["type"] else error["message"]
    return f"{where}, attempt {error['attempt']}: {what}"


def _reason(run: Run) -> str:
    return str(cast("dict[str, Any]", parse(run.error))["message"]) if run.error else ""


def _seconds(timeout: timedelta | None) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"timeout is {timeout!r}; it must be a timedelta, as timedelta(seconds=10)")
    return timeout.total_seconds()


def _too_long(id: str, timeout: timedelta | None) -> str:
    return f"run {id!r} has not ended within {timeout}; it goes on"


async def _resolved(future: "Future[T]") -> T:
    """Wait for a future of another thread without one of our own."""
    done = anyio.Event()
    in_loop = caller_into_loop()
    future.add_done_callback(lambda _: in_loop(done.set))
    if not future.done():
        await done.wait()
    try:
        return future.result(0)
    except CancelledError:
        raise RuntimeError(_CLOSED) from None
