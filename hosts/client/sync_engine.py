"""The application's side for sync code: start runs, find them, act on many."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack

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
    act_on_all,
    chosen_runs,
    command_for,
)
from holdfast.hosts.client.sync_run_handle import STAGE, SyncRunHandle, result_of_new
from holdfast.hosts.events.flusher import Flushed, Flusher
from holdfast.hosts.events.sinks import (
    DeadLetterInfo,
    SinkInfo,
    dead_letters,
    list_sinks,
    register_sink,
    remove_sink,
    replay_dead_letters,
)
from holdfast.hosts.functions.upgrade_check import LOOKED_AT, Sample, Upgrade, check_upgrade
from holdfast.hosts.inspection.filters import (
    CountOptions,
    FilterOptions,
    ListOptions,
    Wanted,
    checked_limit,
    run_filter,
    wanted_runs,
)
from holdfast.hosts.inspection.run_info import RunInfo, infos_of
from holdfast.hosts.maintenance.doctor.doctor import FINDINGS, examine
from holdfast.hosts.maintenance.doctor.findings import Diagnosis
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Call, Definition
from holdfast.kernel.authoring.nodes import AnyNode, Node
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.commands import (
    StagesWoken,
    StageWake,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.events import EventSink
from holdfast.ports.persistence import CountRuns, ListRuns
from holdfast.ports.records import RunStatus
from holdfast.ports.validation import SINK, TEXT, TRUTH, an, by_name, check

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_PAGE = 100


class SyncEngine:
    """`Engine` for code without an event loop."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def __enter__(self) -> Self:
        """Connect."""
        self.core.open()
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
            InvalidArgumentError: It is no call, or an option can't be.
            InvalidValueError: The input is not of the declared type.
            UnstorableValueError: The input is of its type, but can't be stored.
            RunExistsError: There is a run of this id.
            IdempotencyConflictError: The key was used for another start.
            UnknownWorkflowError: The engine was not given this workflow.
            UnavailableError: The store did not answer; with an idempotency key, starting again is safe.
        """
        return self._start(call, options)[0]

    def _start(self, call: Call[R], options: StartOptions) -> tuple[SyncRunHandle[R], bool]:
        """Start a run. Return whether it is certain that it was not there before."""
        command = self.core.create(call, options)
        created = self.core.dispatch(command)
        handle: SyncRunHandle[R] = SyncRunHandle(
            self.core, created.run_id, call.definition.output_type, created.run
        )
        # With a key it may be the answer to an earlier start.
        return handle, created.created and command.idempotency_key is None

    def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[StartAllOptions]
    ) -> list[SyncRunHandle[R]]:
        """Start many runs, up to 500 in one transaction: faster than one by one. They are stored when this returns.

        Everything is checked before anything is stored. If the store can't be reached half-way, the first ones are
        there and the others are not: with an idempotency key it is safe to do it again.

        Args:
            calls: The calls, of one workflow or of several.
            options: As for `start`, for each of them. With an idempotency key the n-th call, from 0 on, has that
                key with `/n` at its end: to start again, give the same calls in the same order.

        Raises:
            InvalidArgumentError, InvalidValueError, UnstorableValueError, UnknownWorkflowError: As `start`.
            IdempotencyConflictError: The key was used for another start. Others of these may be stored.
            UnavailableError: The store did not answer.
        """
        check_options(options, StartAllOptions, "start_all")
        wanted = list(calls)
        commands = self.core.create_all(wanted, options)
        created = self.core.dispatch_all(commands)
        return [
            SyncRunHandle(self.core, one.run_id, call.definition.output_type, one.run)
            for call, one in zip(wanted, created, strict=True)
        ]

    def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run and wait for its result. Some worker must be running."""
        self.core.lifecycle.check_may_block("run()")
        handle, is_new = self._start(call, options)
        return result_of_new(handle) if is_new else handle.result()

    def handle(self, workflow: Definition[R], id: str, /) -> SyncRunHandle[R]:
        """Return a handle of a run, which need not exist.

        Raises:
            InvalidArgumentError: The first is no workflow, or the second no string.
        """
        is_workflow = an("a workflow, as the pipeline that was started, and not its name", Definition)
        check("handle", is_workflow, workflow=workflow)
        check("handle", TEXT, id=id)
        return SyncRunHandle(self.core, id, workflow.output_type)

    def wake(self, key: str, /) -> StagesWoken:
        """Have external work checked now, by the key that `suspend` was given: for webhooks, say.

        Raises:
            NothingToWakeError: No stage waits for work of this key. If it may not be suspended yet, try again later.
            InvalidArgumentError: The key is no string.
        """
        check("wake", TEXT, key=key)
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
        """Return how many runs there are of each status: of each that is asked for, or of all; 0 where there are none.

        Args:
            options: Which ones, by `workflow`, `status`, `attributes`, `since` and `until`, and whether with
                `all_generations`. See `CountOptions`.

        Raises:
            InvalidFilterError: One of these can't be. Nothing was asked of the store.
        """
        which = run_filter(self.core.namespace, options, "count")
        self.core.connect()
        found = self.core.stores.persistence.read(CountRuns(which))
        return {
            status: found.get(status, 0) for status in RunStatus if status in (which.statuses or RunStatus)
        }

    def cancel_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all these runs as cancelled, oldest first, in transactions of at most 500.

        To repeat it does no harm, and it has an end: runs that are started meanwhile do not count.

        Args:
            reason: For people; kept in the histories.
            limit: How many runs at most.
            which: Which ones, by `workflow`, `status`, `attributes`, `annotations`, `since`, `until` and
                `ended_before`. Without a
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
        """Let all these runs go on: paused ones, or those with `status="blocked"`. Otherwise as `cancel_all`."""
        return self._act(RESUME, which, reason, limit)

    def remove_all(self, *, limit: int | None = None, **which: Unpack[FilterOptions]) -> BulkResult:
        """Take all these runs, which have ended, out of the store for good. Without a status, of any in which runs end.

        What becomes of each is as with `remove` of its handle; those that can't be removed yet are refused.
        `ended_before` is how to keep those that ended lately. Otherwise as `cancel_all`.
        """
        return self._act(REMOVE, which, "", limit)

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
        check(f"{action.name}_all", TEXT, reason=reason)
        check(f"{action.name}_all", STAGE.or_none, stage=stage)
        check(f"{action.name}_all", TEXT.or_none, version=version)
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
            SinkExistsError: It is there with other types.
            InvalidArgumentError: An argument is of another kind.
        """
        register_sink(self.core, name, since, types)
        return next(sink for sink in list_sinks(self.core) if sink.name == name)

    def remove_sink(self, name: str, /) -> bool:
        """Forget a sink, what it had to get, and its dead letters. Return whether there was one."""
        check("remove_sink", TEXT, name=name)
        return remove_sink(self.core, name)

    def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, by name."""
        return list_sinks(self.core)

    def flush(self, sinks: Mapping[str, EventSink], /) -> Flushed:
        """Bring what has happened to these sinks, until there is nothing left that they take now.

        Workers do this all the time for the sinks that they are given.
        """
        taken = by_name("flush", "sinks", sinks, "a dict of sinks by their names", SINK)
        self.core.connect()
        return Flusher(self.core, taken).flush()

    def dead_letters(self, *, sink: str = "", run_id: str = "") -> Iterator[DeadLetterInfo]:
        """Return one by one the runs whose events are parked: of one sink, of one run, or all.

        Raises:
            SinkNotFoundError: There is no such sink.
            RunNotFoundError: There is no such run.
        """
        check("dead_letters", TEXT, sink=sink, run_id=run_id)
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

        Raises:
            SinkNotFoundError: There is no such sink.
            RunNotFoundError: There is no such run.
        """
        check("replay_dead_letters", TEXT, sink=sink, run_id=run_id, reason=reason)
        check("replay_dead_letters", TRUTH, skip=skip)
        return replay_dead_letters(self.core, sink, run_id, skip=skip, reason=reason)

    def check_upgrade(
        self,
        *,
        workflow: Definition[Any] | str | None = None,
        limit: int | None = LOOKED_AT,
        sample: Sample = "both",
        known_only: bool = False,
    ) -> Iterator[Upgrade]:
        """Return what this engine's code would make of runs that have not ended, one by one. Nothing is written.

        The histories of durable functions are replayed; of a pipeline's run it is looked whether the code has all
        stages of its plan. No step is run.

        Args:
            workflow: Only runs of this workflow, of any version.
            limit: At how many runs to look at most; None for all.
            sample: At which ones, if there are more: the `newest`, the `oldest`, or half of each, `both`.
            known_only: Leave out runs of workflows that this engine has in no version.

        Raises:
            InvalidArgumentError: One of these can't be. Nothing was asked of the store.
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
    ) -> Diagnosis:
        """Look through the runs, limits and sinks of this namespace for what is not as it must be.

        It locks nothing and keeps a bounded part in memory; what seems to be wrong is looked at twice.

        Args:
            repair: Put right what can be put right without guessing. No run is failed for being quiet.
            blobs: Read every blob that is referred to.
            limit: How many findings are listed at most; all are counted.
            all_namespaces: Look through all namespaces of the store, and put things right in all.

        Raises:
            UnavailableError: The store did not answer.
        """
        check("doctor", TRUTH, repair=repair, blobs=blobs, all_namespaces=all_namespaces)
        return examine(self.core, repair=repair, blobs=blobs, limit=limit, all_namespaces=all_namespaces)

    def _listed(self, wanted: Wanted) -> Iterator[RunInfo]:
        after, left = wanted.after, wanted.limit
        while left is None or left > 0:
            page = _PAGE if left is None else min(_PAGE, left)
            query = ListRuns(wanted.which, after=after, oldest_first=wanted.oldest_first, limit=page)
            self.core.connect()
            rows = self.core.stores.persistence.read(query)
            yield from infos_of(rows)
            if len(rows) < page:
                return
            after, left = rows[-1].place, None if left is None else left - page
