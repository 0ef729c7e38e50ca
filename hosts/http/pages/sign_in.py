"""The page on which a person signs in, and the first page of the server."""

from typing import Final

import attrs

from holdfast.hosts.http.authentication.single_sign_on import RETURN_PATH, ProviderAnswer
from holdfast.hosts.http.operations import Access, Nothing, Redirect, Table
from holdfast.hosts.http.pages.components import notice
from holdfast.hosts.http.pages.forms import text_field
from holdfast.hosts.http.pages.html import el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.principals import ALL_NAMESPACES
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.request_forms import PAGES, RETURN_FIELD
from holdfast.hosts.http.return_paths import is_return_path


@attrs.frozen(kw_only=True)
class SignInQuery:
    """The query parameters of the page for signing in."""

    return_to: str = PAGES
    """The path, below the mount, to which the browser goes afterwards."""


def sign_in_page(page: Page[SignInQuery]) -> Answer:
    """Ask for a key or a token."""
    if page.call.server.sessions is None:
        text = "The application that embeds this server signs people in. Sign in there, and come back."
        return Answer(
            title="Sign in", content=join(el("h1", "Sign in"), notice("waiting", text)), section="sign-in"
        )
    wanted = page.query.return_to
    return_to = wanted if is_return_path(wanted) else PAGES
    sign_on = page.call.server.sign_on
    provider = None
    if sign_on is not None:
        begin = page.links.server_page("sign-in", "provider", return_to=return_to)
        provider = el(
            "p",
            el("a", f"Sign in with {sign_on.settings.name}", href=begin, class_="button main"),
            class_="sign-in",
        )
    form = el(
        "form",
        text_field("credential", "API key, or token", kind="password", required=True),
        el("input", type="hidden", name=RETURN_FIELD, value=return_to),
        el("button", "Sign in", class_="main" if sign_on is None else ""),
        method="post",
        action=page.links.api("browser_session.create"),
        class_="sign-in",
    )
    how = el("p", "An administrator makes a key with ", el("code", "holdfast key create"), ".", class_="note")
    return Answer(title="Sign in", content=join(el("h1", "Sign in"), provider, form, how), section="sign-in")


def begin_sign_on(page: Page[SignInQuery]) -> Redirect:
    """Lead to the provider of single sign-on."""
    sign_on, call = page.call.server.sign_on, page.call
    if sign_on is None:
        raise HttpError("not_found", "this server has no single sign-on")
    address, cookie = sign_on.begin(call.request, page.query.return_to)
    call.answer_cookies.append(cookie)
    return Redirect(address, is_elsewhere=True)


def end_sign_on(page: Page[ProviderAnswer]) -> Redirect:
    """Open a browser session for the person of an ID token, and lead to the page that was wanted."""
    call, sign_on, sessions = page.call, page.call.server.sign_on, page.call.server.sessions
    assert sign_on is not None, "it has verified the answer"
    assert sessions is not None, "single sign-on has browser sessions"
    assert call.verified is not None, "the operation needs a code"
    _, cookie = sessions.open(call.engine.client, call.request, call.verified)
    call.answer_cookies.extend((cookie, sign_on.end(call.request)))
    return Redirect(sign_on.return_path(call.request))


def first_page(page: Page[Nothing]) -> Redirect:
    """Lead to the overview of a namespace that the person reaches."""
    reached, own = page.call.principal.namespaces, page.call.namespace
    name = own if ALL_NAMESPACES in reached or own in reached else min(reached, default=own)
    return Redirect(page.links.path(page.links.of_namespace(name)))


OPERATIONS: Final[Table] = (
    page_operation("page.sign_in", f"{PAGES}/sign-in", sign_in_page, query=SignInQuery, scope=Access.ANYONE),
    page_operation(
        "page.sign_in_provider",
        f"{PAGES}/sign-in/provider",
        begin_sign_on,
        query=SignInQuery,
        scope=Access.ANYONE,
    ),
    page_operation(
        "page.sign_in_return",
        RETURN_PATH,
        end_sign_on,
        query=ProviderAnswer,
        scope=Access.CODE,
        ignores_unknown=True,
    ),
    page_operation("page.root", "/", first_page, scope=Access.PRINCIPAL),
    page_operation("page.first", PAGES, first_page, scope=Access.PRINCIPAL),
)
