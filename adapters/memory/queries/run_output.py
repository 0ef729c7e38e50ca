"""Answers to the queries for attempt output, annotations, artifacts and AI calls, from plain dictionaries."""

from collections.abc import Callable, Iterable
from itertools import islice

from holdfast.adapters.memory.queries.audit import inspected
from holdfast.ports.attempt_output import AiCall, AiTotal, Annotation, Artifact, is_of_topic
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import (
    AiCallsOf,
    AiTotalsOf,
    AnnotationFilter,
    AnnotationsOf,
    ArtifactsOf,
    LogOf,
    NewestLine,
    NewestProgress,
    NotesInOrder,
    StoredLine,
)
from holdfast.ports.records.history import LOG, OutputRow
from holdfast.ports.working_set import Tables


def answer_reported(tables: Tables, query: object) -> object:
    """Return the answer to a query. TypeError for an unknown query."""
    match query:
        case NotesInOrder():
            return _notes(tables, query)
        case LogOf():
            return _log(tables, query)
        case NewestLine(run):
            return sum(note.run == run and note.kind == LOG for note in tables.notes.values())
        case NewestProgress():
            return _progress(tables, query)
        case AnnotationsOf():
            annotations = [
                one
                for one in tables.annotations.values()
                if one.run == query.run and _matches(one, query.which)
            ]
            return _page(annotations, _place_of, query.after, query.limit)
        case ArtifactsOf():
            return _artifacts(tables, query)
        case AiCallsOf():
            calls = [
                call
                for call in tables.ai_calls.values()
                if call.run == query.run
                and is_of_topic(call.topic, query.topic)
                and query.model in {None, call.model}
            ]
            return _page(calls, _place_of, query.after, query.limit)
        case AiTotalsOf():
            return _totals(tables, query)
        case _:
            return inspected(tables, query)


def _page(
    records: Iterable[Annotation | AiCall | OutputRow],
    place: Callable[[Annotation | AiCall | OutputRow], ListPlace],
    after: ListPlace | None,
    limit: int,
) -> tuple[object, ...]:
    in_order = sorted(records, key=place)
    return tuple(one for one in in_order if after is None or place(one) > after)[:limit]


def _place_of(record: Annotation | AiCall | OutputRow) -> ListPlace:
    return ListPlace(record.at, record.id)


def _notes(tables: Tables, query: NotesInOrder) -> tuple[object, ...]:
    notes = [
        note
        for note in tables.notes.values()
        if note.run == query.run and (not query.kinds or note.kind in query.kinds)
    ]
    return _page(notes, _place_of, query.after, query.limit)


def _log(tables: Tables, query: LogOf) -> tuple[StoredLine, ...]:
    """Return log lines by number. A dictionary keeps its rows in the order in which they were added."""
    lines = (note for note in tables.notes.values() if note.run == query.run and note.kind == LOG)
    numbered = (StoredLine(number, note) for number, note in enumerate(lines, 1))
    return tuple(islice((line for line in numbered if line.number > query.after), query.limit))


def _progress(tables: Tables, query: NewestProgress) -> tuple[OutputRow, ...]:
    newest: dict[tuple[int, str], OutputRow] = {}
    for note in sorted(tables.notes.values(), key=_place_of):
        place = note.job, note.call
        if note.run == query.run and note.kind == "progress" and place > query.after:
            newest[place] = note
    return tuple(newest[place] for place in sorted(newest))[: query.limit]


def _matches(annotation: Annotation, which: AnnotationFilter) -> bool:
    return (
        which.name in {None, annotation.name}
        and annotation.name.startswith(which.prefix or "")
        and which.actor_kind in {None, annotation.actor_kind}
        and which.actor_id in {None, annotation.actor_id}
        and which.scope in {None, annotation.scope}
        and which.node in {None, annotation.node}
        and which.item in {None, annotation.item}
        and (which.since is None or annotation.at >= which.since)
        and (which.until is None or annotation.at < which.until)
    )


def _artifacts(tables: Tables, query: ArtifactsOf) -> tuple[Artifact, ...]:
    found = sorted(
        (key[1:], artifact)
        for key, artifact in tables.artifacts.items()
        if key[0] == query.run and query.name in {None, artifact.name}
    )
    return tuple(artifact for key, artifact in found if query.after is None or key > query.after)[
        : query.limit
    ]


def _totals(tables: Tables, query: AiTotalsOf) -> tuple[AiTotal, ...]:
    by_name: dict[str, list[AiCall]] = {}
    for call in tables.ai_calls.values():
        if call.run == query.run and is_of_topic(call.topic, query.topic):
            by_name.setdefault(call.model if query.by == "model" else call.topic, []).append(call)
    return tuple(
        AiTotal(
            name=name,
            calls=len(calls),
            failed=sum(call.error is not None for call in calls),
            unpriced=sum(call.cost is None for call in calls),
            input_tokens=sum(call.input_tokens for call in calls),
            output_tokens=sum(call.output_tokens for call in calls),
            cost=sum(call.cost or 0 for call in calls),
            duration=sum(call.duration or 0 for call in calls),
        )
        for name, calls in sorted(by_name.items())
    )
