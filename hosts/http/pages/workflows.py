"""Pages of workflows: their list, one workflow with its versions and runs, and the form that starts a run."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.http.operations import PageQuery, Table, page_of
from holdfast.hosts.http.pages.components import (
    badge,
    counted,
    facts,
    instant,
    json_value,
    list_nav,
    named,
    notice,
    region,
    run_link,
    scope_notice,
    shortened,
    table,
)
from holdfast.hosts.http.pages.forms import choice, filter_form, text_area, text_field
from holdfast.hosts.http.pages.html import Content, Html, Link, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.run_graph import plan_graph
from holdfast.hosts.http.pages.run_table import run_table
from holdfast.hosts.http.pages.schema_forms import PREFILL_MAX, Prefill, json_text, value_forms
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import problem_of
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.inspection.workers import Fleet, fleet_of
from holdfast.hosts.inspection.workflows import WorkflowInfo, registered_workflows, workflow_infos
from holdfast.kernel.pipelines.headers import headers_of
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import HoldfastError

VERSIONS_MAX: Final = 50
"""How many versions of a workflow its page lists."""
RUNS_MAX: Final = 20
"""How many of its newest runs the page of a workflow lists."""
_STAGES_SHOWN: Final = 5
_SECTION: Final = "workflows"


@attrs.frozen(kw_only=True)
class VersionQuery:
    """The query parameters of the page of a workflow."""

    version: str | None = None
    """The version; the one registered last if omitted."""


@attrs.frozen(kw_only=True)
class StartQuery:
    """The query parameters of the page that starts a run."""

    version: str | None = None
    """The version; the one registered last if omitted."""
    copy_of: str | None = None
    """The id of a run whose input fills the form."""


def workflows_page(page: Page[PageQuery]) -> Answer:
    """List the workflows that can be started."""
    query, links = page.query, page.links
    found = workflow_infos(page.core, "", query.after, query.limit + 1)
    items, last = page_of(found, query.limit)
    fleet = fleet_of(page.core)
    after = None if last is None else f"{last.name}@{last.version}"
    content = join(
        el("h1", "Workflows"),
        region("workflows", _workflows(page, items, fleet)),
        list_nav(partial(links.page, _SECTION, limit=query.limit), query.after, after),
    )
    return Answer(title="Workflows", content=content, section=_SECTION, watch=links.api_path("workflow.list"))


def _workflows(page: Page, items: Sequence[WorkflowInfo], fleet: Fleet) -> Html:
    heads = ("Workflow", "Version", "Stages", "Queue", "Registered", "Workers", "Runs")
    rows = [
        (
            named(one.name, page.links.page(_SECTION, one.name, version=one.version)),
            shortened(one.version, 40),
            _stages(one) if one.kind == "pipeline" else "function",
            shortened(one.queue or "default", 40),
            instant(one.registered_at),
            _workers(fleet, one),
            join(_run_links(page, one.name), _start_link(page, one.name, one.version)),
        )
        for one in items
    ]
    empty = (
        "No workflow is known: no worker has registered one in this namespace, and the server has no code."
    )
    return table(heads, rows, caption="Workflows", empty=empty)


def _stages(one: WorkflowInfo) -> Content:
    shown = ", ".join(name[:40] for name in one.stages[:_STAGES_SHOWN])
    more = len(one.stages) - _STAGES_SHOWN
    return shortened(f"pipeline of {len(one.stages)}: {shown}" + (f" and {more} more" if more > 0 else ""))


def _workers(fleet: Fleet, one: WorkflowInfo) -> Content:
    """Return how many live workers have the code of a workflow."""
    definition = f"{one.name}@{one.version}"
    number = sum(definition in about.definitions for about in fleet.workers)
    # Some workers have more code than they list.
    more = not fleet.is_whole or any(about.has_more for about in fleet.workers)
    return counted(number, more=more) if number or more else badge("none is live", "waiting")


def _run_links(page: Page, name: str) -> Html:
    links = page.links
    return join(
        el("a", "all", href=links.page("runs", workflow=name)),
        " · ",
        el("a", "failed", href=links.page("runs", workflow=name, status="failed")),
    )


def _start_link(page: Page, name: str, version: str) -> Html | None:
    if not page.may("run.start"):
        return None
    address = page.links.page(_SECTION, name, "start", version=version)
    return join(" · ", el("a", "Start…", href=address))


def workflow_page(page: Page[VersionQuery]) -> Answer:
    """Show a workflow: its versions, its plan, its schemas, and its newest runs."""
    name = page.call.path["name"]
    versions = workflow_infos(page.core, name, None, VERSIONS_MAX)
    runs = list(page.call.engine.runs(workflow=name, limit=RUNS_MAX))
    if not versions and not runs:
        raise page.core.registry.unknown_workflow(name, page.query.version)
    chosen = _chosen(page, name, versions, page.query.version)
    content = join(
        el("h1", shortened(name)),
        notice(
            "waiting",
            "Neither this server nor a live worker has the code of this workflow. Its runs wait for a worker that"
            " has it.",
        )
        if chosen is None
        else None,
        region("versions", el("h2", "Versions"), _workflows(page, versions, fleet_of(page.core))),
        None if chosen is None else _version(page, chosen),
        region(
            "runs",
            el("h2", el("a", "Newest runs", href=page.links.page("runs", workflow=name))),
            run_table(page, runs, caption="Newest runs", empty="It has no runs yet."),
        ),
    )
    watch = page.links.api_path("run.list", {"workflow": name, "limit": RUNS_MAX})
    return Answer(title=name[:200], content=content, section=_SECTION, watch=watch)


def _chosen(
    page: Page, name: str, versions: Sequence[WorkflowInfo], version: str | None
) -> WorkflowInfo | None:
    """Return a version: the requested one, or the one that a start takes."""
    if version is not None:
        found = next((one for one in versions if one.version == version), None)
        if found is None and versions:
            raise page.core.registry.unknown_workflow(name, version)
        return found
    own = page.core.registry.find_workflow(name, None)
    if own is not None:
        return next((one for one in versions if one.has_code and one.version == own.version), None)
    dated = [one for one in versions if one.registered_at is not None]
    return max(dated, key=lambda one: str(one.registered_at), default=None)


def _version(page: Page, one: WorkflowInfo) -> Html:
    plan = _plan_of(page, one)
    schemas: list[tuple[str, object]] = [("Input", one.input), ("Output", one.output)]
    schemas += [(f"Channel {channel}", schema) for channel, schema in one.signals.items()]
    for name, update in one.updates.items():
        schemas += [(f"Update {name}: arguments", update.arguments), (f"Update {name}: reply", update.reply)]
    drawn = (
        join(el("h3", "Stages"), plan_graph(plan, {}))
        if plan is not None and one.kind == "pipeline"
        else None
    )
    return el(
        "section",
        el("h2", "Version ", shortened(one.version)),
        facts(
            [
                ("Kind", one.kind),
                ("Queue", shortened(one.queue or "default")),
                ("Code in this server", "yes" if one.has_code else "no"),
                ("Last registered", instant(one.registered_at)),
            ]
        ),
        drawn,
        el("h3", "Schemas"),
        [_schema(title, schema) for title, schema in schemas],
    )


def _schema(title: str, schema: object) -> Html:
    shown = (
        json_value(schema) if schema is not None else el("p", "It is too long to be stored.", class_="note")
    )
    return el("details", el("summary", shortened(title)), shown)


def _plan_of(page: Page, one: WorkflowInfo) -> Plan | None:
    for plan in page.core.registry.plans:
        if (plan.workflow, plan.version) == (one.name, one.version):
            return plan
    registered = registered_workflows(page.core, name=one.name, limit=VERSIONS_MAX)
    return next((found.plan for found in registered if found.plan.version == one.version), None)


def start_page(page: Page[StartQuery]) -> Answer:
    """Show the form that starts a run of a workflow, filled with the input of another run on request."""
    name, query = page.call.path["name"], page.query
    versions = workflow_infos(page.core, name, None, VERSIONS_MAX)
    chosen = _chosen(page, name, versions, query.version)
    if chosen is None:
        raise page.core.registry.unknown_workflow(name, query.version)
    copied = _Copied() if query.copy_of is None else _copied_from(page, name, query.copy_of)
    content = join(
        el("h1", "Start ", shortened(name)),
        copied.note,
        _versions_form(page, chosen, versions),
        _forms(page, chosen, copied)
        or scope_notice(Scope.START, "You may look at this workflow, and not start it."),
        el("h2", "Schema of the input"),
        _schema("As JSON Schema", chosen.input),
    )
    return Answer(title=f"Start {name}"[:200], content=content, section=_SECTION)


def _versions_form(page: Page, chosen: WorkflowInfo, versions: Sequence[WorkflowInfo]) -> Html:
    if len(versions) < 2:
        return el("p", "Version ", el("code", shortened(chosen.version)), class_="note")
    options = {one.version: one.version[:100] for one in versions}
    copy_of = page.query.copy_of
    hidden = None if copy_of is None else el("input", type="hidden", name="copy_of", value=copy_of)
    return filter_form(choice("version", "Version", options, chosen.version), hidden, label="Choose")


@attrs.frozen(kw_only=True)
class _Copied:
    """What a form takes over from another run."""

    input: Prefill | None = None
    info: RunInfo | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    note: Html | None = None


def _copied_from(page: Page, name: str, run_id: str) -> _Copied:
    """Return what the form takes from a run, and a sentence about it."""
    handle: SyncRunHandle[object] = SyncRunHandle(page.call.engine.client, run_id, object)
    link = run_link(page, run_id)
    try:
        info = handle.info()
        if info.workflow != name:
            note = notice("waiting", "The run ", link, " is of another workflow: ", shortened(info.workflow))
            return _Copied(note=note)
        if not page.sees_values:
            note = notice("waiting", "The input of ", link, " is not shown to you, so the form has none.")
            return _Copied(info=info, note=note)
        value, headers = handle.input(), headers_of(handle.row().headers)
    except HoldfastError as error:
        problem = problem_of(error, page.call.root, sees_values=page.sees_values)
        detail = "" if problem is None else problem.detail or problem.title
        return _Copied(note=notice("bad", "The form has no input: ", shortened(detail, 500)))
    if len(json_text(value)) > PREFILL_MAX:
        note = notice("waiting", "The input of ", link, " is too large for a form. Start it through the API.")
        return _Copied(info=info, headers=headers, note=note)
    note = notice("good", el("p", "With the input of ", link, "."))
    return _Copied(input=Prefill(value), info=info, headers=headers, note=note)


def _forms(page: Page, one: WorkflowInfo, copied: _Copied) -> Html | None:
    return value_forms(
        page,
        "run.start",
        "Start",
        field="input",
        schema=one.input,
        prefill=copied.input,
        others=_options(copied.info, copied.headers),
        fixed={"workflow": one.name, "version": one.version},
        return_to=None,
    )


def _options(info: RunInfo | None, headers: Mapping[str, str]) -> Sequence[Content]:
    """Return the fields for how a run is started; what a copied run was started with is filled in."""
    attributes: Mapping[str, Any] = {} if info is None else info.attributes
    fields = join(
        text_field("id", "Run id", hint="Generated if it is empty."),
        text_field("queue", "Queue", "" if info is None else info.queue[:500]),
        text_field("priority", "Priority", _number(info), kind="number", hint="A head start, in minutes."),
        text_field("start_at", "Not before", kind="datetime-local", hint="UTC"),
        text_field("deadline_seconds", "Deadline", kind="number", hint="In seconds from the start."),
        _texts_field("attributes", "Attributes", attributes, '{"customer": "ann"}'),
        _texts_field("headers", "Headers", headers, '{"locale": "de"}'),
    )
    is_open = bool(attributes) or bool(headers) or (info is not None and info.priority != 0)
    return (el("details", el("summary", "Options"), fields, open=is_open),)


def _texts_field(name: str, label: str, texts: Mapping[str, Any], example: str) -> Html:
    text = json.dumps(dict(texts), ensure_ascii=False) if texts else ""
    return text_area(name, label, text, rows=2, hint=f"JSON, such as {example}")


def _number(info: RunInfo | None) -> str:
    return "" if info is None or info.priority == 0 else str(info.priority)


def start_link(page: Page, info: RunInfo) -> Html | None:
    """Return the link that duplicates a run: the form of its workflow, filled with its input."""
    if not page.may("run.start") or not page.sees_values:
        return None
    address: Link = page.links.page(_SECTION, info.workflow, "start", version=info.version, copy_of=info.id)
    return el("a", "Duplicate and edit…", href=address, class_="button")


OPERATIONS: Final[Table] = (
    page_operation("page.workflows", "/workflows", workflows_page, query=PageQuery),
    page_operation("page.workflow", "/workflows/{name}", workflow_page, query=VersionQuery),
    page_operation("page.start", "/workflows/{name}/start", start_page, query=StartQuery),
)
"""The pages of workflows."""
