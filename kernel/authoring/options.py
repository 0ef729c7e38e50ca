"""`Retry`, `Rate`, and the keyword options of stages, pipelines and starts, with their validation."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, TypedDict, cast

import attrs

from holdfast.kernel.authoring.concurrency import CONCURRENCY, Concurrency
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.limits.fairness import WEIGHT_MAX
from holdfast.kernel.pipelines.headers import HEADERS, headers_text
from holdfast.kernel.pipelines.input_attributes import ATTRIBUTES_MAX, InputAttribute
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.clock import micros
from holdfast.ports.durations import NO_TIME, SHORTEST, Duration, length_of, length_within, wanted_length
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.json import canonical
from holdfast.ports.records.job import ATTEMPTS_MAX
from holdfast.ports.records.limits import OverRate, RunRatePlan
from holdfast.ports.records.run import GivenOptions
from holdfast.ports.validation import Wanted, an, integer, is_unicode, refused, shown

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DISTANT: Final = datetime(9999, 1, 1, tzinfo=UTC)
DEADLINE_MAX: Final = timedelta(days=36_600)
CONCURRENCY_MAX: Final = 1_000_000
RATE_PER_MIN: Final = timedelta(milliseconds=1)
RATE_PER_MAX: Final = timedelta(days=1)
"""Longest period of a rate limit. Stores forget starts after a week."""
PRIORITY_MAX: Final = 32_767
"""Highest priority: a head start of more than three weeks. The lowest one is minus this."""

HEARTBEAT_TIMEOUT_MIN: Final = timedelta(seconds=5)
"""Shortest heartbeat timeout.

