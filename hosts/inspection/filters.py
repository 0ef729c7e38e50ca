"""Filters for listing and counting runs. All options are checked before the store is read."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, cast

import attrs

from holdfast.hosts.inspection.value_filters import MATCHES_MAX, ValueFilter, values_option
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.options import check_options
from holdfast.kernel.commands.names import NAME_MAX
from holdfast.kernel.dispatch.command_bounds import ID_MAX
from holdfast.ports.clock import micros
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.pagination import ListPlace, list_place
from holdfast.ports.queries.runs import RunFilter
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.search_values import ValueSource

IDS_MAX: Final = 100
"""The maximum number of ids in a filter."""
ATTRIBUTES_MAX: Final = MATCHES_MAX
"""The maximum number of attributes, and of annotations, in a filter."""


_CLASS_MAX: Final = 1_000
"""The maximum length of the name of a class in a filter."""


class FilterOptions(TypedDict, total=False):
    """Filters for runs. A run must match all of them.

    Attributes:
        workflow: The workflow, in any version, or its name.
        status: A status, or several: the run has one of them.
        attributes: Attributes that the run was started with, at most 10: a text that equals it, or what a `Range`, a
            `Prefix` or a `OneOf` of texts says.
        annotations: Annotations of the run, old ones included, at most 10: a string, number, boolean or aware datetime
            that equals one, or a `Range`, a `Prefix` or a `OneOf`. Of a list of texts, each is compared.
        since: Created at this instant or later. Aware.
        until: Created before this instant. Aware.
        ended_before: Ended before this instant. Aware.
        ids: The run id is one of these, 1 to 100.
        id_prefix: How the run id begins, in 1 to 256 characters; case counts.
        queue: The queue of the run, which its jobs are in unless a stage or step names another.
        children_of: The id of a run: the runs that any generation of it has started as child runs.
        error_code: The code of the error with which the run has ended, such as `body_error` or `deadline_exceeded`.
        error_type: The class of that error, as `RunError.type` names it: `ValueError`, `shop.errors.Declined`.
        waiting: Whether only runs count that wait: they are `running`, and none of their jobs is queued or runs.
            They wait for a time, a message, a child run, external work, a retry or a limit.
    """

    workflow: WorkflowDefinition[Any] | str | None
    status: RunStatus | str | Iterable[RunStatus | str] | None
    attributes: Mapping[str, ValueFilter] | None
    annotations: Mapping[str, ValueFilter] | None
    since: datetime | None
    until: datetime | None
    ended_before: datetime | None
    ids: Iterable[str] | None
    id_prefix: str | None
    queue: str | None
    children_of: str | None
    error_code: str | None
    error_type: str | None
    waiting: bool


class CountOptions(FilterOptions, total=False):
    """Filters for counting runs.

    Attributes:
        all_generations: Include older generations; otherwise only the newest generation of each run counts.
    """

    all_generations: bool


class ListOptions(CountOptions, total=False):
    """Filters, order and paging for listing runs.

    Attributes:
        oldest_first: List the oldest run first; otherwise the newest.
        after: Start after this position: the `cursor` of a `RunInfo`, or the one that `holdfast run list` printed.
        limit: The maximum number of runs, at least 1; no limit if omitted.
    """

    oldest_first: bool
    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class RunListQuery:
    """Checked options of a list of runs."""

    which: RunFilter
    oldest_first: bool
    after: ListPlace | None
    limit: int | None


def run_list_query(namespace: str, options: ListOptions, where: str) -> RunListQuery:
    """Return checked options of a list. Raises InvalidArgumentError for an unknown option, else InvalidFilterError."""
    given = cast("dict[str, object]", options)
    check_names(given, ListOptions, where)
    filters = {name: value for name, value in given.items() if name in CountOptions.__optional_keys__}
    return RunListQuery(
        which=run_filter(namespace, cast("CountOptions", filters), where),
        oldest_first=truth_option(given, "oldest_first"),
        after=place_option(given),
        limit=checked_limit(given.get("limit")),
    )


def checked_limit(limit: object) -> int | None:
    """Return a checked `limit`; None for no limit. Raises InvalidFilterError."""
    return number_option({"limit": limit}, "limit", 1)


def run_filter(namespace: str, options: CountOptions | FilterOptions, where: str) -> RunFilter:
    """Return the filter for runs. Raises InvalidArgumentError for an unknown option, else InvalidFilterError."""
    given = cast("dict[str, object]", options)
    check_names(given, CountOptions, where)
    since, until = instant_option(given, "since"), instant_option(given, "until")
    if since is not None and until is not None and since >= until:
        raise InvalidFilterError("until", "is not after `since`, so no run can be between them")
    statuses, waiting = _statuses(given.get("status")), truth_option(given, "waiting")
    if waiting and statuses and RunStatus.RUNNING not in statuses:
        raise InvalidFilterError(
            "waiting", "can only be combined with the status `running`; leave one of the two out"
        )
    attributes, of_attributes = values_option(given, "attributes", ValueSource.ATTRIBUTE)
    annotations, of_annotations = values_option(given, "annotations", ValueSource.ANNOTATION)
    return RunFilter(
        namespace=namespace,
        workflow=_workflow(given.get("workflow")),
        ids=_ids(given.get("ids")),
        id_prefix=_id_prefix(given.get("id_prefix")),
        queue=_short_text(given, "queue", NAME_MAX),
        children_of=_short_text(given, "children_of", ID_MAX),
        error_code=_short_text(given, "error_code", NAME_MAX),
        error_type=_short_text(given, "error_type", _CLASS_MAX),
        statuses=frozenset({RunStatus.RUNNING}) if waiting else statuses,
        waiting=waiting,
        created_from=since,
        created_before=until,
        ended_before=instant_option(given, "ended_before"),
        attributes=attributes,
        annotations=annotations,
        values=(*of_attributes, *of_annotations),
        newest=not truth_option(given, "all_generations"),
    )


def check_names(given: Mapping[str, object], possible: type, where: str) -> None:
    """Raise InvalidArgumentError for an option that `possible`, a TypedDict, does not have. Values are not checked."""
    names = cast("frozenset[str]", getattr(possible, "__optional_keys__", frozenset[str]()))
    check_options({name: value for name, value in given.items() if name not in names}, possible, where)


def truth_option(given: Mapping[str, object], option: str) -> bool:
    """Return a boolean option, False if omitted. Raises InvalidFilterError."""
    value = given.get(option, False)
    if not isinstance(value, bool):
        raise InvalidFilterError(option, f"is {value!r}; it must be True or False")
    return value


def _workflow(value: object) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    if not isinstance(value, WorkflowDefinition):
        raise InvalidFilterError("workflow", f"is {value!r}; it must be a workflow or the name of one")
    return cast("WorkflowDefinition[object]", value).name


def _ids(value: object) -> frozenset[str]:
    if value is None:
        return frozenset()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidFilterError("ids", f"is {value!r:.80}; it must be a list of run ids")
    found: set[str] = set()
    for one in cast("Iterable[object]", value):
        if not isinstance(one, str) or not 1 <= len(one) <= ID_MAX:
            raise InvalidFilterError(
                "ids", f"has {one!r:.80}; a run id is a string of 1 to {ID_MAX} characters"
            )
        found.add(one)
        if len(found) > IDS_MAX:
            raise InvalidFilterError("ids", f"has more than {IDS_MAX} ids; send the others with another call")
    # To act on none of the runs that were meant must not become to act on all.
    if not found:
        raise InvalidFilterError("ids", "has no id in it; omit it for runs with any id")
    return frozenset(found)


def _id_prefix(value: object) -> str | None:
    if value is None or (isinstance(value, str) and 1 <= len(value) <= ID_MAX):
        return value
    problem = f"has {len(value):,} characters" if isinstance(value, str) else f"is {value!r}"
    raise InvalidFilterError(
        "id_prefix", f"{problem}; give the first 1 to {ID_MAX} characters of the ids, or omit it for all ids"
    )


def _short_text(given: Mapping[str, object], option: str, most: int) -> str | None:
    value = given.get(option)
    if value is None or (isinstance(value, str) and 1 <= len(value) <= most):
        return value
    problem = f"has {len(value):,} characters" if isinstance(value, str) else f"is {value!r:.80}"
    raise InvalidFilterError(
        option, f"{problem}; it must be a string of 1 to {most} characters; omit it for all runs"
    )


def _statuses(value: object) -> frozenset[RunStatus]:
    if value is None:
        return frozenset()
    several = (
        list(cast("Iterable[object]", value))
        if isinstance(value, Iterable) and not isinstance(value, str)
        else [value]
    )
    try:
        found = frozenset(RunStatus(cast("str", status)) for status in several)
    except ValueError:
        known = ", ".join(status.value for status in RunStatus)
        raise InvalidFilterError("status", f"is {value!r}; a run is {known}") from None
    if not found:
        raise InvalidFilterError("status", "has no status in it; omit it for runs of every status")
    return found


def instant_option(given: Mapping[str, object], option: str) -> Micros | None:
    """Return an option that is an aware datetime as microseconds; None if omitted. Raises InvalidFilterError."""
    value = given.get(option)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidFilterError(
            option, f"is {value!r}; it must be an aware datetime, such as datetime.now(UTC)"
        )
    return micros(value)


def text_option(given: Mapping[str, object], option: str) -> str | None:
    """Return a string option; None if omitted. Raises InvalidFilterError."""
    value = given.get(option)
    if value is not None and not isinstance(value, str):
        raise InvalidFilterError(option, f"is {value!r}; it must be a string")
    return value


def number_option(given: Mapping[str, object], option: str, least: int) -> int | None:
    """Return an integer option of at least `least`; None if omitted. Raises InvalidFilterError."""
    value = given.get(option)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise InvalidFilterError(option, f"is {value!r}; it must be an integer of at least {least}")
    return value


def place_option(given: Mapping[str, object]) -> ListPlace | None:
    """Return the list position that the option `after` encodes; None if omitted. Raises InvalidFilterError."""
    value = given.get("after")
    if value is None:
        return None
    try:
        return list_place(cast("str", value))
    except (ValueError, AttributeError, TypeError):
        raise InvalidFilterError("after", f"is {value!r}; it must be a cursor from an earlier list") from None
