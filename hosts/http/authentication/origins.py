"""Where a request of a browser comes from: `Sec-Fetch-Site`, or `Origin` beside `Host`."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast.ports.errors import ForeignOriginError

if TYPE_CHECKING:  # the client has the table of operations too, and needs no starlette
    from starlette.datastructures import Headers

OWN_SITES: Final = frozenset({"none", "same-origin"})
"""What a browser sends for an address that a person has entered, and for a page of the server."""


def check_same_origin(headers: "Headers") -> None:
    """Raise ForeignOriginError if, according to the browser, a page of another origin has sent a request.

    `Sec-Fetch-Site` decides, which no page can change. Browsers do not send it to a server without TLS; then `Origin`
    must be of the host that `Host` names. A request with neither is not one of a browser that could be deceived.
    """
    if "sec-fetch-site" in headers:
        if only(headers, "sec-fetch-site") not in OWN_SITES:
            raise ForeignOriginError("Sec-Fetch-Site", headers["sec-fetch-site"])
    elif "origin" in headers:
        check_origin_header(headers)


def check_origin_header(headers: "Headers") -> None:
    """Raise ForeignOriginError if `Origin` is not of the host that `Host` names, or either is sent twice."""
    host, origin = only(headers, "host"), only(headers, "origin")
    if host is None or origin is None or authority_of(origin) != host.lower():
        raise ForeignOriginError("Origin", headers["origin"])


def is_navigation(headers: "Headers") -> bool:
    """Return whether a person has followed a link, so that the browser shows the answer in a tab of its own."""
    return (only(headers, "sec-fetch-mode"), only(headers, "sec-fetch-dest")) == ("navigate", "document")


def only(headers: "Headers", name: str) -> str | None:
    """Return the value of a header that is sent once; None otherwise."""
    values = headers.getlist(name)
    return values[0] if len(values) == 1 else None


def host_name(host: str) -> str | None:
    """Return the name in `Host`, without the port and in lower case; None if it is malformed."""
    name, colon, port = host.lower().rpartition(":") if not host.endswith("]") else (host.lower(), "", "")
    if not colon:
        return name or host.lower()
    return name if port.isascii() and port.isdigit() else None


def authority_of(origin: str) -> str | None:
    """Return the host and the port of an `Origin`; None if it is not one of HTTP."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    is_plain = parts.scheme in ("http", "https") and not (parts.path or parts.query or parts.fragment)
    return parts.netloc.lower() if is_plain else None