Workers store heartbeats every two seconds, and a store may be slow: with a shorter timeout, attempts that are alive
would count as lost.
"""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _choice(*values: str) -> Wanted:
    *others, last = map(repr, values)
    return Wanted(f"{', '.join(others)} or {last}", lambda value: value in values)


def _length(least: timedelta, most: timedelta = timedelta.max) -> Wanted:
    return Wanted(wanted_length(least, most), lambda value: length_within(value, least, most) is not None)


def validator_of(where: str, kind: Wanted) -> Callable[[object, "attrs.Attribute[Any]", object], None]:
    """Return a validator for attrs. Raises DefinitionError."""

    def validate(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not kind.test(value):
            raise DefinitionError(f"{where}: {field.name} is {value!r}; it must be {kind.words}")

    return validate


def _or_no_limit(kind: Wanted) -> Wanted:
    return Wanted(f"{kind.words}, or None for no limit", kind.or_none.test)


def _is_error_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _as_timedelta(value: Duration) -> timedelta:
    """Return a duration as a timedelta, and anything else unchanged, for a validator to reject."""
    length = length_of(value)
    return cast("timedelta", value) if length is None else length


def to_timedelta(value: Duration | None) -> timedelta | None:
    """Return a validated duration as a timedelta; None if the option is not set."""
    return None if value is None else _as_timedelta(value)


_ATTEMPTS: Final = Wanted(f"an integer from 1 to {ATTEMPTS_MAX:,}", integer(1, ATTEMPTS_MAX).test)
_BACKOFF: Final = Wanted(
    "a number of at least 1", lambda value: _is_number(value) and 1 <= cast("float", value) < float("inf")
)
SHARE: Final = Wanted(
    "a number from 0 to 1", lambda value: _is_number(value) and 0 <= cast("float", value) <= 1
)
"""A share of a whole."""
_ERROR_CLASSES: Final = Wanted(
    "a tuple of exception classes",
    lambda value: isinstance(value, tuple) and all(map(_is_error_class, cast("tuple[object, ...]", value))),
)
_WAITING: Final = validator_of("Retry", _length(NO_TIME))
_TOTAL_TIME: Final = validator_of("Retry", _or_no_limit(_length(SHORTEST)))


def _by_error(retry: "Retry", __: object, value: object) -> None:
    if not isinstance(value, Mapping):
        raise DefinitionError(
            f"Retry: by_error is {value!r}; it must be a dict of Retry(...) by exception classes"
        )
    for error, policy in cast("Mapping[object, object]", value).items():
        if not (isinstance(error, type) and issubclass(error, Exception)):
            raise DefinitionError(f"Retry: by_error has {error!r}; it must be an exception class")
        if not isinstance(policy, Retry):
            raise DefinitionError(f"Retry: by_error[{error.__name__}] is {policy!r}; it must be a Retry(...)")
        if policy.by_error or policy.give_up_on:
            raise DefinitionError(
                f"Retry: by_error[{error.__name__}] has by_error or give_up_on itself; set these in the outer Retry"
            )
        if error in retry.give_up_on:
            raise DefinitionError(
                f"Retry: {error.__name__} is in give_up_on and in by_error; it can't be in both"
            )


@attrs.frozen(kw_only=True)
class Retry:
    """A retry policy: how often a body is tried, and how long to wait between attempts.

    `Retry(attempts=5, wait=2, give_up_on=(ValueError,))`. Durations are timedeltas or numbers of seconds.

    Attributes:
        attempts: Maximum number of attempts, including the first: 1 to 10,000. None for no limit: then only
            `total_time`, `give_up_on` and `GiveUp` end the retries, and without them a fault that never heals is
            retried for ever.
        wait: Delay after the first failure.
        backoff: Factor by which the delay grows after each further failure, at least 1.
        wait_max: Maximum delay. Only `RetryAfter` can set a longer one.
        total_time: Time for all attempts, from the start of the first one; no limit if omitted. An attempt whose wait
            would end later is not made. It does not stop an attempt in progress, which `timeout` and `timeout_total`
            do.
        jitter: By what share each delay varies at random, 0 to 1, so that simultaneous failures are not retried
            together. It never lengthens a delay beyond `wait_max`.
        give_up_on: Exceptions that are not retried, including their subclasses.
        by_error: Other policies for some exceptions and their subclasses. If several classes match, here or in
            `give_up_on`, the most specific one decides. Attempts count together, whatever their error. A timeout is a
            TimeoutError.

    Raises:
        DefinitionError: A value is out of range.
    """

    attempts: int | None = attrs.field(default=3, validator=validator_of("Retry", _or_no_limit(_ATTEMPTS)))
    wait: timedelta = attrs.field(default=timedelta(seconds=1), converter=_as_timedelta, validator=_WAITING)
    backoff: float = attrs.field(default=2.0, validator=validator_of("Retry", _BACKOFF))
    wait_max: timedelta = attrs.field(
        default=timedelta(minutes=5), converter=_as_timedelta, validator=_WAITING
    )
    jitter: float = attrs.field(default=0.2, validator=validator_of("Retry", SHARE))
    total_time: timedelta | None = attrs.field(default=None, converter=to_timedelta, validator=_TOTAL_TIME)
    give_up_on: tuple[type[Exception], ...] = attrs.field(
        default=(), validator=validator_of("Retry", _ERROR_CLASSES)
    )
    by_error: Mapping[type[Exception], "Retry"] = attrs.field(
        factory=dict[type[Exception], "Retry"], validator=_by_error, hash=False
    )


ONCE: Final = Retry(attempts=1)
"""The policy of what is not retried."""


NAME: Final = Wanted(
    "1 to 128 letters, digits, and _ . - (and not begin with . or -)",
    lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
)
"""The name of a workflow, a stage, a version, a queue or a channel."""
QUEUE_NAME: Final = Wanted(f"a queue's name: {NAME.words}", NAME.test)
_SHORT_TEXT: Final = Wanted(
    "a string of 1 to 256 characters", lambda value: isinstance(value, str) and 1 <= len(value) <= 256
)
_LIMIT: Final = integer(1, CONCURRENCY_MAX)
_ATTRIBUTE: Final = Wanted(f"the name of an attribute, {_SHORT_TEXT.words}", _SHORT_TEXT.or_none.test)


@attrs.frozen
class Fair:
    """How the runs of a workflow share its workers: `Fair(by="tenant")`.

    Runs with the same text in an attribute belong together. The keys take turns in the queue: one that starts
    thousands of runs waits for itself, and not the others for it. `start(..., weight=4)` gives a key four turns for
    each one of the others.

    Attributes:
        by: Name of an attribute of runs. Runs without it share turns as one key.

    Raises:
        DefinitionError: A value is out of range.
    """

    by: str = attrs.field(
        validator=validator_of(
            "Fair", Wanted(f"the name of an attribute, {_SHORT_TEXT.words}", _SHORT_TEXT.test)
        ),
        kw_only=True,
    )


@attrs.frozen
class Rate:
    """A rate limit: how many starts there are in a period, over all workers: `Rate(60, per=timedelta(minutes=1))`.

    As `rate_limit=` of a stage or step it counts attempts; as `rate=` of a workflow or of a start, runs. Each counts
    from its start, by the store's clock. The limit holds for every period of this length, wherever it begins. Within it
    all may start together; `Rate(1, per=...)` spaces them out.

    Attributes:
        limit: Maximum number of starts in the period, 1 to 1,000,000.
        per: Length of the period, a timedelta or a number of seconds, from a millisecond to a day.
        name: Those of a namespace whose rates have the same name share the limit, in any workflow: stages and steps
            among each other, and runs among each other. Give them all the same `Rate`: if their numbers differ, each
            applies its own. Default: one stage or step alone, or the runs of one workflow.
        by: Name of an attribute of runs: each of its values has a separate limit. Runs without the attribute share one.
        units: Only of runs: the name of an attribute whose text is the number of units that a run costs, such as
            "4000". `units=` of a start takes precedence; without both, a run costs 1. The limit then counts units.
        over: Only of runs: what a start does that does not fit. "wait": the run is pending until it does. "refuse": the
            start raises RateExceededError, which says when it would fit. A start that is not refused counts when it is
            made, even if its run waits for its start time or a slot.

    Raises:
        DefinitionError: A value is out of range.
    """

    limit: int = attrs.field(validator=validator_of("Rate", _LIMIT))
    per: timedelta = attrs.field(
        converter=_as_timedelta,
        validator=validator_of("Rate", _length(RATE_PER_MIN, RATE_PER_MAX)),
        kw_only=True,
    )
    name: str | None = attrs.field(
        default=None, validator=validator_of("Rate", Wanted(NAME.words, NAME.or_none.test)), kw_only=True
    )
    by: str | None = attrs.field(default=None, validator=validator_of("Rate", _ATTRIBUTE), kw_only=True)
    units: str | None = attrs.field(default=None, validator=validator_of("Rate", _ATTRIBUTE), kw_only=True)
    over: Literal["wait", "refuse"] = attrs.field(
        default="wait", validator=validator_of("Rate", _choice("wait", "refuse")), kw_only=True
    )

    @property
    def of_runs(self) -> RunRatePlan:
        """The rate as a workflow stores it for its runs."""
        return RunRatePlan(
            limit=self.limit,
            period=self.per // SHORTEST,
            name=self.name,
            by=self.by,
            units=self.units,
            over=OverRate(self.over),
        )


@attrs.frozen
class Slots:
    """A concurrency limit that several stages and steps share: `max_concurrency=Slots(10, name="gpu")`.

    Attributes:
        limit: How many bodies run at a time, 1 to 1,000,000.
        name: Stages and steps in queues of a namespace whose slots have the same name share them, in any workflow. Give
            them all the same `Slots`: if their numbers differ, each applies its own.
        by: Name of an attribute of runs: there are so many slots for each of its values. Runs without the attribute
            share theirs.

    Raises:
        DefinitionError: A value is out of range.
    """

    limit: int = attrs.field(validator=validator_of("Slots", _LIMIT))
    name: str | None = attrs.field(
        default=None, validator=validator_of("Slots", Wanted(NAME.words, NAME.or_none.test)), kw_only=True
    )
    by: str | None = attrs.field(default=None, validator=validator_of("Slots", _ATTRIBUTE), kw_only=True)


class BodyDefaults(TypedDict, total=False):
    """Options that a pipeline can set for all its stages. A stage's own options take precedence.

    Durations are timedeltas or numbers of seconds.
    """

    retry: Retry
    """Retry policy. Default: `Retry()`."""
    timeout: Duration
    """Time limit of one attempt."""
    timeout_total: Duration
    """Time limit of all attempts of a stage or map item together, from the start of the first one."""
    heartbeat_timeout: Duration
    """Longest time without a heartbeat of the body before the attempt counts as lost, at least five seconds."""
    queue: str
    """Queue of the stage's jobs."""
    priority: int
    """Head start in the queue: one minute per step."""
    max_concurrency: int | Slots
    """How many bodies of a stage run at a time, in all runs of the workflow in a namespace, over all workers.

    With `Slots(10, name="gpu")`, how many of all stages and steps with this name.
    """
    rate_limit: Rate
    """How many bodies of a stage start in a period, counted in the same way."""


