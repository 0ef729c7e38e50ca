"""Operations on namespaces, and on the workers and queues of one."""

from typing import Final

import attrs

from holdfast.hosts.client.purges import purge_page, purge_place, remaining_in
from holdfast.hosts.http.operations import (
    NAMESPACE,
    Hint,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Reach,
    Reason,
    Table,
    Wait,
    page_of,
)
from holdfast.hosts.http.principals import ALL_NAMESPACES, Scope
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.inspection.namespaces import NamespaceDetails, NamespaceInfo, namespace_info
from holdfast.hosts.inspection.workers import QueueInfo, WorkerInfo
from holdfast.kernel.commands.namespaces import QUOTA_MAX
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidCommandError,
    InvalidFilterError,
    InvalidNamespaceError,
    NamespaceInUseError,
)

_NAMESPACES: Final = "/v1/namespaces"
_QUEUES: Final = f"{NAMESPACE}/queues"
_QUOTA: Final = attrs.validators.optional([attrs.validators.ge(0), attrs.validators.le(QUOTA_MAX)])


@attrs.frozen(kw_only=True)
class NamespacePage:
    """A page of the list of namespaces."""

    items: tuple[NamespaceInfo, ...]
    """The namespaces by name: with all in reach those that were created or are used, otherwise those in reach."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class NamespaceRequest:
    """A namespace that is created, or whose note and quotas are replaced."""

    name: str
    """The name."""
    note: str = ""
    """What it is for, for people."""
    max_active_runs: int | None = attrs.field(default=None, validator=_QUOTA)
    """How many of its runs may be active for a client to start another; any number if omitted."""
    max_starts_per_minute: int | None = attrs.field(default=None, validator=_QUOTA)
    """How many of its runs may have been created in the last minute for a client to start another."""


@attrs.frozen(kw_only=True)
class NamespaceDeletion:
    """The query parameters of a deletion."""

    purge: bool = False
    """Whether its schedules, triggers, sinks, runs and topics are removed first. Active runs end without cleanup."""
    after: str | None = None
    """With `purge`: the `next` of the request before."""
    limit: int = attrs.field(default=100, validator=[attrs.validators.ge(1), attrs.validators.le(500)])
    """With `purge`: how many schedules, sinks and runs this request goes through, at most 500."""


@attrs.frozen(kw_only=True)
class NamespaceDeleted:
    """The outcome of a deletion."""

    deleted: bool
    """Whether it is deleted; false if it was never created and, with `purge`, if there is more to remove."""
    remaining: int = 0
    """How many schedules, sinks and runs are left, of which up to 10,000 of each kind and status are counted."""
    next: str | None = None
    """The `after` of the next request of the purge; null if it is over."""


@attrs.frozen(kw_only=True)
class WorkerPage:
    """A page of the list of workers."""

    items: tuple[WorkerInfo, ...]
    """The workers, by session."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class QueueList:
    """Queues."""

    items: tuple[QueueInfo, ...]
    """The queues that have jobs, are served by a live worker, or are paused, by name."""


def list_namespaces(call: Invocation[PageQuery, Nothing]) -> NamespacePage:
    """List the namespaces that the principal reaches."""
    query, reached = call.query, call.principal.namespaces
    if ALL_NAMESPACES in reached:
        found = call.engine.namespaces.list(after=query.after, limit=query.limit + 1)
    else:
        call.engine.core.connect()
        names = (name for name in sorted(reached) if name > (query.after or ""))
        found = (namespace_info(call.engine.core, name) for name in names)
    items, last = page_of(found, query.limit)
    return NamespacePage(items=items, next=None if last is None else last.name)


def create_namespace(call: Invocation[Nothing, NamespaceRequest]) -> NamespaceInfo:
    """Create a namespace, or replace the note and the quotas of one.

    A namespace need not be created: any may be used.
    """
    body = call.body
    return call.engine.namespaces.create(
        body.name,
        note=body.note,
        max_active_runs=body.max_active_runs,
        max_starts_per_minute=body.max_starts_per_minute,
    )


def get_namespace(call: Invocation[Nothing, Nothing]) -> NamespaceDetails:
    """Get a namespace with counts of what it has, up to 10,000 of a kind."""
    return call.engine.namespaces.describe(call.namespace)


