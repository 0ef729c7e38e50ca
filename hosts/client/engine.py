"""The engine, the application's client of a store, for async code."""

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
from holdfast.hosts.client.run_handle import RunHandle, iterate_in_thread
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.events.flusher import FlushResult
from holdfast.hosts.events.sinks import (
    DeadLetterInfo,
    SinkInfo,
)
from holdfast.hosts.execution.bodies import Substitute, unchanged
from holdfast.hosts.execution.threads import in_thread
from holdfast.hosts.functions.upgrade_check import RUNS_CHECKED_DEFAULT, Sample, UpgradeCheck
from holdfast.hosts.inspection.filters import (
    CountOptions,
    FilterOptions,
    ListOptions,
)
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.maintenance.doctor.doctor import FINDINGS
from holdfast.hosts.maintenance.doctor.findings import Diagnosis
from holdfast.hosts.wiring.ai_settings import AiSettings
from holdfast.hosts.wiring.interceptors import Interceptor
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.stores import PATIENCE, Stores, open_stores
from holdfast.kernel.authoring.ai import Price, Redact
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
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
from holdfast.ports.records.run import RunStatus
from holdfast.ports.scheduler import Scheduler
from holdfast.ports.transport import JobTransport
from holdfast.ports.validation import FUNCTION, an, by_name, check

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)


