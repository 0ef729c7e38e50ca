"""Which fields of answers hold what user code wrote, and answers without them.

A principal with the scope `read` and without `payloads` sees names, ids, states, times, counts, error codes and
attributes, and nothing that a body, an input or a message brought along.
"""

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, TypeVar, cast, get_args, get_origin

import attrs

from holdfast.hosts.events.sink_reads import SinkEvent
from holdfast.hosts.events.sinks import DeadLetterInfo, SinkInfo
from holdfast.hosts.http.outcomes import RunOutcome, StartedRun, UpdateState
from holdfast.hosts.inspection.messages import MessageInfo
from holdfast.hosts.inspection.run_details import PublishedValue, RunDetails
from holdfast.hosts.inspection.run_info import RunError, RunEvent
from holdfast.hosts.inspection.schedules import ScheduleInfo
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.why import WaitReason

T = TypeVar("T")

HIDDEN: Final[Mapping[type, tuple[str, ...]]] = {
    DeadLetterInfo: ("error",),
    MessageInfo: ("why",),
    PublishedValue: ("value",),
    RunDetails: ("headers", "blocked", "annotations", "progress", "published", "log"),
    RunError: ("text", "message"),
    RunEvent: ("data", "payload"),
    RunOutcome: ("result",),
    ScheduleInfo: ("input", "problem"),
    SinkEvent: ("data",),
    SinkInfo: ("error",),
    StageDetails: ("error", "traceback", "result"),
    StartedRun: ("result",),
    StepDetails: ("error", "traceback", "arguments", "result"),
    UpdateState: ("reply",),
    WaitReason: ("text",),
}
"""The fields of each class that hold what user code wrote."""


def hidden_fields(cls: type) -> frozenset[str]:
    """Return the fields of a class and its bases that hold what user code wrote."""
    return frozenset(name for base in cls.__mro__ for name in HIDDEN.get(base, ()))


def without_user_values(value: T) -> T:
    """Return an answer with these fields empty, at every depth."""
    found: Any = value
    cls: Any = type(value)
    if attrs.has(cls):
        hidden = hidden_fields(cls)
        emptied: T = attrs.evolve(
            found,
            **{
                field.alias: _empty(field.type)
                if field.name in hidden
                else without_user_values(getattr(found, field.name))
                for field in attrs.fields(attrs.resolve_types(cls))
            },
        )
        return emptied
    if isinstance(value, tuple):
        items: Any = tuple(without_user_values(one) for one in cast("tuple[object, ...]", value))
        return cast("T", items)
    return value


def _empty(kind: Any) -> object:
    if kind is object or NoneType in get_args(kind):
        return None
    origin = get_origin(kind) or kind
    if origin is tuple:
        return ()
    return "" if origin is str else {}
