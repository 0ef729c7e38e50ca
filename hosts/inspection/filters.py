"""What runs can be asked for by, in the words of users: checked before the store is asked."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, cast

import attrs

from holdfast.kernel.authoring.calls import Definition
from holdfast.kernel.authoring.options import check_options
from holdfast.ports.clock import micros
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.pagination import ListPlace, list_place
from holdfast.ports.persistence import RunFilter
from holdfast.ports.records import Micros, RunStatus

ATTRIBUTES_MAX: Final = 10
"""By how many attributes, and by how many annotations, runs can be asked for at once: each is one more table."""


class FilterOptions(TypedDict, total=False):
    """Which runs are asked for. All that is given must be true of a run.

    Attributes:
        workflow: The workflow, of any version, or its name.
        status: A status, or several: a run has one of them.
        attributes: Texts by name: a run was started with each of them, to the letter. At most 10.
        annotations: Texts by name: each was said of a run, at some time, to the letter. At most 10.
        since: Created at this instant or later. Aware.
        until: Created before this instant. Aware.
        ended_before: Ended before this instant. Aware.
    """

    workflow: Definition[Any] | str | None
    status: RunStatus | str | Iterable[RunStatus | str] | None
    attributes: Mapping[str, str] | None
    annotations: Mapping[str, str] | None
    since: datetime | None
    until: datetime | None
    ended_before: datetime | None


class CountOptions(FilterOptions, total=False):
    """Which runs are asked for.

    Attributes:
        all_generations: Also the older generations of runs that were run again; otherwise only the newest of each.
    """

    all_generations: bool


class ListOptions(CountOptions, total=False):
    """Which runs are asked for, and in what order.

    Attributes:
        oldest_first: Otherwise the newest come first.
        after: Begin after this place: the `cursor` of a `RunInfo`, or what `holdfast run list` gave.
        limit: How many at most, 1 or more; all if left out.
    """

    oldest_first: bool
    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class Wanted:
    """What a list of runs is made of."""

    which: RunFilter
    oldest_first: bool
    after: ListPlace | None
    limit: int | None


def wanted_runs(namespace: str, options: ListOptions, where: str) -> Wanted:
    """Return what is asked for. TypeError for an unknown option, InvalidFilterError for a value that can't be."""
    given = cast("dict[str, object]", options)
    check_names(given, ListOptions, where)
    filters = {name: value for name, value in given.items() if name in CountOptions.__optional_keys__}
    return Wanted(
        which=run_filter(namespace, cast("CountOptions", filters), where),
        oldest_first=truth_option(given, "oldest_first"),
        after=place_option(given),
        limit=checked_limit(given.get("limit")),
    )


def checked_limit(limit: object) -> int | None:
    """Return how many are wanted at most; None for all. InvalidFilterError."""
    return number_option({"limit": limit}, "limit", 1)


def run_filter(namespace: str, options: CountOptions | FilterOptions, where: str) -> RunFilter:
    """Return which runs are asked for. TypeError and InvalidFilterError as above."""
    given = cast("dict[str, object]", options)
    check_names(given, CountOptions, where)
    since, until = instant_option(given, "since"), instant_option(given, "until")
    if since is not None and until is not None and since >= until:
        raise InvalidFilterError("until", "is not after `since`, so no run can be between them")
    return RunFilter(
        namespace=namespace,
        workflow=_workflow(given.get("workflow")),
        statuses=_statuses(given.get("status")),
        created_from=since,
        created_before=until,
        ended_before=instant_option(given, "ended_before"),
        attributes=_texts("attributes", given.get("attributes")),
        annotations=_texts("annotations", given.get("annotations")),
        newest=not truth_option(given, "all_generations"),
    )


def check_names(given: Mapping[str, object], possible: type, where: str) -> None:
    """Raise TypeError for an option that there is not; what those that there are say is looked at here."""
    names = cast("frozenset[str]", getattr(possible, "__optional_keys__", frozenset[str]()))
    check_options({name: value for name, value in given.items() if name not in names}, possible, where)


def truth_option(given: Mapping[str, object], option: str) -> bool:
    """Return whether something is wanted; not, if it was not given. InvalidFilterError."""
    value = given.get(option, False)
    if not isinstance(value, bool):
        raise InvalidFilterError(option, f"is {value!r}; it must be True or False")
    return value


def _workflow(value: object) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    if not isinstance(value, Definition):
        raise InvalidFilterError("workflow", f"is {value!r}; it must be a workflow or the name of one")
    return cast("Definition[object]", value).name


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
        raise InvalidFilterError("status", "has no status in it; leave it out for runs of every status")
    return found


def _texts(option: str, value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    items = list(cast("Mapping[object, object]", value).items()) if isinstance(value, Mapping) else [(0, 0)]
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in items):
        raise InvalidFilterError(option, f"is {value!r}; it must be a dict of strings by strings")
    if len(items) > ATTRIBUTES_MAX:
        raise InvalidFilterError(option, f"has {len(items)} names; {ATTRIBUTES_MAX} are possible")
    return tuple(sorted(cast("list[tuple[str, str]]", items)))


def instant_option(given: Mapping[str, object], option: str) -> Micros | None:
    """Return an instant. InvalidFilterError if it is none, or not aware."""
    value = given.get(option)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidFilterError(
            option, f"is {value!r}; it must be an aware datetime, as datetime.now(UTC) is"
        )
    return micros(value)


def text_option(given: Mapping[str, object], option: str) -> str | None:
    """Return a text; None if it was not given. InvalidFilterError."""
    value = given.get(option)
    if value is not None and not isinstance(value, str):
        raise InvalidFilterError(option, f"is {value!r}; it must be a string")
    return value


def number_option(given: Mapping[str, object], option: str, least: int) -> int | None:
    """Return an integer; None if it was not given. InvalidFilterError."""
    value = given.get(option)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise InvalidFilterError(option, f"is {value!r}; it must be an integer of at least {least}")
    return value


def place_option(given: Mapping[str, object]) -> ListPlace | None:
    """Return the place that `after` names. InvalidFilterError."""
    value = given.get("after")
    if value is None:
        return None
    try:
        return list_place(cast("str", value))
    except (ValueError, AttributeError, TypeError):
        raise InvalidFilterError(
            "after", f"is {value!r}; it must be the cursor of what was listed before"
        ) from None
