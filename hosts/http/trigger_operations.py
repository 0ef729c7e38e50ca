"""Operations on triggers. A trigger is created by the code that declares it, or by the command `trigger.put`."""

from typing import Final

import attrs

from holdfast.hosts.http.operations import (
    NAMESPACE,
    Hint,
    Invocation,
    Nothing,
    Operation,
    PageQuery,
    Reason,
    Table,
    Wait,
    page_of,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_actions import Removed
from holdfast.hosts.inspection.triggers import TriggerInfo, read_trigger, trigger_entries, trigger_info
from holdfast.kernel.commands import TriggerPause, TriggerRemove, TriggerResume
from holdfast.ports.errors import IdempotencyConflictError, InvalidCommandError, TriggerNotFoundError

_TRIGGERS: Final = f"{NAMESPACE}/triggers"
_TRIGGER: Final = f"{_TRIGGERS}/{{name}}"


@attrs.frozen(kw_only=True)
class TriggerPage:
    """A page of the triggers, by name."""

    items: tuple[TriggerInfo, ...]
    """The triggers."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class TriggerResumption:
    """How a trigger is resumed."""

    skip: bool = False
    """Whether the messages that were published during the pause are passed over; otherwise each starts its run."""


def list_triggers(call: Invocation[PageQuery, Nothing]) -> TriggerPage:
    """List the triggers, by name: which messages start which runs, and how far each trigger got."""
    query = call.query
    found = (trigger_info(one) for one in trigger_entries(call.engine.core, query.after, query.limit + 1))
    items, last = page_of(found, query.limit)
    return TriggerPage(items=items, next=None if last is None else last.name)


def get_trigger(call: Invocation[Nothing, Nothing]) -> TriggerInfo:
    """Get a trigger, with the outcomes of its last messages."""
    return read_trigger(call.engine.core, call.path["name"])


def pause_trigger(call: Invocation[Nothing, Reason]) -> TriggerInfo:
    """Pause a trigger: it starts no run until it is resumed. The topic keeps the messages."""
    command = TriggerPause(
        namespace=call.namespace,
        idempotency_key=call.idempotency_key,
        trigger=call.path["name"],
        reason=call.body.reason,
    )
    call.engine.client.dispatch(command)
    return read_trigger(call.engine.core, call.path["name"])


def resume_trigger(call: Invocation[Nothing, TriggerResumption]) -> TriggerInfo:
    """Resume a trigger that is paused."""
    command = TriggerResume(
        namespace=call.namespace,
        idempotency_key=call.idempotency_key,
        trigger=call.path["name"],
        skip=call.body.skip,
    )
    call.engine.client.dispatch(command)
    call.engine.client.fire_triggers()
    return read_trigger(call.engine.core, call.path["name"])


def remove_trigger(call: Invocation[Nothing, Nothing]) -> Removed:
    """Remove a trigger. Its runs stay."""
    command = TriggerRemove(
        namespace=call.namespace, idempotency_key=call.idempotency_key, trigger=call.path["name"]
    )
    return Removed(removed=call.engine.client.dispatch(command).removed)


OPERATIONS: Final[Table] = (
    Operation(
        name="trigger.list",
        method="GET",
        path=_TRIGGERS,
        scope=Scope.READ,
        query=PageQuery,
        reply=TriggerPage,
        handler=list_triggers,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="trigger.get",
        method="GET",
        path=_TRIGGER,
        scope=Scope.READ,
        reply=TriggerInfo,
        handler=get_trigger,
        wait=Wait.CHANGE,
        errors=(TriggerNotFoundError,),
    ),
    Operation(
        name="trigger.pause",
        method="POST",
        path=f"{_TRIGGER}/pause",
        scope=Scope.OPERATE,
        body=Reason,
        reply=TriggerInfo,
        handler=pause_trigger,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(TriggerNotFoundError, InvalidCommandError, IdempotencyConflictError),
    ),
    Operation(
        name="trigger.resume",
        method="POST",
        path=f"{_TRIGGER}/resume",
        scope=Scope.OPERATE,
        body=TriggerResumption,
        reply=TriggerInfo,
        handler=resume_trigger,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(TriggerNotFoundError, InvalidCommandError, IdempotencyConflictError),
    ),
    Operation(
        name="trigger.remove",
        method="DELETE",
        path=_TRIGGER,
        scope=Scope.OPERATE,
        reply=Removed,
        handler=remove_trigger,
        hint=Hint.DESTROYS,
        idempotent=True,
        errors=(InvalidCommandError, IdempotencyConflictError),
    ),
)
