"""The page on which a person sends a message to a run, approves something, or calls an update."""

from collections.abc import Iterator
from typing import Final

import attrs

from holdfast.hosts.http.operations import Table
from holdfast.hosts.http.pages.components import (
    notice,
    scope_notice,
    shortened,
)
from holdfast.hosts.http.pages.forms import action_form, filter_form, text_field
from holdfast.hosts.http.pages.html import Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.rerun import run_head, run_page_path
from holdfast.hosts.http.pages.schema_forms import flag_of, once_field, value_forms
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.inspection.run_info import find_run
from holdfast.hosts.inspection.workflows import WorkflowInfo, workflow_infos
from holdfast.kernel.history import events
from holdfast.ports.queries.history import NewestRows
from holdfast.ports.records.run import TERMINAL, Run

VERSIONS_MAX: Final = 100
"""Among how many versions of its workflow that of the run is searched."""
UPDATES_MAX: Final = 100
"""How many earlier updates are looked at for their names."""
CHANNELS_MAX: Final = 50
"""How many channels have forms."""
UPDATES_SHOWN: Final = 50
"""How many updates have forms."""


@attrs.frozen(kw_only=True)
class MessageQuery:
    """The query parameters of the page of messages."""

    channel: str | None = None
    """A channel that is not found in the code of the workflow."""
    update: str | None = None
    """The name of an update that is not found in the code of the workflow."""


def message_page(page: Page[MessageQuery]) -> Answer:
    """Show a form for each channel and each update of a run's workflow."""
    run = find_run(page.core, page.call.path["run_id"])
    title = f"Send to {run.id}"[:200]
    return Answer(
        title=title, content=join(run_head(page, "Send to", run), _content(page, run)), section="runs"
    )


def _content(page: Page[MessageQuery], run: Run) -> Html:
    if run.status in TERMINAL:
        return notice("waiting", "The run has ended: it receives nothing more.")
    if page.core.inputs.plan(run.plan).function is None:
        return notice("waiting", "It is a run of a pipeline: only durable functions receive messages.")
    if not page.may("run.signal"):
        return scope_notice(Scope.START, "You may look at this run, and not send to it.")
    info = _info_of(page, run)
    return join(
        el("h2", "Messages"), _channels(page, run, info), el("h2", "Updates"), _updates(page, run, info)
    )


def _info_of(page: Page, run: Run) -> WorkflowInfo | None:
    found = workflow_infos(page.core, run.workflow, None, VERSIONS_MAX)
    return next((one for one in found if one.version == run.version), None)


def _channels(page: Page[MessageQuery], run: Run, info: WorkflowInfo | None) -> Html:
    declared = {} if info is None else dict(info.signals)
    shown = list(declared.items())[:CHANNELS_MAX]
    chosen = page.query.channel
    if chosen and chosen not in dict(shown):
        shown.insert(0, (chosen, declared.get(chosen)))
    empty = el("p", "No channel of its workflow is known.", class_="empty")
    other = filter_form(text_field("channel", "Another channel", required=True), label="Write to it")
    return join([_channel(page, run, *one) for one in shown] or empty, other)


def _channel(page: Page, run: Run, name: str, schema: object) -> Html:
    flag = flag_of(schema)
    title = el("h3", shortened(name))
    if flag is not None:
        return el("section", title, el("div", _answers(page, run, name, flag), class_="actions"))
    forms = value_forms(
        page,
        "run.signal",
        "Send",
        field="message",
        schema=schema,
        path={"run_id": run.id, "channel": name},
        return_to=run_page_path(page, run.id),
    )
    return el("section", title, forms)


def _answers(page: Page, run: Run, channel: str, flag: str) -> Iterator[Html | None]:
    """Yield the two buttons of a message that is a yes or a no, each a form of its own."""
    is_approval = "approv" in f"{channel} {flag}".lower()
    texts = (("true", "Approve"), ("false", "Reject")) if is_approval else (("true", "Yes"), ("false", "No"))
    field = f"message/boolean/{flag}" if flag else "message/boolean"
    for value, text in texts:
        yield action_form(
            page,
            "run.signal",
            text,
            once_field(),
            path={"run_id": run.id, "channel": channel},
            fixed={field: value},
            return_to=run_page_path(page, run.id),
        )


def _updates(page: Page[MessageQuery], run: Run, info: WorkflowInfo | None) -> Html:
    declared = {} if info is None else dict(info.updates)
    shown: list[tuple[str, object]] = [
        (name, one.arguments) for name, one in list(declared.items())[:UPDATES_SHOWN]
    ]
    chosen = page.query.update
    if chosen and chosen not in dict(shown):
        known = declared.get(chosen)
        shown.insert(0, (chosen, None if known is None else known.arguments))
    others = [
        el("li", el("a", shortened(name), href=page.links.page("runs", run.id, "signal", update=name)))
        for name in _earlier_updates(page, run)
        if name not in dict(shown)
    ]
    empty = el("p", "No update of its workflow is known.", class_="empty")
    return join(
        [_update(page, run, *one) for one in shown] or empty,
        join(el("p", "Earlier ones of this run:"), el("ul", others)) if others else None,
        filter_form(
            text_field("update", "Another update", required=True, placeholder="Board.move"),
            label="Write its arguments",
        ),
    )


def _earlier_updates(page: Page, run: Run) -> list[str]:
    """Return the names of the newest updates of a run."""
    query = NewestRows(run=run.key, type=events.UpdateReceived.type, limit=UPDATES_MAX)
    found = (events.UpdateReceived.from_row(row).update for row in page.core.stores.persistence.read(query))
    return list(dict.fromkeys(found))


def _update(page: Page, run: Run, name: str, schema: object) -> Html:
    forms = value_forms(
        page,
        "run.update",
        "Send",
        field="arguments",
        schema=schema,
        path={"run_id": run.id, "name": name},
        return_to=run_page_path(page, run.id),
    )
    return el("section", el("h3", shortened(name)), forms)


OPERATIONS: Final[Table] = (
    page_operation("page.signal", "/runs/{run_id}/signal", message_page, query=MessageQuery),
)
"""The page of messages to a run."""
