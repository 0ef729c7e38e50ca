# Generated from hosts/client/sync_engine.py by `python -m tools.async_facade`. Do not edit.
"""The methods of `Engine`. Each calls the one of `SyncEngine` in a thread."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client import async_bodies
from holdfast.hosts.client.bulk_actions import BulkResult
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.client.schedule_handle import ScheduleHandle
from holdfast.hosts.client.schedules import AppliedSchedule
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.events.flusher import FlushResult
from holdfast.hosts.events.sinks import DeadLetterInfo, SinkInfo
from holdfast.hosts.execution.threads import in_thread, iterate_in_thread
from holdfast.hosts.functions.upgrade_check import RUNS_CHECKED_DEFAULT, Sample, UpgradeCheck
from holdfast.hosts.inspection.audit_log import AuditInfo
from holdfast.hosts.inspection.filters import CountOptions, FilterOptions, ListOptions
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.inspection.schedules import ScheduleInfo
from holdfast.hosts.inspection.topics import TopicInfo
from holdfast.hosts.inspection.workers import QueueInfo, WorkerInfo
from holdfast.hosts.maintenance.doctor.findings import FINDINGS, Diagnosis
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.authoring.topics import TopicMessage
from holdfast.kernel.commands import RunSignalled, StagesWoken, TopicPublished
from holdfast.ports.actors import Actor
from holdfast.ports.durations import Duration
from holdfast.ports.events import EventSink
from holdfast.ports.records.run import RunStatus

R = TypeVar("R")
T = TypeVar("T")


class EngineMethods:
    """The methods of `Engine` that are those of `SyncEngine`."""

    def __init__(self, sync: SyncEngine) -> None:
        self._sync = sync

    async def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> RunHandle[R]:
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
        return RunHandle(await in_thread(lambda: self._sync.start(call, **options)))

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
        calls = list(calls)
        return [RunHandle(one) for one in await in_thread(lambda: self._sync.start_all(calls, **options))]

    async def run(self, call: Call[R], /, **options: Unpack[StartOptions]) -> R:
        """Start a run, wait for its result and return it. A worker must be running.

        Takes the options and raises the errors of `start`, and raises those of `RunHandle.result`.
        """
        return await async_bodies.run(self._sync, call, **options)

    async def update_with_start(
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
                `RunHandle.update`. A rejected update is not stored, and no run is started for it, if its validator
                ran before: on a run that was active already.
            InvalidValueError, UnstorableValueError, UnknownWorkflowError, IdempotencyConflictError: As `start`.
        """
        return await async_bodies.update_with_start(self._sync, call, update, timeout=timeout, **options)

    def handle(self, workflow: WorkflowDefinition[R], id: str, /) -> RunHandle[R]:
        """Return a handle to a run, without checking that the run exists.

        Args:
            workflow: The workflow of the run, which gives the type of its result.
            id: The run id.

        Raises:
            InvalidArgumentError: `workflow` is not a workflow, or `id` is not a string.
        """
        return RunHandle(self._sync.handle(workflow, id))

    async def wake(self, key: str, /, *, actor: Actor | None = None) -> StagesWoken:
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
        return await in_thread(lambda: self._sync.wake(key, actor=actor))

    @overload
    async def complete(self, token: str, value: object, /, *, actor: Actor | None = None) -> RunSignalled: ...
    @overload
    async def complete(
        self, token: str, value: T, type: TypeForm[T], /, *, actor: Actor | None = None
    ) -> RunSignalled: ...
    async def complete(
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
        return await in_thread(lambda: self._sync.complete(token, value, type, actor=actor))

    async def fail_completion(
        self, token: str, message: str, /, *, actor: Actor | None = None
    ) -> RunSignalled:
        """Fail a completion: its function gets a CompletionFailedError in place of the value.

        Args:
            token: The token of the completion.
            message: Why there is no value.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).

        Raises:
            CompletionNotFoundError, AlreadyCompletedError, SignalRefusedError, InvalidArgumentError: As `complete`.
        """
        return await in_thread(lambda: self._sync.fail_completion(token, message, actor=actor))

    async def publish(
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
        return await in_thread(lambda: self._sync.publish(message, id=id, actor=actor))

    def runs(self, **options: Unpack[ListOptions]) -> AsyncIterator[RunInfo]:
        """Return the runs of this namespace, newest first. They are read page by page.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code`, `error_type`, `waiting` and `all_generations`;
                the order: `oldest_first`; and `after` and `limit`. See `ListOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        return iterate_in_thread(self._sync.runs(**options))

    async def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Count the runs of this namespace by status. Each requested status has an entry, 0 if no run has it.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code`, `error_type`, `waiting` and `all_generations`.
                See `CountOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the store is read.
        """
        return await in_thread(lambda: self._sync.count(**options))

    async def cancel_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Cancel all runs that match, oldest first, in transactions of at most 500 runs. See `RunHandle.cancel`.

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
        return await in_thread(
            lambda: self._sync.cancel_all(reason=reason, limit=limit, actor=actor, **which)
        )

    async def terminate_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """End all runs that match at once as cancelled, without cleanup. Otherwise as `cancel_all`."""
        return await in_thread(
            lambda: self._sync.terminate_all(reason=reason, limit=limit, actor=actor, **which)
        )

    async def pause_all(
        self,
        *,
        reason: str = "",
        limit: int | None = None,
        actor: Actor | None = None,
        **which: Unpack[FilterOptions],
    ) -> BulkResult:
        """Pause all runs that match: nothing new starts until they are resumed. Otherwise as `cancel_all`."""
        return await in_thread(lambda: self._sync.pause_all(reason=reason, limit=limit, actor=actor, **which))

    async def resume_all(
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
        return await in_thread(
            lambda: self._sync.resume_all(reason=reason, limit=limit, actor=actor, **which)
        )

    async def remove_all(
        self, *, limit: int | None = None, actor: Actor | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Delete all ended runs that match from the store. See `RunHandle.remove`; otherwise as `cancel_all`.

        Runs that can't be removed yet are refused. Without `status`, ended runs of any status; pass `ended_before` to
        keep recent ones.
        """
        return await in_thread(lambda: self._sync.remove_all(limit=limit, actor=actor, **which))

    async def rerun_all(
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
        `RunHandle.rerun_from`; otherwise as `cancel_all`.

        Args:
            stage: The stage to start from, or its name, as for `RunHandle.rerun_from`.
            version: The version of the workflow to run; the same one if omitted.
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            actor: Who issues the command; the engine's actor if omitted (see `acting_as`).
            which: Filters, as for `cancel_all`.
        """
        return await in_thread(
            lambda: self._sync.rerun_all(
                stage, version=version, reason=reason, limit=limit, actor=actor, **which
            )
        )

    async def create_schedule(
        self, schedule: Schedule[object], /, *, actor: Actor | None = None
    ) -> ScheduleHandle:
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
        return ScheduleHandle(await in_thread(lambda: self._sync.create_schedule(schedule, actor=actor)))

    def schedule(self, name: str, /) -> ScheduleHandle:
        """Return a handle to a schedule, without checking that the schedule exists.

        Args:
            name: The name of the schedule.

        Raises:
            InvalidArgumentError: `name` is not a string.
        """
        return ScheduleHandle(self._sync.schedule(name))

    def schedules(self) -> AsyncIterator[ScheduleInfo]:
        """Return the schedules of this namespace, sorted by name. They are read page by page."""
        return iterate_in_thread(self._sync.schedules())

    async def remove_topic(self, name: str, *, actor: Actor | None = None) -> int:
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
        return await in_thread(lambda: self._sync.remove_topic(name, actor=actor))

    async def topics(self, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[TopicInfo]:
        """Return the topics of this namespace, sorted by name. They are read page by page.

        Those with messages or subscriptions, and those that had messages before.

        Args:
            after: Only those after the topic of this name.
            limit: The maximum number of topics; None for all.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
            InvalidArgumentError: `after` is not a string.
        """
        found = await in_thread(lambda: self._sync.topics(after=after, limit=limit))
        async for one in iterate_in_thread(found):
            yield one

    def workers(self, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[WorkerInfo]:
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
        return iterate_in_thread(self._sync.workers(after=after, limit=limit))

    async def queues(self) -> tuple[QueueInfo, ...]:
        """Return the queues of this namespace that have jobs, are served by a live worker, or are paused, by name.

        Each with what waits, runs and sleeps in it by the code that it needs, and which of that code no live worker
        serves. `limits.set("queue:<name>", paused=True)` pauses one.
        """
        return await in_thread(self._sync.queues)

    async def apply_schedules(
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
        return await in_thread(lambda: self._sync.apply_schedules(prune=prune, dry_run=dry_run, actor=actor))

    async def apply_triggers(self, *, actor: Actor | None = None) -> bool:
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
        return await in_thread(lambda: self._sync.apply_triggers(actor=actor))

    async def register_sink(
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
        return await in_thread(lambda: self._sync.register_sink(name, since=since, types=types, actor=actor))

    async def remove_sink(self, name: str, /, *, actor: Actor | None = None) -> bool:
        """Remove a sink, with its undelivered events and its dead letters. Return whether it existed.

        Args:
            name: The name of the sink.
            actor: Who issues the command, for the log; the engine's actor if omitted (see `acting_as`).
        """
        return await in_thread(lambda: self._sync.remove_sink(name, actor=actor))

    async def sinks(self) -> list[SinkInfo]:
        """Return the sinks of this namespace, sorted by name."""
        return await in_thread(self._sync.sinks)

    async def flush(self, sinks: Mapping[str, EventSink], /) -> FlushResult:
        """Deliver events to these sinks until none is due, and return what was delivered.

        Workers do this continuously for the sinks that they have.

        Args:
            sinks: The `EventSink`s, by the names under which they are registered.
        """
        return await in_thread(lambda: self._sync.flush(sinks))

    def dead_letters(
        self, *, sink: str = "", run_id: str = "", after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[DeadLetterInfo]:
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
        return iterate_in_thread(self._sync.dead_letters(sink=sink, run_id=run_id, after=after, limit=limit))

    def audit(self, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[AuditInfo]:
        """Return the audit log of this namespace, the newest entry first. It is read page by page.

        Entries are kept for 400 days.

        Args:
            after: Only the entries before the one with this `cursor`.
            limit: The maximum number of entries; None for all.

        Raises:
            InvalidFilterError: `after` is not a cursor, or `limit` is not a number of at least 1.
        """
        return iterate_in_thread(self._sync.audit(after=after, limit=limit))

    async def replay_dead_letters(
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
        return await in_thread(
            lambda: self._sync.replay_dead_letters(
                sink=sink, run_id=run_id, skip=skip, reason=reason, actor=actor
            )
        )

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
        return await in_thread(
            lambda: self._sync.doctor(
                repair=repair, blobs=blobs, limit=limit, all_namespaces=all_namespaces, actor=actor
            )
        )
