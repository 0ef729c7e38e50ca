"""The frame of every page: its head, the navigation, the settings, and who is signed in."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from typing_extensions import TypeVar

from holdfast.hosts.http.operations import Access, Nothing, Operation, Reach, Redirect, Text
from holdfast.hosts.http.pages.files import ICON, SCRIPT, STYLES
from holdfast.hosts.http.pages.html import Content, Html, Link, document, el, join
from holdfast.hosts.http.pages.links import NAMESPACE_PAGES, Links
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.request_forms import CSRF_FIELD, PAGES, RETURN_FIELD

Q = TypeVar("Q", default=Any)
Render: TypeAlias = Callable[[Page[Q]], "Answer | Redirect"]
"""Returns what a page shows."""

THEME_COOKIE: Final = "holdfast-theme"
"""The cookie in which the script keeps the theme that a person has chosen."""
HTML_HEADERS: Final = (
    (
        "Content-Security-Policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
            " form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
            " require-trusted-types-for 'script'; trusted-types holdfast"
        ),
    ),
)
_SECTIONS: Final = (
    ("", "Overview"),
    ("runs", "Runs"),
    ("workflows", "Workflows"),
    ("schedules", "Schedules"),
    ("topics", "Topics"),
    ("queues", "Queues"),
    ("workers", "Workers"),
    ("events", "Events"),
)
_SERVER_SECTIONS: Final = (
    ("namespaces", "Namespaces", "namespace.list"),
    ("keys", "Keys", "key.list"),
    ("audit", "Audit", "audit.list"),
)


def page_operation(
    name: str,
    path: str,
    render: Render[Q],
    *,
    query: type[Q] | None = None,
    scope: Scope | Access = Scope.READ,
    reach: Reach = Reach.NAMED,
    ignores_unknown: bool = False,
) -> Operation:
    """Return the entry of a page in the table of pages.

    Args:
        name: Its name, such as `page.runs`.
        path: Its path; below that of the pages of a namespace, unless it begins with `/ui`.
        render: Returns what it shows.
        query: The class of its query parameters.
        scope: What a person needs to open it.
        reach: Where the person needs that.
        ignores_unknown: Whether it ignores query parameters that it does not know.
    """

    def answer(call: Any) -> Any:
        page: Page[Q] = Page(call)
        found = render(page)
        return found if isinstance(found, Redirect) else page_text(page, found)

    kind: Any = Nothing if query is None else query
    is_of_server = path == "/" or path.startswith(PAGES)
    return Operation(
        name=name,
        method="GET",
        path=path if is_of_server else f"{NAMESPACE_PAGES}{path}",
        scope=scope,
        reach=reach,
        query=kind,
        reply=Text,
        handler=answer,
        media_types=("text/html",),
        is_page=True,
        ignores_unknown=ignores_unknown,
    )


def page_text(page: Page[Any], answer: Answer) -> Text:
    """Return a page as an answer of the server."""
    return Text(_page(page, answer), "text/html", HTML_HEADERS)


def _page(page: Page[Any], answer: Answer) -> bytes:
    links = page.links
    watch = None if answer.watch is None else Link(f"{links.root}{answer.watch}")
    return framed(
        links,
        answer.title,
        _header(page, answer),
        el("main", answer.content, id="main", tabindex=-1, data_watch=watch),
        theme=page.call.request.cookies.get(THEME_COOKIE),
    )


def framed(links: Links, title: str, *body: Content, theme: str | None = None) -> bytes:
    """Return a whole page around its body."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} · Holdfast"),
        el("link", rel="icon", href=links.server_page("static", ICON), type="image/svg+xml"),
        el("link", rel="stylesheet", href=links.server_page("static", STYLES)),
        el("script", type="module", src=links.server_page("static", SCRIPT)),
    )
    skip = el("a", "Skip to content", class_="skip", href=Link("#main"))
    return document(
        head, el("body", skip, *body), lang="en", data_theme=theme if theme in {"dark", "light"} else None
    )


def _header(page: Page[Any], answer: Answer) -> Html:
    links = page.links
    if not page.call.principal.scopes:  # nobody is signed in
        brand = el("a", "Holdfast", class_="brand", href=links.server_page())
        return el("header", brand, el("div", _settings(), class_="tools"), class_="top")
    entries = [
        _entry(
            title,
            links.page(section) if section else links.page(),
            is_current=answer.section == section,
            has_views=section == "runs",
        )
        for section, title in _SECTIONS
    ]
    server = [
        _entry(title, links.server_page(section), is_current=answer.section == section)
        for section, title, operation in _SERVER_SECTIONS
        if page.may(operation)
    ]
    return el(
        "header",
        el("a", "Holdfast", class_="brand", href=links.page()),
        el("a", links.namespace, class_="namespace", href=links.server_page("namespaces"), title="Namespace"),
        el(
            "nav",
            el("ul", entries),
            el("ul", server, class_="server") if server else None,
            aria_label="Pages",
        ),
        el("div", _live(answer), _settings(), _person(page), class_="tools"),
        class_="top",
    )


def _entry(title: str, address: Link, *, is_current: bool, has_views: bool = False) -> Html:
    """Return an entry of the navigation. Below the one with views, the script lists those that this browser keeps."""
    link = el("a", title, href=address, aria_current="page" if is_current else None)
    return el("li", link, data_views=has_views)


def _live(answer: Answer) -> Html | None:
    if answer.watch is None:
        return None
    return el("button", "Live", type="button", id="live", class_="live", hidden=True, aria_live="polite")


def _settings() -> Html:
    """Return what works only with the script, which shows it."""
    return join(
        el("button", "UTC", type="button", id="clock", hidden=True, title="How times are shown"),
        el("button", "Theme", type="button", id="theme", hidden=True, title="Dark, light, or as the system"),
        el("button", "?", type="button", id="help", hidden=True, aria_label="Keyboard shortcuts"),
    )


def _person(page: Page[Any]) -> Html | None:
    token = page.csrf_token
    if token is None:
        return None
    return el(
        "form",
        el("input", type="hidden", name=CSRF_FIELD, value=token),
        el("input", type="hidden", name=RETURN_FIELD, value=f"{PAGES}/sign-in"),
        el("span", page.call.principal.id, class_="person"),
        el("button", "Sign out"),
        method="post",
        action=page.links.api("browser_session.delete"),
    )
