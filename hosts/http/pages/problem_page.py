"""A problem as a page, for what a person has opened or sent in a browser."""

from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.hosts.http.pages.components import notice
from holdfast.hosts.http.pages.html import Html, Link, el
from holdfast.hosts.http.pages.links import Links
from holdfast.hosts.http.pages.shell import THEME_COOKIE, framed
from holdfast.hosts.http.problems import Problem
from holdfast.hosts.http.request_forms import PAGES


def problem_page(problem: Problem, request: Request, root: str) -> bytes:
    """Return the page of a problem, with a link back to the page from which the request came."""
    faults = [el("li", el("code", one.path), f": {one.message}") for one in problem.errors]
    detail = None if faults or not problem.detail else el("p", problem.detail)
    request_id = None
    if problem.request_id is not None:
        request_id = el(
            "p", "The log of the server has the cause under ", el("code", problem.request_id), "."
        )
    causes = [one for one in (detail, el("ul", faults) if faults else None, request_id) if one is not None]
    content = el(
        "main",
        el("h1", problem.title),
        notice("bad", *causes, role="alert") if causes else None,
        el("p", el("a", "Back", href=_back(request, root)), class_="pages"),
        el("p", f"{problem.status} · {problem.code}", class_="note"),
        id="main",
    )
    header: Html = el(
        "header", el("a", "Holdfast", class_="brand", href=Link(f"{root}{PAGES}")), class_="top"
    )
    theme = request.cookies.get(THEME_COOKIE)
    return framed(Links(root, ""), problem.title, header, content, theme=theme)


def _back(request: Request, root: str) -> Link:
    """Return the page in `Referer` if it is one of this server, else the first page."""
    parts = urlsplit(request.headers.get("referer", ""))
    here = request.headers.get("host", "")
    if parts.netloc == here and parts.path.startswith(f"{root}{PAGES}") and parts.path != request.url.path:
        return Link(f"{parts.path}?{parts.query}" if parts.query else parts.path)
    return Link(f"{root}{PAGES}")
