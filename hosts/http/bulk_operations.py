"""Operations that change all runs that match a filter: first a preview, then page after page.

The preview counts the runs, and returns a cursor. Each request then acts on the next runs, in one transaction, and
returns the cursor of the request after it. A cursor holds for one action with one filter, and for runs that existed at
the preview. So a filter that got lost between the two, or that a client changes half-way, acts on nothing.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from holdfast.hosts.client.bulk_actions import (
    AT_ONCE,
    CANCEL,
    PAUSE,
    REMOVE,
    RERUN,
    RESUME,
    TERMINATE,
    Action,
    Refusal,
    action_filter,
    apply_page,
    command_for,
)
from holdfast.hosts.http.json_input import MISSING
from holdfast.hosts.http.operations import NAMESPACE, Hint, Invocation, Nothing, Operation, Reason, Table
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_reads import COUNT_MAX, RunConditions
from holdfast.hosts.inspection.json_form import json_form
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.pagination import ListPlace, list_place
from holdfast.ports.queries.runs import CountRuns, ListRuns, RunFilter
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Micros

SHOWN: Final = 20
"""How many runs a preview names."""
_CURSOR: Final = re.compile(r"([0-9a-f]{16})\.([0-9]{1,18})(?:\.([0-9A-Za-z.]+))?", re.ASCII)

ActionName: TypeAlias = Literal["cancel", "terminate", "pause", "resume", "rerun", "remove"]
_ACTIONS: Final[Mapping[ActionName, Action]] = {
    "cancel": CANCEL,
    "terminate": TERMINATE,
    "pause": PAUSE,
    "resume": RESUME,
    "rerun": RERUN,
    "remove": REMOVE,
}


@attrs.frozen(kw_only=True)
class BulkRequest:
    """An action on all runs that match a filter."""

    action: ActionName
    """The action."""
    filter: RunConditions
    """Which runs. At least one condition is given. By default the runs whose status allows the action."""


@attrs.frozen(kw_only=True)
class BulkPreview:
    """What a bulk action would do."""

    total: int
    """How many runs it would act on; 10,000 if there are more."""
    by_status: Mapping[RunStatus, int]
    """How many of those that were counted have each status."""
    more: bool
    """Whether there are more than were counted."""
    run_ids: tuple[str, ...]
    """The ids of the first of them, at most 20."""
    cursor: str
    """What the first request of the action sends, with the same filter."""


@attrs.frozen(kw_only=True, slots=False)  # another class inherits from it
class BulkStep(Reason):
    """The next runs of a bulk action."""

    filter: RunConditions
    """The filter of the preview."""
    cursor: str = attrs.field(metadata={MISSING: "begin with a preview, whose answer has it"})
    """The `cursor` of the preview, or the `next` of the request before."""
    limit: int = attrs.field(
        default=AT_ONCE, validator=[attrs.validators.ge(1), attrs.validators.le(AT_ONCE)]
    )
    """How many runs this request changes at most. Reruns and removals are at most 100 in one request."""


@attrs.frozen(kw_only=True)
class BulkRerun(BulkStep):
    """The next runs of a bulk rerun."""

    stage: str | None = None
    """The stage to start from; without it, each run continues where it failed or stopped."""
    version: str | None = None
    """The version of the workflow to run; the same one if omitted."""


@attrs.frozen(kw_only=True)
class BulkChanged:
    """What a request of a bulk action did."""

    changed: int
    """How many runs were changed."""
    unchanged: int
    """How many had the status already, or were changed by others meanwhile."""
    refused: int
    """How many could not be changed."""
    refusals: tuple[Refusal, ...]
    """The first ten of those, with the reasons."""
    next: str | None
    """The `cursor` of the next request; null if this was the last one."""


@attrs.frozen
class _Cursor:
    """Where a bulk action continues."""

    digest: str
    """The action and its filter, so that no other may use it."""
    before: Micros
    """Runs that were created at this instant or later are left alone."""
    after: ListPlace | None = None
    """The last run that was gone through."""

    @property
    def text(self) -> str:
        after = "" if self.after is None else f".{self.after.text}"
        return f"{self.digest}.{self.before}{after}"


def _cursor_from(text: str) -> _Cursor | None:
    """Return the cursor that a text describes, if it describes one."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        return None
    digest, before, after = found.groups()
    try:
        return _Cursor(digest, int(before), None if after is None else list_place(after))
    except ValueError:
        return None


