"""Lists and counts of runs, and the index of their attributes (docs/decisions/0011).

Runs are listed by time of creation, then by key. Each statement reads an index in this order and stops at its limit.
The indexes by workflow and by status have the status before that order, so they are read once for each requested
status, eight times at most, and the results are merged.

Usually only the newest generation of a run is wanted. A list checks each of its runs for a newer one. A count would
have to check every run, so it counts all of them by a narrow index, and subtracts those with a newer generation:
these are few, and found from the newer one.

Ids that begin alike are a range of the unique index of ids: they are compared bytewise in every database, so that no
pattern and no further index is needed. A database with statistics reads that range and sorts it, or, if most ids begin
so, reads the list in its order and checks each id.

A page ends at a position in that order, and the next one starts there. Both ends of a span of time are positions too,
so each side has a single bound, to which an index can seek.

A single value is found by its key in the index of values, which has the order of lists. Several values, or a range,
are a range of keys without that order: the runs with one of them are found first, and then read and sorted. Child runs
are found in the same way, by an index of their parents. So no database reads a list in its order instead, whatever the
other conditions are.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import Row, askable, is_askable
from holdfast.ports.attempt_output import Annotation, annotation_codes
from holdfast.ports.changes import NetChanges
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import CountRuns, ListRuns, PlaceOfRun, RunFilter
from holdfast.ports.records.run import Run, RunStatus, attribute_texts
from holdfast.ports.search_values import ValueMatch, ValueSource, code_of, index_key, text_after
from holdfast.ports.tables import RUNS

_IS_NEWEST: Final = (
    "NOT EXISTS (SELECT 1 FROM holdfast_runs AS later WHERE later.generation > 1 AND later.namespace = r.namespace "
    "AND later.id = r.id AND later.generation > r.generation)"
)
# CROSS JOIN, because SQLite keeps its order: it starts with the runs that have several generations.
_OLDER: Final = (
    "holdfast_runs AS later CROSS JOIN holdfast_runs AS r WHERE later.generation > 1 "
    "AND later.namespace = :namespace AND r.id = later.id AND r.generation = later.generation - 1"
)


_WAITS: Final = (
    "r.status = 'running' AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS active WHERE active.run = r.key "
    "AND active.state IN ('queued', 'leased'))"
)


class SqlQuery(NamedTuple):
    """A statement and its parameters by name."""

    sql: str
    parameters: Mapping[str, object]


def pair(namespace: str, name: str, text: str) -> str:
    """Return the index key of an attribute. It is stored, so it can't change (docs/decisions/0066)."""
    return index_key(ValueSource.ATTRIBUTE, namespace, name, code_of(text) or "")


def attribute_rows(run: Run) -> Iterator[Row]:
    """Yield the index entries of a run's attributes."""
    for name, text in attribute_texts(run.attributes).items():
        yield pair(run.namespace, name, text), run.created_at, run.key


def pairs_of_annotation(annotation: Annotation) -> Iterator[str]:
    """Yield the index keys of an annotation: one for each value by which its run is found."""
    for name, code in annotation_codes((annotation,)):
        yield index_key(ValueSource.ANNOTATION, annotation.namespace, name, code)


def annotation_rows(annotation: Annotation, net: NetChanges) -> Iterator[Row]:
    """Yield the index entries for an annotation of an existing run."""
    if annotation.run not in net.inserted.get(RUNS, ()):
        for found in pairs_of_annotation(annotation):
            yield found, annotation.run


