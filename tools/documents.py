"""Write the JSON documents of the command line, as their classes describe them: `python -m tools.documents`."""

import inspect
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import attrs

from holdfast.client import (
    Actor,
    AiCallInfo,
    AiTotals,
    AnnotationInfo,
    AppliedSchedule,
    ArtifactInfo,
    AuditInfo,
    ChildInfo,
    Diagnosis,
    DoctorFinding,
    HeldWork,
    JobDetails,
    KeyInfo,
    LogLine,
    MessageInfo,
    NamespaceDetails,
    NamespaceInfo,
    NewKey,
    NominalTime,
    ParentRun,
    ProgressInfo,
    PublishedValue,
    QueuedCode,
    QueueInfo,
    RerunPreview,
    RunDetails,
    RunError,
    RunEvent,
    RunInfo,
    ScheduleChanged,
    Scheduled,
    ScheduleInfo,
    ScheduleStarted,
    StageDetails,
    StepDetails,
    UpgradeCheck,
    ValuePreview,
    WaitReason,
    WorkerInfo,
)
from holdfast.hosts.events.sinks import DeadLetterInfo, SinkInfo
from holdfast.hosts.http.schemas import flowed, own_meanings
from holdfast.hosts.inspection.json_form import keys_of
from holdfast.hosts.inspection.run_info import RunCounts, RunResult
from holdfast.hosts.inspection.schedules import ScheduleReasons
from holdfast.hosts.inspection.topics import TopicGroupInfo, TopicInfo
from holdfast.hosts.inspection.triggers import TriggerChanged, TriggeredMessage, TriggerInfo
from holdfast.hosts.inspection.why import RunReasons
from holdfast.hosts.inspection.workflows import UpdateSchemas, WorkflowInfo

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reference/documents.md"
START: Final = "## Documents\n"
"""Where the generated part of the page begins. It ends with the page."""

Document: TypeAlias = type[Any]
"""An attrs class with a JSON form."""

DOCUMENTS: Final[Mapping[Document, str]] = {
    RunInfo: "`run list`: an array; `handle.info()`, `engine.runs()`",
    RunCounts: "`run list --count`",
    RunDetails: "`run show`; `handle.details()`",
    RunResult: "`run wait`, `run start --wait`",
    ChildInfo: "`run children`: an array; `handle.children()`",
    RunReasons: "`why`",
    WaitReason: "`handle.why()`",
    RunEvent: "`history show`: one line for each; `run show --history`; `handle.history()`",
    LogLine: "`run logs`: one line for each; `handle.logs()`",
    ProgressInfo: "`handle.progress()`",
    AnnotationInfo: "`handle.annotations()`",
    MessageInfo: "`run messages`: an array; `handle.messages()`",
    ArtifactInfo: "`run artifacts`: an array; `handle.artifacts()`",
    AiTotals: "`run ai`; `handle.ai_totals()`",
    AiCallInfo: "`run ai --calls`: one line for each; `handle.ai_calls()`",
    RerunPreview: "`run rerun --preview`; `handle.preview_rerun()`",
    ScheduleInfo: "`schedule list`: an array; `schedule show`, `create`, `update`, `pause` and `resume`; "
    "`handle.info()`, `engine.schedules()`",
    ScheduleReasons: "`schedule why`",
    ScheduleStarted: "`schedule trigger`; `handle.trigger()`",
    AppliedSchedule: "`schedule apply`: an array; `db upgrade`, in `schedules`; `engine.apply_schedules()`",
    SinkInfo: "`sink list`: an array; `sink add`; `engine.sinks()`",
    KeyInfo: "`key list`: an array; `key revoke`; `engine.keys.list()`, `revoke()`",
    NewKey: "`key create`, `rotate`; `engine.keys.create()`, `rotate()`",
    AuditInfo: "`audit`: an array; `engine.audit()`",
    DeadLetterInfo: "`dead-letter list`: an array; `engine.dead_letters()`",
    WorkerInfo: "`worker list`: an array; `engine.workers()`",
    TopicGroupInfo: "`topic list`, in `groups`; `engine.topics()`",
    TopicInfo: "`topic list`: an array; `engine.topics()`",
    TriggerInfo: "`trigger list`: an array; `trigger show`, `pause` and `resume`; `engine.triggers.get()`",
    QueueInfo: "`queue list`: an array; `engine.queues()`",
    WorkflowInfo: "`workflow list`: an array",
    NamespaceInfo: "`namespace list`: an array; `namespace create`; `engine.namespaces.list()` and `create()`",
    NamespaceDetails: "`namespace show`; `engine.namespaces.describe()`",
    Diagnosis: "`doctor`, with `healthy`: whether nothing is wrong any more; `engine.doctor()`",
    UpgradeCheck: "`check-upgrade`, in `found`; `replay`: an array, each with its `file`; `engine.check_upgrade()`",
    HeldWork: "",
    QueuedCode: "",
    StageDetails: "",
    StepDetails: "",
    JobDetails: "",
    PublishedValue: "",
    ValuePreview: "",
    RunError: "",
    Scheduled: "",
    NominalTime: "",
    ScheduleChanged: "",
    TriggeredMessage: "",
    TriggerChanged: "",
    UpdateSchemas: "",
    ParentRun: "",
    Actor: "",
    DoctorFinding: "",
}
"""Each class, with the commands and methods that return it."""

