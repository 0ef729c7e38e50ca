"""What a run got and made: input, result, published values, annotations, artifacts, model calls, progress."""

from typing import Final

from holdfast.hosts.http.operations import Nothing
from holdfast.hosts.http.outcomes import outcome_of
from holdfast.hosts.http.output_reads import (
    AiCallsQuery,
    AiTotalsQuery,
    ArtifactsQuery,
    add_up_ai_calls,
    list_ai_calls,
    list_artifacts,
    list_progress,
)
from holdfast.hosts.http.pages.components import (
    duration,
    facts,
    instant,
    json_value,
    preview,
    shortened,
    size,
    table,
)
from holdfast.hosts.http.pages.html import Html, el, join
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_history import hidden_values
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.http.run_reads import AnnotationsQuery, list_annotations
from holdfast.hosts.inspection.run_details import published_values
from holdfast.hosts.inspection.value_previews import preview_of
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.records.run import Run, RunStatus

LISTED: Final = 100
"""How many annotations, artifacts and model calls are shown."""


def values(page: Page[RunQuery], run: Run) -> Html:
    """Return the input, the result and everything else that the code of a run has stored for people."""
    if not page.sees_values:
        return hidden_values()
    is_function = page.core.inputs.plan(run.plan).function is not None
    return join(
        _input(page, run),
        _result(page, run),
        _published(page, run) if is_function else None,
        _progress(page),
        _annotations(page),
        _artifacts(page, run),
        _model_calls(page),
    )


def _input(page: Page[RunQuery], run: Run) -> Html:
    rows = page.core.stores.persistence.read(HistoryOf(run.key, 0, 1))
    whole = page.links.api("run.input", {"generation": run.generation}, run_id=run.id)
    found = preview(preview_of(rows[0].payload), whole) if rows else None
    return join(el("h2", "Input"), found or el("p", "It has none.", class_="empty"))


def _result(page: Page[RunQuery], run: Run) -> Html | None:
    if run.status is not RunStatus.COMPLETED:
        return None
    if run.is_continued:
        return join(el("h2", "Result"), el("p", "It continues as the next generation.", class_="empty"))
    address = page.links.api("run.result", {"generation": run.generation}, run_id=run.id)
    whole = el("p", el("a", "The whole result", href=address))
    return join(el("h2", "Result"), json_value(outcome_of(page.core, run).result), whole)


def _published(page: Page[RunQuery], run: Run) -> Html | None:
    found = published_values(page.core, run)
    rows = [(shortened(one.name), instant(one.at), preview(one.value)) for one in found]
    heads = ("Name", "Time", "Value")
    return (
        join(el("h2", "Published values"), table(heads, rows, caption="Published values", empty=""))
        if rows
        else None
    )


def _progress(page: Page[RunQuery]) -> Html | None:
    found = list_progress(page.reading(Nothing())).items[:LISTED]
    rows = [
        (
            shortened(one.stage),
            None if one.item is None else str(one.item),
            f"{one.done:g} of {one.of:g}",
            shortened(one.message),
            instant(one.at),
        )
        for one in found
    ]
    heads = ("Stage", "Item", "Progress", "Message", "Time")
    return join(el("h2", "Progress"), table(heads, rows, caption="Progress", empty="")) if rows else None


def _annotations(page: Page[RunQuery]) -> Html | None:
    found = list_annotations(page.reading(AnnotationsQuery(limit=LISTED)))
    rows = [
        (
            shortened(one.name),
            instant(one.at),
            shortened(str(one.actor)),
            shortened(one.reason),
            json_value(one.value),
        )
        for one in found.items
    ]
    if not rows:
        return None
    heads = ("Name", "Time", "By", "Reason", "Value")
    return join(
        el("h2", "Annotations"), table(heads, rows, caption="Annotations", empty=""), _first(found.next)
    )


def _artifacts(page: Page[RunQuery], run: Run) -> Html | None:
    found = list_artifacts(page.reading(ArtifactsQuery(limit=LISTED)))
    rows = [
        (
            el(
                "a",
                shortened(one.name),
                href=page.links.api(
                    "run.artifact", {"stage": one.stage, "item": one.item}, run_id=run.id, name=one.name
                ),
                download=True,
            ),
            shortened(one.content_type),
            size(one.size),
            shortened(one.stage),
        )
        for one in found.items
    ]
    if not rows:
        return None
    heads = ("Name", "Type", "Size", "Stage")
    return join(el("h2", "Artifacts"), table(heads, rows, caption="Artifacts", empty=""), _first(found.next))


def _model_calls(page: Page[RunQuery]) -> Html | None:
    found = list_ai_calls(page.reading(AiCallsQuery(limit=LISTED)))
    if not found.items:
        return None
    total = add_up_ai_calls(page.reading(AiTotalsQuery()))
    unpriced = f" (without {total.unpriced:,} calls of unknown cost)" if total.unpriced else ""
    summary = facts(
        [
            ("Calls", f"{total.calls:,}"),
            ("Failed", f"{total.failed:,}"),
            ("Tokens in", f"{total.input_tokens:,}"),
            ("Tokens out", f"{total.output_tokens:,}"),
            ("Cost", f"{total.cost:f}{unpriced}"),
            ("Time", duration(total.duration)),
        ]
    )
    rows = [
        (
            instant(one.at),
            shortened(one.model),
            shortened(one.topic),
            shortened(one.stage),
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            "unknown" if one.cost is None else f"{one.cost:f}",
            duration(one.duration),
            shortened(one.error),
        )
        for one in found.items
    ]
    heads = ("Time", "Model", "Topic", "Stage", "Tokens in", "Tokens out", "Cost", "Took", "Error")
    calls = table(heads, rows, caption="Model calls", empty="")
    return join(el("h2", "Model calls"), summary, calls, _first(found.next))


def _first(following: object) -> Html | None:
    return None if following is None else el("p", f"The first {LISTED}.", class_="note")