def runs_listed(query: ListRuns, dialect: Dialect) -> SqlQuery | None:
    """Return the statement for a page of runs; None if no run can match."""
    which = query.which
    if not _is_askable(which):
        return None
    low, high = _bounds(query)
    parameters = {**_parameters(which, low, high, dialect), "limit": query.limit}
    direction = "" if query.oldest_first else " DESC"
    source = _source(which, low, high, dialect)
    conditions = [*source.conditions, *([_IS_NEWEST] if which.newest else [])]
    created_at, key = source.place
    columns = ", ".join(f"r.{name}" for name in rows.RUN)
    branches = [
        f"SELECT {columns} FROM {source.tables} WHERE {' AND '.join([*conditions, *of_status])} "
        f"ORDER BY {created_at}{direction}, {key}{direction} LIMIT :limit"
        for of_status in _by_status(which)
    ]
    if len(branches) == 1:
        return SqlQuery(branches[0], parameters)
    merged = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS b{number}" for number, sql in enumerate(branches))
    order = f"ORDER BY r.created_at{direction}, r.key{direction} LIMIT :limit"
    return SqlQuery(f"SELECT {columns} FROM ({merged}) AS r {order}", parameters)


def place_of_run(query: PlaceOfRun) -> SqlQuery:
    """Return the statement for the position of the n-th newest run."""
    conditions = ["r.namespace = :namespace", *_between("r.created_at", "r.key", None, query.before)]
    parameters: dict[str, object] = {"namespace": query.namespace, "skipped": query.number - 1}
    if query.before is not None:
        parameters |= {"high_at": query.before.at, "high_key": query.before.id}
    return SqlQuery(
        f"SELECT r.created_at, r.key FROM holdfast_runs AS r WHERE {' AND '.join(conditions)} "
        "ORDER BY r.created_at DESC, r.key DESC LIMIT 1 OFFSET :skipped",
        parameters,
    )


def runs_counted(query: CountRuns, dialect: Dialect) -> SqlQuery | None:
    """Return the statement that counts runs by status; None if no run can match."""
    which = query.which
    if not _is_askable(which):
        return None
    low, high = _bounds(ListRuns(which))
    source = _source(which, low, high, dialect)
    conditions = [*source.conditions, *_of_statuses(which.statuses)]
    is_bounded = query.at_most is not None
    reads_runs = bool(which.value_matches or which.ids or which.children_of)
    if which.newest and (reads_runs or is_bounded):
        conditions.append(_IS_NEWEST)
    where = " AND ".join(conditions)
    if is_bounded:
        found = f"SELECT r.status FROM {source.tables} WHERE {where} LIMIT :at_most"
        sql = f"SELECT f.status, count(*) FROM ({found}) AS f GROUP BY f.status"
        return SqlQuery(sql, {**_parameters(which, low, high, dialect), "at_most": query.at_most})
    sql = f"SELECT r.status, count(*) FROM {source.tables} WHERE {where} GROUP BY r.status"
    if which.newest and not reads_runs:
        older = f"SELECT r.status, -count(*) AS n FROM {_OLDER} AND {where} GROUP BY r.status"
        sql = (
            f"SELECT c.status, CAST(sum(c.n) AS bigint) FROM ({sql.replace('count(*)', 'count(*) AS n')} "
            f"UNION ALL {older}) AS c GROUP BY c.status HAVING sum(c.n) > 0"
        )
    return SqlQuery(sql, _parameters(which, low, high, dialect))


def _bounds(query: ListRuns) -> tuple[ListPlace | None, ListPlace | None]:
    """Return the positions between which matching runs are, both exclusive."""
    which, after = query.which, query.after
    # No key is empty, so the first run of an instant sorts after this.
    low = None if which.created_from is None else ListPlace(which.created_from, "")
    high = None if which.created_before is None else ListPlace(which.created_before, "")
    if after is None:
        return low, high
    if query.oldest_first:
        return (after if low is None else max(low, after)), high
    return low, (after if high is None else min(high, after))


@attrs.frozen(kw_only=True)
class _Source:
    """The tables to read runs from, of which `r` is that of runs, with conditions and order."""

    tables: str
    conditions: tuple[str, ...]
    place: tuple[str, str]


