"""Open access from this machine, for a server without credentials: by the address, `Host` and `Origin` of requests.

A page of another site can make the browser of this machine send requests to a local server, by its own name for this
address (DNS rebinding) or by a form. Its `Host` or `Origin` names that site.
"""

import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from holdfast.hosts.http.authentication.origins import (
    check_origin_header,
    check_same_origin,
    host_name,
    only,
)
from holdfast.hosts.http.principals import ALL_NAMESPACES, Principal, Scope
from holdfast.ports.errors import ForeignOriginError, UnprotectedAddressError

if TYPE_CHECKING:  # the client has the table of operations too, and needs no starlette
    from starlette.requests import Request

LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The names of this machine in `Host`."""
LOCAL: Final = Principal(
    id="local", kind="user", scopes=frozenset(Scope), namespaces=frozenset({ALL_NAMESPACES})
)
"""The principal of a request from this machine to a server without credentials: it may do everything."""
_FORWARDED: Final = (
    "forwarded",
    "via",
    "x-forwarded-",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
)
"""How the names of headers begin that proxies add. A request with one of these may come from anywhere."""


class LoopbackAccess:
    """Allows everything to requests from this machine, by its own name. `hosts` are further names in `Host`."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        self._hosts = LOCAL_HOSTS | {host.lower() for host in hosts}

    def principal(self, request: "Request") -> Principal | None:
        """Return the local principal; None for a request from another machine.

        Raises ForeignOriginError if `Host`, `Origin` or `Sec-Fetch-Site` names another site.
        """
        headers = request.headers
        address = "" if request.client is None else request.client.host
        if not is_loopback(address) or is_forwarded(request):
            return None
        host = only(headers, "host")
        if host is None or host_name(host) not in self._hosts:
            raise ForeignOriginError("Host", headers.get("host", ""))
        if "origin" in headers:
            check_origin_header(headers)
        check_same_origin(headers)
        return LOCAL


def is_forwarded(request: "Request") -> bool:
    """Return whether a proxy has passed a request on. nginx adds no header, but uses HTTP/1.0, by default."""
    return request.scope.get("http_version") == "1.0" or any(
        name.startswith(_FORWARDED) for name in request.headers
    )


def is_loopback(address: str) -> bool:
    """Return whether an address, or `localhost`, is of this machine alone."""
    try:
        return address == "localhost" or ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(address: str, *, has_credentials: bool) -> None:
    """Raise UnprotectedAddressError if a server without credentials would listen beyond this machine."""
    if not has_credentials and not is_loopback(address):
        raise UnprotectedAddressError(address)
