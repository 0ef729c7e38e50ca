# Generated from hosts/http_client/client.py by `python -m tools.sync_client`. Do not edit.
"""The client of a server, for synchronous code: the methods of the engine, over HTTP."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar

from holdfast.hosts.client.bulk_actions import AT_ONCE, BulkResult
from holdfast.hosts.client.sync_run_handle import STAGE, seconds_of, update_timeout_message
from holdfast.hosts.events.sink_reads import SinkBatch
from holdfast.hosts.events.sinks import DeadLetterInfo, SinkInfo
from holdfast.hosts.functions.completions import CompletionToken
from holdfast.hosts.http.bulk_operations import (
    ActionName,
    BulkChanged,
    BulkPreview,
    BulkRequest,
    BulkRerun,
    BulkStep,
)
from holdfast.hosts.http.command_operations import CommandAnswers, CommandBatch
from holdfast.hosts.http.completion_operations import Completed, CompletionFailure, CompletionValue
from holdfast.hosts.http.key_operations import AuditPage, AuditQuery
from holdfast.hosts.http.namespace_operations import QueueList, WorkerPage
from holdfast.hosts.http.operations import PageQuery
from holdfast.hosts.http.outcomes import StartedRun, UpdateState
from holdfast.hosts.http.run_actions import Removed, Woken
from holdfast.hosts.http.run_reads import RunCount, RunPage
from holdfast.hosts.http.run_starts import StartedRuns
from holdfast.hosts.http.schedule_operations import SchedulePage, SchedulesQuery
from holdfast.hosts.http.server_operations import ErrorPage, Health, ServerInfo
from holdfast.hosts.http.sink_operations import (
    Acknowledgement,
    DeadLetterPage,
    DeadLettersQuery,
    NewSink,
    Replayed,
    ReplayRequest,
    SinkEventsQuery,
    SinkList,
)
from holdfast.hosts.http.topic_operations import Publication, PublishedMessage, RemovedPage, TopicPage
from holdfast.hosts.http.workflow_operations import WorkflowPage, WorkflowsQuery
from holdfast.hosts.http_client.command_batches import keyed_commands, replies_of
from holdfast.hosts.http_client.run_filters import bulk_filter, count_query, filtered_list
from holdfast.hosts.http_client.starts import (
    RemoteStartAllOptions,
    RemoteStartOptions,
    decoded,
    is_split,
    new_key,
    new_run,
    new_run_with_update,
    new_runs,
    reason_of,
    update_of,
)
from holdfast.hosts.http_client.sync_administration import (
    RemoteTriggers,
    SyncRemoteKeys,
    SyncRemoteLimits,
    SyncRemoteNamespaces,
)
from holdfast.hosts.http_client.sync_connection import SyncConnection
from holdfast.hosts.http_client.sync_run_handle import SyncRemoteRunHandle
from holdfast.hosts.http_client.sync_schedule_handle import SyncRemoteScheduleHandle
from holdfast.hosts.http_client.sync_server import SyncServer, SyncWaiter
from holdfast.hosts.inspection.audit_log import AuditInfo
from holdfast.hosts.inspection.filters import CountOptions, FilterOptions, ListOptions, checked_limit
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.inspection.schedules import ScheduleInfo
from holdfast.hosts.inspection.topics import TopicInfo
from holdfast.hosts.inspection.workers import QueueInfo, WorkerInfo
from holdfast.hosts.inspection.workflows import WorkflowInfo
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.heartbeat_details import form_of
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.topics import MESSAGE_ID, TOPIC_MESSAGE, TopicMessage
from holdfast.kernel.values import encode
from holdfast.ports.durations import Duration
from holdfast.ports.errors import CommandError, InvalidArgumentError, InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records.run import RunStatus
from holdfast.ports.validation import AWARE, TEXT, TRUTH, check, integer, several

if TYPE_CHECKING:
    import httpx

R = TypeVar("R")
T = TypeVar("T")

PATIENCE: Final = 30.0
"""For how many seconds a request is repeated while the server can't be reached."""