def _source(which: RunFilter, low: ListPlace | None, high: ListPlace | None, dialect: Dialect) -> _Source:
    conditions = [_named(dialect) if which.ids else "r.namespace = :namespace"]
    if which.workflow is not None:
        conditions.append("r.workflow = :workflow")
    if which.id_prefix is not None:
        conditions += _beginning("r.id", which.id_prefix)
    if which.ended_before is not None:
        conditions.append("r.ended_at < :ended_before")
    if which.waiting:
        conditions.append(_WAITS)
    if which.queue is not None:
        conditions.append("r.queue = :queue")
    conditions += [dialect.contains("r.error", name) for name in _marks(which)]
    pairs, ranges = _values(which)
    if not pairs:
        found, others = (None, ranges) if which.ids else _found_first(which, ranges, low, high, dialect)
        conditions += _has_values(others, dialect)
        if found is None:
            conditions += _of_parent(which)
            conditions += _between("r.created_at", "r.key", low, high)
            place = ("r.created_at", "r.key")
            return _Source(tables="holdfast_runs AS r", conditions=tuple(conditions), place=place)
        return _Source(
            # CROSS JOIN, because SQLite keeps its order.
            tables=f"({found}) AS found CROSS JOIN holdfast_runs AS r",
            conditions=("r.key = found.run", *conditions, *(_of_parent(which) if others is ranges else ())),
            place=("found.created_at", "found.run"),
        )
    conditions += [*_of_parent(which), *_has_values(ranges, dialect)]
    names = list(pairs)
    for name in names:
        conditions.append(f"{name}.pair = :{name}")
        # Repeated for each, so that the planner may start with the rarest.
        conditions += _between(f"{name}.created_at", f"{name}.run", low, high)
    first, *others_of_pairs = names
    joined = "".join(
        f" JOIN holdfast_attributes AS {name} ON {name}.created_at = {first}.created_at AND {name}.run = {first}.run"
        for name in others_of_pairs
    )
    return _Source(
        tables=f"holdfast_attributes AS {first}{joined} JOIN holdfast_runs AS r ON r.key = {first}.run",
        conditions=tuple(conditions),
        place=(f"{first}.created_at", f"{first}.run"),
    )


def _found_first(
    which: RunFilter,
    ranges: "Mapping[str, ValueMatch]",
    low: ListPlace | None,
    high: ListPlace | None,
    dialect: Dialect,
) -> tuple[str | None, Mapping[str, ValueMatch]]:
    """Return the query for the runs to start with, and the conditions on values that it leaves."""
    if which.children_of is not None:
        conditions = [
            "namespace = :namespace",
            "parent_run = :children_of",
            *_between("created_at", "key", low, high),
        ]
        query = f"SELECT created_at, key AS run FROM holdfast_runs WHERE {' AND '.join(conditions)}"
        return query, ranges
    if not ranges:
        return None, ranges
    first, *others = ranges
    conditions = [_in_range("pair", first, ranges[first], dialect), *_between("created_at", "run", low, high)]
    # A run may have several of the values.
    query = f"SELECT DISTINCT created_at, run FROM holdfast_attributes WHERE {' AND '.join(conditions)}"
    return query, {name: ranges[name] for name in others}


def _has_values(ranges: Mapping[str, ValueMatch], dialect: Dialect) -> Iterator[str]:
    for name, match in ranges.items():
        condition = _in_range("valued.pair", name, match, dialect)
        yield (
            "EXISTS (SELECT 1 FROM holdfast_attributes AS valued WHERE valued.run = r.key "
            f"AND valued.created_at = r.created_at AND {condition})"
        )


def _in_range(column: str, name: str, match: ValueMatch, dialect: Dialect) -> str:
    if match.span is None:
        return dialect.one_of(column, name)
    return f"{column} >= :{name}_from AND {column} < :{name}_upto"


def _of_parent(which: RunFilter) -> tuple[str, ...]:
    return () if which.children_of is None else ("r.parent_run = :children_of",)


