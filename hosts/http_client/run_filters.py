"""Filters of runs as the server takes them: for lists, counts and bulk actions."""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from holdfast.hosts.http.run_reads import RunConditions, RunsFilter, RunsQuery
from holdfast.hosts.inspection.filters import (
    CountOptions,
    FilterOptions,
    ListOptions,
    run_filter,
    run_list_query,
)
from holdfast.hosts.inspection.value_filters import ValueFilter, wire_text
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.ports.records.run import RunStatus

Options = TypeVar("Options", FilterOptions, CountOptions, ListOptions)

_TEXTS = ("attributes", "annotations")
_SEVERAL = ("status", "ids")
_SAME = (
    "since",
    "until",
    "ended_before",
    "id_prefix",
    "queue",
    "children_of",
    "error_code",
    "error_type",
    "waiting",
    "all_generations",
)


def filtered_list(namespace: str, options: ListOptions) -> tuple[RunsQuery, int | None]:
    """Return the query of a list, and its limit. Raises InvalidFilterError or InvalidArgumentError."""
    options = _repeatable(options)
    checked = run_list_query(namespace, options, "runs")
    query = RunsQuery(**_filters(options), oldest_first=checked.oldest_first, after=options.get("after"))
    return query, checked.limit


def count_query(namespace: str, options: CountOptions) -> RunsFilter:
    """Return the query of a count. Raises InvalidFilterError or InvalidArgumentError."""
    options = _repeatable(options)
    run_filter(namespace, options, "count")
    return RunsFilter(**_filters(options))


def bulk_filter(namespace: str, action: str, options: FilterOptions) -> RunConditions:
    """Return the filter of a bulk action. Raises InvalidFilterError or InvalidArgumentError."""
    options = _repeatable(options)
    run_filter(namespace, options, f"{action}_all")
    return RunConditions(**_filters(options))


def _repeatable(options: Options) -> Options:
    """Return filters that can be read twice. An iterator that was checked would be empty, and so mean all runs."""
    given = cast("dict[str, Any]", options)
    several: dict[str, object] = {
        name: tuple(cast("Iterable[object]", value))
        for name in _SEVERAL
        if isinstance(value := given.get(name), Iterable) and not isinstance(value, str)
    }
    return cast("Options", {**given, **several})


def _filters(options: FilterOptions | CountOptions | ListOptions) -> dict[str, Any]:
    """Return filters that were checked, as fields of the query."""
    given = cast("dict[str, Any]", options)
    found = {name: given[name] for name in _SAME if given.get(name) is not None}
    for name in _TEXTS:
        values = cast("dict[str, ValueFilter]", dict(given.get(name) or {}))
        texts = {key: value for key, value in values.items() if isinstance(value, str)}
        others = {key: wire_text(value) for key, value in values.items() if not isinstance(value, str)}
        found |= {field: part for field, part in ((name, texts), (f"{name}_where", others)) if part}
    workflow, status = given.get("workflow"), given.get("status")
    if workflow is not None:
        is_definition = isinstance(workflow, WorkflowDefinition)
        found["workflow"] = cast("WorkflowDefinition[object]", workflow).name if is_definition else workflow
    if given.get("ids") is not None:
        found["ids"] = tuple(given["ids"])
    if status is not None:
        found["status"] = tuple(map(RunStatus, [status] if isinstance(status, str) else status))
    return found
