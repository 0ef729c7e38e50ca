"""The engine within a transaction of the application, for synchronous code."""

from collections.abc import Iterable
from typing import Final, Unpack

from typing_extensions import TypeVar

from holdfast.hosts.client.client import Client
from holdfast.hosts.client.schedules import SCHEDULE, put_command
from holdfast.hosts.client.sync_run_handle import SyncRunHandle, handle_of_start
from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.topics import MESSAGE_ID, TOPIC_MESSAGE, TopicMessage
from holdfast.kernel.commands import RunSignalled, RunStopped, TopicPublish, TopicPublished
from holdfast.ports.application_transactions import ApplicationTransaction
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import TEXT, check

R = TypeVar("R")

STARTS_MAX: Final = 500
"""How many runs `start_all` starts in a transaction."""


class SyncTransactionalEngine:
    """The engine within a transaction of the application, for synchronous code. `engine.sync.within(...)` returns it.

    What its methods do takes place if, and only if, the transaction commits. Each takes a savepoint, so that a refused
    command leaves the transaction usable. Handles that it returns work outside the transaction: their methods find the
    run, or the schedule, once it is committed.

    All methods raise these errors, beside those that they name:

    - InvalidTransactionError: No transaction is open, or it has failed, or it is read-only.
    - WrongStoreError: The connection leads to another database than the engine.
    - ConflictError: Another transaction, which this one can't see, has stored the same key. Try the transaction again.
    - UnavailableError: A deadlock, a timeout or a lost connection. Roll back, and try the transaction again.
    """

    def __init__(self, client: Client, transaction: ApplicationTransaction) -> None:
        self._client = client
        self._joined = client.within(transaction)

    def start(self, call: Call[R], /, **options: Unpack[StartOptions]) -> SyncRunHandle[R]:
        """Start a run and return its handle. The run exists once the transaction is committed.

        A start without `id`, `idempotency_key`, `concurrency` and other limits locks nothing that others wait for. With
        one of these, other starts of the same id or key wait until the transaction ends: do it last.

        Args:
            call: The call of a workflow: `my_workflow(argument)`.
            options: As for `SyncEngine.start`. See `StartOptions`.

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
            IdempotencyConflictError: The key was used for another command.
            UnknownWorkflowError: The engine does not have this workflow.
        """
        created = self._joined.dispatch(self._client.create(call, options))
        return handle_of_start(self._client, call, created)

    def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[StartAllOptions]
    ) -> list[SyncRunHandle[R]]:
        """Start at most 500 runs, all or none, and return their handles in the same order.

        Args:
            calls: The calls, of one workflow or several.
            options: As for `SyncEngine.start_all`.

        Raises:
            InvalidArgumentError: There are more than 500 calls, or one is not the call of a workflow, or an option has
                an invalid value.
            InvalidValueError, UnstorableValueError, IdempotencyConflictError, UnknownWorkflowError: As `start`.
        """
        check_options(options, StartAllOptions, "start_all")
        wanted = list(calls)
        if len(wanted) > STARTS_MAX:
            raise InvalidArgumentError(
                "calls",
                f"start_all: within a transaction, at most {STARTS_MAX} runs are started by a call, not {len(wanted)};"
                " start the others by another",
            )
        created = self._joined.dispatch_all(self._client.create_all(wanted, options))
        return [handle_of_start(self._client, call, one) for call, one in zip(wanted, created, strict=True)]

    def signal(self, run_id: str, signal: Signal, /, *, idempotency_key: str | None = None) -> RunSignalled:
        """Send a message to a run: `within.signal("order-1", approval(decision))`.

        It locks the run until the transaction ends, and so holds up its workers: do it last.

        Args:
            run_id: The id of the run. It may have been started in the same transaction.
            signal: A message with its channel.
            idempotency_key: Sending again with the same key sends nothing and returns the first reply.

        Raises:
            RunNotFoundError, SignalRefusedError, ChannelClosedError, InvalidValueError, IdempotencyConflictError: As
                `SyncRunHandle.signal`.
            InvalidArgumentError: `run_id` is not a string, or `signal` is not a signal.
        """
        check("signal", TEXT, run_id=run_id)
        return SyncRunHandle[object](self._joined, run_id, object).signal(
            signal, idempotency_key=idempotency_key
        )

    def cancel(self, run_id: str, /, *, reason: str = "") -> RunStopped:
        """Cancel a run. Does nothing if it has ended. It locks the run until the transaction ends: do it last.

        Args:
            run_id: The id of the run.
            reason: A text for the history.

        Raises:
            RunNotFoundError: The run does not exist.
            InvalidArgumentError: `run_id` is not a string.
        """
        check("cancel", TEXT, run_id=run_id)
        return SyncRunHandle[object](self._joined, run_id, object).cancel(reason=reason)

    def publish(self, message: TopicMessage, /, *, id: str | None = None) -> TopicPublished:
        """Publish a message to a topic: `within.publish(orders(order))`. It exists once the transaction is committed.

        It locks nothing, and holds up no other publisher.

        Args:
            message: A message with its topic, as `topic(message)` returns it.
            id: The id of the message in its topic. Publishing again with an id that is stored does nothing.

        Raises:
            InvalidArgumentError: As `SyncEngine.publish`.
        """
        check("publish", TOPIC_MESSAGE, message=message)
        check("publish", MESSAGE_ID, id=id)
        command = TopicPublish(namespace=self._client.core.namespace, message=message.as_new(), id=id)
        return self._joined.dispatch(command)

    def create_schedule(self, schedule: Schedule[object], /) -> SyncScheduleHandle:
        """Create a schedule, and return its handle. It exists once the transaction is committed.

        Args:
            schedule: The schedule: `Schedule("digest/7", digest(7), when=Every(timedelta(hours=6)))`.

        Raises:
            InvalidArgumentError, InvalidValueError, UnstorableValueError, ScheduleExistsError, UnknownWorkflowError,
                InvalidCommandError: As `SyncEngine.create_schedule`.
        """
        check("create_schedule", SCHEDULE, schedule=schedule)
        self._joined.dispatch(put_command(self._client.core, schedule))
        return SyncScheduleHandle(self._client, schedule.name)

    def remove_schedule(self, name: str, /) -> bool:
        """Remove a schedule. Its runs stay. Return whether it existed.

        Args:
            name: The name of the schedule.

        Raises:
            InvalidArgumentError: `name` is not a string.
        """
        check("remove_schedule", TEXT, name=name)
        return SyncScheduleHandle(self._joined, name).remove()