_JSON_TYPES: Final[Mapping[object, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "instant",
    timedelta: "seconds",
    Decimal: "decimal as text",
    object: "any JSON",
}


def page(text: str) -> str:
    """Return the page with its generated part written anew."""
    head, start, _ = text.partition(START)
    if not start:
        raise ValueError(f"the page has no heading {START.strip()!r}")
    return "\n".join([head + start, *_generated(), ""])


def _generated() -> Iterator[str]:
    yield "| document | returned by |"
    yield "|---|---|"
    for cls, source in DOCUMENTS.items():
        if source:
            yield f"| {_link(cls)} | {source} |"
    for cls in DOCUMENTS:
        base = cls.__bases__[0]
        more = f" All fields of {_link(base)}, and:" if base in DOCUMENTS else ""
        summary = re.split(r" Instants are aware|\n(?:Attributes|Raises):", inspect.getdoc(cls) or "")[0]
        yield from ("", f"### {cls.__name__}", "", f"{flowed(summary)}{more}", "")
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        yield from _rows(cls)


def _rows(cls: Any) -> Iterator[str]:
    meanings = meanings_of(cls)
    for field in attrs.fields(cls):
        if field.inherited:
            continue
        meaning = re.sub(r"[;.] [Aa]ware, in UTC", "", meanings[field.name]).replace("None", "null")
        yield f"| `{keys_of(cls)[field.name]}` | {_type(field.type)} | {meaning} |"


def meanings_of(cls: Document) -> dict[str, str]:
    """Return the descriptions of a class's own fields, by name. ValueError if one has none."""
    found = dict(own_meanings(cls))
    missing = [field.name for field in attrs.fields(cls) if not field.inherited and field.name not in found]
    if missing:
        raise ValueError(f"{cls.__name__} has fields without a description: {', '.join(missing)}")
    return found


def _type(form: Any) -> str:
    parts = get_args(form)
    match get_origin(form) or form:
        case form if form is Union or form is UnionType:
            return " or ".join(
                [_type(part) for part in parts if part is not NoneType] + ["null"] * (NoneType in parts)
            )
        case form if form is tuple:
            return f"array of {_type(parts[0])}"
        case form if form is Literal:
            return "string"
        case form if form in _JSON_TYPES:
            return _JSON_TYPES[form]
        case form if form in DOCUMENTS:
            return _link(form)
        case form if isinstance(form, type) and issubclass(form, Enum):
            return "string"
        case form if isinstance(form, type) and issubclass(form, Mapping):
            return "object" if parts[1] is object else f"object of {_type(parts[1])}"
        case form:
            # A class refers to itself by its name. KeyError for a class that is missing in the table.
            named = {cls.__name__: cls for cls in DOCUMENTS}
            return _link(named[form if isinstance(form, str) else form.__name__])


def _link(cls: Document) -> str:
    return f"[{cls.__name__}](#{cls.__name__.lower()})"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
