"""The application's side: open it, and use it from async code."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

import anyio
from typing_extensions import TypeVar

from holdfast.hosts.client.bulk_actions import (
    BulkResult,
)
from holdfast.hosts.client.run_handle import RunHandle, awaited
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.events.flusher import Flushed
from holdfast.hosts.events.sinks import (
    DeadLetterInfo,
    SinkInfo,
)
from holdfast.hosts.execution.ai_call_log import AiSettings
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.functions.upgrade_check import LOOKED_AT, Sample, Upgrade
from holdfast.hosts.inspection.filters import (
    CountOptions,
    FilterOptions,
    ListOptions,
)
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.maintenance.doctor.doctor import FINDINGS
from holdfast.hosts.maintenance.doctor.findings import Diagnosis
from holdfast.hosts.wiring.interceptors import Interceptor
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import PATIENCE, Stores, open_stores
from holdfast.kernel.authoring.ai import Price, Redact
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import (
    StagesWoken,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.blobs import BlobStore
from holdfast.ports.durations import Duration
from holdfast.ports.events import EventSink
from holdfast.ports.records import RunStatus
from holdfast.ports.scheduler import Scheduler
from holdfast.ports.transport import JobTransport
from holdfast.ports.validation import FUNCTION, an, by_name, check

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)


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
        steps: Iterable[Step[..., Any]] = (),
        blobs: str | BlobStore | None = None,
        transport: str | JobTransport | None = None,
        scheduler: str | Scheduler | None = None,
        namespace: str = "default",
        migrate: bool = True,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
        patience: Duration = PATIENCE,
    ) -> Self:
        """Return an engine on a store.

        Args:
            url: `memory://`, `sqlite:///path/to/file.db` or `postgresql://user@host/database`.
            workflows: What runs can be started of here, and what a worker of this engine runs.
            steps: Steps of queues that a worker of this engine does, whatever workflows they are called in. Those that
                durable functions among `workflows` mention by their names need not be given.
            blobs: Where large values go, as `file:///an/absolute/folder` or `s3://bucket/prefix`, or a blob store of
                your own.
            transport: What carries hints, if it is not to be what comes with the store: the URL of a queue of SQS,
                `nats://host:4222/stream`, or a transport of your own.
            scheduler: What is asked to wake what sleeps, where no worker lives that does: as
                `eventbridge://group?role=arn:aws:iam::...`, or a scheduler of your own. Its wake-ups are for those who
                take the transport's messages.
            namespace: Runs, keys and jobs of one namespace are not seen from another. 1 to 200 of
                `A-Z a-z 0-9 _ . @ = + -`, the first a letter, a digit or `_`.
            migrate: Whether to make or update the tables at the first use; otherwise `holdfast db upgrade` does it.
            prices: What models cost, by name, for calls that stages log without a cost.
            redact: What takes out of prompts, responses, errors and metadata of such calls what is not to be stored.
            interceptors: What is put around every dispatch of commands and every body, the first outermost.
            patience: How long a call goes on trying while the database can't be used, before it raises
                UnavailableError: a timedelta, or a number of seconds.

        Raises:
            InvalidArgumentError: An argument is of another kind.
            InvalidUrlError: A URL has none of these forms.
            InvalidNamespaceError: The namespace has other characters, or too many.
            DefinitionError: Two workflows have one name and version, or two steps of queues one name.
        """
        return cls.on(
            open_stores(url, blobs, transport, patience, scheduler),
            workflows=workflows,
            steps=steps,
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
        steps: Iterable[Step[..., Any]] = (),
        namespace: str = "default",
        migrate: bool = True,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> Self:
        """Return an engine on adapters of your own."""
        check("Engine", an("stores, as open_stores(url) gives them", Stores), stores=stores)
        check("Engine", FUNCTION.or_none, redact=redact)
        words = "a dict of Price(...) by the names of models"
        known = by_name("Engine", "prices", prices or {}, words, an("a Price(...)", Price))
        ai = AiSettings(prices=known, redact=redact)
        return cls(
            Core(
                stores,
                workflows,
                steps=steps,
                namespace=namespace,
                migrate=migrate,
                ai=ai,
                interceptors=interceptors,
            )
        )

    async def __aenter__(self) -> Self:
        """Connect."""
        await in_thread(self.core.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Give up all connections."""
        with anyio.CancelScope(shield=True):
            await in_thread(self.core.close)

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
        handle = await in_thread(partial(self._sync.start, call, **options))
        return RunHandle(self.core, handle.id, call.definition.output_type, handle.known)

    async def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[StartAllOptions]
    ) -> list[RunHandle[R]]:
        """Start many runs, up to 500 in one transaction. See `SyncEngine.start_all`."""
        wanted = list(calls)
        handles = await in_thread(partial(self._sync.start_all, wanted, **options))
        return [
            RunHandle(self.core, handle.id, call.definition.output_type, handle.known)
            for call, handle in zip(wanted, handles, strict=True)
        ]

    async def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run and wait for its result. Some worker must be running."""
        handle = await self.start(call, **options)
        return await handle.result()

    def handle(self, workflow: Definition[R], id: str, /) -> RunHandle[R]:
        """Return a handle of a run, which need not exist. Raises what `SyncEngine.handle` does."""
        return RunHandle(self.core, self._sync.handle(workflow, id).id, workflow.output_type)

    async def wake(self, key: str, /) -> StagesWoken:
        """Have external work checked now, by its key. See `SyncEngine.wake`."""
        return await in_thread(self._sync.wake, key)

    def runs(self, **options: Unpack[ListOptions]) -> AsyncIterator[RunInfo]:
        """Return the runs of this namespace one by one. See `SyncEngine.runs`."""
        return awaited(self._sync.runs(**options))

    async def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Return how many runs there are of each status. See `SyncEngine.count`."""
        return await in_thread(partial(self._sync.count, **options))

    async def cancel_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled. See `SyncEngine.cancel_all`."""
        call = partial(self._sync.cancel_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def terminate_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled at once. See `SyncEngine.terminate_all`."""
        call = partial(self._sync.terminate_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def pause_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Start nothing more of all these runs until they are resumed. See `SyncEngine.pause_all`."""
        call = partial(self._sync.pause_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def resume_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Let all these runs go on: paused ones, or those with `status="blocked"`. See `SyncEngine.resume_all`."""
        call = partial(self._sync.resume_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def remove_all(self, *, limit: int | None = None, **which: Unpack[FilterOptions]) -> BulkResult:
        """Take all these runs, which have ended, out of the store for good. See `SyncEngine.remove_all`."""
        return await in_thread(partial(self._sync.remove_all, limit=limit, **which))

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
        return await in_thread(call)

    async def register_sink(
        self, name: str, /, *, since: datetime | None = None, types: Collection[str] = ()
    ) -> SinkInfo:
        """Let events go to the sink of this name. See `SyncEngine.register_sink`."""
        return await in_thread(partial(self._sync.register_sink, name, since=since, types=types))

    async def remove_sink(self, name: str, /) -> bool:
        """Forget a sink. See `SyncEngine.remove_sink`."""
        return await in_thread(self._sync.remove_sink, name)

    async def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, by name."""
        return await in_thread(self._sync.sinks)

    async def flush(self, sinks: Mapping[str, EventSink], /) -> Flushed:
        """Bring what has happened to these sinks. See `SyncEngine.flush`."""
        return await in_thread(self._sync.flush, sinks)

    def dead_letters(self, *, sink: str = "", run_id: str = "") -> AsyncIterator[DeadLetterInfo]:
        """Return one by one the runs whose events are parked. See `SyncEngine.dead_letters`."""
        return awaited(self._sync.dead_letters(sink=sink, run_id=run_id))

    async def replay_dead_letters(
        self, *, sink: str = "", run_id: str = "", skip: bool = False, reason: str = ""
    ) -> int:
        """Let parked events go on. See `SyncEngine.replay_dead_letters`."""
        replay = partial(self._sync.replay_dead_letters, sink=sink, run_id=run_id, skip=skip, reason=reason)
        return await in_thread(replay)

    def check_upgrade(
        self,
        *,
        workflow: Definition[Any] | str | None = None,
        limit: int | None = LOOKED_AT,
        sample: Sample = "both",
        known_only: bool = False,
    ) -> AsyncIterator[Upgrade]:
        """Return what this engine's code would make of runs that have not ended. See `SyncEngine.check_upgrade`."""
        return awaited(
            self._sync.check_upgrade(workflow=workflow, limit=limit, sample=sample, known_only=known_only)
        )

    async def doctor(
        self,
        *,
        repair: bool = False,
        blobs: bool = False,
        limit: int = FINDINGS,
        all_namespaces: bool = False,
    ) -> Diagnosis:
        """Look through this namespace for what is not as it must be. See `SyncEngine.doctor`."""
        call = partial(
            self._sync.doctor, repair=repair, blobs=blobs, limit=limit, all_namespaces=all_namespaces
        )
        return await in_thread(call)
