"""The pages of API keys and of the audit log."""

from functools import partial
from typing import Final

from holdfast.hosts.http.key_operations import AuditQuery, list_audit, list_keys
from holdfast.hosts.http.operations import Invocation, PageQuery, Reach, Table, Text
from holdfast.hosts.http.pages.components import (
    badge,
    copy_button,
    facts,
    instant,
    json_value,
    list_nav,
    notice,
    shortened,
    table,
)
from holdfast.hosts.http.pages.forms import action_form, folded_form, text_field
from holdfast.hosts.http.pages.html import Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation, page_text
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.request_forms import PAGES
from holdfast.hosts.inspection.keys import KeyInfo, NewKey


def keys_page(page: Page[PageQuery]) -> Answer:
    """List the keys of the store."""
    found = list_keys(page.reading(page.query))
    rows = [
        (
            _state(page, one),
            shortened(one.label),
            shortened(one.principal),
            ", ".join(one.scopes),
            shortened(", ".join(one.namespaces)),
            instant(one.created_at),
            instant(one.expires_at),
            instant(one.used_at),
            _actions(page, one),
        )
        for one in found.items
    ]
    heads = (
        "State",
        "Label",
        "Principal",
        "Scopes",
        "Namespaces",
        "Created",
        "Expires",
        "Last used",
        "Actions",
    )
    form = action_form(
        page,
        "key.create",
        "Create the key",
        text_field("label", "Label", required=True),
        text_field("scopes/list", "Scopes", "read", required=True, hint=f"of {', '.join(Scope)}"),
        text_field("namespaces/list", "Namespaces", "*", required=True, hint="* for all"),
        text_field("principal", "Who uses it", hint="the label if empty"),
        text_field("expires_at", "Expires (UTC)", kind="datetime-local"),
    )
    content = join(
        el("h1", "Keys"),
        table(heads, rows, caption="Keys, oldest first", empty=_NO_KEY),
        list_nav(partial(page.links.server_page, "keys"), page.query.after, found.next),
        folded_form("Create a key…", form),
    )
    return Answer(title="Keys", content=content, section="keys")


_NO_KEY: Final = "There is no key: requests from the machine of the server may do everything."


def _state(page: Page, one: KeyInfo) -> Html:
    if one.revoked_at is not None:
        return badge("revoked", "ended")
    if one.expires_at is not None and one.expires_at <= page.now:
        return badge("expired", "ended")
    return badge("valid", "good")


def _actions(page: Page, one: KeyInfo) -> Html | None:
    if one.revoked_at is not None:
        return None
    path = {"label": one.label}
    rotate = action_form(page, "key.rotate", "Make a new secret", path=path)
    why = text_field("reason", "Reason, for people")
    revoke = action_form(page, "key.revoke", "Revoke for good", why, path=path)
    return join(folded_form("Rotate…", rotate), folded_form("Revoke…", revoke))


def new_key_page(call: Invocation, reply: NewKey) -> Text:
    """Return the page with the text of a key, which no other page shows."""
    page: Page = Page(call)
    if reply.text is None:
        inside = notice(
            "waiting", "A key with this label and these rights exists. Its text is not known; rotate it."
        )
    else:
        inside = join(
            notice("good", "Copy the key now: nothing shows it again."),
            el("p", el("code", reply.text, id="key"), " ", copy_button(reply.text)),
        )
    content = join(
        el("h1", "A key"),
        inside,
        facts([("Label", shortened(reply.info.label)), ("Scopes", ", ".join(reply.info.scopes))]),
        el("p", el("a", "All keys", href=page.links.server_page("keys"))),
    )
    return page_text(page, Answer(title="A key", content=content, section="keys"))


def audit_page(page: Page[AuditQuery]) -> Answer:
    """List the entries of the audit log, newest first."""
    query = page.query
    found = list_audit(page.reading(query))
    rows = [
        (
            instant(one.at),
            el("code", one.action),
            shortened(one.target),
            None if one.actor is None else shortened(str(one.actor)),
            None if one.request_id is None else el("code", shortened(one.request_id)),
            el("details", el("summary", "details"), json_value(one.details)) if one.details else None,
        )
        for one in found.items
    ]
    heads = ("Time", "Action", "Target", "By", "Request", "Details")
    form = el(
        "form",
        text_field("namespace", "Namespace", query.namespace or "", required=True),
        el("button", "Show"),
        method="get",
        class_="filter",
    )
    address = partial(page.links.server_page, "audit", namespace=query.namespace)
    content = join(
        el("h1", "Audit log"),
        form,
        table(heads, rows, caption="Audit entries, newest first", empty="There are no entries."),
        list_nav(address, query.after, found.next, first="Newest", next_="Older"),
    )
    return Answer(title="Audit log", content=content, section="audit")


OPERATIONS: Final[Table] = (
    page_operation(
        "page.keys", f"{PAGES}/keys", keys_page, query=PageQuery, scope=Scope.ADMIN, reach=Reach.ALL
    ),
    page_operation(
        "page.audit", f"{PAGES}/audit", audit_page, query=AuditQuery, scope=Scope.ADMIN, reach=Reach.ALL
    ),
)
