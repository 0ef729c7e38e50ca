"""Starts and calls as the server takes them: from the calls of code that is at hand, or from names and JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, cast
from uuid import uuid4

import attrs

from holdfast.hosts.client.start_commands import check_call
from holdfast.hosts.http.operations import GenerationQuery, Reason
from holdfast.hosts.http.run_actions import RerunPoint
from holdfast.hosts.http.run_starts import (
    STARTS_MAX,
    ConcurrencyBound,
    NewCall,
    NewMessage,
    NewRun,
    NewRuns,
    NewRunWithUpdate,
)
from holdfast.hosts.inspection.json_form import json_form
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.nodes import AnyNode, PlanNode
from holdfast.kernel.authoring.options import StartAllOptions, StartOptions, check_options
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.values import decode, encode
from holdfast.kernel.values.annotation_values import encode_annotation
from holdfast.ports.durations import Duration, length_of
from holdfast.ports.errors import InvalidArgumentError, InvalidValueError
from holdfast.ports.json import compact, parse
from holdfast.ports.validation import TEXT, an, check, integer, refused

T = TypeVar("T")


class RemoteStartAllOptions(TypedDict, total=False):
    """Options of starts of many runs over HTTP: those of `StartAllOptions` that a server takes."""

    idempotency_key: str
    """Another start with this key returns the first run and starts nothing. Default: a key for this call alone."""
    queue: str
    """The queue of the run's jobs."""
    priority: int
    """A head start in the queue, in minutes."""
    attributes: Mapping[str, str]
    """Short texts by which runs are found."""
    headers: Mapping[str, str]
    """Texts that the steps and child runs of the run have too, such as a `traceparent`."""
    annotations: Mapping[str, object]
    """First annotations of the run: plain JSON by name."""
    start_at: datetime
    """When to start, an aware datetime."""
    deadline: Duration
    """How long the run may take, a timedelta or a number of seconds."""
    weight: int
    """How many turns the key of the run gets for each one of the others."""
    concurrency: Concurrency
    """How many runs of its key may be under way and waiting. Not one within another."""
    signals: Sequence[Signal]
    """Messages for the durable function, stored with the start."""


class RemoteStartOptions(RemoteStartAllOptions, total=False):
    """Options of a start over HTTP: those of `StartOptions` that a server takes."""

    version: str
    """The version of a workflow that is given by its name. Default: the newest one of the server's code."""
    id: str
    """The id of the run. Default: a generated one."""
    if_exists: Literal["error", "return"]
    """What to do if a run has this id: raise RunExistsError, or return it. Short for both of the following."""
    if_active: Literal["error", "return", "terminate"]
    """What to do if a run has this id and has not ended."""
    if_ended: Literal["error", "return", "rerun", "rerun_failed"]
    """What to do if a run has this id and has ended."""


_ENGINE_ONLY: Final = frozenset(StartOptions.__optional_keys__ - RemoteStartOptions.__optional_keys__)
_OF_ONE: Final = ("id", "if_exists", "if_active", "if_ended")
_SAME: Final = ("queue", "priority", "start_at", "weight")
BODY_BYTES: Final = 900_000
"""How many bytes the calls of one request have at most, if it has several. A server takes 1 MiB by default."""


def new_run(call: Call[Any] | str, input: object, options: RemoteStartOptions) -> NewRun:
    """Return the body of a start.

    Raises InvalidArgumentError, InvalidValueError or UnstorableValueError before anything is sent.
    """
    return NewRun(**_fields_of(call, input, options, "start"))


def new_run_with_update(
    call: Call[Any] | tuple[str, object], arguments: Mapping[str, object], options: RemoteStartOptions
) -> NewRunWithUpdate:
    """Return the body of a start with an update. Raises what `new_run` raises."""
    fields = _fields_of(*_named(call), options, "update_with_start")
    if "id" not in options:
        raise InvalidArgumentError(
            "id", "update_with_start: an id is needed, by which later calls find the run: id=..."
        )
    return NewRunWithUpdate(arguments=arguments, **fields)


def new_runs(
    calls: Iterable[Call[Any] | tuple[str, object]], options: RemoteStartAllOptions
) -> Iterator[NewRuns]:
    """Yield the bodies of starts of many runs, in order. All calls are checked before the first. Raises like `new_run`.

    A body has at most 500 calls, and at most `BODY_BYTES` of them if it has several.
    """
    settings = _settings(_checked(options, StartAllOptions, "start_all"))
    wanted = [_new_call(*_named(call), None) for call in calls]
    first, size, batch = 0, 0, list[NewCall]()
    for number, one in enumerate(wanted):
        own = len(compact(json_form(one)).encode(errors="surrogatepass"))
        if len(batch) == STARTS_MAX or (batch and size + own > BODY_BYTES):
            yield NewRuns(calls=tuple(batch), first=first, **settings)
            first, size, batch = number, 0, []
        batch.append(one)
        size += own
    if batch:
        yield NewRuns(calls=tuple(batch), first=first, **settings)


def _fields_of(
    call: Call[Any] | str, input: object, options: RemoteStartOptions, where: str
) -> dict[str, Any]:
    given = cast("dict[str, Any]", dict(options))
    version = given.pop("version", None)
    check(where, TEXT.or_none, version=version)
    _checked(given, StartOptions, where)
    one = _new_call(call, input, version)
    return {
        "workflow": one.workflow,
        "version": one.version,
        "input": one.input,
        **{option: given.get(option) for option in _OF_ONE},
        **_settings(given),
    }