def delete_namespace(call: Invocation[NamespaceDeletion, Nothing]) -> NamespaceDeleted:
    """Delete a namespace. It is refused while it has runs, schedules, triggers, sinks or topics, without `purge`.

    A purge takes as many requests as it needs: repeat the request, with the `next` of the last answer as `after`, until
    that is null. An active run is gone through twice, as it is ended first. Without `after`, a purge that was
    interrupted begins anew with what is left.
    """
    query = call.query
    if not query.purge:
        return NamespaceDeleted(deleted=call.engine.namespaces.delete(call.namespace))
    after = None if query.after is None else purge_place(query.after)
    page = purge_page(call.engine.client, call.namespace, after, query.limit)
    if page.next is None:
        return NamespaceDeleted(deleted=page.deleted or page.seen > 0 or after is not None)
    remaining = remaining_in(call.engine.core)
    return NamespaceDeleted(deleted=False, remaining=remaining, next=page.next.text)


def list_workers(call: Invocation[PageQuery, Nothing]) -> WorkerPage:
    """List the workers, with what each has and holds."""
    query = call.query
    items, last = page_of(call.engine.workers(after=query.after, limit=query.limit + 1), query.limit)
    return WorkerPage(items=items, next=None if last is None else last.session)


def list_queues(call: Invocation[Nothing, Nothing]) -> QueueList:
    """List the queues, with what waits and runs in each, and the code that no live worker serves."""
    return QueueList(items=call.engine.queues())


def pause_queue(call: Invocation[Nothing, Reason]) -> LimitInfo:
    """Pause a queue: nothing is claimed from it until it is resumed. What runs continues."""
    return call.engine.limits.set(_queue(call), paused=True, reason=call.body.reason)


def resume_queue(call: Invocation[Nothing, Reason]) -> LimitInfo:
    """Resume a paused queue."""
    return call.engine.limits.clear(_queue(call), reason=call.body.reason)


def _queue(call: Invocation[Nothing, Reason]) -> str:
    return f"queue:{call.path['name']}"


OPERATIONS: Final[Table] = (
    Operation(
        name="namespace.list",
        method="GET",
        path=_NAMESPACES,
        scope=Scope.READ,
        reach=Reach.ANY,
        query=PageQuery,
        reply=NamespacePage,
        handler=list_namespaces,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="namespace.create",
        method="POST",
        path=_NAMESPACES,
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        body=NamespaceRequest,
        reply=NamespaceInfo,
        handler=create_namespace,
        hint=Hint.CHANGES,
        errors=(InvalidNamespaceError, InvalidArgumentError, InvalidCommandError),
    ),
    Operation(
        name="namespace.get",
        method="GET",
        path=NAMESPACE,
        scope=Scope.READ,
        reply=NamespaceDetails,
        handler=get_namespace,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="namespace.delete",
        method="DELETE",
        path=NAMESPACE,
        scope=Scope.ADMIN,
        reach=Reach.ALL,
        query=NamespaceDeletion,
        reply=NamespaceDeleted,
        handler=delete_namespace,
        hint=Hint.DESTROYS,
        errors=(NamespaceInUseError, InvalidFilterError),
    ),
    Operation(
        name="worker.list",
        method="GET",
        path=f"{NAMESPACE}/workers",
        scope=Scope.READ,
        query=PageQuery,
        reply=WorkerPage,
        handler=list_workers,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="queue.list",
        method="GET",
        path=_QUEUES,
        scope=Scope.READ,
        reply=QueueList,
        handler=list_queues,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="queue.pause",
        method="POST",
        path=f"{_QUEUES}/{{name}}/pause",
        scope=Scope.OPERATE,
        body=Reason,
        reply=LimitInfo,
        handler=pause_queue,
        hint=Hint.CHANGES,
        errors=(InvalidArgumentError, InvalidCommandError),
    ),
    Operation(
        name="queue.resume",
        method="POST",
        path=f"{_QUEUES}/{{name}}/resume",
        scope=Scope.OPERATE,
        body=Reason,
        reply=LimitInfo,
        handler=resume_queue,
        hint=Hint.CHANGES,
        errors=(InvalidArgumentError, InvalidCommandError),
    ),
)