class PipelineOptions(BodyDefaults, total=False):
    """Options of a pipeline: defaults for its stages, and for its runs."""

    deadline: Duration
    """How long its runs may take, unless the start sets another deadline."""
    fair: Fair
    """How its runs share workers, by an attribute. Default: they start in order of arrival."""
    concurrency: Concurrency
    """How many of its runs may be under way and waiting, unless the start sets another limit."""
    rate: Rate
    """How many of its runs start in a period, unless the start sets another rate."""
    attributes_from: Sequence[str] | Mapping[str, str]
    """Attributes that its runs get from their input: fields of the input, or places by the attribute's name, such as
    `{"tenant": "customer.tenant"}`. An attribute that the start gives comes first."""


class BodyOptions(BodyDefaults, total=False):
    """Options of one stage."""

    name: str
    """Name of the stage. Default: the name of its function or workflow."""
    close_policy: Literal["cancel", "terminate", "abandon"]
    """For a stage that is a workflow: what happens to the child run if its parent ends first. Default: "cancel"."""
    deadline: Duration
    """For a stage that is a workflow: how long the child run may take. Default: that of the workflow."""
    attributes: dict[str, str]
    """For a stage that is a workflow: texts by which the child run is found. Default: those of its parent."""
    headers: dict[str, str]
    """For a stage that is a workflow: headers of the child run, besides those of its parent."""
    weight: int
    """For a stage that is a workflow with `fair`: how many turns the key of the child run gets, 1 to 1,000."""
    remote: bool
    """Whether only remote workers run the stage, by its name: see `holdfast.remote`. Its function is never called, and
    gives the types of the input and the output."""