def _checked(options: Mapping[str, Any], kind: type, where: str) -> dict[str, Any]:
    """Return options. Raises InvalidArgumentError."""
    given = dict(options)
    for option in sorted(given.keys() & _ENGINE_ONLY):
        raise InvalidArgumentError(
            option, f"{where}: a server does not take {option!r}: start it with an engine"
        )
    check_options(given, kind, where)
    return given


def _named(call: Call[Any] | tuple[str, object]) -> tuple[Call[Any] | str, object]:
    """Return a call, or a name and its input. InvalidArgumentError if it is neither."""
    if isinstance(call, Call):
        return call, None
    if (pair := _pair_of(call)) is not None:
        return pair
    check_call(call)
    raise AssertionError(call)  # pragma: no cover  # only a call passes


def _pair_of(given: object) -> tuple[str, object] | None:
    """Return a name and what belongs to it, if that is what was passed."""
    if not isinstance(given, tuple):
        return None
    pair = cast("tuple[object, ...]", given)
    return (pair[0], pair[1]) if len(pair) == 2 and isinstance(pair[0], str) else None


def _new_call(call: Call[Any] | str, input: object, version: str | None) -> NewCall:
    if isinstance(call, str):
        return NewCall(workflow=call, version=version, input=parse(encode(input, object)))
    check_call(call)
    if input is not None or version is not None:
        raise InvalidArgumentError(
            "input",
            "start: a call has its input and its version: start(report(1)), or start('report', 1)",
        )
    definition = call.definition
    return NewCall(
        workflow=definition.name,
        version=definition.version,
        input=parse(encode(call.value, cast("Any", definition.input_type))),
    )


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body that several runs can have in common."""
    attributes, headers = given.get("attributes"), given.get("headers")
    annotations = given.get("annotations")
    return {
        "deadline": None if "deadline" not in given else cast("timedelta", length_of(given["deadline"])),
        "attributes": None if attributes is None else dict(attributes),
        "headers": None if headers is None else dict(headers),
        "annotations": None if annotations is None else plain_annotations(annotations),
        "concurrency": _bound(given.get("concurrency")),
        "signals": tuple(
            NewMessage(channel=one.channel, message=parse(one.text)) for one in given.get("signals", ())
        ),
        **{option: given.get(option) for option in _SAME},
    }


def is_split(call: Call[Any] | str) -> bool:
    """Return whether the result of a gathered start is only its part of the run's."""
    definition = None if isinstance(call, str) else call.definition
    return isinstance(definition, Workflow) and definition.gather is not None and definition.gather.split


def plain(value: object) -> object:
    """Return a value that is plain JSON. Raises UnstorableValueError or InvalidValueError for any other."""
    return parse(encode(value, object))


def decoded(value: object, kind: Any) -> Any:
    """Return a value of an answer as its type. InvalidValueError if it does not have that."""
    return value if kind is object else decode(compact(value), kind)


def update_of(
    update: UpdateCall[Any] | tuple[str, Mapping[str, object] | None],
) -> tuple[str, dict[str, object]]:
    """Return the name of an update and its arguments as plain JSON. InvalidArgumentError if it is something else."""
    if isinstance(update, UpdateCall):
        return update.update, cast("dict[str, object]", parse(update.arguments))
    if (pair := _pair_of(update)) is not None:
        return pair[0], arguments_of(cast("Mapping[str, object] | None", pair[1]))
    raise refused(
        "update_with_start",
        "update",
        update,
        'an update with its arguments, or ("Cart.add", {"item": "tea"})',
    )


def arguments_of(given: Mapping[str, object] | None) -> dict[str, object]:
    """Return the arguments of a query or update that is given by its name, as plain JSON."""
    found = plain(dict(given or {}))
    if not isinstance(found, dict):
        raise InvalidValueError("arguments", ("$: expected an object",))
    return cast("dict[str, object]", found)


def plain_annotations(given: Mapping[str, object]) -> dict[str, object]:
    """Return annotations as plain JSON, in which an aware datetime is a text. Raises UnstorableValueError."""
    return arguments_of({name: parse(encode_annotation(value)) for name, value in given.items()})


def new_key() -> str:
    """Return an idempotency key for one call."""
    return uuid4().hex


def reason_of(where: str, reason: str) -> Reason:
    """Return the body of an action. InvalidArgumentError if the reason is not a text."""
    check(where, TEXT, reason=reason)
    return Reason(reason=reason)


def checked_generation(generation: int | None) -> int | None:
    """Return a generation. InvalidArgumentError if it is no number from 1."""
    check("generation", integer(1).or_none, generation=generation)
    return generation


def generation_query(generation: int | None) -> GenerationQuery:
    """Return the query of a read of one generation. InvalidArgumentError."""
    return GenerationQuery(generation=checked_generation(generation))


def rerun_point(
    where: str, point: AnyNode[object] | Step[..., object] | str | None, row: int | None, version: str | None
) -> RerunPoint:
    """Return where a rerun starts. InvalidArgumentError."""
    check(where, _POINT.or_none, point=point)
    check(where, integer(1).or_none, row=row)
    check(where, TEXT.or_none, version=version)
    stage = point.name if isinstance(point, PlanNode | Step) else point
    return RerunPoint(stage=stage, row=row, version=version)


_POINT: Final = an("a stage, a step, or the name of one", PlanNode, Step, str)


def _bound(concurrency: Concurrency | None) -> ConcurrencyBound | None:
    if concurrency is None:
        return None
    if concurrency.within is not None:
        raise InvalidArgumentError(
            "concurrency", "start: a server takes no limit within another: give it to the workflow"
        )
    names = [field.name for field in attrs.fields(ConcurrencyBound)]
    return ConcurrencyBound(**{name: getattr(concurrency, name) for name in names})
