"""One run, seen from async code: each call is that of `SyncRunHandle`, made in a thread."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, Literal, Unpack, cast, overload

import anyio
from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client.sync_run_handle import CLOSED, SyncRunHandle, no_reply, seconds_of, too_long
from holdfast.hosts.execution.artifacts import ArtifactInfo
from holdfast.hosts.execution.event_loops import caller_into_loop
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.functions.history_document import RunHistory
from holdfast.hosts.inspection.ai_calls import AiCallFilter, AiCallInfo, AiTotals
from holdfast.hosts.inspection.annotations import (
    AnnotateOptions,
    AnnotationInfo,
    AnnotationOptions,
)
from holdfast.hosts.inspection.logs import (
    FOLLOW_INTERVAL,
    LogLine,
    LogOptions,
    ProgressInfo,
)
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.hosts.inspection.run_info import RunEvent, RunInfo
from holdfast.hosts.inspection.why import Reason
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.queries import QueryCall, UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import (
    RunAnnotated,
    RunEnded,
    RunPaused,
    RunRerun,
    RunSignalled,
    StagesWoken,
)
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.durations import Duration
from holdfast.ports.errors import EngineClosedError
from holdfast.ports.records import TERMINAL

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)


class RunHandle(Generic[Out]):
    """One run, seen from async code. Always its newest generation."""

    def __init__(self, core: Core, id: str, output_type: object, key: str | None = None) -> None:
        self._core = core
        self._sync: SyncRunHandle[Out] = SyncRunHandle(core, id, output_type, key)
        self.id = id

    async def info(self, *, generation: int | None = None) -> RunInfo:
        """Return where the run is, or where an older generation of it ended. RunNotFoundError."""
        return await in_thread(partial(self._sync.info, generation=generation))

    async def result(self, *, timeout: Duration | None = None) -> Out:
        """Wait until the run ends, and return what it gave. Raises what `SyncRunHandle.result` does."""
        seconds = seconds_of(timeout)
        until = None if seconds is None else anyio.current_time() + seconds
        while True:
            # Before it is read: or else it may end before anybody listens for that.
            listened = self._sync.known
            end = None if listened is None else self._core.listener.when_ended(listened)
            try:
                run = await in_thread(self._sync.row)
                if run.status not in TERMINAL:
                    if end is None or run.key != listened:
                        continue
                    with anyio.fail_after(None if until is None else until - anyio.current_time()):
                        run = await _resolved(end)
            except TimeoutError:
                raise TimeoutError(too_long(self.id, timeout)) from None
            finally:
                if end is not None:
                    end.cancel()
            if not run.is_continued:
                break
        return await in_thread(self._sync.output, run)

    async def history(
        self, *, after: int = 0, limit: int = 1_000, generation: int | None = None
    ) -> list[RunEvent]:
        """Return what has happened to the run since event `after`. See `SyncRunHandle.history`."""
        call = partial(self._sync.history, after=after, limit=limit, generation=generation)
        return await in_thread(call)

    async def export_history(self, *, generation: int | None = None) -> RunHistory:
        """Return all that the run was given and that has happened to it. See `SyncRunHandle.export_history`."""
        return await in_thread(partial(self._sync.export_history, generation=generation))

    async def annotate(
        self, said: Mapping[str, object], /, **options: Unpack[AnnotateOptions]
    ) -> RunAnnotated:
        """Say something of the run. See `SyncRunHandle.annotate`."""
        return await in_thread(partial(self._sync.annotate, said, **options))

    async def annotations(self, **options: Unpack[AnnotationOptions]) -> AsyncIterator[AnnotationInfo]:
        """Return what was said of the run. See `SyncRunHandle.annotations`."""
        found = await in_thread(partial(self._sync.annotations, **options))
        async for one in awaited(found):
            yield one

    async def logs(self, *, follow: bool = False, **options: Unpack[LogOptions]) -> AsyncIterator[LogLine]:
        """Return what the run's stages have logged. See `SyncRunHandle.logs`."""
        reader = await in_thread(self._sync.log_reader, options)
        if not follow:
            async for line in awaited(reader.all()):
                yield line
        while follow:
            for line in await in_thread(reader.look):
                yield line
            if reader.ended:
                return
            await anyio.sleep(FOLLOW_INTERVAL)

    async def progress(self) -> list[ProgressInfo]:
        """Return how far the run's stages said that they are. See `SyncRunHandle.progress`."""
        return await in_thread(self._sync.progress)

    async def artifacts(self) -> list[ArtifactInfo]:
        """Return the artifacts that stages of the run have put. See `SyncRunHandle.artifacts`."""
        return await in_thread(self._sync.artifacts)

    async def artifact(self, name: str, /, *, stage: str | None = None, item: int | None = None) -> bytes:
        """Return the bytes of an artifact. See `SyncRunHandle.artifact`."""
        return await in_thread(partial(self._sync.artifact, name, stage=stage, item=item))

    async def ai_calls(self, **options: Unpack[AiCallFilter]) -> AsyncIterator[AiCallInfo]:
        """Return the calls of models of the run. See `SyncRunHandle.ai_calls`."""
        found = await in_thread(partial(self._sync.ai_calls, **options))
        async for one in awaited(found):
            yield one

    async def ai_totals(
        self, *, topic: str | None = None, by: Literal["model", "topic"] = "model"
    ) -> AiTotals:
        """Return what the calls of models of the run come to. See `SyncRunHandle.ai_totals`."""
        return await in_thread(partial(self._sync.ai_totals, topic=topic, by=by))

    async def cancel(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled, unless it has ended. See `SyncRunHandle.cancel`."""
        return await in_thread(partial(self._sync.cancel, reason=reason))

    async def terminate(self, *, reason: str = "") -> RunEnded:
        """End the run as cancelled at once, whatever it has left to clean up. RunNotFoundError."""
        return await in_thread(partial(self._sync.terminate, reason=reason))

    async def signal(self, signal: Signal, /, *, idempotency_key: str | None = None) -> RunSignalled:
        """Send the run a message: `await run.signal(approval(decision))`. See `SyncRunHandle.signal`."""
        return await in_thread(partial(self._sync.signal, signal, idempotency_key=idempotency_key))

    async def messages(self, *, generation: int | None = None) -> list[MessageInfo]:
        """Return the messages of the run, and whether each was received. See `SyncRunHandle.messages`."""
        return await in_thread(partial(self._sync.messages, generation=generation))

    async def message(self, sent: RunSignalled, /) -> MessageInfo:
        """Return what became of a message, by what `signal` returned. See `SyncRunHandle.message`."""
        return await in_thread(self._sync.message, sent)

    async def query(self, call: QueryCall[T], /) -> T:
        """Ask the run what is: `await run.query(Board.status())`. See `SyncRunHandle.query`."""
        return await in_thread(self._sync.query, call)

    async def update(
        self, call: UpdateCall[T], /, *, timeout: Duration | None = None, idempotency_key: str | None = None
    ) -> T:
        """Have the run change what it exposes: `await run.update(Board.move_to("e4"))`. See `SyncRunHandle.update`."""
        seconds = seconds_of(timeout, "update")
        send = partial(self._sync.ask_update, call, idempotency_key=idempotency_key)
        reply = await in_thread(send)
        try:
            with anyio.fail_after(seconds):
                while (text := await in_thread(reply.look)) is None:
                    future = self._core.listener.when_past(reply.run, reply.seen)
                    try:
                        await _resolved(future)
                    finally:
                        future.cancel()
        except TimeoutError:
            raise TimeoutError(no_reply(self.id, call.update, timeout)) from None
        return call.decoded(text)

    @overload
    async def published(self, name: str, /) -> object: ...
    @overload
    async def published(self, name: str, type: TypeForm[T], /) -> T | None: ...
    async def published(self, name: str, type: Any = object, /) -> object:
        """Return what the run's function showed last by `publish(name, ...)`. See `SyncRunHandle.published`."""
        return await in_thread(partial(self._sync.published, name, type))

    async def pause(self, *, reason: str = "") -> RunPaused:
        """Start nothing more of the run until it is resumed; what is under way ends as ever. RunNotFoundError."""
        return await in_thread(partial(self._sync.pause, reason=reason))

    async def resume(self, *, reason: str = "") -> RunPaused:
        """Let a paused run go on where it is. RunNotFoundError."""
        return await in_thread(partial(self._sync.resume, reason=reason))

    async def remove(self) -> bool:
        """Take the run out of the store for good. See `SyncRunHandle.remove`."""
        return await in_thread(self._sync.remove)

    async def rerun_from(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        reason: str = "",
        version: str | None = None,
    ) -> RunRerun:
        """Run it again from a stage or a step on, as a new generation. See `SyncRunHandle.rerun_from`."""
        call = partial(self._sync.rerun_from, point, row=row, reason=reason, version=version)
        return await in_thread(call)

    async def preview_rerun(
        self,
        point: AnyNode[object] | Step[..., object] | str | None = None,
        /,
        *,
        row: int | None = None,
        version: str | None = None,
    ) -> RerunPreview:
        """Return what `rerun_from` would do now, and change nothing. Raises what that does."""
        return await in_thread(partial(self._sync.preview_rerun, point, row=row, version=version))

    async def why(self) -> tuple[Reason, ...]:
        """Return in plain words what the run waits for. See `SyncRunHandle.why`."""
        return await in_thread(self._sync.why)

    async def wake(self, stage: AnyNode[object] | str, /, *, item: int | None = None) -> StagesWoken:
        """Have the external work of a stage checked now. See `SyncRunHandle.wake`."""
        return await in_thread(partial(self._sync.wake, stage, item=item))


async def awaited(found: Iterator[T]) -> AsyncIterator[T]:
    """Yield what an iterator gives, each of it asked for in a thread."""
    nothing = object()
    following: Callable[[], object] = partial(next, found, nothing)
    while (one := await in_thread(following)) is not nothing:
        yield cast("T", one)


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
        raise EngineClosedError(CLOSED) from None