class RunOptions(TypedDict, total=False):
    """Options of a run, for starts and for child runs."""

    queue: str
    """Queue of the run's jobs. A stage's own queue takes precedence. Default: that of the workflow."""
    priority: int
    """Head start in the queue, one minute per step; negative: a delay. A stage's own priority takes precedence."""
    attributes: dict[str, str]
    """Short texts by which runs are found."""
    headers: dict[str, str]
    """Texts that the steps and child runs of the run have too, such as a `traceparent`. Nothing is found by them.

    At most 16, with names of 1 to 64 letters, digits, and `_ . -`; 4,096 characters in all, as JSON. A child run has
    those of its parent besides.
    """
    start_at: datetime
    """When to start, an aware datetime: the run is pending until then. At once, if it is in the past."""
    deadline: Duration
    """How long the run may take, from its start or a later `start_at`: a timedelta or a number of seconds.

    After that the run fails; a durable function cleans up first. Default: that of the workflow.
    """
    concurrency: Concurrency
    """How many runs of its key may be under way and waiting. Default: that of the workflow."""
    weight: int
    """Of a workflow with `fair`: how many turns the run's key gets for each one of a key of weight 1, 1 to 1,000.

    It holds for the key until another one is given. Default: the last one of the key, or 1.
    """
    rate: Rate
    """How many runs start in a period. Default: that of the workflow."""
    units: int
    """How many units of its rate the run costs. Default: see `Rate.units`."""


CHILD_ONLY_OPTIONS: Final = ("close_policy", "deadline", "attributes", "headers", "weight")
"""Options that only a stage has that is a workflow."""