class SyncClient:
    """A namespace of a server, for synchronous code: the methods of an engine, over HTTP.

    `with SyncClient("https://holdfast.example.com", key="hf_...") as client:`. It needs the extra `client`. The
    replies are those of the engine, and so are the errors. A request that gets no answer is repeated, with the same
    idempotency key, so that what it asks for is done once. Who acts is the owner of the key.

    Each method raises UnavailableError if the server does not answer within `patience`, AccessDeniedError if the key is
    not valid or lacks a scope or the namespace, and ServerAnswerError if the answer is not one of a Holdfast server.

    Args:
        url: The URL of the server, with the path under which it is mounted.
        key: An API key, or a token; or a function that returns one, which is called for each request. None to send
            none, to a server on this machine that has no keys yet.
        namespace: The namespace.
        patience: For how long a request is repeated while the server can't be reached or has too much to do, a
            timedelta or a number of seconds. 0: it is sent once.
        http: A client of httpx to send the requests with, with proxies or certificates of your own. It is not closed.

    Raises:
        InvalidArgumentError: `url` is not the URL of a server, or another argument has the wrong type.
        ModuleNotFoundError: httpx is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | Callable[[], str] | None = None,
        namespace: str = "default",
        patience: Duration = PATIENCE,
        http: "httpx.Client | None" = None,
    ) -> None:
        check("Client", TEXT, url=url, namespace=namespace)
        if not callable(key):
            check("Client", TEXT.or_none, key=key)
        self._server = SyncServer(
            SyncConnection(url, key, seconds_of(patience, "Client") or 0.0, http), namespace
        )

    def __enter__(self) -> Self:
        """Return the client. It connects at its first request."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections, also those of clients that `in_namespace` returned."""
        self._server.connection.close()

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self._server.namespace

    def in_namespace(self, namespace: str, /) -> Self:
        """Return this client for another namespace of the server. It shares the connections of this one.

        Args:
            namespace: The name.
        """
        check("in_namespace", TEXT, namespace=namespace)
        client = copy(self)
        client._server = SyncServer(self._server.connection, namespace)
        return client

    @property
    def limits(self) -> SyncRemoteLimits:
        """The limits and queues of the namespace, to be read and changed while the system runs."""
        return SyncRemoteLimits(self._server)

    @property
    def triggers(self) -> RemoteTriggers:
        """The triggers of the namespace, by which messages of topics start runs."""
        return RemoteTriggers(self._server)

    @property
    def keys(self) -> SyncRemoteKeys:
        """The API keys of the server."""
        return SyncRemoteKeys(self._server)

    @property
    def namespaces(self) -> SyncRemoteNamespaces:
        """The namespaces of the server."""
        return SyncRemoteNamespaces(self._server)

    @overload
    def start(self, call: Call[R], /, **options: Unpack[RemoteStartOptions]) -> SyncRemoteRunHandle[R]: ...
    @overload
    def start(
        self, workflow: str, input: object = None, /, **options: Unpack[RemoteStartOptions]
    ) -> SyncRemoteRunHandle[object]: ...
    def start(
        self, call: Call[R] | str, input: object = None, /, **options: Unpack[RemoteStartOptions]
    ) -> SyncRemoteRunHandle[R] | SyncRemoteRunHandle[object]:
        """Start a run and return its handle: `client.start("report", {"days": 7}, id="r-1")`.

        The run is stored when this returns. With the code at hand, `client.start(report(7))` checks the input here and
        gives a handle whose result has its type.

        Args:
            call: The call of a workflow, or the name of one.
            input: With a name: the input as plain JSON; of a durable function, its arguments by name.
            options: `id`, `if_exists`, `if_active`, `if_ended`, `idempotency_key`, `version`, `queue`, `priority`,
                `start_at`, `deadline`, `weight`, `concurrency`, `attributes`, `headers`, `annotations` and
                `signals`. See `RemoteStartOptions`.

        Raises:
            InvalidArgumentError: An option has an invalid value, or a server does not take it.
            InvalidValueError: The input does not have the declared type.
            UnknownWorkflowError: The server does not have this workflow, or not in this version.
            RunExistsError: A run with this id exists.
            ConcurrencyFullError: Too many runs of its concurrency key are open, and its `full` is "refuse".
            RateExceededError: The rate of starts is used up, and its `over` is "refuse".
            QuotaExceededError: The namespace has as many runs as it may have.
            IdempotencyConflictError: The key was used for another command.
        """
        started = self.start_run(call, input, **options)
        return self._handle(call, started)

    def start_run(
        self, call: Call[Any] | str, input: object = None, /, **options: Unpack[RemoteStartOptions]
    ) -> StartedRun:
        """Start a run as `start` does, and return what the server answers.

        That is whether the run is a new one, whether it joined another, and which runs were ended to make way for it.
        """
        return self._start(call, input, options, 0)

    @overload
    def start_all(
        self, calls: Iterable[Call[R]], /, **options: Unpack[RemoteStartAllOptions]
    ) -> list[SyncRemoteRunHandle[R]]: ...
    @overload
    def start_all(
        self, calls: Iterable[tuple[str, object]], /, **options: Unpack[RemoteStartAllOptions]
    ) -> list[SyncRemoteRunHandle[object]]: ...
    def start_all(
        self, calls: Iterable[Call[R] | tuple[str, object]], /, **options: Unpack[RemoteStartAllOptions]
    ) -> list[SyncRemoteRunHandle[R]] | list[SyncRemoteRunHandle[object]]:
        """Start many runs, up to 500 in one transaction, and return their handles in the same order.

        `client.start_all([("report", {"days": days}) for days in range(7)])`. Faster than one `start` per run. Calls of
        code are checked before any is sent, and the server checks all calls of a request before it stores any. A
        request has at most 500 calls of 900 kB. If one fails, the runs of those before are stored; with an idempotency
        key it is safe to repeat the call.

        Args:
            calls: The calls, of one workflow or several; or the names of workflows with their inputs as plain JSON.
            options: As for `start`, except `id`, `version`, `if_exists`, `if_active` and `if_ended`; they apply to each
                run. With an idempotency key the n-th call, from 0, has this key with `/n` appended: repeat the same
                calls in the same order.

        Raises:
            InvalidArgumentError, InvalidValueError, UnknownWorkflowError, QuotaExceededError: As `start`.
            IdempotencyConflictError: The key was used for another command. Other runs of this call may be stored.
        """
        wanted, found = list(calls), list[SyncRemoteRunHandle[Any]]()
        for body in new_runs(wanted, options):
            key = options.get("idempotency_key")
            reply = self._server.call("run.start_all", StartedRuns, body=body, key=key)
            these = wanted[body.first : body.first + len(body.calls)]
            for call, started in zip(these, reply.items, strict=True):
                found.append(self._handle(call if isinstance(call, Call) else call[0], started))
        return found

    @overload
    def update_with_start(
        self,
        call: Call[object] | tuple[str, object],
        update: UpdateCall[T],
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[RemoteStartOptions],
    ) -> T: ...
    @overload
    def update_with_start(
        self,
        call: Call[object] | tuple[str, object],
        update: tuple[str, Mapping[str, object] | None],
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[RemoteStartOptions],
    ) -> object: ...
    def update_with_start(
        self,
        call: Call[object] | tuple[str, object],
        update: UpdateCall[T] | tuple[str, Mapping[str, object] | None],
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[RemoteStartOptions],
    ) -> T | object:
        """Start a run, or use the one that has the id, send it an update and return the reply.

        `client.update_with_start(cart("ann"), Cart.add("tea"), id="cart-1", if_active="return")`; without the code
        `(("cart", {"owner": "ann"}), ("Cart.add", {"item": "tea"}), id=...)`. Both are stored in one transaction, or
        neither. A worker must be running.

        Args:
            call: The call of a durable function; or the name of one with its arguments by name, as plain JSON.
            update: An update with its arguments; or the name of one with its arguments by name, as plain JSON.
            timeout: How long to wait for the reply, a timedelta or a number of seconds; no limit if omitted.
            options: As for `start`. An `id` is needed. With an `idempotency_key`, the same call again stores nothing,
                and waits for the same reply.

        Raises:
            InvalidArgumentError: An argument has an invalid value, or `id` is missing.
            RunExistsError: A run with this id exists, and the options do not allow for that.
            TimeoutError: No reply within `timeout`. The update stays stored and will be carried out.
            UpdateRefusedError, UpdateRejectedError, UpdateFailedError, UpdateLostError, NotExposedError: As
                `SyncRemoteRunHandle.update`. A rejected update is not stored, and no run is started for it, if its
                validator ran before: on a run that was active already, by a server with the code.
            InvalidValueError, UnknownWorkflowError, IdempotencyConflictError: As `start`.
        """
        waiter = SyncWaiter(seconds_of(timeout, "update_with_start"))
        name, arguments = update_of(update)
        body = new_run_with_update(call, arguments, options)
        key = options.get("idempotency_key") or new_key()
        kind = update.form.output if isinstance(update, UpdateCall) else object
        while (wait := waiter.next_wait()) is not None:
            state = self._server.call(
                "run.update_with_start", UpdateState, {"name": name}, body=body, key=key, wait=wait
            )
            if state.is_done:
                reply: object = decoded(state.reply, kind)
                return reply
        raise TimeoutError(update_timeout_message(body.id or "", name, timeout))

    @overload
    def run(
        self, call: Call[R], /, *, timeout: Duration | None = None, **options: Unpack[RemoteStartOptions]
    ) -> R: ...
    @overload
    def run(
        self,
        workflow: str,
        input: object = None,
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[RemoteStartOptions],
    ) -> object: ...
    def run(
        self,
        call: Call[R] | str,
        input: object = None,
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[RemoteStartOptions],
    ) -> R | object:
        """Start a run, wait for its result and return it. A worker must be running.

        Takes the arguments and raises the errors of `start`, and takes the `timeout` and raises the errors of
        `SyncRemoteRunHandle.result`.
        """
        waiter = SyncWaiter(seconds_of(timeout))
        started = self._start(call, input, options, waiter.next_wait() or 0)
        handle = self._handle(call, started)
        if started.result is not None:  # the answer has waited; without `payloads`, it has no result to show
            return handle.whole().result_in(started)  # only its part, if the run gathered starts
        return handle.result(timeout=waiter.seconds_left)

    @overload
    def handle(self, id: str, /) -> SyncRemoteRunHandle[object]: ...
    @overload
    def handle(self, workflow: WorkflowDefinition[R], id: str, /) -> SyncRemoteRunHandle[R]: ...
    def handle(
        self, workflow: WorkflowDefinition[R] | str, id: str | None = None, /
    ) -> SyncRemoteRunHandle[R] | SyncRemoteRunHandle[object]:
        """Return a handle to a run, without checking that the run exists: `client.handle("r-1")`.

        Args:
            workflow: The workflow of the run, which gives the type of its result. May be left out.
            id: The run id.
        """
        if isinstance(workflow, str) and id is None:
            return SyncRemoteRunHandle(self._server, workflow)
        if not isinstance(workflow, WorkflowDefinition) or not isinstance(id, str):
            raise InvalidArgumentError(
                "workflow", 'handle: write handle("run id"), or handle(workflow, "run id")'
            )
        return SyncRemoteRunHandle(self._server, id, workflow.output_type)

    def runs(self, **options: Unpack[ListOptions]) -> Iterator[RunInfo]:
        """Return the runs of the namespace, newest first. They are read page by page.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code`, `error_type`, `waiting` and `all_generations`;
                the order: `oldest_first`; and `after` and `limit`. See `ListOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the server is asked.
        """
        query, limit = filtered_list(self.namespace, options)
        return self._server.pages("run.list", RunPage, None, query, limit)

    def count(self, **options: Unpack[CountOptions]) -> dict[RunStatus, int]:
        """Count the runs of the namespace by status, up to 10,000. Each requested status has an entry.

        Args:
            options: Filters: `workflow`, `status`, `attributes`, `annotations`, `since`, `until`, `ended_before`,
                `ids`, `id_prefix`, `queue`, `children_of`, `error_code`, `error_type`, `waiting` and `all_generations`.
                See `CountOptions`.

        Raises:
            InvalidFilterError: An option has an invalid value; raised before the server is asked.
        """
        query = count_query(self.namespace, options)
        found = self._server.call("run.count", RunCount, query=query)
        wanted = query.status or tuple(RunStatus)
        return {status: found.by_status.get(status, 0) for status in RunStatus if status in wanted}

    def preview_all(self, action: ActionName, /, **which: Unpack[FilterOptions]) -> BulkPreview:
        """Count the runs that an action such as `cancel_all` would change, up to 10,000, and name the first ones.

        Args:
            action: `cancel`, `terminate`, `pause`, `resume`, `rerun` or `remove`.
            which: Filters, as for `cancel_all`.

        Raises:
            InvalidFilterError: A filter has an invalid value, there is none, or the action is not for this status.
        """
        body = BulkRequest(action=action, filter=bulk_filter(self.namespace, action, which))
        return self._server.call("run.preview_bulk", BulkPreview, body=body)

    def cancel_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Cancel all runs that match, oldest first. See `SyncRemoteRunHandle.cancel`.

        Runs that are created after the call began are not included. It is safe to repeat the call.

        Args:
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            which: Filters, of which at least one is needed: `workflow`, `status`, `attributes`, `annotations`, `since`,
                `until`, `ended_before`, `ids`, `id_prefix`, `queue`, `children_of`, `error_code` and `error_type`.
                Without `status`, all active runs. See `FilterOptions`.

        Raises:
            InvalidFilterError: A filter has an invalid value, there is none, or runs of this status can't be cancelled.
        """
        return self._act("cancel", which, reason, limit)

    def terminate_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """End all runs that match at once as cancelled, without cleanup. Otherwise as `cancel_all`."""
        return self._act("terminate", which, reason, limit)

    def pause_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Pause all runs that match: nothing new starts until they are resumed. Otherwise as `cancel_all`."""
        return self._act("pause", which, reason, limit)

    def resume_all(
        self, *, reason: str = "", limit: int | None = None, **which: Unpack[FilterOptions]
    ) -> BulkResult:
        """Resume all paused runs that match, or with `status="blocked"` the blocked ones. Otherwise as `cancel_all`.

        With `ids` and no `status`, both.
        """
        return self._act("resume", which, reason, limit)

    def remove_all(self, *, limit: int | None = None, **which: Unpack[FilterOptions]) -> BulkResult:
        """Delete all ended runs that match. See `SyncRemoteRunHandle.remove`; otherwise as `cancel_all`.

        Runs that can't be removed yet are refused. Needs the scope `admin`.
        """
        return self._act("remove", which, "", limit)

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
        """Rerun all ended runs that match; without `status` and `ids`, failed ones. Otherwise as `cancel_all`.

        Args:
            stage: The stage to start from, or its name; without it, each run continues where it failed or stopped.
            version: The version of the workflow to run; the same one if omitted.
            reason: A text for the histories.
            limit: The maximum number of runs; no limit if omitted.
            which: Filters, as for `cancel_all`.

        Raises:
            InvalidFilterError: A filter has an invalid value, there is none, or runs of this status can't be rerun.
        """
        check("rerun_all", TEXT.or_none, version=version)
        check("rerun_all", STAGE.or_none, stage=stage)
        name = stage if stage is None or isinstance(stage, str) else stage.name
        return self._act("rerun", which, reason, limit, {"stage": name, "version": version})

    def _act(
        self,
        action: ActionName,
        which: FilterOptions,
        reason: str,
        limit: int | None,
        options: Mapping[str, str | None] | None = None,
    ) -> BulkResult:
        """Preview an action, and then do it request by request."""
        found = bulk_filter(self.namespace, action, which)
        check(f"{action}_all", TEXT, reason=reason)
        most = checked_limit(limit)
        cursor: str | None = (self.preview_all(action, **which)).cursor
        result = BulkResult()
        while cursor is not None and (most is None or result.seen < most):
            size = AT_ONCE if most is None else min(AT_ONCE, most - result.seen)
            body = (BulkStep if options is None else BulkRerun)(
                filter=found, cursor=cursor, limit=size, reason=reason, **(options or {})
            )
            page = self._server.call(f"run.{action}_all", BulkChanged, body=body)
            step = BulkResult(
                changed=page.changed,
                unchanged=page.unchanged,
                refused=page.refused,
                refusals=page.refusals,
            )
            result, cursor = result.plus(step), page.next
        return result

    def wake(self, key: str, /) -> Woken:
        """Check external work now, instead of at its next poll. For webhooks, for instance.

        Args:
            key: The key that the stage passed to `suspend`.

        Returns:
            How many stages or map items are `woken`.

        Raises:
            NothingToWakeError: No suspended stage has this key.
        """
        check("wake", TEXT, key=key)
        return self._server.call("wake.send", Woken, {"key": key})

    @overload
    def complete(self, token: str, value: object, /) -> Completed: ...
    @overload
    def complete(self, token: str, value: T, type: TypeForm[T], /) -> Completed: ...
    def complete(self, token: str, value: object, type: Any = None, /) -> Completed:
        """Give a completion its value, which its function waits for. The value is stored when this returns.

        Args:
            token: The token of the completion.
            value: The value: plain JSON or an object of a storable class. The same value may be given again.
            type: The type of the value where its class is not enough, such as `list[Item]`.

        Raises:
            CompletionNotFoundError: No run has a completion with this token, or it has continued as new since.
            AlreadyCompletedError: The function has received another value, or a failure.
            SignalRefusedError: The run has ended.
            InvalidValueError: The value does not have the given `type`.
            UnstorableValueError: The value can't be stored.
            InvalidArgumentError: `token` is not the token of a completion.
        """
        CompletionToken.parsed(token)
        body = CompletionValue(value=parse(encode(value, form_of(value) if type is None else type)))
        return self._server.call("completion.complete", Completed, {"completion": token}, body=body)

    def fail_completion(self, token: str, message: str, /) -> Completed:
        """Fail a completion: its function gets a CompletionFailedError in place of the value.

        Args:
            token: The token of the completion.
            message: Why there is no value.

        Raises:
            CompletionNotFoundError, AlreadyCompletedError, SignalRefusedError, InvalidArgumentError: As `complete`.
        """
        CompletionToken.parsed(token)
        check("fail_completion", TEXT, message=message)
        body = CompletionFailure(message=message)
        return self._server.call("completion.fail", Completed, {"completion": token}, body=body)

    def publish(self, message: TopicMessage, /, *, id: str | None = None) -> PublishedMessage:
        """Publish a message to a topic: `client.publish(orders(order))`. It is stored when this returns.

        Every run that has subscribed, or subscribes while the topic keeps the message, gets it once. The server does
        not know the type of the topic, so each run checks the message when it receives it.

        Args:
            message: A message with its topic, as `topic(message)` returns it. Without the code of the topic,
                `TopicMessage("orders", '{"number": 7}')`.
            id: The id of the message in its topic. Publishing again with an id that is stored does nothing.

        Returns:
            The id of the message, and whether this call published it.

        Raises:
            InvalidArgumentError: `message` is not a message of a topic, or the id is not a text of 1 to 256 characters.
            InvalidCommandError: The message is too large or not JSON, or the name or the attributes are not valid.
        """
        check("publish", TOPIC_MESSAGE, message=message)
        check("publish", MESSAGE_ID, id=id)
        try:
            content = parse(message.text)
        except ValueError as error:
            raise InvalidCommandError(f"the message is not JSON: {error}") from None
        body = Publication(
            message=content,
            attributes=message.attributes,
            id=id,
            keep=timedelta(microseconds=message.keep),
            keep_last=message.keep_last,
        )
        return self._server.call("topic.publish", PublishedMessage, {"topic": message.topic}, body=body)

    def remove_topic(self, name: str) -> int:
        """Delete a topic of the namespace, with its messages and groups. Return how many of these there were.

        What runs have received stays in their histories. Messages are deleted page by page, a request for each: after
        an error, call it again.

        Args:
            name: The name of the topic.

        Raises:
            TopicInUseError: Runs that have not ended have subscribed to it, or it has triggers.
            InvalidCommandError: No topic can have this name.
        """
        check("remove_topic", TEXT, name=name)
        rows, more = 0, True
        while more:
            done = self._server.call("topic.remove", RemovedPage, {"topic": name})
            rows, more = rows + done.rows, done.more
        return rows

    def topics(self, *, after: str | None = None, limit: int | None = None) -> Iterator[TopicInfo]:
        """Return the topics of the namespace, sorted by name. They are read page by page.

        Those with messages or subscriptions, and those that had messages before.

        Args:
            after: Only those after the topic of this name.
            limit: The maximum number of topics; None for all.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
        """
        check("topics", TEXT.or_none, after=after)
        return self._server.pages("topic.list", TopicPage, None, PageQuery(after=after), checked_limit(limit))

    def dispatch(
        self, commands: Sequence[Mapping[str, object]], /, *, atomic: bool = False
    ) -> list[Mapping[str, object] | CommandError]:
        """Carry out commands of the kernel in their documented JSON form, up to 500 in one request.

        Each command without an `idempotency_key` gets one, so that a request that is repeated does nothing twice.

        Args:
            commands: The commands, without `namespace` and `actor`.
            atomic: Whether all or none are carried out, in one transaction.

        Returns:
            The reply to each command, or the error that it was refused with; with `atomic` replies only.

        Raises:
            InvalidCommandError: A command is malformed.
            CommandError: With `atomic`: a command was refused, and none was carried out.
        """
        check("dispatch", TRUTH, atomic=atomic)
        body = CommandBatch(commands=keyed_commands(commands), atomic=atomic)
        return replies_of(self._server.call("command.dispatch", CommandAnswers, body=body))

    def schedule(self, name: str, /) -> SyncRemoteScheduleHandle:
        """Return a handle to a schedule, without checking that the schedule exists.

        Args:
            name: The name of the schedule.
        """
        check("schedule", TEXT, name=name)
        return SyncRemoteScheduleHandle(self._server, name)

    def schedules(self) -> Iterator[ScheduleInfo]:
        """Return the schedules of the namespace, sorted by name. They are read page by page."""
        return self._server.pages("schedule.list", SchedulePage, None, SchedulesQuery(), None)

    def workers(self, *, after: str | None = None, limit: int | None = None) -> Iterator[WorkerInfo]:
        """Return the workers of the namespace by the ids of their sessions, with what each holds.

        Args:
            after: Only those after this one: the `session` of the last one of the page before.
            limit: How many at most; all if omitted.

        Raises:
            InvalidFilterError: `limit` is not a number from 1.
        """
        check("workers", TEXT.or_none, after=after)
        return self._server.pages(
            "worker.list", WorkerPage, None, PageQuery(after=after), checked_limit(limit)
        )

    def queues(self) -> tuple[QueueInfo, ...]:
        """Return the queues of the namespace that have jobs, are served by a live worker, or are paused, by name."""
        return (self._server.call("queue.list", QueueList)).items

    def pause_queue(self, name: str, /, *, reason: str = "") -> LimitInfo:
        """Pause a queue: nothing is claimed from it until it is resumed. What runs continues.

        Args:
            name: The name of the queue.
            reason: Why, for people.
        """
        check("pause_queue", TEXT, name=name)
        body = reason_of("pause_queue", reason)
        return self._server.call("queue.pause", LimitInfo, {"name": name}, body=body)

    def resume_queue(self, name: str, /, *, reason: str = "") -> LimitInfo:
        """Resume a paused queue.

        Args:
            name: The name of the queue.
            reason: Why, for people.
        """
        check("resume_queue", TEXT, name=name)
        body = reason_of("resume_queue", reason)
        return self._server.call("queue.resume", LimitInfo, {"name": name}, body=body)

    def workflows(
        self, *, name: str = "", after: str | None = None, limit: int | None = None
    ) -> tuple[WorkflowInfo, ...]:
        """Return the workflows that the server can start, by name: those of its code, and those of workers.

        Args:
            name: Only the versions of this workflow.
            after: Only workflows after this one, `NAME@VERSION`.
            limit: At most so many.

        Raises:
            InvalidFilterError: `limit` is not a number of at least 1.
        """
        check("workflows", TEXT, name=name)
        check("workflows", TEXT.or_none, after=after)
        query = WorkflowsQuery(name=name, after=after)
        pages = self._server.pages("workflow.list", WorkflowPage, None, query, checked_limit(limit))
        return tuple([one for one in pages])

    def register_sink(
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
        """
        check("register_sink", TEXT, name=name)
        check("register_sink", AWARE.or_none, since=since)
        body = NewSink(since=since, types=tuple(several("register_sink", "types", types, "a list of types")))
        return self._server.call("sink.register", SinkInfo, {"name": name}, body=body)

    def remove_sink(self, name: str, /) -> bool:
        """Remove a sink, with its undelivered events and its dead letters. Return whether it existed.

        Args:
            name: The name of the sink.
        """
        check("remove_sink", TEXT, name=name)
        return (self._server.call("sink.remove", Removed, {"name": name})).removed

    def sinks(self) -> list[SinkInfo]:
        """Return the sinks of the namespace, sorted by name."""
        return list((self._server.call("sink.list", SinkList)).items)

    def read_sink(
        self, name: str, /, *, after: str | None = None, limit: int = 500, wait: Duration | None = None
    ) -> SinkBatch:
        """Return the next events of the namespace that a registered sink has not acknowledged: each once, in one order.

        The same batch is returned until it is acknowledged, which the next read does with `after`. From its first read
        on, a sink is only read: workers deliver nothing to it. Needs the scope `operate`.

        Args:
            name: The name of the sink.
            after: The `next` of the batch before, or the `cursor` of an event: what is before it is acknowledged.
            limit: The most history rows of a new batch, at most 1,000.
            wait: For how long to wait for events, a timedelta or a number of seconds; not at all if omitted.

        Raises:
            SinkNotFoundError: The sink does not exist.
            SinkCursorError: The sink can't be read on from `after`.
            InvalidArgumentError: An argument is of the wrong type, or out of bounds.
        """
        check("read_sink", TEXT, name=name)
        check("read_sink", TEXT.or_none, after=after)
        check("read_sink", integer(1, 1_000), limit=limit)
        query = SinkEventsQuery(after=after, limit=limit)
        if wait is None:
            return self._server.call("sink.read", SinkBatch, {"name": name}, query=query)
        waiter, batch = SyncWaiter(seconds_of(wait)), SinkBatch(items=(), next=after or "")
        while (seconds := waiter.next_wait()) is not None:
            batch = self._server.call("sink.read", SinkBatch, {"name": name}, query=query, wait=seconds)
            if batch.items:
                break
            query = attrs.evolve(query, after=batch.next)
        return batch

    def acknowledge_sink(self, name: str, cursor: str, /) -> None:
        """Acknowledge what was read of a sink before a cursor, without reading on.

        Args:
            name: The name of the sink.
            cursor: The `next` of a batch, or the `cursor` of an event.

        Raises:
            SinkNotFoundError: The sink does not exist.
            SinkCursorError: It is not a cursor of what was read last.
        """
        check("acknowledge_sink", TEXT, name=name, cursor=cursor)
        body = Acknowledgement(cursor=cursor)
        self._server.call("sink.acknowledge", NoneType, {"name": name}, body=body)

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
        query, most = DeadLettersQuery(sink=sink, run_id=run_id, after=after), checked_limit(limit)
        return self._server.pages("dead_letter.list", DeadLetterPage, None, query, most)

    def replay_dead_letters(
        self, *, sink: str = "", run_id: str = "", skip: bool = False, reason: str = ""
    ) -> int:
        """Deliver dead-lettered streams again, from the refused event on. Return the number of streams.

        Args:
            sink: Only those of this sink; of all sinks if omitted.
            run_id: Only those of this run; of all runs if omitted.
            skip: Skip the refused event. The sink gets an `event.skipped` in its place.
            reason: A text for operators.

        Raises:
            SinkNotFoundError: The sink does not exist.
            RunNotFoundError: The run does not exist.
        """
        check("replay_dead_letters", TEXT, sink=sink, run_id=run_id, reason=reason)
        check("replay_dead_letters", TRUTH, skip=skip)
        body = ReplayRequest(sink=sink, run_id=run_id, skip=skip, reason=reason)
        replayed = 0
        while True:
            reply = self._server.call("dead_letter.replay", Replayed, body=body)
            replayed += reply.replayed
            if not reply.more:
                return replayed

    def audit(self, *, after: str | None = None, limit: int | None = None) -> Iterator[AuditInfo]:
        """Return the audit log of the namespace, the newest entry first. It is read page by page.

        Needs the scope `admin` on all namespaces.

        Args:
            after: Only the entries before the one with this `cursor`.
            limit: The maximum number of entries; None for all.

        Raises:
            InvalidFilterError: `after` is not a cursor, or `limit` is not a number of at least 1.
        """
        check("audit", TEXT.or_none, after=after)
        query = AuditQuery(after=after, namespace=self.namespace)
        return self._server.pages("audit.list", AuditPage, None, query, checked_limit(limit))

    def server(self) -> ServerInfo:
        """Return what the server is, whose the key is, and what it allows."""
        return self._server.call("server.get", ServerInfo)

    def live(self) -> Health:
        """Check that the server answers. Its store is not read. Needs no key."""
        return self._server.call("server.live", Health)

    def ready(self) -> Health:
        """Check that the server's store answers. Needs no key. UnavailableError if it does not."""
        return self._server.call("server.ready", Health)

    def metrics(self) -> str:
        """Return the metrics of the server, as text for Prometheus. Needs the scope `read` on all namespaces."""
        return (self._server.content("server.metrics")).decode()

    def openapi(self) -> Mapping[str, object]:
        """Return the OpenAPI document of the server. Needs no key."""
        return cast("Mapping[str, object]", self._server.call("server.openapi", dict[str, Any]))

    def error(self, code: str, /) -> ErrorPage:
        """Return the meaning of an error code of the server. Needs no key.

        Args:
            code: The code.
        """
        check("error", TEXT, code=code)
        return self._server.call("error.get", ErrorPage, {"code": code})

    def _start(
        self, call: Call[Any] | str, input: object, options: RemoteStartOptions, wait: int
    ) -> StartedRun:
        body = new_run(call, input, options)
        key = options.get("idempotency_key")
        return self._server.call("run.start", StartedRun, body=body, key=key, wait=wait)

    def _handle(self, call: Call[R] | str, started: StartedRun) -> SyncRemoteRunHandle[R]:
        part = None
        if is_split(call) and started.first_item is not None:
            part = (started.first_item, started.items or 0)
        kind = object if isinstance(call, str) else call.definition.output_type
        return SyncRemoteRunHandle(self._server, started.run_id, kind, joined=started.joined, part=part)
