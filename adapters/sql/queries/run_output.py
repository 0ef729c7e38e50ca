"""Answers to the queries for attempt output, annotations, artifacts and AI calls, with one statement each."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import COST_PART, Row, is_askable
from holdfast.ports.attempt_output import AiCall, AiTotal, Annotation, Artifact
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import (
    AiCallsOf,
    AiTotalsOf,
    AnnotationsOf,
    ArtifactsOf,
    LogOf,
    NewestLine,
    NewestProgress,
    NotesInOrder,
    StoredLine,
)
from holdfast.ports.records.history import LOG, OutputRow


def reported_answers(dialect: Dialect) -> Mapping[type, Callable[[Link, Any], object]]:
    """Return the functions that answer these queries, by type."""
    known: Mapping[type, Callable[[Dialect, Link, Any], object]] = {
        NotesInOrder: _notes,
        LogOf: _log,
        NewestLine: _newest_line,
        NewestProgress: _progress,
        AnnotationsOf: _annotations,
        ArtifactsOf: _artifacts,
        AiCallsOf: _ai_calls,
        AiTotalsOf: _ai_totals,
    }
    return {kind: partial(answer, dialect) for kind, answer in known.items()}


def _query(
    dialect: Dialect, link: Link, sql: str, conditions: Sequence[str], parameters: Mapping[str, object]
) -> Sequence[Row]:
    """Return the rows of a statement; empty if a parameter is a text that can't be stored."""
    if not all(is_askable(value) for value in parameters.values() if isinstance(value, str)):
        return ()
    return link.query(dialect.bound(sql.format(" AND ".join(conditions))), parameters)


def _where(**conditions: tuple[str, object]) -> tuple[list[str], dict[str, object]]:
    """Return the conditions whose parameter is not None, and these parameters by name."""
    known = {name: pair for name, pair in conditions.items() if pair[1] is not None}
    return [sql for sql, _ in known.values()], {name: value for name, (_, value) in known.items()}


def _following(after: ListPlace | None, parameters: dict[str, object]) -> list[str]:
    if after is None:
        return []
    parameters |= {"after_at": after.at, "after_id": after.id}
    return ["(at, id) > (:after_at, :after_id)"]


def _notes(dialect: Dialect, link: Link, query: NotesInOrder) -> tuple[OutputRow, ...]:
    kinds = dialect.texts(sorted(query.kinds)) if query.kinds else None
    conditions, parameters = _where(
        run=("run = :run", query.run), kinds=(dialect.one_of("kind", "kinds"), kinds)
    )
    conditions += _following(query.after, parameters)
    sql = (
        f"SELECT {', '.join(rows.NOTE)} FROM holdfast_attempt_output WHERE {{}} ORDER BY at, id LIMIT :limit"
    )
    found = _query(dialect, link, sql, conditions, {**parameters, "limit": query.limit})
    return tuple(map(rows.record_of(OutputRow), found))


def _log(dialect: Dialect, link: Link, query: LogOf) -> tuple[StoredLine, ...]:
    sql = (
        f"SELECT log_number, {', '.join(rows.NOTE)} FROM holdfast_attempt_output "
        f"WHERE {{}} AND kind = '{LOG}' ORDER BY log_number LIMIT :limit"
    )
    conditions, parameters = ["run = :run", "log_number > :after"], {"run": query.run, "after": query.after}
    found = _query(dialect, link, sql, conditions, {**parameters, "limit": query.limit})
    record = rows.record_of(OutputRow)
    return tuple(StoredLine(int(row[0]), record(row[1:])) for row in found)


def _newest_line(dialect: Dialect, link: Link, query: NewestLine) -> int:
    sql = f"SELECT max(log_number) FROM holdfast_attempt_output WHERE {{}} AND kind = '{LOG}'"
    found = _query(dialect, link, sql, ["run = :run"], {"run": query.run})
    return int(found[0][0] or 0) if found else 0


