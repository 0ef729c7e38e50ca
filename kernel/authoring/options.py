"""What can be said about a body and about a run: one definition of each keyword."""

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypedDict, cast

import attrs

from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.signals import Signal
from holdfast.ports.durations import (
    NO_TIME,
    SHORTEST,
    Duration,
    length_of,
    length_within,
    wanted_length,
)
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.ports.records import ATTEMPTS_MAX
from holdfast.ports.validation import Wanted, refused, shown

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DISTANT: Final = datetime(9999, 1, 1, tzinfo=UTC)
DEADLINE_MAX: Final = timedelta(days=36_600)
CONCURRENCY_MAX: Final = 1_000_000
RATE_PER_MIN: Final = timedelta(milliseconds=1)
RATE_PER_MAX: Final = timedelta(days=1)
"""Stores forget starts that are a week old."""
PRIORITY_MAX: Final = 32_767
"""Priorities go from minus this to this, which is a head start of more than three weeks."""

HEARTBEAT_TIMEOUT_MIN: Final = timedelta(seconds=5)
"""Workers pass heartbeats on every two seconds, and a store may be slow: a shorter one would lose what lives."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _attempts(_: object, __: object, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= ATTEMPTS_MAX:
        raise DefinitionError(
            f"Retry: attempts is {value!r}; it must be an integer from 1 to {ATTEMPTS_MAX:,}"
        )


def _as_timedelta(value: Duration) -> timedelta:
    """Return a length of time as a timedelta; what is none as it is, for a validator to tell of."""
    length = length_of(value)
    return cast("timedelta", value) if length is None else length


def kept_length(value: Duration | None) -> timedelta | None:
    """Return an option that is a length of time, and was checked, as a timedelta; None if nothing was said."""
    return None if value is None else _as_timedelta(value)


def _waiting(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if length_within(value, NO_TIME) is None:
        raise DefinitionError(f"Retry: {field.name} is {value!r}; it must be {wanted_length(NO_TIME)}")


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
                f"Retry: by_error[{error.__name__}] has by_error or give_up_on itself; say these in the outer Retry"
            )
        if error in retry.give_up_on:
            raise DefinitionError(
                f"Retry: {error.__name__} is in give_up_on and in by_error; it can't be in both"
            )


@attrs.frozen(kw_only=True)
class Retry:
    """How often, and how patiently, a body is tried again. Lengths of time are timedeltas, or numbers of seconds.

    Attributes:
        attempts: How many times the body is tried in all, 1 to 10,000.
        wait: How long to wait after the first failure.
        backoff: By what the wait is multiplied after each further failure, at least 1.
        wait_max: What no wait exceeds.
        jitter: Which share of a wait is left to chance, 0 to 1, so that many failures do not come back together.
        give_up_on: Exceptions after which no attempt is made, however many are left. Their subclasses count.
        by_error: What holds instead for some exceptions and their subclasses. Of several classes that an exception is
            of, the one nearest to its own decides, whether it is here or in `give_up_on`. Attempts are counted
            together, whatever they failed by. A timeout counts as a TimeoutError.

    Raises:
        DefinitionError: A value is out of its bounds.
    """

    attempts: int = attrs.field(default=3, validator=_attempts)
    wait: timedelta = attrs.field(default=timedelta(seconds=1), converter=_as_timedelta, validator=_waiting)
    backoff: float = attrs.field(default=2.0, validator=_backoff)
    wait_max: timedelta = attrs.field(
        default=timedelta(minutes=5), converter=_as_timedelta, validator=_waiting
    )
    jitter: float = attrs.field(default=0.2, validator=_jitter)
    give_up_on: tuple[type[Exception], ...] = attrs.field(default=(), validator=_give_up_on)
    by_error: Mapping[type[Exception], "Retry"] = attrs.field(
        factory=dict[type[Exception], "Retry"], validator=_by_error, hash=False
    )


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
    """At most so many bodies start in any span of time, whoever starts them: `Rate(60, per=timedelta(minutes=1))`.

    Every attempt counts, from its start, by the store's clock. There is no span of that length with more, wherever it
    begins; within it they may all start at once. To have them one after the other, say so: `Rate(1, per=...)`.

    Attributes:
        limit: How many, 1 to 1,000,000.
        per: In how long, a timedelta or a number of seconds, from a millisecond to a day.
        name: Starts of all stages of a namespace count together that have a rate limit of this name, whatever workflow
            they are of. They should all have the same one; if not, each goes by its own.
        by: The name of an attribute of runs: each text that runs have in it has the limit for itself. Those without
            the attribute share one.

    Raises:
        DefinitionError: A value is out of its bounds.
    """

    limit: int = attrs.field(validator=_rate_limit)
    per: timedelta = attrs.field(converter=_as_timedelta, validator=_rate_per, kw_only=True)
    name: str | None = attrs.field(default=None, validator=_rate_name, kw_only=True)
    by: str | None = attrs.field(default=None, validator=_rate_by, kw_only=True)


class BodyDefaults(TypedDict, total=False):
    """What a pipeline can say for all its stages. What a stage says itself comes first.

    Lengths of time are timedeltas, or numbers of seconds. `timeout` is for one attempt, `timeout_total` for all
    attempts of a stage, or of an item of a map, from when the first one begins. `heartbeat_timeout` is how long an
    attempt may go without a heartbeat of its body before it is taken for lost, at least five seconds. A greater
    `priority` is a head start: of a minute for each step.
    `max_concurrency` is how many bodies of one stage run at a time, in all runs of the workflow in a namespace and on
    all workers together. `rate_limit` is how many of them start in a time, counted in the same way.
    """

    retry: Retry
    timeout: Duration
    timeout_total: Duration
    heartbeat_timeout: Duration
    queue: str
    priority: int
    max_concurrency: int
    rate_limit: Rate


class BodyOptions(BodyDefaults, total=False):
    """What one stage can be told. Its name is that of its function, or pipeline, if nothing else is said.

    `close_policy` is for stages that are pipelines: what becomes of that run if the one that it is a stage of ends
    before it. It is cancelled if nothing else is said; `abandon` lets it go on.
    """

    name: str
    close_policy: Literal["cancel", "terminate", "abandon"]


class StartAllOptions(TypedDict, total=False):
    """What can be said about runs when they are started.

    Attributes:
        idempotency_key: Starting again with this key starts nothing, and gives the first run. What was refused is not
            kept: the same start may go well later.
        queue: Where its jobs go, unless a stage says otherwise.
        priority: A head start in the queue, of a minute for each step; negative: so much later. A stage may say
            otherwise.
        attributes: Texts by which runs are searched.
        annotations: What is said of the run from its beginning: plain JSON by name.
        start_at: When to begin, an aware datetime: the run is pending until then. Now, if that has passed.
        deadline: How long the run may take, from its start or from a later `start_at` on: a timedelta, or a number of
            seconds. Then it fails; a durable function cleans up first.
        concurrency_key: Of the runs with the same text only so many are under way at a time; the others are pending.
        concurrency_limit: How many; 1 if left out.
        overrides: Stages of the pipeline, changed with `configure` or `options`, as they are treated in this run.
        signals: Messages that a durable function has got before it begins, as `channel(message)` gives them. If there
            is a run of this id, and that is the one to be had, it gets them. If it would be run again once it has
            ended, this start is kept with them: should it end before it has received them, its next generation begins.
    """

    idempotency_key: str
    queue: str
    priority: int
    attributes: dict[str, str]
    annotations: Mapping[str, object]
    start_at: datetime
    deadline: Duration
    concurrency_key: str
    concurrency_limit: int
    overrides: Sequence[AnyNode[object]]
    signals: Sequence[Signal]


class StartOptions(StartAllOptions, total=False):
    """What can be said about one run when it is started: all that can be said about many, and its id.

    Attributes:
        id: The run's id; drawn if left out.
        if_exists: What to do if a run of this id exists: refuse, or give that one. Short for saying the same with both
            of the next two.
        if_active: What to do if a run of this id exists and has not ended: refuse, give that one, or end it
            (`"terminate"`) and start the next generation.
        if_ended: What to do if a run of this id exists and has ended: refuse, give that one, or start the next
            generation, always (`"rerun"`) or unless that one completed (`"rerun_failed"`), which is refused.
    """

    id: str
    if_exists: Literal["error", "return"]
    if_active: Literal["error", "return", "terminate"]
    if_ended: Literal["error", "return", "rerun", "rerun_failed"]


def check_options(given: Mapping[str, object], possible: type, where: str) -> None:
    """Raise InvalidArgumentError if an option is none of those that the TypedDict `possible` has.

    If the value of one is not what it must be, that is raised too, or DefinitionError where a workflow is defined.
    """
    known = cast("frozenset[str]", getattr(possible, "__optional_keys__", frozenset[str]()))
    for option, value in given.items():
        if option not in known:
            names = sorted(known)
            close = difflib.get_close_matches(option, names, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidArgumentError(
                option, f"{where} has no option {option!r}{hint}; it has {', '.join(names)}"
            )
        check = _CHECKS.get(option)
        wanted = check(value) if check else None
        if wanted and possible is StartOptions:
            raise refused(where, option, value, wanted)
        if wanted:
            raise DefinitionError(f"{where}: {option} is {shown(value)}; it must be {wanted}")


def check_name(name: object, what: str) -> None:
    """Raise DefinitionError if this can't be the name of a workflow, a stage, a version or a queue."""
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
    return "a dict of strings by strings"


def _check_annotations(value: object) -> str | None:
    names = list(cast("Mapping[object, object]", value)) if isinstance(value, Mapping) else [None]
    return None if all(isinstance(name, str) for name in names) else "a dict of plain JSON by strings"


def _check_overrides(value: object) -> str | None:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return None
    return "a list of stages, as [my_stage.options(...)]"


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
    return "a list of signals, as channel(message) gives them"


def check_limits(what: str, max_concurrency: object, rate: Rate | None) -> None:
    """What waits, waits in one line: that of its rate limit must be its own, if both are limited. DefinitionError."""
    if max_concurrency is not None and rate is not None and (rate.name or rate.by):
        raise DefinitionError(
            f"{what} has max_concurrency and a rate limit with name or by, which can't be had together; limit its queue"
            " in the workers instead, or give the runs a concurrency_key"
        )


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
}
