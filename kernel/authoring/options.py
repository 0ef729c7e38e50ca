"""`Retry`, `Rate`, and the keyword options of stages, pipelines and starts, with their validation."""

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypedDict, cast

import attrs

from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.signals import Signal
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.clock import micros
from holdfast.ports.durations import (
    NO_TIME,
    SHORTEST,
    Duration,
    length_of,
    length_within,
    wanted_length,
)
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.json import canonical
from holdfast.ports.records.job import ATTEMPTS_MAX
from holdfast.ports.records.run import GivenOptions
from holdfast.ports.validation import Wanted, refused, shown

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


def _attempts(_: object, __: object, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= ATTEMPTS_MAX:
        raise DefinitionError(
            f"Retry: attempts is {value!r}; it must be an integer from 1 to {ATTEMPTS_MAX:,}, or None for no limit"
        )


def _as_timedelta(value: Duration) -> timedelta:
    """Return a duration as a timedelta, and anything else unchanged, for a validator to reject."""
    length = length_of(value)
    return cast("timedelta", value) if length is None else length


def to_timedelta(value: Duration | None) -> timedelta | None:
    """Return a validated duration as a timedelta; None if the option is not set."""
    return None if value is None else _as_timedelta(value)


def _waiting(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if length_within(value, NO_TIME) is None:
        raise DefinitionError(f"Retry: {field.name} is {value!r}; it must be {wanted_length(NO_TIME)}")


def _total_time(_: object, __: object, value: timedelta | None) -> None:
    if value is not None and length_within(value, SHORTEST) is None:
        raise DefinitionError(
            f"Retry: total_time is {value!r}; it must be {wanted_length(SHORTEST)}, or None for no limit"
        )


def _backoff(_: object, __: object, value: object) -> None:
    if not _is_number(value) or not 1 <= cast("float", value) < float("inf"):
        raise DefinitionError(f"Retry: backoff is {value!r}; it must be a number of at least 1")


def _jitter(_: object, __: object, value: object) -> None:
    if not _is_number(value) or not 0 <= cast("float", value) <= 1:
        raise DefinitionError(f"Retry: jitter is {value!r}; it must be a number from 0 to 1")


def _give_up_on(_: object, __: object, value: object) -> None:
    if not isinstance(value, tuple) or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in cast("tuple[object, ...]", value)
    ):
        raise DefinitionError(f"Retry: give_up_on is {value!r}; it must be a tuple of exception classes")


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

    attempts: int | None = attrs.field(default=3, validator=_attempts)
    wait: timedelta = attrs.field(default=timedelta(seconds=1), converter=_as_timedelta, validator=_waiting)
    backoff: float = attrs.field(default=2.0, validator=_backoff)
    wait_max: timedelta = attrs.field(
        default=timedelta(minutes=5), converter=_as_timedelta, validator=_waiting
    )
    jitter: float = attrs.field(default=0.2, validator=_jitter)
    total_time: timedelta | None = attrs.field(default=None, converter=to_timedelta, validator=_total_time)
    give_up_on: tuple[type[Exception], ...] = attrs.field(default=(), validator=_give_up_on)
    by_error: Mapping[type[Exception], "Retry"] = attrs.field(
        factory=dict[type[Exception], "Retry"], validator=_by_error, hash=False
    )


ONCE: Final = Retry(attempts=1)
"""The policy of what is not retried."""


def _rate_limit(_: object, __: object, value: int) -> None:
    if wanted := _check_limit(value):
        raise DefinitionError(f"Rate: limit is {value!r}; it must be {wanted}")


def _rate_per(_: object, __: object, value: timedelta) -> None:
    if length_within(value, RATE_PER_MIN, RATE_PER_MAX) is None:
        wanted = wanted_length(RATE_PER_MIN, RATE_PER_MAX)
        raise DefinitionError(f"Rate: per is {value!r}; it must be {wanted}")


def _rate_name(_: object, __: object, value: str | None) -> None:
    if value is not None and (wanted := _check_name(value)):
        raise DefinitionError(f"Rate: name is {value!r}; it must be {wanted}")


def _rate_by(_: object, __: object, value: str | None) -> None:
    if value is not None and (wanted := _check_text(value)):
        raise DefinitionError(f"Rate: by is {value!r}; it must be the name of an attribute, {wanted}")


@attrs.frozen
class Rate:
    """A rate limit: how many attempts start in a period, over all workers: `Rate(60, per=timedelta(minutes=1))`.

    Every attempt counts, from its start, by the store's clock. The limit holds for every period of this length,
    wherever it begins. Within it all attempts may start together; `Rate(1, per=...)` spaces them out.

    Attributes:
        limit: Maximum number of starts in the period, 1 to 1,000,000.
        per: Length of the period, a timedelta or a number of seconds, from a millisecond to a day.
        name: Stages of a namespace whose rates have the same name share the limit, in any workflow. Give them all the
            same `Rate`: if their numbers differ, each stage applies its own.
        by: Name of an attribute of runs: each of its values has a separate limit. Runs without the attribute share one.

    Raises:
        DefinitionError: A value is out of range.
    """

    limit: int = attrs.field(validator=_rate_limit)
    per: timedelta = attrs.field(converter=_as_timedelta, validator=_rate_per, kw_only=True)
    name: str | None = attrs.field(default=None, validator=_rate_name, kw_only=True)
    by: str | None = attrs.field(default=None, validator=_rate_by, kw_only=True)


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
    max_concurrency: int
    """How many bodies of a stage run at a time, in all runs of the workflow in a namespace, over all workers."""
    rate_limit: Rate
    """How many bodies of a stage start in a period, counted in the same way."""


class PipelineOptions(BodyDefaults, total=False):
    """Options of a pipeline: defaults for its stages, and for its runs."""

    deadline: Duration
    """How long its runs may take, unless the start sets another deadline."""


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


class RunOptions(TypedDict, total=False):
    """Options of a run, for starts and for child runs."""

    queue: str
    """Queue of the run's jobs. A stage's own queue takes precedence. Default: that of the workflow."""
    priority: int
    """Head start in the queue, one minute per step; negative: a delay. A stage's own priority takes precedence."""
    attributes: dict[str, str]
    """Short texts by which runs are found."""
    start_at: datetime
    """When to start, an aware datetime: the run is pending until then. At once, if it is in the past."""
    deadline: Duration
    """How long the run may take, from its start or a later `start_at`: a timedelta or a number of seconds.

    After that the run fails; a durable function cleans up first. Default: that of the workflow.
    """


CHILD_ONLY_OPTIONS: Final = ("close_policy", "deadline", "attributes")
"""Options that only a stage has that is a workflow."""


class StartAllOptions(RunOptions, total=False):
    """Options of starts of many runs."""

    idempotency_key: str
    """Another start with this key returns the first run and starts nothing. A refused start does not use the key up."""
    annotations: Mapping[str, object]
    """First annotations of the run: plain JSON by name."""
    concurrency_key: str
    """Runs with the same key share a concurrency limit; those above it are pending."""
    concurrency_limit: int
    """How many runs with the key are active at a time. Default: 1."""
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
    return GivenOptions(
        queue=options.get("queue"),
        priority=options.get("priority"),
        attributes=None if attributes is None else canonical(attributes),
        start_at=None if start_at is None else micros(start_at),
        deadline=None if deadline is None else deadline // SHORTEST,
    )


def check_options(given: Mapping[str, object], options_type: type, where: str) -> None:
    """Raise InvalidArgumentError for an option that the TypedDict `possible` does not have.

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
        check = _CHECKS.get(option)
        wanted = check(value) if check else None
        if wanted and options_type in (StartOptions, ChildStartOptions):
            raise refused(where, option, value, wanted)
        if wanted:
            raise DefinitionError(f"{where}: {option} is {shown(value)}; it must be {wanted}")


def check_name(name: object, what: str) -> None:
    """Raise DefinitionError if `name` is not valid for a workflow, a stage, a version, a queue or a channel."""
    if wanted := _check_name(name):
        raise DefinitionError(f"{what} is {name!r}; it must be {wanted}")


def _check_name(value: object) -> str | None:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return None
    return "1 to 128 letters, digits, and _ . - (and not begin with . or -)"


QUEUE_NAME: Final = Wanted(f"a queue's name: {_check_name(None)}", lambda value: _check_name(value) is None)


def _check_retry(value: object) -> str | None:
    return None if isinstance(value, Retry) else "a Retry(...)"


def _check_timeout(value: object) -> str | None:
    return None if length_within(value, SHORTEST) else wanted_length(SHORTEST)


def _check_heartbeat_timeout(value: object) -> str | None:
    return None if length_within(value, HEARTBEAT_TIMEOUT_MIN) else wanted_length(HEARTBEAT_TIMEOUT_MIN)


def _check_priority(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= PRIORITY_MAX:
        return None
    return f"an integer from -{PRIORITY_MAX} to {PRIORITY_MAX}"


def _check_text(value: object) -> str | None:
    return None if isinstance(value, str) and 1 <= len(value) <= 256 else "a string of 1 to 256 characters"


def _check_attributes(value: object) -> str | None:
    items = cast("dict[object, object]", value).items() if isinstance(value, dict) else [(None, None)]
    if all(isinstance(key, str) and isinstance(text, str) for key, text in items):
        return None
    return "a dict of strings to strings"


def _check_annotations(value: object) -> str | None:
    names = list(cast("Mapping[object, object]", value)) if isinstance(value, Mapping) else [None]
    return None if all(isinstance(name, str) for name in names) else "a dict of plain JSON by strings"


def _check_overrides(value: object) -> str | None:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return None
    return "a list of stages, such as [my_stage.options(...)]"


def _check_if_exists(value: object) -> str | None:
    return None if value in ("error", "return") else "'error' or 'return'"


def _check_if_active(value: object) -> str | None:
    return None if value in ("error", "return", "terminate") else "'error', 'return' or 'terminate'"


def _check_if_ended(value: object) -> str | None:
    possible = ("error", "return", "rerun", "rerun_failed")
    return None if value in possible else "'error', 'return', 'rerun' or 'rerun_failed'"


def _check_start_at(value: object) -> str | None:
    if isinstance(value, datetime) and value.tzinfo is not None and _EPOCH <= value < _DISTANT:
        return None
    return "a datetime with a time zone, such as datetime.now(UTC), from 1970 to 9998"


def _check_deadline(value: object) -> str | None:
    if length_within(value, SHORTEST, DEADLINE_MAX):
        return None
    return f"{wanted_length(SHORTEST)}, of 100 years at most"


def _check_limit(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= CONCURRENCY_MAX:
        return None
    return f"an integer from 1 to {CONCURRENCY_MAX}"


def _check_rate(value: object) -> str | None:
    return None if isinstance(value, Rate) else "a Rate(...)"


def _check_close_policy(value: object) -> str | None:
    return None if value in ("cancel", "terminate", "abandon") else "'cancel', 'terminate' or 'abandon'"


def _check_signals(value: object) -> str | None:
    is_list = isinstance(value, list | tuple)
    if is_list and all(isinstance(one, Signal) for one in cast("Sequence[object]", value)):
        return None
    return "a list of signals, as channel(message) returns them"


def check_limits(what: str, max_concurrency: object, rate: Rate | None) -> None:
    """Raise DefinitionError if a body has a concurrency limit, and a rate limit with `name` or `by`.

    A job waits for one limit at a time, so with a concurrency limit the rate limit must belong to the same stage or
    step.
    """
    if max_concurrency is not None and rate is not None and (rate.name or rate.by):
        raise DefinitionError(
            f"{what} has max_concurrency and a rate limit with name or by, which can't be combined; limit its queue"
            " in the workers instead, or give the runs a concurrency_key"
        )


def _check_actor(value: object) -> str | None:
    return None if ACTOR.test(value) else ACTOR.words


_CHECKS: Final = {
    "close_policy": _check_close_policy,
    "name": _check_name,
    "queue": _check_name,
    "retry": _check_retry,
    "timeout": _check_timeout,
    "timeout_total": _check_timeout,
    "heartbeat_timeout": _check_heartbeat_timeout,
    "priority": _check_priority,
    "id": _check_text,
    "idempotency_key": _check_text,
    "attributes": _check_attributes,
    "annotations": _check_annotations,
    "if_exists": _check_if_exists,
    "if_active": _check_if_active,
    "if_ended": _check_if_ended,
    "start_at": _check_start_at,
    "deadline": _check_deadline,
    "concurrency_key": _check_text,
    "concurrency_limit": _check_limit,
    "max_concurrency": _check_limit,
    "overrides": _check_overrides,
    "signals": _check_signals,
    "rate_limit": _check_rate,
    "actor": _check_actor,
}