def _progress(dialect: Dialect, link: Link, query: NewestProgress) -> tuple[OutputRow, ...]:
    columns = ", ".join(rows.NOTE)
    sql = (
        f"SELECT {columns} FROM (SELECT {columns}, "
        "row_number() OVER (PARTITION BY job, call ORDER BY at DESC, id DESC) AS place "
        "FROM holdfast_attempt_output WHERE {} AND kind = 'progress') AS n "
        "WHERE place = 1 ORDER BY job, call LIMIT :limit"
    )
    job, call = query.after
    parameters = {"run": query.run, "job": job, "call": call, "limit": query.limit}
    found = _query(dialect, link, sql, ["run = :run", "(job, call) > (:job, :call)"], parameters)
    return tuple(map(rows.record_of(OutputRow), found))


def _annotations(dialect: Dialect, link: Link, query: AnnotationsOf) -> tuple[Annotation, ...]:
    which = query.which
    conditions, parameters = _where(
        run=("run = :run", query.run),
        name=("name = :name", which.name),
        prefix=("substr(name, 1, :prefix_length) = :prefix", which.prefix or None),
        actor_kind=("actor_kind = :actor_kind", which.actor_kind),
        actor_id=("actor_id = :actor_id", which.actor_id),
        scope=("scope = :scope", which.scope and which.scope.value),
        node=("node = :node", which.node),
        item=("item = :item", which.item),
        since=("at >= :since", which.since),
        until=("at < :until", which.until),
    )
    if which.prefix:
        parameters["prefix_length"] = len(which.prefix)
    conditions += _following(query.after, parameters)
    sql = f"SELECT {', '.join(rows.ANNOTATION)} FROM holdfast_annotations WHERE {{}} ORDER BY at, id LIMIT :limit"
    found = _query(dialect, link, sql, conditions, {**parameters, "limit": query.limit})
    return tuple(map(rows.annotation_from, found))


def _artifacts(dialect: Dialect, link: Link, query: ArtifactsOf) -> tuple[Artifact, ...]:
    conditions, parameters = _where(run=("run = :run", query.run), name=("name = :name", query.name))
    if query.after is not None:
        conditions.append("(job, epoch, call, name) > (:after_job, :after_epoch, :after_call, :after_name)")
        names = ("after_job", "after_epoch", "after_call", "after_name")
        parameters |= dict(zip(names, query.after, strict=True))
    columns = ", ".join(rows.ARTIFACT)
    sql = f"SELECT {columns} FROM holdfast_artifacts WHERE {{}} ORDER BY job, epoch, call, name LIMIT :limit"
    found = _query(dialect, link, sql, conditions, {**parameters, "limit": query.limit})
    return tuple(map(rows.record_of(Artifact), found))


def _of_topic(topic: str | None, parameters: dict[str, object]) -> list[str]:
    """Return the condition for a topic and those below it, which the index has between `topic.` and `topic/`."""
    if topic is None:
        return []
    parameters |= {"topic": topic, "below": f"{topic}.", "beyond": f"{topic}/"}
    return ["(topic = :topic OR (topic >= :below AND topic < :beyond))"]


def _ai_calls(dialect: Dialect, link: Link, query: AiCallsOf) -> tuple[AiCall, ...]:
    conditions, parameters = _where(run=("run = :run", query.run), model=("model = :model", query.model))
    conditions += _of_topic(query.topic, parameters) + _following(query.after, parameters)
    sql = f"SELECT {', '.join(rows.AI_CALL)} FROM holdfast_ai_calls WHERE {{}} ORDER BY at, id LIMIT :limit"
    found = _query(dialect, link, sql, conditions, {**parameters, "limit": query.limit})
    return tuple(map(rows.ai_call_from, found))


def _ai_totals(dialect: Dialect, link: Link, query: AiTotalsOf) -> tuple[AiTotal, ...]:
    conditions, parameters = _where(run=("run = :run", query.run))
    conditions += _of_topic(query.topic, parameters)
    by = "model" if query.by == "model" else "topic"
    sql = (
        f"SELECT {by}, count(*), count(error), count(*) - count(cost), sum(input_tokens), sum(output_tokens), "
        f"sum(cost / {COST_PART}), sum(cost - cost / {COST_PART} * {COST_PART}), sum(duration) "
        f"FROM holdfast_ai_calls WHERE {{}} GROUP BY {by} ORDER BY {by}"
    )
    return tuple(map(rows.ai_total_from, _query(dialect, link, sql, conditions, parameters)))
