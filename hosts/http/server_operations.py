"""Operations about the server itself: health, what it is, its OpenAPI document, the meaning of error codes."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import attrs

from holdfast.hosts.http.operations import Access, Invocation, Nothing, Operation, Reach, Table, Text
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import REQUEST_CODES, HttpError, errors_by_code, meaning_of, status_of
from holdfast.hosts.http.schemas import description_of
from holdfast.ports.errors import UnavailableError


@attrs.frozen(kw_only=True)
class Health:
    """Whether the server works."""

    status: str
    """`ok`."""


@attrs.frozen(kw_only=True)
class ServerInfo:
    """What the server is, and what the principal may do."""

    version: str
    """The version of Holdfast."""
    principal: str
    """The id of the principal that sent the request."""
    scopes: tuple[str, ...]
    """The scopes of the principal."""
    namespaces: tuple[str, ...]
    """The namespaces that the principal reaches; `*` for all."""
    default_namespace: str
    """The namespace with which the server's engine was opened."""


@attrs.frozen(kw_only=True)
class ErrorPage:
    """The meaning of an error code."""

    code: str
    """The code."""
    status: int
    """The status of answers with it."""
    title: str
    """What it means, in one line."""
    description: str
    """More about it; may be empty."""


def live(_: Invocation[Nothing, Nothing]) -> Health:
    """Check that the process answers. The store is not read."""
    return Health(status="ok")


def ready(call: Invocation[Nothing, Nothing]) -> Health:
    """Check that the store answers, within two seconds.

    The store is read once a second at most.
    """
    try:
        call.server.readiness.get()
    except TimeoutError as error:
        raise UnavailableError(str(error)) from None
    return Health(status="ok")


def expose_metrics(call: Invocation[Nothing, Nothing]) -> Text:
    """Get the metrics for Prometheus.

    Those of the store are read every ten seconds at most. 404 if the server was mounted without metrics.
    """
    metrics = call.server.metrics
    if metrics is None:
        raise HttpError(
            "not_found", "this server has no metrics: pass `metrics=Metrics(engine)` to `asgi_app`"
        )
    found = metrics.expose(call.accept)
    return Text(found.content, found.media_type)


def describe_server(call: Invocation[Nothing, Nothing]) -> ServerInfo:
    """Describe the server and the principal."""
    principal = call.principal
    return ServerInfo(
        version=installed_version(),
        principal=principal.id,
        scopes=tuple(sorted(principal.scopes)),
        namespaces=tuple(sorted(principal.namespaces)),
        default_namespace=call.engine.core.namespace,
    )


def describe_error(call: Invocation[Nothing, Nothing]) -> ErrorPage:
    """Explain an error code."""
    code = call.path["code"]
    if code in REQUEST_CODES:
        status, title = REQUEST_CODES[code]
        return ErrorPage(code=code, status=status, title=title, description="")
    found = errors_by_code().get(code)
    if found is None:
        raise HttpError("not_found", "there is no such code")
    return ErrorPage(
        code=code, status=status_of(found), title=meaning_of(found), description=description_of(found)
    )


def describe_operations(call: Invocation[Nothing, Nothing]) -> dict[str, Any]:
    """Get the OpenAPI document of the server."""
    return {**_document(), "servers": [{"url": call.root or "/"}]}


@cache
def _document() -> dict[str, Any]:
    """Return the document, made once: where the server is mounted comes with each request."""
    from holdfast.hosts.http import table  # it lists the function above
    from holdfast.hosts.http.openapi import openapi_document

    return openapi_document(table.OPERATIONS)


def installed_version() -> str:
    """Return the version of the installed package."""
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "0"


OPERATIONS: Final[Table] = (
    Operation(
        name="server.live",
        method="GET",
        path="/livez",
        scope=Access.ANYONE,
        reply=Health,
        handler=live,
        blocks=False,
        is_probe=True,
    ),
    Operation(
        name="server.ready",
        method="GET",
        path="/readyz",
        scope=Access.ANYONE,
        reply=Health,
        handler=ready,
        errors=(UnavailableError,),
        is_probe=True,
    ),
    Operation(
        name="server.metrics",
        method="GET",
        path="/metrics",
        scope=Scope.READ,
        reply=Text,
        media_types=("text/plain", "application/openmetrics-text"),
        handler=expose_metrics,
        reach=Reach.ALL,
        is_probe=True,
    ),
    Operation(
        name="server.get",
        method="GET",
        path="/v1",
        scope=Access.PRINCIPAL,
        reply=ServerInfo,
        handler=describe_server,
    ),
    Operation(
        name="server.openapi",
        method="GET",
        path="/openapi.json",
        scope=Access.ANYONE,
        reply=dict,
        handler=describe_operations,
    ),
    Operation(
        name="error.get",
        method="GET",
        path="/errors/{code}",
        scope=Access.ANYONE,
        reply=ErrorPage,
        handler=describe_error,
    ),
)
