"""Operations on limits and queues."""

from datetime import timedelta
from typing import Final

import attrs

from holdfast.hosts.http.operations import (
    NAMESPACE,
    Hint,
    Invocation,
    Nothing,
    Operation,
    Reason,
    Table,
    Wait,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.kernel.authoring.options import Rate
from holdfast.ports.errors import DefinitionError, InvalidArgumentError, InvalidCommandError

_LIMITS: Final = f"{NAMESPACE}/limits"
_LIMIT: Final = f"{_LIMITS}/{{name}}"


@attrs.frozen(kw_only=True)
class LimitList:
    """Limits and queues."""

    items: tuple[LimitInfo, ...]
    """The limits and queues that are set, and the limits for which something waits, by name."""


@attrs.frozen(kw_only=True)
class RateBound:
    """How many may start in a period."""

    limit: int
    """The number."""
    period: timedelta
    """The period."""


@attrs.frozen(kw_only=True)
class LimitChange(Reason):
    """A limit that is set in place of that of the code. What is left out stays as it was set before."""

    slots: int | None = None
    """How many may be under way; 0 admits nothing more. Of runs, stages and steps."""
    rate: RateBound | None = None
    """How many may start in a period. Of stages, steps, rates and run rates; run rates count units."""
    paused: bool | None = None
    """Whether nothing is claimed from the queue. Of queues only."""


@attrs.frozen(kw_only=True)
class LimitClearing:
    """The query parameters of a removal."""

    reason: str = ""
    """Why, for people."""


def list_limits(call: Invocation[Nothing, Nothing]) -> LimitList:
    """List the limits and queues that are set, and the limits for which something waits."""
    return LimitList(items=call.engine.limits.list())


def get_limit(call: Invocation[Nothing, Nothing]) -> LimitInfo:
    """Get a limit or queue, whether or not it was ever set.

    Its name is `run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
    `rate:<name>` or `queue:<queue>`; a slash in it is written `%2F`.
    """
    return call.engine.limits.get(call.path["name"])


def set_limit(call: Invocation[Nothing, LimitChange]) -> LimitInfo:
    """Set a limit in place of that of the code, or pause or unpause a queue."""
    body = call.body
    rate = None if body.rate is None else Rate(body.rate.limit, per=body.rate.period)
    return call.engine.limits.set(
        call.path["name"], slots=body.slots, rate=rate, paused=body.paused, reason=body.reason
    )


def clear_limit(call: Invocation[LimitClearing, Nothing]) -> LimitInfo:
    """Clear what was set, so that the code decides again and a queue is unpaused."""
    return call.engine.limits.clear(call.path["name"], reason=call.query.reason)


OPERATIONS: Final[Table] = (
    Operation(
        name="limit.list",
        method="GET",
        path=_LIMITS,
        scope=Scope.READ,
        reply=LimitList,
        handler=list_limits,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="limit.get",
        method="GET",
        path=_LIMIT,
        scope=Scope.READ,
        reply=LimitInfo,
        handler=get_limit,
        wait=Wait.CHANGE,
        errors=(InvalidCommandError,),
    ),
    Operation(
        name="limit.set",
        method="PUT",
        path=_LIMIT,
        scope=Scope.OPERATE,
        body=LimitChange,
        reply=LimitInfo,
        handler=set_limit,
        hint=Hint.CHANGES,
        errors=(InvalidCommandError, InvalidArgumentError, DefinitionError),
    ),
    Operation(
        name="limit.clear",
        method="DELETE",
        path=_LIMIT,
        scope=Scope.OPERATE,
        query=LimitClearing,
        reply=LimitInfo,
        handler=clear_limit,
        hint=Hint.CHANGES,
        errors=(InvalidCommandError,),
    ),
)