class StartAllOptions(RunOptions, total=False):
    """Options of starts of many runs."""

    idempotency_key: str
    """Another start with this key returns the first run and starts nothing. A refused start does not use the key up."""
    annotations: Mapping[str, object]
    """First annotations of the run: plain JSON by name."""
    overrides: Sequence[AnyNode[object]]
    """Stages of the pipeline with other options or another config for this run: `[resize.options(queue="gpu")]`."""
    signals: Sequence[Signal]
    """Messages for the durable function, stored with the start: `[approval("yes")]`.

    If the start returns an existing run, that run receives them. With `if_ended="rerun"` this start is stored with
    them: if that run ends before it has received them, its next generation starts.
    """
    actor: Actor
    """Who starts the run. Default: the engine's actor, see `Engine.acting_as`."""


class StartOptions(StartAllOptions, total=False):
    """Options of the start of one run."""

    id: str
    """Id of the run. Default: a generated one."""
    if_exists: Literal["error", "return"]
    """What to do if a run has this id: raise RunExistsError, or return it. Short for both of the following."""
    if_active: Literal["error", "return", "terminate"]
    """What to do if a run has this id and has not ended. Default: "error".

    Raise RunExistsError, return that run, or terminate it and start the next generation.
    """
    if_ended: Literal["error", "return", "rerun", "rerun_failed"]
    """What to do if a run has this id and has ended. Default: "error".

    Raise RunExistsError, return that run, or start the next generation. "rerun_failed" raises RunExistsError if that
    run has completed.
    """


class ChildStartOptions(RunOptions, total=False):
    """Options of the start of a child run, in addition to what happens to it when its parent ends."""

    id: str
    """Id of the run. Default: one derived from the parent's id."""


def given_options(options: RunOptions) -> GivenOptions:
    """Return the options of a run as they are stored. They have been checked."""
    attributes, start_at = options.get("attributes"), options.get("start_at")
    deadline = to_timedelta(options.get("deadline"))
    concurrency, rate = options.get("concurrency"), options.get("rate")
    return GivenOptions(
        queue=options.get("queue"),
        priority=options.get("priority"),
        attributes=None if attributes is None else canonical(attributes),
        headers=headers_text(options.get("headers", {})),
        start_at=None if start_at is None else micros(start_at),
        deadline=None if deadline is None else deadline // SHORTEST,
        concurrency=None if concurrency is None else concurrency.plan,
        weight=options.get("weight"),
        rate=None if rate is None else rate.of_runs,
        units=options.get("units"),
    )