def digest_of(action: ActionName, which: RunConditions) -> str:
    """Return a text that stands for an action with a filter."""
    text = json.dumps([action, json_form(which)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def preview_bulk(call: Invocation[Nothing, BulkRequest]) -> BulkPreview:
    """Count the runs that a bulk action would act on, up to 10,000, and name the first ones. Nothing is changed."""
    body, persistence = call.body, call.engine.core.stores.persistence
    which = _filter(call, body.action, body.filter)
    found = persistence.read(CountRuns(which, COUNT_MAX + 1))
    first = persistence.read(ListRuns(which, oldest_first=True, limit=SHOWN))
    total = sum(found.values())
    return BulkPreview(
        total=min(total, COUNT_MAX),
        by_status={status: found[status] for status in RunStatus if found.get(status)},
        more=total > COUNT_MAX,
        run_ids=tuple(run.id for run in first),
        cursor=_Cursor(digest_of(body.action, body.filter), which.created_before or 0).text,
    )


def cancel_all(call: Invocation[Nothing, BulkStep]) -> BulkChanged:
    """Cancel the next runs that match a filter. They may clean up first."""
    return _step(call, "cancel")


def terminate_all(call: Invocation[Nothing, BulkStep]) -> BulkChanged:
    """End the next runs that match a filter at once as cancelled, without cleanup."""
    return _step(call, "terminate")


def pause_all(call: Invocation[Nothing, BulkStep]) -> BulkChanged:
    """Pause the next runs that match a filter."""
    return _step(call, "pause")


def resume_all(call: Invocation[Nothing, BulkStep]) -> BulkChanged:
    """Resume the next runs that match a filter: paused ones; blocked ones too if the filter has ids or that status."""
    return _step(call, "resume")


def rerun_all(call: Invocation[Nothing, BulkRerun]) -> BulkChanged:
    """Run the next runs that match a filter again: failed ones, if the filter has no status; with ids, ended ones."""
    return _step(call, "rerun", stage=call.body.stage, version=call.body.version)


def remove_all(call: Invocation[Nothing, BulkStep]) -> BulkChanged:
    """Delete the next ended runs that match a filter, with all their generations, annotations and blobs."""
    return _step(call, "remove")


def _filter(call: Invocation[Nothing, Any], name: ActionName, which: RunConditions) -> RunFilter:
    if not any(which.conditions.values()):
        raise InvalidFilterError(
            "filter", "has no condition; to act on all runs, give the statuses that you mean"
        )
    return action_filter(call.engine.core, _ACTIONS[name], which.conditions, f"{name} in bulk")


def _step(
    call: Invocation[Nothing, Any],
    name: ActionName,
    *,
    stage: str | None = None,
    version: str | None = None,
) -> BulkChanged:
    action = _ACTIONS[name]
    body: BulkStep = call.body
    which = _filter(call, name, body.filter)
    cursor = _cursor_from(body.cursor)
    if cursor is None or cursor.digest != digest_of(name, body.filter):
        raise InvalidFilterError(
            "cursor",
            "is not of this action with this filter; begin with a preview, and send its filter unchanged",
        )
    result, after = apply_page(
        call.engine.client,
        action,
        attrs.evolve(which, created_before=min(which.created_before or 0, cursor.before)),
        command_for(action, reason=body.reason, stage=stage, version=version),
        after=cursor.after,
        limit=body.limit,
    )
    return BulkChanged(
        changed=result.changed,
        unchanged=result.unchanged,
        refused=result.refused,
        refusals=result.refusals,
        next=None if after is None else attrs.evolve(cursor, after=after).text,
    )


def _action(
    name: ActionName,
    handler: Callable[[Invocation[Nothing, BulkStep]], BulkChanged],
    hint: Hint,
    scope: Scope = Scope.OPERATE,
) -> Operation[Nothing, BulkStep, BulkChanged]:
    return Operation(
        name=f"run.{name}_all",
        method="POST",
        path=f"{_BULK}/{name}",
        scope=scope,
        body=BulkStep,
        reply=BulkChanged,
        handler=handler,
        hint=hint,
        errors=(InvalidFilterError,),
    )


_BULK: Final = f"{NAMESPACE}/bulk"

OPERATIONS: Final[Table] = (
    Operation(
        name="run.preview_bulk",
        method="POST",
        path=f"{_BULK}/preview",
        scope=Scope.OPERATE,
        body=BulkRequest,
        reply=BulkPreview,
        handler=preview_bulk,
        errors=(InvalidFilterError,),
    ),
    _action("cancel", cancel_all, Hint.DESTROYS),
    _action("terminate", terminate_all, Hint.DESTROYS),
    _action("pause", pause_all, Hint.CHANGES),
    _action("resume", resume_all, Hint.CHANGES),
    Operation(
        name="run.rerun_all",
        method="POST",
        path=f"{_BULK}/rerun",
        scope=Scope.OPERATE,
        body=BulkRerun,
        reply=BulkChanged,
        handler=rerun_all,
        hint=Hint.CHANGES,
        errors=(InvalidFilterError,),
    ),
    _action("remove", remove_all, Hint.DESTROYS, Scope.ADMIN),
)
