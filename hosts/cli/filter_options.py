"""Options that filter runs: by status, workflow, attributes, annotations and time."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import click

from holdfast.hosts.inspection.filters import FilterOptions
from holdfast.hosts.inspection.value_filters import ValueFilter, value_from_wire
from holdfast.ports.records.run import RunStatus

_AGO: Final = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
FILTERS: Final = (
    *(
        "statuses",
        "workflow",
        "attributes",
        "annotations",
        "attributes_where",
        "annotations_where",
        "since",
        "until",
        "ended_before",
        "ids",
        "id_prefix",
        "queue",
        "children_of",
        "error_code",
        "error_type",
        "waiting",
    ),
)
"""The names of the parameters that `filter_options` adds."""
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def named_texts(given: Iterable[str], option: str = "--attribute", form: str = "NAME=TEXT") -> dict[str, str]:
    """Parse the values of a repeated option of this form. Raises UsageError."""
    attributes: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name or name in attributes:
            why = f"{name!r} is repeated" if name in attributes else f"write {form}"
            raise click.UsageError(f"{option} {one}: {why}")
        attributes[name] = value
    return attributes


def moment(text: str) -> datetime | timedelta:
    """Parse an ISO 8601 instant, naive if it has no zone, or an age such as `90m` or `7d`. Raises BadParameter."""
    if ago := _AGO.fullmatch(text):
        try:
            return timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            raise click.BadParameter(f"{text!r} is too long ago") from None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time: write 2026-11-21T08:00Z, 2026-11-21, or an age such as 90m or 7d"
        ) from None


def start_moment(text: str) -> datetime | timedelta:
    """Parse an ISO 8601 instant, naive if it has no zone, or a delay such as `90m` or `7d`. Raises BadParameter."""
    try:
        return moment(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is not a time: write 2026-11-21T08:00Z, 2026-11-21, or a delay such as 90m or 7d"
        ) from None


def length(text: str) -> timedelta:
    """Parse a duration, such as `90m` or `7d`. Raises BadParameter."""
    found = moment(text) if _AGO.fullmatch(text) else None
    if not isinstance(found, timedelta):
        raise click.BadParameter(f"{text!r} is not a duration: write 30s, 90m, 6h or 7d")
    return found


def instant_of(moment: datetime | timedelta | None, now: datetime, *, utc: bool) -> datetime | None:
    """Return an aware instant. A naive one is UTC or local time; an age counts back from `now`. Raises UsageError."""
    try:
        if isinstance(moment, timedelta):
            return now - moment
        if moment is None or moment.tzinfo is not None:
            return moment
        return moment.replace(tzinfo=UTC) if utc else moment.astimezone()
    except (OverflowError, ValueError, OSError):
        raise click.UsageError(f"{moment} is out of range") from None


def filters_given(given: Mapping[str, object], now: datetime, *, utc: bool) -> FilterOptions:
    """Return the filters from the values of the options by their names; ages count back from `now`. Raises UsageError.

    Args:
        given: The values by the names in `FILTERS`; others are ignored.
        now: The present.
        utc: Whether a time without a zone is in UTC instead of local time.
    """
    moments = cast("Mapping[str, datetime | timedelta | None]", given)
    texts = cast("Mapping[str, tuple[str, ...]]", given)
    return {
        "workflow": cast("str | None", given["workflow"]),
        "status": texts["statuses"] or None,
        "attributes": _values("attribute", texts["attributes"], texts["attributes_where"]) or None,
        "annotations": _values("annotation", texts["annotations"], texts["annotations_where"]) or None,
        "since": instant_of(moments["since"], now, utc=utc),
        "until": instant_of(moments["until"], now, utc=utc),
        "ended_before": instant_of(moments["ended_before"], now, utc=utc),
        "ids": texts["ids"] or None,
        "id_prefix": cast("str | None", given["id_prefix"]),
        "queue": cast("str | None", given["queue"]),
        "children_of": cast("str | None", given["children_of"]),
        "error_code": cast("str | None", given["error_code"]),
        "error_type": cast("str | None", given["error_type"]),
        "waiting": cast("bool", given["waiting"]),
    }


def _values(kind: str, texts: Iterable[str], where: Iterable[str]) -> dict[str, ValueFilter]:
    """Return the conditions on values from both options for them. Raises UsageError or InvalidFilterError."""
    option = f"--{kind}-where"
    found: dict[str, ValueFilter] = {**named_texts(texts, f"--{kind}")}
    for name, text in named_texts(where, option, "NAME=JSON").items():
        if name in found:
            raise click.UsageError(f"{option} {name}: --{kind} has it too; leave one out")
        found[name] = value_from_wire(f"{kind}s", text)
    return found


def filter_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add the options that filter runs to a command."""
    statuses = click.Choice([status.value for status in RunStatus], case_sensitive=False)
    for option in reversed(
        (
            click.option(
                "--status",
                "statuses",
                type=statuses,
                multiple=True,
                help="Only runs of this status. May be repeated.",
            ),
            click.option("--waiting", is_flag=True, help="Only running runs with no queued or running jobs."),
            click.option(
                "--id",
                "ids",
                multiple=True,
                metavar="ID",
                help="Only the run with this ID. May be repeated.",
            ),
            click.option("--id-prefix", metavar="TEXT", help="Only runs whose ID begins with this text."),
            click.option("--queue", metavar="NAME", help="Only runs of this queue."),
            click.option("--children-of", metavar="ID", help="Only child runs of this run."),
            click.option(
                "--error-code", metavar="CODE", help="Only runs that ended with an error of this code."
            ),
            click.option(
                "--error-type", metavar="CLASS", help="Only runs that ended with an error of this class."
            ),
            click.option("--workflow", metavar="NAME", help="Only runs of this workflow."),
            click.option(
                "--attribute",
                "attributes",
                multiple=True,
                metavar="NAME=TEXT",
                help="Only runs that were started with this attribute. May be repeated.",
            ),
            click.option(
                "--annotation",
                "annotations",
                multiple=True,
                metavar="NAME=TEXT",
                help="Only runs with this annotation. May be repeated.",
            ),
            click.option(
                "--attribute-where",
                "attributes_where",
                multiple=True,
                metavar="NAME=JSON",
                help="Only runs whose attribute is in a range, begins so, or is one of several. May be repeated.",
            ),
            click.option(
                "--annotation-where",
                "annotations_where",
                multiple=True,
                metavar="NAME=JSON",
                help="Only runs with an annotation that equals a value, is in a range, begins so, or is one of "
                "several. May be repeated.",
            ),
            click.option(
                "--since",
                type=moment,
                metavar="TIME",
                help="Only runs created at this time or later: 2026-11-21T08:00Z, 2026-11-21, or an age such as 90m or "
                "7d.",
            ),
            click.option("--until", type=moment, metavar="TIME", help="Only runs created before this time."),
            click.option(
                "--ended-before", type=moment, metavar="TIME", help="Only runs that ended before this time."
            ),
        )
    ):
        body = option(body)
    return body