def check_options(given: Mapping[str, object], options_type: type, where: str) -> None:
    """Raise InvalidArgumentError for an option that the TypedDict `options_type` does not have.

    A value that is invalid raises InvalidArgumentError for a start, also of a child run, and DefinitionError for the
    definition of a workflow.
    """
    allowed = cast("frozenset[str]", getattr(options_type, "__optional_keys__", frozenset[str]()))
    for option, value in given.items():
        if option not in allowed:
            names = sorted(allowed)
            close = difflib.get_close_matches(option, names, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidArgumentError(
                option, f"{where} has no option {option!r}{hint}; it has {', '.join(names)}"
            )
        kind = _KINDS.get(option)
        if kind is None or kind.test(value):
            continue
        if options_type in (StartOptions, StartAllOptions, ChildStartOptions):
            raise refused(where, option, value, kind.words)
        raise DefinitionError(f"{where}: {option} is {shown(value)}; it must be {kind.words}")


def check_name(name: object, what: str) -> None:
    """Raise DefinitionError if `name` is not valid for a workflow, a stage, a version, a queue or a channel."""
    if not NAME.test(name):
        raise DefinitionError(f"{what} is {name!r}; it must be {NAME.words}")


def _are_texts(value: object) -> bool:
    items = cast("dict[object, object]", value).items() if isinstance(value, dict) else [(None, None)]
    return all(isinstance(text, str) and is_unicode(text) for pair in items for text in pair)


def _places(value: object) -> Sequence[tuple[object, object]]:
    if isinstance(value, Mapping):
        return tuple(cast("Mapping[object, object]", value).items())
    names = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (None,)
    return tuple((name, name) for name in names)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and all(value.split("."))


PLACES: Final = Wanted(
    'a list of names of fields, or a dict of places by key: ["country"], or {"country": "address.country"}',
    lambda value: all(_is_path(one) for pair in _places(value) for one in pair),
)


def input_attributes(value: Sequence[str] | Mapping[str, str]) -> tuple[InputAttribute, ...]:
    """Return the option `attributes_from` as data of the plan. It has been checked."""
    return tuple(InputAttribute(*pair) for pair in sorted(cast("Sequence[tuple[str, str]]", _places(value))))


def _is_list_of(classes: type, value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(one, classes) for one in cast("Sequence[object]", value)
    )


def check_limits(what: str, max_concurrency: object, rate: Rate | None) -> None:
    """Raise DefinitionError if a body has a concurrency limit and a rate limit, and one of them has `name` or `by`.

    A job waits for one limit at a time, so both must belong to the same stage or step.
    """
    if (
        isinstance(max_concurrency, Slots)
        and rate is not None
        and (max_concurrency.name or max_concurrency.by)
    ):
        raise DefinitionError(
            f"{what} has slots with name or by and a rate limit, which can't be combined; write"
            f" max_concurrency={max_concurrency.limit} for slots of its own, or move the rate limit to another stage or"
            " step"
        )
    if max_concurrency is not None and rate is not None and (rate.name or rate.by):
        raise DefinitionError(
            f"{what} has max_concurrency and a rate limit with name or by, which can't be combined; limit its queue"
            " in the workers instead, or give the runs a concurrency="
        )


ATTRIBUTES: Final = Wanted("a dict of strings to strings, without half of a surrogate pair", _are_texts)
"""What the attributes of a run must be."""
_KINDS: Final[Mapping[str, Wanted]] = {
    "close_policy": _choice("cancel", "terminate", "abandon"),
    "name": NAME,
    "queue": NAME,
    "retry": an("a Retry(...)", Retry),
    "timeout": _length(SHORTEST),
    "timeout_total": _length(SHORTEST),
    "heartbeat_timeout": _length(HEARTBEAT_TIMEOUT_MIN),
    "priority": integer(-PRIORITY_MAX, PRIORITY_MAX),
    "id": _SHORT_TEXT,
    "idempotency_key": _SHORT_TEXT,
    "attributes": ATTRIBUTES,
    "headers": HEADERS,
    "attributes_from": Wanted(
        f'a list of at most {ATTRIBUTES_MAX} fields of the input, or a dict of places by attribute: ["tenant"], or'
        ' {"tenant": "customer.tenant"}',
        lambda value: (
            len(_places(value)) <= ATTRIBUTES_MAX
            and all(_is_path(one) for pair in _places(value) for one in pair)
        ),
    ),
    "annotations": Wanted(
        "a dict of plain JSON by strings",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(name, str) for name in cast("Mapping[object, object]", value))
        ),
    ),
    "if_exists": _choice("error", "return"),
    "if_active": _choice("error", "return", "terminate"),
    "if_ended": _choice("error", "return", "rerun", "rerun_failed"),
    "start_at": Wanted(
        "a datetime with a time zone, such as datetime.now(UTC), from 1970 to 9998",
        lambda value: isinstance(value, datetime) and value.tzinfo is not None and _EPOCH <= value < _DISTANT,
    ),
    "deadline": Wanted(
        f"{wanted_length(SHORTEST)}, of 100 years at most", _length(SHORTEST, DEADLINE_MAX).test
    ),
    "max_concurrency": Wanted(
        f"{_LIMIT.words}, or a Slots(...)", lambda value: isinstance(value, Slots) or _LIMIT.test(value)
    ),
    "concurrency": CONCURRENCY,
    "overrides": Wanted(
        "a list of stages, such as [my_stage.options(...)]",
        lambda value: isinstance(value, Sequence) and not isinstance(value, str | bytes),
    ),
    "signals": Wanted("a list of signals, as channel(message) returns them", partial(_is_list_of, Signal)),
    "rate_limit": Wanted(
        "a Rate(...), without units and over, which are for rate=Rate(...) of a workflow",
        lambda value: isinstance(value, Rate) and value.units is None and value.over == "wait",
    ),
    "rate": an("a Rate(...)", Rate),
    "units": _LIMIT,
    "fair": an("a Fair(...)", Fair),
    "weight": integer(1, WEIGHT_MAX),
    "remote": Wanted("True or False", lambda value: isinstance(value, bool)),
    "actor": ACTOR,
}
