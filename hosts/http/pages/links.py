"""Addresses of pages and operations of the server that made a page, whatever path it is mounted under."""

from collections.abc import Mapping
from functools import cache
from typing import Final
from urllib.parse import quote, urlencode

import attrs

from holdfast.hosts.http.operations import Operation
from holdfast.hosts.http.pages.html import Link
from holdfast.hosts.http.request_forms import METHOD_PARAMETER, PAGES
from holdfast.hosts.http.table import OPERATIONS

NAMESPACE_PAGES: Final = f"{PAGES}/namespaces/{{namespace}}"
"""The path below which the pages of a namespace are: that of the API with `/ui` in place of `/v1`."""


QueryValue = str | int | bool | tuple[str, ...] | None


@attrs.frozen
class Links:
    """Makes the addresses on one page."""

    root: str
    """The path under which the server is mounted."""
    namespace: str
    """The namespace of the page."""

    def page(self, *segments: str, **query: QueryValue) -> Link:
        """Return the address of a page of the namespace: `page("runs", run.id, tab="steps")`."""
        return self.of_namespace(self.namespace, *segments, **query)

    def of_namespace(self, namespace: str, *segments: str, **query: QueryValue) -> Link:
        """Return the address of a page of another namespace."""
        return self.server_page("namespaces", namespace, *segments, **query)

    def server_page(self, *segments: str, **query: QueryValue) -> Link:
        """Return the address of a page of the server: `server_page("keys")`."""
        return self.below(PAGES, *segments, query=query)

    def below(self, path: str, *segments: str, query: Mapping[str, QueryValue]) -> Link:
        """Return the address of segments below a path of the server."""
        parts = "".join(f"/{quote(one, safe='')}" for one in segments)
        return Link(f"{self.root}{path}{parts}{_query(query)}")

    def path(self, link: Link) -> str:
        """Return the path of an address below the mount, for redirects and `return_to`."""
        return link.address.removeprefix(self.root)

    def api(self, operation: str, query: Mapping[str, QueryValue] | None = None, **path: str) -> Link:
        """Return the address of an operation of the API: `api("run.cancel", run_id=run.id)`."""
        return Link(f"{self.root}{self.api_path(operation, query, **path)}")

    def form_target(self, operation: str, **path: str) -> Link:
        """Return the address to which a form sends an operation."""
        method = operation_named(operation).method
        return self.api(operation, None if method == "POST" else {METHOD_PARAMETER: method}, **path)

    def api_path(self, operation: str, query: Mapping[str, QueryValue] | None = None, **path: str) -> str:
        """Return the path of an operation, without that of the mount."""
        given = {"namespace": self.namespace, **path}
        segments = operation_named(operation).path.split("/")
        parts = [quote(given[one[1:-1]], safe="") if one.startswith("{") else one for one in segments]
        return f"{'/'.join(parts)}{_query(query or {})}"


@cache
def _operations() -> Mapping[str, Operation]:
    return {one.name: one for one in OPERATIONS}


def operation_named(name: str) -> Operation:
    """Return an operation of the API. KeyError for an unknown name."""
    return _operations()[name]


def _query(query: Mapping[str, QueryValue]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, tuple):
            pairs.extend((name, one) for one in value)
        elif value is not None and value is not False:
            pairs.append((name, "true" if value is True else str(value)))
    return f"?{urlencode(pairs)}" if pairs else ""