class Engine:
    """The application's client of a store: starts runs, lists them and acts on them.

    It connects at its first use, so it may be a module global. Use it as an async context manager to close its
    connections. `engine.sync` is the same for synchronous code.
    """

    def __init__(self, core: Core, *, substitute: Substitute = unchanged) -> None:
        self.core = core
        self._sync = SyncEngine(core, substitute=substitute)
        self.client = self._sync.client
        self.substitute = substitute
        """Replaces bodies in the workers of this engine, for tests."""

    @classmethod
    def open(
        cls,
        url: str,
        /,
        *,
        workflows: Iterable[WorkflowDefinition[object]] = (),
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
        """Return an engine for the store at a URL. Nothing is connected to yet.

        Args:
            url: `memory://`, `sqlite:///path/to/file.db` or `postgresql://user@host/database`.
            workflows: The workflows that this engine can start and that its workers run.
            steps: Steps with a queue that a worker of this engine runs, whatever workflows call them. Steps that
                durable functions in `workflows` mention by name are included.
            blobs: Where to keep large values: `file:///an/absolute/folder`, `s3://bucket/prefix` or a `BlobStore`. By
                default in `<file>.blobs` beside a SQLite file, and inline in other stores.
            transport: What carries hints, instead of the store's own transport: the URL of an SQS queue,
                `nats://host:4222/stream` or a `JobTransport`.
            scheduler: What wakes sleeping jobs where no worker runs permanently:
                `eventbridge://group?role=arn:aws:iam::...` or a `Scheduler`. Its wake-ups go to the consumers of the
                transport.
            namespace: Runs, keys and jobs of one namespace are invisible in another. 1 to 200 of
                `A-Z a-z 0-9 _ . @ = + -`, the first a letter, a digit or `_`.
            migrate: Create or upgrade the tables at the first use; if False, run `holdfast db upgrade`.
            prices: Prices by model name, for model calls that are logged without a cost.
            redact: Removes data from the prompts, responses, errors and metadata of model calls before they are stored.
            interceptors: Wrap every dispatch of commands and every body; the first is the outermost.
            patience: How long a call retries while the database is unavailable before it raises UnavailableError, a
                timedelta or a number of seconds; 30 s if omitted.

        Raises:
            InvalidArgumentError: An argument has the wrong type.
            InvalidUrlError: A URL has none of these forms.
            InvalidNamespaceError: The namespace is too long or has other characters.
            DefinitionError: Two workflows have the same name and version, or two steps with a queue the same name.
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
        workflows: Iterable[WorkflowDefinition[object]] = (),
        steps: Iterable[Step[..., Any]] = (),
        namespace: str = "default",
        migrate: bool = True,
        prices: Mapping[str, Price] | None = None,
        redact: Redact | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> Self:
        """Return an engine on your own adapters: the `Stores` that `open_stores(url)` returns, or changed ones.

        The other arguments are those of `open`.
        """
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
        """Connect to the store."""
        await in_thread(self.core.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close all connections, unless the engine was opened more than once or one of its workers still runs."""
        with anyio.CancelScope(shield=True):
            await in_thread(self.core.close)

    @property
    def sync(self) -> SyncEngine:
        """The same engine for synchronous code."""
        return self._sync

    @property
    def kernel(self) -> Kernel:
        """The kernel, for commands that the engine has no method for. Its methods block: call them in a thread."""
        return self.core.kernel

    async def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> RunHandle[R]:
        """Start a run and return its handle. The run is stored when this returns; a worker executes it.

        Args:
            call: The call of a workflow: `my_workflow(argument)`.
            options: `id`, `if_exists`, `if_active`, `if_ended`, `idempotency_key`, `queue`, `priority`, `start_at`,
                `deadline`, `concurrency_key`, `concurrency_limit`, `attributes`, `annotations`, `overrides` and
                `signals`. See `StartOptions`.

        Raises:
            InvalidArgumentError: `call` is not the call of a workflow, or an option has an invalid value.
            InvalidValueError: The input does not have the declared type.
            UnstorableValueError: The input can't be stored as JSON.
            InvalidOverrideError: A stage in `overrides` can't be changed like this.
            SignalRefusedError: A message in `signals` is for a pipeline, or for a channel that the function does not
                have.
            RunExistsError: A run with this id exists.
            IdempotencyConflictError: The key was used for another command.
            UnknownWorkflowError: The engine does not have this workflow.
            UnavailableError: The store can't be reached. With an idempotency key it is safe to start again.
        """
        handle = await in_thread(partial(self._sync.start, call, **options))
        return RunHandle(self.client, handle.id, call.definition.output_type, handle.newest_key)

    async def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[StartAllOptions]
    ) -> list[RunHandle[R]]:
        """Start many runs, up to 500 in one transaction, and return their handles in the same order.

        Faster than one `start` per run. All calls are checked before any is stored. If the store becomes unavailable
        half-way, only the first runs are stored; with an idempotency key it is safe to repeat the call.

        Args:
            calls: The calls, of one workflow or several.
            options: As for `start`, except `id`, `if_exists`, `if_active` and `if_ended`; they apply to each run. With
                an idempotency key the n-th call, from 0, has this key with `/n` appended: repeat the same calls in the
                same order.

        Raises:
            InvalidArgumentError, InvalidValueError, UnstorableValueError, UnknownWorkflowError: As `start`.
            IdempotencyConflictError: The key was used for another command. Other runs of this call may be stored.
            UnavailableError: The store can't be reached.
        """
        wanted = list(calls)
        handles = await in_thread(partial(self._sync.start_all, wanted, **options))
        return [
            RunHandle(self.client, handle.id, call.definition.output_type, handle.newest_key)
            for call, handle in zip(wanted, handles, strict=True)
        ]

    async def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, wait for its result and return it. A worker must be running.

        Takes the options and raises the errors of `start`, and raises those of `RunHandle.result`.
        """
        handle = await self.start(call, **options)
        return await handle.result()

    def handle(self, workflow: WorkflowDefinition[R], id: str, /) -> RunHandle[R]:
        """Return a handle to a run, without checking that the run exists.

        Args:
            workflow: The workflow of the run, which gives the type of its result.
            id: The run id.

        Raises:
            InvalidArgumentError: `workflow` is not a workflow, or `id` is not a string.
        """
        return RunHandle(self.client, self._sync.handle(workflow, id).id, workflow.output_type)

    async def wake(self, key: str, /) -> StagesWoken:
        """Check external work now, instead of at its next poll. For webhooks, for instance.

        Args:
            key: The key that the stage passed to `suspend`.

        Returns:
            How many stages or map items are `woken`.

        Raises:
            NothingToWakeError: No suspended stage has this key. If the stage may not be suspended yet, try again later.
            InvalidArgumentError: `key` is not a string.
        """
        return await in_thread(self._sync.wake, key)

    def runs(self, **options: Unpack[ListOptions]) -> AsyncIterator[RunInfo]:
        """Return the runs of this namespace, newest first. They are read page by page.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before` and
                `all_generations`; the order: `oldest_first`; and `after` and `limit`. See `ListOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        return iterate_in_thread(self._sync.runs(**options))

    async def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Count the runs of this namespace by status. Each requested status has an entry, 0 if no run has it.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before` and
                `all_generations`. See `CountOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        return await in_thread(partial(self._sync.count, **options))

    async def cancel_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Cancel all runs that match, oldest first, in transactions of at most 500 runs. See `RunHandle.cancel`.

        Runs that are created after the call began are not included. It is safe to repeat the call.

        Args:
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            which: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until` and `ended_before`.
                Without `status`, all active runs. See `FilterOptions`.

        Raises:
            InvalidFilterError: A filter has an invalid value, or runs of this status can't be cancelled.
            UnavailableError: The store can't be reached. Some of the runs may be cancelled.
        """
        call = partial(self._sync.cancel_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def terminate_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all runs that match at once as cancelled, without cleanup. Otherwise as `cancel_all`."""
        call = partial(self._sync.terminate_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def pause_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Pause all runs that match: nothing new starts until they are resumed. Otherwise as `cancel_all`."""
        call = partial(self._sync.pause_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def resume_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Resume all paused runs that match, or with `status="blocked"` the blocked ones. Otherwise as `cancel_all`."""
        call = partial(self._sync.resume_all, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def remove_all(self, *, limit: int | None = None, **which: Unpack[FilterOptions]) -> BulkResult:
        """Delete all ended runs that match from the store. See `RunHandle.remove`; otherwise as `cancel_all`.

        Runs that can't be removed yet are refused. Without `status`, ended runs of any status; pass `ended_before` to
        keep recent ones.
        """
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
        """Run all runs that match again, in transactions of at most 100 runs. Without `status`, the failed ones.

        Runs that can't be rerun from this point are refused; this does not affect the others. See
        `RunHandle.rerun_from`; otherwise as `cancel_all`.

        Args:
            stage: The stage to start from, or its name, as for `RunHandle.rerun_from`.
            version: The version of the workflow to run; the same one if omitted.
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            which: Filters, as for `cancel_all`.
        """
        call = partial(self._sync.rerun_all, stage, version=version, reason=reason, limit=limit, **which)
        return await in_thread(call)

    async def register_sink(
        self, name: str, /, *, since: datetime | None = None, types: Collection[str] = ()
    ) -> SinkInfo:
        """Register a sink under a name, so that events are delivered to it. An existing sink is not changed.

        Args:
            name: 1 to 100 of `a-z 0-9 _ . -`. Workers get the `EventSink` under this name.
            since: Deliver events stored at this instant or later, an aware datetime; from now on if omitted.
            types: Deliver only these types of events: `run.failed`, or `user.*` for a prefix. All types if empty.

        Raises:
            InvalidCommandError: The name or a type is not valid.
            SinkExistsError: The sink is registered with other types.
            InvalidArgumentError: An argument has the wrong type.
        """
        return await in_thread(partial(self._sync.register_sink, name, since=since, types=types))

    async def remove_sink(self, name: str, /) -> bool:
        """Remove a sink, with its undelivered events and its dead letters. Return whether it existed."""
        return await in_thread(self._sync.remove_sink, name)

    async def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, sorted by name."""
        return await in_thread(self._sync.sinks)

    async def flush(self, sinks: Mapping[str, EventSink], /) -> FlushResult:
        """Deliver events to these sinks until none is due, and return what was delivered.

        Workers do this continuously for the sinks that they have.

        Args:
            sinks: The `EventSink`s, by the names under which they are registered.
        """
        return await in_thread(self._sync.flush, sinks)

    def dead_letters(self, *, sink: str = "", run_id: str = "") -> AsyncIterator[DeadLetterInfo]:
        """Return the dead-lettered streams: the runs with an event that a sink refused. They are read page by page.

        Args:
            sink: Only those of this sink; of all sinks if omitted.
            run_id: Only those of this run; of all runs if omitted.

        Raises:
            SinkNotFoundError: The sink does not exist.
            RunNotFoundError: The run does not exist.
        """
        return iterate_in_thread(self._sync.dead_letters(sink=sink, run_id=run_id))

    async def replay_dead_letters(
        self, *, sink: str = "", run_id: str = "", skip: bool = False, reason: str = ""
    ) -> int:
        """Deliver dead-lettered streams again, from the refused event on. Return the number of streams.

        Args:
            sink: Only those of this sink; of all sinks if omitted.
            run_id: Only those of this run; of all runs if omitted.
            skip: Skip the refused event. The sink gets an `event.skipped` with the `reason` in its place.
            reason: A text for operators.

        Raises:
            SinkNotFoundError: The sink does not exist.
            RunNotFoundError: The run does not exist.
        """
        replay = partial(self._sync.replay_dead_letters, sink=sink, run_id=run_id, skip=skip, reason=reason)
        return await in_thread(replay)

    def check_upgrade(
        self,
        *,
        workflow: WorkflowDefinition[Any] | str | None = None,
        limit: int | None = RUNS_CHECKED_DEFAULT,
        sample: Sample = "both",
        known_only: bool = False,
    ) -> AsyncIterator[UpgradeCheck]:
        """Check whether this engine's code can continue the runs that have not ended. Nothing is written.

        Histories of durable functions are replayed, without running steps. For a pipeline's run, the code must have all
        stages of its plan.

        Args:
            workflow: Only runs of this workflow, or of the one with this name, in any version.
            limit: The maximum number of runs to check; None for all.
            sample: Which runs to check if there are more: the `newest`, the `oldest`, or `both`, half of each.
            known_only: Leave out runs of workflows that the engine does not have in any version.

        Returns:
            An iterator with the verdict on each run.

        Raises:
            InvalidArgumentError: An argument has an invalid value; raised before the store is read.
            SchemaError: The store has no tables.
        """
        return iterate_in_thread(
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
        """Check the runs, limits and sinks of this namespace against the invariants.

        It takes no locks and uses bounded memory. Each finding is checked twice before it is reported.

        Args:
            repair: Repair what can be repaired without guessing. It never fails a run only because it makes no
                progress.
            blobs: Read every referenced blob too.
            limit: The maximum number of findings in the result; all are counted.
            all_namespaces: Check, and repair, all namespaces of the store.

        Raises:
            UnavailableError: The store can't be reached.
        """
        call = partial(
            self._sync.doctor, repair=repair, blobs=blobs, limit=limit, all_namespaces=all_namespaces
        )
        return await in_thread(call)
