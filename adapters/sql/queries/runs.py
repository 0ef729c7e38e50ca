"""How runs are found: the statements that list and count them, and the index of their attributes.

Runs are listed by when they were created and, those of one instant, by key. Each statement reads an index in this order
and stops at its limit. The index by workflow, and that by status, has a run's status before that order, so they are
read once for each status that is asked for, which is nine times at most, and the answers are merged.

Of a run that was run again mostly the newest generation is wanted. A list asks of each run that it gives whether there
is a newer one. A count, which would have to look at every run for that, counts all of them by an index that has no
more than it needs, and takes away those of which there is a newer generation: they are found from that, and are few.

A page ends at a place in that order, and the next one begins there. Both ends of a span of time are places too, so each
side of what is read has one bound, which an index can go to at once.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.rows import Row, is_askable
from holdfast.ports.attempt_output import Annotation, annotation_text
from holdfast.ports.changes import NetChanges
from holdfast.ports.json import canonical
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import ListRuns, RunFilter
from holdfast.ports.records import Run, RunStatus, attribute_texts

_IS_NEWEST: Final = (
    "NOT EXISTS (SELECT 1 FROM holdfast_runs AS later WHERE later.generation > 1 AND later.namespace = r.namespace "
    "AND later.id = r.id AND later.generation > r.generation)"
)
# CROSS JOIN, because SQLite keeps to its order: it begins with what was run again.
_OLDER: Final = (
    "holdfast_runs AS later CROSS JOIN holdfast_runs AS r WHERE later.generation > 1 "
    "AND later.namespace = :namespace AND r.id = later.id AND r.generation = later.generation - 1"
)


class Question(NamedTuple):
    """A statement, and its parameters by name."""

    sql: str
    parameters: Mapping[str, object]


def pair(namespace: str, name: str, text: str) -> str:
    """Return what stands for an attribute in the index. Migration 0002 does the same: it can't change."""
    return blake2b(canonical([namespace, name, text]).encode(), digest_size=16).hexdigest()


def attribute_rows(run: Run) -> Iterator[Row]:
    """Yield the rows by which a run is found."""
    for name, text in attribute_texts(run.attributes).items():
        yield pair(run.namespace, name, text), run.created_at, run.key


def annotation_pair(namespace: str, name: str, text: str) -> str:
    """Return what stands for a text of an annotation in the index: another digest than that of an attribute."""
    made = blake2b(canonical([namespace, name, text]).encode(), digest_size=16, person=b"annotation")
    return made.hexdigest()


def annotation_text_rows(annotation: Annotation, net: NetChanges) -> Iterator[Row]:
    """Yield the row by which a run that was there already is found from now on, if this is a text."""
    text = annotation_text(annotation) if annotation.run not in net.new_runs else None
    if text is not None:
        yield annotation_pair(annotation.namespace, annotation.name, text), annotation.run


def runs_listed(query: ListRuns) -> Question | None:
    """Return what gives a page of runs, in order; None if there can't be any."""
    which = query.which
    if not _is_askable(which):
        return None
    low, high = _bounds(query)
    parameters = {**_parameters(which, low, high), "limit": query.limit}
    direction = "" if query.oldest_first else " DESC"
    source = _source(which, low, high)
    conditions = [*source.conditions, *([_IS_NEWEST] if which.newest else [])]
    created_at, key = source.place
    columns = ", ".join(f"r.{name}" for name in rows.RUN)
    branches = [
        f"SELECT {columns} FROM {source.tables} WHERE {' AND '.join([*conditions, *of_status])} "
        f"ORDER BY {created_at}{direction}, {key}{direction} LIMIT :limit"
        for of_status in _by_status(which)
    ]
    if len(branches) == 1:
        return Question(branches[0], parameters)
    merged = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS b{number}" for number, sql in enumerate(branches))
    order = f"ORDER BY r.created_at{direction}, r.key{direction} LIMIT :limit"
    return Question(f"SELECT {columns} FROM ({merged}) AS r {order}", parameters)


def runs_counted(which: RunFilter) -> Question | None:
    """Return what counts runs by status; None if there can't be any."""
    if not _is_askable(which):
        return None
    low, high = _bounds(ListRuns(which))
    source = _source(which, low, high)
    conditions = [*source.conditions, *_of_statuses(which.statuses)]
    reads_runs = bool(which.attributes or which.annotations)
    if which.newest and reads_runs:
        conditions.append(_IS_NEWEST)
    where = " AND ".join(conditions)
    sql = f"SELECT r.status, count(*) FROM {source.tables} WHERE {where} GROUP BY r.status"
    if which.newest and not reads_runs:
        older = f"SELECT r.status, -count(*) AS n FROM {_OLDER} AND {where} GROUP BY r.status"
        sql = (
            f"SELECT c.status, CAST(sum(c.n) AS bigint) FROM ({sql.replace('count(*)', 'count(*) AS n')} "
            f"UNION ALL {older}) AS c GROUP BY c.status HAVING sum(c.n) > 0"
        )
    return Question(sql, _parameters(which, low, high))


