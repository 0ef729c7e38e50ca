"""Forms that send operations of the API, without a script. A person sees only those that this person may send."""

from collections.abc import Mapping

from holdfast.hosts.http.operations import Hint
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.links import operation_named
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.request_forms import CSRF_FIELD, GENERATION_FIELD, RETURN_FIELD


def action_form(
    page: Page,
    operation: str,
    label: str,
    *fields: Content,
    path: Mapping[str, str] | None = None,
    fixed: Mapping[str, str] | None = None,
    return_to: str | None = "",
    generation: int | None = None,
    class_: str = "",
) -> Html | None:
    """Return a form that sends an operation; None if the person may not send it.

    Args:
        page: The page.
        operation: The name of the operation, such as `run.cancel`.
        label: What its button says.
        fields: What the person fills in.
        path: The parameters in its path, beside the namespace.
        fixed: Further fields of its body, by name.
        return_to: Where the browser goes afterwards, below the mount; "" for this page, None for the page of what the
            operation has made.
        generation: The generation of the run that the page shows: if there is a newer one, the operation is refused.
        class_: The class of the form.
    """
    if not page.may(operation):
        return None
    hidden: dict[str, str | None] = {
        CSRF_FIELD: page.csrf_token,
        RETURN_FIELD: page.address if return_to == "" else return_to,
        GENERATION_FIELD: None if generation is None else f'"g{generation}"',
        **(fixed or {}),
    }
    is_destructive = operation_named(operation).hint is Hint.DESTROYS
    return el(
        "form",
        [
            el("input", type="hidden", name=name, value=value)
            for name, value in hidden.items()
            if value is not None
        ],
        *fields,
        el("button", label, class_="danger" if is_destructive else None),
        method="post",
        action=page.links.form_target(operation, **(path or {})),
        class_=class_ or None,
    )


def folded_form(summary: str, form: Html | None, *, id: str | None = None) -> Html | None:
    """Return a form that a person unfolds before sending it; None without a form."""
    return None if form is None else el("details", el("summary", summary), form, class_="action", id=id)


def text_field(
    name: str,
    label: str,
    value: str = "",
    *,
    kind: str = "text",
    required: bool = False,
    placeholder: str | None = None,
    hint: str = "",
) -> Html:
    """Return a field for a line of text, a number or a date, with its label."""
    field = el(
        "input",
        type=kind,
        name=name,
        value=value or None,
        required=required,
        placeholder=placeholder,
        autocomplete="off",
    )
    return _labelled(label, field, hint)


def text_area(
    name: str, label: str, value: str = "", *, rows: int = 6, required: bool = False, hint: str = ""
) -> Html:
    """Return a field for several lines, with its label."""
    area = el("textarea", f"\n{value}", name=name, rows=rows, required=required, spellcheck="false")
    return _labelled(label, area, hint)


def choice(name: str, label: str, options: Mapping[str, str], chosen: str = "", *, hint: str = "") -> Html:
    """Return a list to choose from, with its label: texts by the values that are sent."""
    found = [el("option", text, value=value, selected=value == chosen) for value, text in options.items()]
    return _labelled(label, el("select", found, name=name), hint)


def check_box(name: str, label: str, *, checked: bool = False, value: str = "true") -> Html:
    """Return a box to check, with its label."""
    return el(
        "label",
        el("input", type="checkbox", name=name, value=value, checked=checked),
        f" {label}",
        class_="check",
    )


def _labelled(label: str, field: Html, hint: str) -> Html:
    return el("label", el("span", label), field, el("small", hint) if hint else None)


def filter_form(*fields: Content, label: str = "Filter") -> Html:
    """Return a form whose fields become query parameters of the page."""
    return el("form", join(*fields), el("button", label), method="get", class_="filter", role="search")
