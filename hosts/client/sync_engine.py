"""The engine for synchronous code: starts runs, lists them and acts on many of them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, overload

from typing_extensions import TypeForm, TypeVar

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
from holdfast.hosts.client.queries import UpdateReplyReader, store_update_with_start
from holdfast.hosts.client.schedules import (
    SCHEDULE,
    AppliedSchedule,
    apply_schedules,
    check_schedules,
    put_command,
)
from holdfast.hosts.client.sync_keys import SyncKeys
from holdfast.hosts.client.sync_limits import SyncLimits
from holdfast.hosts.client.sync_namespaces import SyncNamespaces
from holdfast.hosts.client.sync_run_handle import (
    STAGE,
    UPDATE,
    SyncRunHandle,
    handle_of_start,
    result_of_new,
    seconds_of,
    wait_for_reply,
)
from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from holdfast.hosts.client.sync_transactional_engine import SyncTransactionalEngine
from holdfast.hosts.client.sync_triggers import SyncTriggers
from holdfast.hosts.client.transactions import application_transaction
from holdfast.hosts.client.trigger_commands import apply_triggers, check_triggers
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
from holdfast.hosts.functions.completions import CompletionToken, failed_outcome, is_known, value_outcome
from holdfast.hosts.functions.upgrade_check import RUNS_CHECKED_DEFAULT, Sample, UpgradeCheck, check_upgrade
from holdfast.hosts.inspection.audit_log import AuditInfo, audit_infos
from holdfast.hosts.inspection.filters import (
    CountOptions,
    FilterOptions,
    ListOptions,
    RunListQuery,
    checked_limit,
    place_option,
    run_filter,
    run_list_query,
)
from holdfast.hosts.inspection.run_info import RunInfo, read_infos
from holdfast.hosts.inspection.schedules import ScheduleInfo, schedule_info, schedule_rows
from holdfast.hosts.inspection.topics import TopicInfo, topic_infos
from holdfast.hosts.inspection.workers import QueueInfo, WorkerInfo, queue_infos, worker_infos
from holdfast.hosts.maintenance.doctor.findings import FINDINGS, Diagnosis
from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.authoring.topics import MESSAGE_ID, TOPIC_MESSAGE, TopicMessage
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.kernel.commands import (
    RunSignal,
    RunSignalled,
    StagesWoken,
    StageWake,
    TopicPublish,
    TopicPublished,
    TopicRemove,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.durations import Duration
from holdfast.ports.errors import (
    AlreadyCompletedError,
    ChannelClosedError,
    CompletionNotFoundError,
    InvalidArgumentError,
)
from holdfast.ports.events import EventSink
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import CountRuns, FindRun, ListRuns
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.validation import SINK, TEXT, TRUTH, an, by_name, check

R = TypeVar("R")
T = TypeVar("T")
Out = TypeVar("Out", covariant=True)

_PAGE = 100


class SyncEngine:
    """`Engine` for synchronous code: the same methods, blocking. `engine.sync` returns it."""

    def __init__(
        self,
        core: Core,
        *,
        schedules: Iterable[Schedule[object]] | None = None,
        triggers: Iterable[Trigger[object]] | None = None,
        substitute: Substitute = unchanged,
    ) -> None:
        self.core = core
        self.client = Client(core)
        self.declared_schedules = check_schedules(schedules or ())
        """The schedules that the code declares."""
        self.declares_schedules = schedules is not None
        """Whether the code declares its schedules, even if it has none any more."""
        if schedules is not None:
            core.when_connected(self.apply_schedules)
        self.declared_triggers = None if triggers is None else check_triggers(triggers)
        """The triggers that the code declares; None if it declares none, not even that there are no more."""
        if triggers is not None:
            core.when_connected(self.apply_triggers)
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

    def in_namespace(self, namespace: str, /) -> Self:
        """Return this engine for another namespace of the store.

        It has the same code, shares the connections of this one and closes with it. Declared schedules stay in the
        namespace with which the engine was opened, and so do workers.

        Args:
            namespace: The name, as for `Engine.open`.

        Raises:
            InvalidNamespaceError: The namespace is too long or has other characters.
        """
        check("in_namespace", TEXT, namespace=namespace)
        engine = copy(self)
        engine.client = self.client.in_namespace(namespace)
        engine.core = engine.client.core
        engine.declared_schedules = ()
        engine.declares_schedules = False
        engine.declared_triggers = None
        return engine

    def within(self, connection: object, /) -> SyncTransactionalEngine:
        """Return this engine within a transaction that the application has open in the same database.

        What is done through it takes place if, and only if, the transaction commits:
        `engine.sync.within(session).start(ship(order.id))`.

        Args:
            connection: SQLAlchemy's `Session`, `scoped_session` or `Connection`; a connection of psycopg or of the
                sqlite3 module; or Django's `connection`, in an `atomic` block.

        Raises:
            InvalidArgumentError: `connection` is none of these, or is for async code.
            InvalidTransactionError: The store is in memory.
            UnavailableError, SchemaError: The store can't be reached.
        """
        return SyncTransactionalEngine(self.client, application_transaction(self.core, connection, None))

    @property
    def limits(self) -> SyncLimits:
        """The limits and queues of the namespace, to be read and changed while the system runs."""
        return SyncLimits(self.client)

    @property
    def triggers(self) -> SyncTriggers:
        """The triggers of the namespace, by which messages of topics start runs."""
        return SyncTriggers(self.client)

    @property
    def keys(self) -> SyncKeys:
        """The API keys of the server, which belong to the store."""
        return SyncKeys(self.client)

    @property
    def namespaces(self) -> SyncNamespaces:
        """The namespaces of the store."""
        return SyncNamespaces(self.client)

    @property
    def kernel(self) -> Kernel:
        """The kernel, for commands that the engine has no method for."""
        return self.core.kernel

    def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run and return its handle. The run is stored when this returns; a worker executes it.

        Args:
            call: The call of a workflow: `my_workflow(argument)`.
            options: `id`, `if_exists`, `if_active`, `if_ended`, `idempotency_key`, `queue`, `priority`, `start_at`,
                `deadline`, `concurrency`, `rate`, `units`, `weight`, `attributes`, `headers`, `annotations`,
                `overrides`, `signals` and `actor`. See `StartOptions`.

        Raises:
            InvalidArgumentError: `call` is not the call of a workflow, or an option has an invalid value.
            InvalidValueError: The input does not have the declared type.
            UnstorableValueError: The input can't be stored as JSON.
            InvalidOverrideError: A stage in `overrides` can't be changed like this.
            SignalRefusedError: A message in `signals` is for a pipeline, or for a channel that the function does not
                have.
            RunExistsError: A run with this id exists.
            ConcurrencyFullError: Too many runs of its concurrency key are open, and its `full` is "refuse".
            RateExceededError: The rate of starts is used up, and its `over` is "refuse".
            QuotaExceededError: The namespace has as many runs as it may have.
            InvalidCommandError: An option does not fit, such as a `weight` for a workflow without `fair`.
            IdempotencyConflictError: The key was used for another command.
            UnknownWorkflowError: The engine does not have this workflow.
            UnavailableError: The store can't be reached. With an idempotency key it is safe to start again.
        """
        return self._start(call, options)[0]

    def _start(self, call: Call[R], options: StartOptions) -> tuple[SyncRunHandle[R], bool]:
        """Start a run. Also return whether it is certainly new."""
        command = self.client.create(call, options)
        created = self.client.dispatch(command)
        handle = handle_of_start(self.client, call, created)
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
        return [handle_of_start(self.client, call, one) for call, one in zip(wanted, created, strict=True)]

    def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, wait for its result and return it. A worker must be running.

        Takes the options and raises the errors of `start`, and raises those of `SyncRunHandle.result`.
        """
        self.core.lifecycle.check_may_block("run()")
        handle, is_new = self._start(call, options)
        return result_of_new(handle) if is_new else handle.result()

    def update_with_start(
        self,
        call: Call[object],
        update: UpdateCall[T],
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[StartOptions],
    ) -> T:
        """Start a run, or use the one that has the id, send it an update and return the reply.

        `engine.update_with_start(cart("ann"), Cart.add("tea"), id="cart-1", if_active="return")` creates the cart when
        the first item is added. Both are stored in one transaction, or neither. A worker must be running.

        Args:
            call: The call of a durable function.
            update: An update with its arguments, for the object that the function exposes.
            timeout: How long to wait for the reply, a timedelta or a number of seconds; no limit if omitted.
            options: As for `start`. An `id` is needed. With an `idempotency_key`, the same call again stores nothing,
                and waits for the same reply.

        Raises:
            InvalidArgumentError: An argument has an invalid value, or `id` is missing.
            RunExistsError: A run with this id exists, and the options do not allow for that.
            TimeoutError: No reply within `timeout`. The update stays stored and will be carried out.
            UpdateRefusedError, UpdateRejectedError, UpdateFailedError, UpdateLostError, NotExposedError: As
                `SyncRunHandle.update`. A rejected update is not stored, and no run is started for it, if its validator
                ran before: on a run that was active already.
            InvalidValueError, UnstorableValueError, UnknownWorkflowError, IdempotencyConflictError: As `start`.
            BlockedLoopError: The call would block the event loop of a worker of this engine.
        """
        seconds_of(timeout, "update_with_start")
        self.core.lifecycle.check_may_block("update_with_start()")
        reply = self.submit_update_with_start(call, update, options)
        return update.decoded(wait_for_reply(self.core, reply, timeout))

    def submit_update_with_start(
        self, call: Call[object], update: UpdateCall[object], options: StartOptions
    ) -> UpdateReplyReader:
        """Store a start and an update, and return a reader of the reply. Raises what `update_with_start` raises."""
        check("update_with_start", UPDATE, update=update)
        command = self.client.create(call, options)
        if command.id is None:
            raise InvalidArgumentError(
                "id", "update_with_start: an id is needed, by which later calls find the run: id=..."
            )
        _, stored = store_update_with_start(self.client, command, update)
        return UpdateReplyReader(self.core, stored)

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

    @overload
    def complete(self, token: str, value: object, /, *, actor: Actor | None = None) -> RunSignalled: ...
    @overload
    def complete(
        self, token: str, value: T, type: TypeForm[T], /, *, actor: Actor | None = None
    ) -> RunSignalled: ...
    def complete(
        self, token: str, value: object, type: Any = None, /, *, actor: Actor | None = None
    ) -> RunSignalled:
        """Give a completion its value, which its function waits for. The value is stored when this returns.

        For the handler of a webhook, for instance: `engine.complete(token, Decision(approved=True))`. The same value
        may be given again after a lost answer. Of several values, the function gets the first one.

        Args:
            token: The token of the completion.
            value: The value. The function checks whether it has the type of the completion. One that has not is
                skipped, and `messages` of the run shows it.
            type: The type of the value where its class is not enough, such as `list[Item]`.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).

        Returns:
            The position of the value among the messages of the run; its `status` is that of the run.

        Raises:
            CompletionNotFoundError: No run has a completion with this token, or it has continued as new since.
            AlreadyCompletedError: The function has received another value, or a failure.
            SignalRefusedError: The run has ended.
            InvalidValueError: The value does not have the given `type`.
            UnstorableValueError: The value can't be stored.
            InvalidArgumentError: `token` is not the token of a completion.
        """
        return self._complete(token, lambda: value_outcome(value, type), actor)

    def fail_completion(self, token: str, message: str, /, *, actor: Actor | None = None) -> RunSignalled:
        """Fail a completion: its function gets a CompletionFailedError in place of the value.

        Args:
            token: The token of the completion.
            message: Why there is no value.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).

        Raises:
            CompletionNotFoundError, AlreadyCompletedError, SignalRefusedError, InvalidArgumentError: As `complete`.
        """
        check("fail_completion", TEXT, message=message)
        return self._complete(token, lambda: failed_outcome(message), actor)

    def _complete(self, token: str, outcome: Callable[[], str], actor: Actor | None) -> RunSignalled:
        named = CompletionToken.parsed(token)
        text = outcome()
        self.core.connect()
        persistence = self.core.stores.persistence
        run = persistence.read(FindRun(RunName(self.core.namespace, named.run_id)))
        if run is None or not is_known(persistence, run, named):
            raise CompletionNotFoundError
        client = self.client.acting_as(actor)
        command = RunSignal(
            namespace=self.core.namespace,
            idempotency_key=named.key_of(text),
            run_id=named.run_id,
            signal=client.completed(named, text),
        )
        try:
            return client.dispatch(command)
        except ChannelClosedError:
            raise AlreadyCompletedError(named.run_id) from None

    def publish(
        self, message: TopicMessage, /, *, id: str | None = None, actor: Actor | None = None
    ) -> TopicPublished:
        """Publish a message to a topic: `engine.publish(orders(order))`. It is stored when this returns.

        Every run that has subscribed, or subscribes while the topic keeps the message, gets it once, in the order of
        the topic.

        Args:
            message: A message with its topic, as `topic(message)` returns it.
            id: The id of the message in its topic. Publishing again with an id that is stored does nothing.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).

        Returns:
            The id of the message, and whether this call published it.

        Raises:
            InvalidArgumentError: `message` is not a message of a topic, or the id is not a text of 1 to 256 characters.
        """
        check("publish", TOPIC_MESSAGE, message=message)
        check("publish", MESSAGE_ID, id=id)
        command = TopicPublish(namespace=self.core.namespace, message=message.as_new(), id=id)
        return self.client.acting_as(actor).dispatch(command)

    def runs(self, **options: Unpack[ListOptions]) -> Iterator[RunInfo]:
        """Return the runs of this namespace, newest first. They are read page by page.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code`, `error_type`, `waiting` and `all_generations`;
                the order: `oldest_first`; and `after` and `limit`. See `ListOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        return self._listed(run_list_query(self.core.namespace, options, "runs"))

    def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Count the runs of this namespace by status. Each requested status has an entry, 0 if no run has it.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code`, `error_type`, `waiting` and `all_generations`.
                See `CountOptions`.

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
            which: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code` and `error_type`. Without `status`, all active
                runs. See `FilterOptions`.

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
        """Resume all paused runs that match, or with `status="blocked"` the blocked ones. Otherwise as `cancel_all`.

        With `ids` and no `status`, both.
        """
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

        With `ids` and no `status`, all of them that have ended.

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

    def create_schedule(
        self, schedule: Schedule[object], /, *, actor: Actor | None = None
    ) -> SyncScheduleHandle:
        """Create a schedule at run time, and return its handle.

        Schedules that belong to the code are declared instead: `Engine.open(schedules=[...])`.

        Args:
            schedule: The schedule: `Schedule("nightly", report("emea"), when=Cron("30 2 * * *"))`.
            actor: Who creates it; the engine's actor if omitted (see `acting_as`).

        Raises:
            InvalidArgumentError: `schedule` is not a schedule.
            InvalidValueError: The input does not have the declared type.
            UnstorableValueError: The input can't be stored as JSON.
            ScheduleExistsError: A schedule of this name exists. Its handle can update it.
            UnknownWorkflowError: The engine does not have the workflow.
            InvalidCommandError: The schedule never fires after now, or its input is too long.
        """
        check("create_schedule", SCHEDULE, schedule=schedule)
        self.client.acting_as(actor).dispatch(put_command(self.core, schedule))
        return SyncScheduleHandle(self.client, schedule.name)

    def schedule(self, name: str, /) -> SyncScheduleHandle:
        """Return a handle to a schedule, without checking that the schedule exists.

        Args:
            name: The name of the schedule.

        Raises:
            InvalidArgumentError: `name` is not a string.
        """
        check("schedule", TEXT, name=name)
        return SyncScheduleHandle(self.client, name)

    def schedules(self) -> Iterator[ScheduleInfo]:
        """Return the schedules of this namespace, sorted by name. They are read page by page."""
        return map(schedule_info, schedule_rows(self.core))

    def remove_topic(self, name: str, *, actor: Actor | None = None) -> int:
        """Delete a topic of this namespace, with its messages and groups. Return how many of these there were.

        What runs have received stays in their histories. A topic of this name exists again as soon as something is
        published, or a run subscribes; its messages are numbered from 1. Messages are deleted page by page: after an
        error, call it again.

        Args:
            name: The name of the topic.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            TopicInUseError: Runs that have not ended have subscribed to it, or it has triggers.
            InvalidCommandError: No topic can have this name.
        """
        check("remove_topic", TEXT, name=name)
        rows, more = 0, True
        while more:
            done = self.client.dispatch(TopicRemove(namespace=self.core.namespace, topic=name, actor=actor))
            rows, more = rows + done.rows, done.more
        return rows

    def topics(self, *, after: str | None = None, limit: int | None = None) -> Iterator[TopicInfo]:
        """Return the topics of this namespace, sorted by name. They are read page by page.

        Those with messages or subscriptions, and those that had messages before.

        Args:
            after: Only those after the topic of this name.
            limit: The maximum number of topics; None for all.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
            InvalidArgumentError: `after` is not a string.
        """
        check("topics", TEXT.or_none, after=after)
        return topic_infos(self.core, after, checked_limit(limit))

    def workers(self, *, after: str | None = None, limit: int | None = None) -> Iterator[WorkerInfo]:
        """Return the workers of this namespace by the ids of their sessions, with what each holds.

        Serverless hosts are listed while their session lasts. One that has died is listed until it is reaped, which
        maintenance does soon after its lease has expired. They are read page by page.

        Args:
            after: Only those after this one: the `session` of the last one of the page before.
            limit: How many at most; all if omitted.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
            InvalidArgumentError: `after` is not a string.
        """
        check("workers", TEXT.or_none, after=after)
        return worker_infos(self.core, after, checked_limit(limit))

    def queues(self) -> tuple[QueueInfo, ...]:
        """Return the queues of this namespace that have jobs, are served by a live worker, or are paused, by name.

        Each with what waits, runs and sleeps in it by the code that it needs, and which of that code no live worker
        serves. `limits.set("queue:<name>", paused=True)` pauses one.
        """
        return queue_infos(self.core)

    def apply_schedules(
        self, *, prune: bool = True, dry_run: bool = False, actor: Actor | None = None
    ) -> list[AppliedSchedule]:
        """Create and update the schedules that `Engine.open(schedules=[...])` declares.

        An engine with `migrate=True` does this at its first use, so only others need to. A schedule whose declaration
        has not changed stays as it is, whatever operators have changed meanwhile. An engine that was opened without
        `schedules` applies and removes nothing; `schedules=[]` removes what was declared before.

        Args:
            prune: Remove declared schedules of this engine's workflows that it does not declare any more.
            dry_run: Change nothing, and return what would change.
            actor: Who applies them; the engine's actor if omitted (see `acting_as`).

        Raises:
            UnknownWorkflowError: The engine does not have the workflow of a schedule.
            InvalidCommandError: A schedule never fires after now, or its input is too long.
        """
        check("apply_schedules", TRUTH, prune=prune, dry_run=dry_run)
        self.core.connect()
        if not self.declares_schedules:
            return []
        return apply_schedules(
            self.client, self.declared_schedules, prune=prune, dry_run=dry_run, actor=actor
        )

    def apply_triggers(self, *, actor: Actor | None = None) -> bool:
        """Store the triggers that `Engine.open(triggers=[...])` declares, and remove those that it has dropped.

        An engine with `migrate=True` does this at its first use, so only others need to. A trigger whose declaration
        has not changed stays as it is, whatever operators have changed meanwhile. Only triggers of this engine's
        workflows are removed.

        Args:
            actor: Who applies them; the engine's actor if omitted (see `acting_as`).

        Returns:
            Whether anything has changed.

        Raises:
            UnknownWorkflowError: The engine does not have the workflow of a trigger.
            InvalidCommandError: The `since` of a trigger is in the future.
        """
        self.core.connect()
        if self.declared_triggers is None:
            return False
        has_changed = apply_triggers(self.client, self.declared_triggers, actor=actor)
        if has_changed:
            self.client.fire_triggers()
        return has_changed

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

    def dead_letters(
        self, *, sink: str = "", run_id: str = "", after: str | None = None, limit: int | None = None
    ) -> Iterator[DeadLetterInfo]:
        """Return the dead-lettered streams: the runs with an event that a sink refused. They are read page by page.

        Args:
            sink: Only those of this sink; of all sinks if omitted.
            run_id: Only those of this run; of all runs if omitted.
            after: Only those after the one with this `cursor`.
            limit: The maximum number of streams; None for all.

        Raises:
            SinkNotFoundError: The sink does not exist.
            RunNotFoundError: The run does not exist.
            InvalidFilterError: `after` is not a cursor, or `limit` is not a number of at least 1.
        """
        check("dead_letters", TEXT, sink=sink, run_id=run_id)
        return dead_letters(self.core, sink, run_id, after=after, limit=checked_limit(limit))

    def audit(self, *, after: str | None = None, limit: int | None = None) -> Iterator[AuditInfo]:
        """Return the audit log of this namespace, the newest entry first. It is read page by page.

        Entries are kept for 400 days.

        Args:
            after: Only the entries before the one with this `cursor`.
            limit: The maximum number of entries; None for all.

        Raises:
            InvalidFilterError: `after` is not a cursor, or `limit` is not a number of at least 1.
        """
        return audit_infos(self.core, place_option({"after": after}), checked_limit(limit))

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
        """Check the runs, limits, sinks and schedules of this namespace against the invariants.

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
        from holdfast.hosts.maintenance.doctor.doctor import (
            examine,  # a process that examines nothing needs none of it
        )

        return examine(
            self.client.acting_as(actor),
            repair=repair,
            blobs=blobs,
            limit=limit,
            all_namespaces=all_namespaces,
        )

    def _listed(self, wanted: RunListQuery) -> Iterator[RunInfo]:
        def read(after: ListPlace | None, limit: int) -> Sequence[Run]:
            query = ListRuns(wanted.which, after=after, oldest_first=wanted.oldest_first, limit=limit)
            self.core.connect()
            return self.core.stores.persistence.read(query)

        for page in pages_of(read, _PAGE, wanted.after, wanted.limit, place_of):
            yield from read_infos(self.core, page)
