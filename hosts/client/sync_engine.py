"""The engine for synchronous code: starts runs, lists them and acts on many of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from typing_extensions import TypeVar

from holdfast.hosts.client.bulk_actions import (
    CANCEL,
    PAUSE,
    REMOVE,
    RERUN,
    RESUME,
    TERMINATE,
    Action,
    BulkResult,
    action_filter,
    apply_to_all,
    command_for,
)
from holdfast.hosts.client.client import Client
from holdfast.hosts.client.sync_run_handle import STAGE, SyncRunHandle, result_of_new
from holdfast.hosts.events.flusher import Flusher, FlushResult
from holdfast.hosts.events.sinks import (
    DeadLetterInfo,
    SinkInfo,
    dead_letters,
    list_sinks,
    register_sink,
    remove_sink,
    replay_dead_letters,
)
from holdfast.hosts.execution.bodies import Substitute, unchanged
from holdfast.hosts.functions.upgrade_check import RUNS_CHECKED_DEFAULT, Sample, UpgradeCheck, check_upgrade
from holdfast.hosts.inspection.filters import (
    CountOptions,
    FilterOptions,
    ListOptions,
    RunListQuery,
    checked_limit,
    run_filter,
    run_list_query,
)
from holdfast.hosts.inspection.run_info import RunInfo, read_infos
from holdfast.hosts.maintenance.doctor.doctor import FINDINGS, examine
from holdfast.hosts.maintenance.doctor.findings import Diagnosis
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.commands import (
    StagesWoken,
    StageWake,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.events import EventSink
from holdfast.ports.queries.runs import CountRuns, ListRuns
from holdfast.ports.records.run import RunStatus
from holdfast.ports.validation import SINK, TEXT, TRUTH, an, by_name, check

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_PAGE = 100


class SyncEngine:
    """`Engine` for synchronous code: the same methods, blocking. `engine.sync` returns it."""

    def __init__(self, core: Core, *, substitute: Substitute = unchanged) -> None:
        self.core = core
        self.client = Client(core)
        self.substitute = substitute
        """Replaces bodies in the workers of this engine, for tests."""

    def __enter__(self) -> Self:
        """Connect to the store."""
        self.core.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close all connections, unless the engine was opened more than once or one of its workers still runs."""
        self.core.close()

    if not TYPE_CHECKING:  # to type checkers, `async with engine.sync:` is an error of its own

        def __aenter__(self) -> NoReturn:
            raise TypeError(
                "a SyncEngine is for synchronous code: write `with engine.sync:`, or `async with engine:` in async code"
            )

        __aexit__ = __aenter__

    def acting_as(self, actor: Actor, /) -> Self:
        """Return this engine for an actor, who is stored with everything that is done through it.

        It shares the connections of this one, so a server may call it for each request:
        `engine.acting_as(Actor("user", name))`. Handles that it returns act as this actor too. Workers do not.

        Args:
            actor: Who issues the commands.

        Raises:
            InvalidArgumentError: `actor` is not an actor.
        """
        check("acting_as", ACTOR, actor=actor)
        engine = copy(self)
        engine.client = self.client.acting_as(actor)
        return engine

    @property
    def kernel(self) -> Kernel:
        """The kernel, for commands that the engine has no method for."""
        return self.core.kernel

    def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run and return its handle. The run is stored when this returns; a worker executes it.

        Args:
            call: The call of a workflow: `my_workflow(argument)`.
            options: `id`, `if_exists`, `if_active`, `if_ended`, `idempotency_key`, `queue`, `priority`, `start_at`,
                `deadline`, `concurrency_key`, `concurrency_limit`, `attributes`, `annotations`, `overrides`, `signals`
                and `actor`. See `StartOptions`.

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
        return self._start(call, options)[0]

    def _start(self, call: Call[R], options: StartOptions) -> tuple[SyncRunHandle[R], bool]:
        """Start a run. Also return whether it is certainly new."""
        command = self.client.create(call, options)
        created = self.client.dispatch(command)
        handle: SyncRunHandle[R] = SyncRunHandle(
            self.client, created.run_id, call.definition.output_type, created.run
        )
        # With a key the reply may be that of an earlier start.
        return handle, created.created and command.idempotency_key is None

    def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[StartAllOptions]
    ) -> list[SyncRunHandle[R]]:
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
        check_options(options, StartAllOptions, "start_all")
        wanted = list(calls)
        commands = self.client.create_all(wanted, options)
        created = self.client.dispatch_all(commands)
        return [
            SyncRunHandle(self.client, one.run_id, call.definition.output_type, one.run)
            for call, one in zip(wanted, created, strict=True)
        ]

    def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, wait for its result and return it. A worker must be running.

        Takes the options and raises the errors of `start`, and raises those of `SyncRunHandle.result`.
        """
        self.core.lifecycle.check_may_block("run()")
        handle, is_new = self._start(call, options)
        return result_of_new(handle) if is_new else handle.result()

    def handle(self, workflow: WorkflowDefinition[R], id: str, /) -> SyncRunHandle[R]:
        """Return a handle to a run, without checking that the run exists.

        Args:
            workflow: The workflow of the run, which gives the type of its result.
            id: The run id.

        Raises:
            InvalidArgumentError: `workflow` is not a workflow, or `id` is not a string.
        """
        is_workflow = an("a workflow, as the pipeline that was started, and not its name", WorkflowDefinition)
        check("handle", is_workflow, workflow=workflow)
        check("handle", TEXT, id=id)
        return SyncRunHandle(self.client, id, workflow.output_type)

    def wake(self, key: str, /, *, actor: Actor | None = None) -> StagesWoken:
        """Check external work now, instead of at its next poll. For webhooks, for instance.

        Args:
            key: The key that the stage passed to `suspend`.
            actor: Who issues the command, for the log; the engine's actor if omitted (see `acting_as`).

        Returns:
            How many stages or map items are `woken`.

        Raises:
            NothingToWakeError: No suspended stage has this key. If the stage may not be suspended yet, try again later.
            InvalidArgumentError: `key` is not a string.
        """
        check("wake", TEXT, key=key)
        return self.client.acting_as(actor).dispatch(StageWake(namespace=self.core.namespace, key=key))

    def runs(self, **options: Unpack[ListOptions]) -> Iterator[RunInfo]:
        """Return the runs of this namespace, newest first. They are read page by page.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before` and
                `all_generations`; the order: `oldest_first`; and `after` and `limit`. See `ListOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        return self._listed(run_list_query(self.core.namespace, options, "runs"))

    def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Count the runs of this namespace by status. Each requested status has an entry, 0 if no run has it.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before` and
                `all_generations`. See `CountOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        which = run_filter(self.core.namespace, options, "count")
        self.core.connect()
        found = self.core.stores.persistence.read(CountRuns(which))
        return {
            status: found.get(status, 0) for status in RunStatus if status in (which.statuses or RunStatus)
        }

    def cancel_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Cancel all runs that match, oldest first, in transactions of at most 500 runs. See `SyncRunHandle.cancel`.

        Runs that are created after the call began are not included. It is safe to repeat the call.

        Args:
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).
            which: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until` and `ended_before`.
                Without `status`, all active runs. See `FilterOptions`.

        Raises:
            InvalidFilterError: A filter has an invalid value, or runs of this status can't be cancelled.
            UnavailableError: The store can't be reached. Some of the runs may be cancelled.
        """
        return self._act(CANCEL, which, reason, limit, actor)

    def terminate_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """End all runs that match at once as cancelled, without cleanup. Otherwise as `cancel_all`."""
        return self._act(TERMINATE, which, reason, limit, actor)

    def pause_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Pause all runs that match: nothing new starts until they are resumed. Otherwise as `cancel_all`."""
        return self._act(PAUSE, which, reason, limit, actor)

    def resume_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Resume all paused runs that match, or with `status="blocked"` the blocked ones. Otherwise as `cancel_all`."""
        return self._act(RESUME, which, reason, limit, actor)

    def remove_all(
        self, *, limit: int | None = None, actor: Actor | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Delete all ended runs that match from the store. See `SyncRunHandle.remove`; otherwise as `cancel_all`.

        Runs that can't be removed yet are refused. Without `status`, ended runs of any status; pass `ended_before` to
        keep recent ones.
        """
        return self._act(REMOVE, which, "", limit, actor)

    def rerun_all(
        self,
        stage: AnyNode[object] | str | None = None,
        /,
        *,
        version: str | None = None,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Run all runs that match again, in transactions of at most 100 runs. Without `status`, the failed ones.

        Runs that can't be rerun from this point are refused; this does not affect the others. See
        `SyncRunHandle.rerun_from`; otherwise as `cancel_all`.

        Args:
            stage: The stage to start from, or its name, as for `SyncRunHandle.rerun_from`.
            version: The version of the workflow to run; the same one if omitted.
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).
            which: Filters, as for `cancel_all`.
        """
        name = stage.name if isinstance(stage, PlanNode) else stage
        return self._act(RERUN, which, reason, limit, actor, stage=name, version=version)

    def _act(
        self,
        action: Action,
        which: FilterOptions,
        reason: str,
        limit: int | None,
        actor: Actor | None,
        *,
        stage: str | None = None,
        version: str | None = None,
    ) -> BulkResult:
        checked_limit(limit)
        check(f"{action.name}_all", TEXT, reason=reason)
        check(f"{action.name}_all", STAGE.or_none, stage=stage)
        check(f"{action.name}_all", TEXT.or_none, version=version)
        runs = action_filter(self.core, action, which, f"{action.name} all")
        command = command_for(action, reason=reason, stage=stage, version=version)
        return apply_to_all(self.client.acting_as(actor), action, runs, command, limit=limit)

    def register_sink(
        self,
        name: str,
        /,
        *,
        since: datetime | None = None,
        types: Collection[str] = (),
        actor: Actor | None = None,
    ) -> SinkInfo:
        """Register a sink under a name, so that events are delivered to it. An existing sink is not changed.

        Args:
            name: 1 to 100 of `a-z 0-9 _ . -`. Workers get the `EventSink` under this name.
            since: Deliver events stored at this instant or later, an aware datetime; from now on if omitted.
            types: Deliver only these types of events: `run.failed`, or `user.*` for a prefix. All types if empty.
            actor: Who registers it; the engine's actor if omitted (see `acting_as`).

        Raises:
            InvalidCommandError: The name or a type is not valid.
            SinkExistsError: The sink is registered with other types.
            InvalidArgumentError: An argument has the wrong type.
        """
        register_sink(self.client.acting_as(actor), name, since, types)
        return next(sink for sink in list_sinks(self.core) if sink.name == name)

    def remove_sink(self, name: str, /, *, actor: Actor | None = None) -> bool:
        """Remove a sink, with its undelivered events and its dead letters. Return whether it existed.

        Args:
            name: The name of the sink.
            actor: Who issues the command, for the log; the engine's actor if omitted (see `acting_as`).
        """
        check("remove_sink", TEXT, name=name)
        return remove_sink(self.client.acting_as(actor), name)

    def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, sorted by name."""
        return list_sinks(self.core)

    def flush(self, sinks: Mapping[str, EventSink], /) -> FlushResult:
        """Deliver events to these sinks until none is due, and return what was delivered.

        Workers do this continuously for the sinks that they have.

        Args:
            sinks: The `EventSink`s, by the names under which they are registered.
        """
        taken = by_name("flush", "sinks", sinks, "a dict of sinks by name", SINK)
        self.core.connect()
        return Flusher(self.core, taken).flush()

    def dead_letters(self, *, sink: str = "", run_id: str = "") -> Iterator[DeadLetterInfo]:
        """Return the dead-lettered streams: the runs with an event that a sink refused. They are read page by page.

        Args:
            sink: Only those of this sink; of all sinks if omitted.
            run_id: Only those of this run; of all runs if omitted.

        Raises:
            SinkNotFoundError: The sink does not exist.
            RunNotFoundError: The run does not exist.
        """
        check("dead_letters", TEXT, sink=sink, run_id=run_id)
        return dead_letters(self.core, sink, run_id)

    def replay_dead_letters(
        self,
        *,
        sink: str = "",
        run_id: str = "",
        skip: bool = False,
        reason: str = "",
        actor: Actor | None = None,
    ) -> int:
        """Deliver dead-lettered streams again, from the refused event on. Return the number of streams.

        Args:
            sink: Only those of this sink; of all sinks if omitted.
            run_id: Only those of this run; of all runs if omitted.
            skip: Skip the refused event. The sink gets an `event.skipped` with the `reason` and the actor in its place.
            reason: A text for operators.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).

        Raises:
            SinkNotFoundError: The sink does not exist.
            RunNotFoundError: The run does not exist.
        """
        check("replay_dead_letters", TEXT, sink=sink, run_id=run_id, reason=reason)
        check("replay_dead_letters", TRUTH, skip=skip)
        return replay_dead_letters(self.client.acting_as(actor), sink, run_id, skip=skip, reason=reason)

    def check_upgrade(
        self,
        *,
        workflow: WorkflowDefinition[Any] | str | None = None,
        limit: int | None = RUNS_CHECKED_DEFAULT,
        sample: Sample = "both",
        known_only: bool = False,
    ) -> Iterator[UpgradeCheck]:
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
        return check_upgrade(self.core, workflow=workflow, limit=limit, sample=sample, known_only=known_only)

    def doctor(
        self,
        *,
        repair: bool = False,
        blobs: bool = False,
        limit: int = FINDINGS,
        all_namespaces: bool = False,
        actor: Actor | None = None,
    ) -> Diagnosis:
        """Check the runs, limits and sinks of this namespace against the invariants.

        It takes no locks and uses bounded memory. Each finding is checked twice before it is reported.

        Args:
            repair: Repair what can be repaired without guessing. It never fails a run only because it makes no
                progress.
            blobs: Read every referenced blob too.
            limit: The maximum number of findings in the result; all are counted.
            all_namespaces: Check, and repair, all namespaces of the store.
            actor: Who repairs; the engine's actor if omitted (see `acting_as`).

        Raises:
            UnavailableError: The store can't be reached.
        """
        check("doctor", TRUTH, repair=repair, blobs=blobs, all_namespaces=all_namespaces)
        return examine(
            self.client.acting_as(actor),
            repair=repair,
            blobs=blobs,
            limit=limit,
            all_namespaces=all_namespaces,
        )

    def _listed(self, wanted: RunListQuery) -> Iterator[RunInfo]:
        after, left = wanted.after, wanted.limit
        while left is None or left > 0:
            page = _PAGE if left is None else min(_PAGE, left)
            query = ListRuns(wanted.which, after=after, oldest_first=wanted.oldest_first, limit=page)
            self.core.connect()
            rows = self.core.stores.persistence.read(query)
            yield from read_infos(self.core, rows)
            if len(rows) < page:
                return
            after, left = rows[-1].place, None if left is None else left - page