def _bounds(query: ListRuns) -> tuple[ListPlace | None, ListPlace | None]:
    """Return the places between which the runs are that are asked for; neither is itself one of theirs."""
    which, after = query.which, query.after
    # No key is empty, so the first run of an instant comes after this.
    low = None if which.created_from is None else ListPlace(which.created_from, "")
    high = None if which.created_before is None else ListPlace(which.created_before, "")
    if after is None:
        return low, high
    if query.oldest_first:
        return (after if low is None else max(low, after)), high
    return low, (after if high is None else min(high, after))


@attrs.frozen(kw_only=True)
class _Source:
    """Where runs come from: tables, of which `r` is that of runs, what must be true, and what they are ordered by."""

    tables: str
    conditions: tuple[str, ...]
    place: tuple[str, str]


def _source(which: RunFilter, low: ListPlace | None, high: ListPlace | None) -> _Source:
    conditions = ["r.namespace = :namespace"]
    if which.workflow is not None:
        conditions.append("r.workflow = :workflow")
    if which.ended_before is not None:
        conditions.append("r.ended_at < :ended_before")
    if not which.attributes and not which.annotations:
        conditions += _between("r.created_at", "r.key", low, high)
        place = ("r.created_at", "r.key")
        return _Source(tables="holdfast_runs AS r", conditions=tuple(conditions), place=place)
    names = list(_pairs(which))
    for name in names:
        conditions.append(f"{name}.pair = :{name}")
        # Of each of them, so that a database may begin with whichever is the rarest.
        conditions += _between(f"{name}.created_at", f"{name}.run", low, high)
    first, *others = names
    joined = "".join(
        f" JOIN holdfast_attributes AS {name} ON {name}.created_at = {first}.created_at AND {name}.run = {first}.run"
        for name in others
    )
    return _Source(
        tables=f"holdfast_attributes AS {first}{joined} JOIN holdfast_runs AS r ON r.key = {first}.run",
        conditions=tuple(conditions),
        place=(f"{first}.created_at", f"{first}.run"),
    )


def _between(created_at: str, key: str, low: ListPlace | None, high: ListPlace | None) -> Iterator[str]:
    if low is not None:
        yield f"({created_at}, {key}) > (:low_at, :low_key)"
    if high is not None:
        yield f"({created_at}, {key}) < (:high_at, :high_key)"


def _by_status(which: RunFilter) -> list[tuple[str, ...]]:
    """Return what else must be true of the runs that each part of the statement gives."""
    if which.attributes or which.annotations or (which.workflow is None and not which.statuses):
        return [_of_statuses(which.statuses)]
    return [_of_statuses({status}) for status in sorted(which.statuses or RunStatus)]


def _of_statuses(statuses: Collection[RunStatus]) -> tuple[str, ...]:
    listed = ", ".join(f"'{status.value}'" for status in sorted(statuses))
    return (f"r.status IN ({listed})",) if statuses else ()


def _parameters(which: RunFilter, low: ListPlace | None, high: ListPlace | None) -> dict[str, object]:
    parameters: dict[str, object] = {"namespace": which.namespace, **_pairs(which)}
    if which.workflow is not None:
        parameters["workflow"] = which.workflow
    if which.ended_before is not None:
        parameters["ended_before"] = which.ended_before
    if low is not None:
        parameters |= {"low_at": low.at, "low_key": low.id}
    if high is not None:
        parameters |= {"high_at": high.at, "high_key": high.id}
    return parameters


def _pairs(which: RunFilter) -> dict[str, str]:
    """Return what stands for each attribute and annotation that is asked for, by a name for it in the statement."""
    found = [pair(which.namespace, name, text) for name, text in sorted(set(which.attributes))]
    found += [annotation_pair(which.namespace, name, text) for name, text in sorted(set(which.annotations))]
    return {f"pair_{'i' * number}": value for number, value in enumerate(found, 1)}


def _is_askable(which: RunFilter) -> bool:
    return is_askable(which.namespace) and (which.workflow is None or is_askable(which.workflow))