def _between(created_at: str, key: str, low: ListPlace | None, high: ListPlace | None) -> Iterator[str]:
    if low is not None:
        yield f"({created_at}, {key}) > (:low_at, :low_key)"
    if high is not None:
        yield f"({created_at}, {key}) < (:high_at, :high_key)"


def _named(dialect: Dialect) -> str:
    """Return the condition for runs with these ids. They are found first, by their index alone.

    With the namespace beside the ids, SQLite would rather read a whole list in its order than sort a few runs.
    """
    ids = dialect.one_of("named.id", "ids")
    keys = f"SELECT named.key FROM holdfast_runs AS named WHERE named.namespace = :namespace AND {ids}"
    return dialect.one_found_by("r.key", keys)


def _beginning(column: str, prefix: str) -> Iterator[str]:
    yield f"{column} >= :id_prefix"
    if text_after(prefix) is not None:
        yield f"{column} < :after_prefix"


def _by_status(which: RunFilter) -> list[tuple[str, ...]]:
    """Return the status condition of each branch of the statement."""
    reads_list = not (which.value_matches or which.children_of)
    if not reads_list or (which.workflow is None and not which.statuses):
        return [_of_statuses(which.statuses)]
    return [_of_statuses({status}) for status in sorted(which.statuses or RunStatus)]


def _of_statuses(statuses: Collection[RunStatus]) -> tuple[str, ...]:
    listed = ", ".join(f"'{status.value}'" for status in sorted(statuses))
    return (f"r.status IN ({listed})",) if statuses else ()


def _parameters(
    which: RunFilter, low: ListPlace | None, high: ListPlace | None, dialect: Dialect
) -> dict[str, object]:
    parameters: dict[str, object] = {"namespace": which.namespace, **_marks(which)}
    pairs, ranges = _values(which)
    parameters |= pairs
    for name, match in ranges.items():
        keys = [index_key(match.source, which.namespace, match.name, code) for code in match.codes]
        if match.span is None:
            parameters[name] = dialect.texts(keys)
        else:
            low_key, high_key = (
                index_key(match.source, which.namespace, match.name, code) for code in match.span
            )
            parameters |= {f"{name}_from": low_key, f"{name}_upto": high_key}
    texts = {"workflow": which.workflow, "queue": which.queue, "children_of": which.children_of}
    parameters |= {name: text for name, text in texts.items() if text is not None}
    if which.ids:
        parameters["ids"] = dialect.texts(askable(which.ids))
    if which.id_prefix is not None:
        parameters["id_prefix"] = which.id_prefix
        following = text_after(which.id_prefix)
        parameters |= {} if following is None else {"after_prefix": following}
    if which.ended_before is not None:
        parameters["ended_before"] = which.ended_before
    if low is not None:
        parameters |= {"low_at": low.at, "low_key": low.id}
    if high is not None:
        parameters |= {"high_at": high.at, "high_key": high.id}
    return parameters


def _values(which: RunFilter) -> tuple[dict[str, str], dict[str, ValueMatch]]:
    """Return the index keys of single values, and the other conditions on values, each by a parameter name."""
    pairs: dict[str, str] = {}
    ranges: dict[str, ValueMatch] = {}
    for match in which.value_matches:
        if match.span is None and len(match.codes) == 1:
            key = index_key(match.source, which.namespace, match.name, match.codes[0])
            pairs[f"pair_{'i' * (len(pairs) + 1)}"] = key
        else:
            ranges[f"value_{'i' * (len(ranges) + 1)}"] = match
    return pairs, ranges


def _marks(which: RunFilter) -> dict[str, str]:
    """Return what the text of an error must contain, by a parameter name."""
    return {f"error_{'i' * number}": mark for number, mark in enumerate(which.error_marks, 1)}


def _is_askable(which: RunFilter) -> bool:
    texts = (which.namespace, which.workflow, which.id_prefix, which.queue, which.children_of)
    are_ids_askable = not which.ids or any(map(is_askable, which.ids))
    return are_ids_askable and all(text is None or is_askable(text) for text in texts)
