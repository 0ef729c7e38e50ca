"""What the principal of a request may do, and whether the request comes from where it has to."""

from typing import Final

from starlette.requests import Request

from holdfast.hosts.http.authentication.origins import check_same_origin, is_navigation
from holdfast.hosts.http.operations import (
    Access,
    Hint,
    Operation,
    Reach,
)
from holdfast.hosts.http.principals import ALL_NAMESPACES, Principal, Scope
from holdfast.hosts.http.problems import HttpError
from holdfast.hosts.http.request_forms import CSRF_FIELD, is_form

CSRF_HEADER: Final = "x-csrf-token"


def is_safe(request: Request, operation: Operation) -> bool:
    """Return whether a page of another site may cause a request: its method is one of reads, and so is the operation.

    A GET that reads a sink changes it: it acknowledges what was read before.
    """
    return request.method in {"GET", "HEAD"} and operation.hint is Hint.READS


def authorise(operation: Operation, request: Request, principal: Principal) -> None:
    """Refuse a namespace that the principal does not reach as if it did not exist, and a missing scope by name."""
    namespace = request.path_params.get("namespace")
    if namespace is not None and not principal.reaches(namespace):
        raise HttpError("namespace_not_found", f"there is no namespace {namespace!r}")
    if isinstance(operation.scope, Access):
        return
    if operation.scope not in principal.scopes:
        raise HttpError("forbidden", f"{operation.name} needs the scope {operation.scope.value!r}")
    if operation.reach is Reach.ALL and ALL_NAMESPACES not in principal.namespaces:
        raise HttpError(
            "forbidden", f"{operation.name} needs the scope {operation.scope.value!r} on all namespaces"
        )


def check_origin(request: Request, principal: Principal, operation: Operation) -> None:
    """Raise ForeignOriginError if a cookie speaks for a request that a page of another origin has sent.

    A link may lead to a page of the server from everywhere: the browser shows it, and no script of the other site can
    read it.

    Of an application that authenticates requests itself, it is not known whether its cookie does; so only requests that
    change something are refused, and only if they have a cookie and no other credential.
    """
    headers = request.headers
    if is_form(request):  # a page of any site can send one, and the browser may add its credentials
        check_same_origin(headers)
    if "authorization" in headers:
        return
    if operation.is_page and is_navigation(headers):
        return
    if principal.session is not None or ("cookie" in headers and not is_safe(request, operation)):
        check_same_origin(headers)


def check_csrf(
    request: Request, operation: Operation, principal: Principal | None, field: str | None
) -> None:
    """Raise HttpError if a request of a browser session changes something and has no token of the session."""
    session = None if principal is None else principal.session
    if session is None or is_safe(request, operation):
        return
    token = field or request.headers.get(CSRF_HEADER, "")
    if not session.has_csrf_token(token):
        raise HttpError(
            "csrf_failed",
            f"send the `csrf_token` of GET /v1/browser-session as `X-CSRF-Token`, or as `{CSRF_FIELD}` of a form",
        )


def sees_values(principal: Principal, request: Request) -> bool:
    """Return whether a principal may see what user code wrote, in the namespace of the path."""
    return Scope.PAYLOADS in principal.scopes and principal.reaches(request.path_params.get("namespace", ""))
