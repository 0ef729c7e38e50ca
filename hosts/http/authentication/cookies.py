"""Cookies of the server, such as that of a browser session: names, where they are sent, and who can read them.

A cookie is bound to the origin as far as browsers allow: with TLS at the root of a host by the prefix `__Host-`, below
a path by `__Secure-` and a name of that path. Cookies do not tell ports apart, so without TLS the port is in the name.
"""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from holdfast.hosts.http.authentication.loopback import is_forwarded, is_loopback
from holdfast.hosts.http.authentication.origins import host_name, only

if TYPE_CHECKING:  # the client has the table of operations too, and needs no starlette
    from starlette.requests import Request

NAME: Final = "holdfast"
HOST_NAME: Final = f"__Host-{NAME}"
"""The name with TLS at the root of a host."""


class OriginCookie:
    """Reads and writes a cookie. Not `secure`: it may also be sent without TLS, and then by any host."""

    def __init__(self, name: str = NAME, *, secure: bool) -> None:
        self._name = name
        self._secure = secure

    def read(self, request: "Request") -> str | None:
        """Return the cookie of a request; None without one, or with two: another site may have set one of them."""
        sent = _cookies_of(request)
        if not sent:
            return None
        names = [_secure_name(self._name, request)]
        if self._may_be_plain(request):
            names.append(_plain_name(self._name, request))
        for name in names:
            values = [value for found, value in sent if found == name]
            if values:
                return values[0] if len(values) == 1 else None
        return None

    def set_header(self, request: "Request", value: str, seconds: int) -> str:
        """Return the `Set-Cookie` for a value that is kept for some seconds; 0: the browser deletes the cookie."""
        is_plain = self._may_be_plain(request) and _is_sent_plain(request)
        name = _plain_name(self._name, request) if is_plain else _secure_name(self._name, request)
        path = quote(_root(request), safe="/~!$&'()*+,=:@") or "/"
        # Lax, not Strict: a link from a chat or a mail would ask for a sign-in. Whatever changes something needs the
        # token of the session.
        parts = [f"{name}={value}", f"Path={path}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
        return "; ".join(parts if is_plain else [*parts, "Secure"])

    def _may_be_plain(self, request: "Request") -> bool:
        """Return whether a request without TLS may have the cookie: from this machine, or where that is allowed."""
        if request.url.scheme == "https":
            return False
        host = host_name(only(request.headers, "host") or "")
        return not self._secure or (host is not None and is_loopback(host))


def _is_sent_plain(request: "Request") -> bool:
    """Return whether the browser itself sends a request without TLS, as far as can be seen behind a proxy."""
    origin = request.headers.get("origin")
    if origin is not None:
        return origin.lower().startswith("http:")
    return not is_forwarded(request)


def _secure_name(name: str, request: "Request") -> str:
    root = _root(request)
    return f"__Secure-{name}-{_digest(root)}" if root else f"__Host-{name}"


def _plain_name(name: str, request: "Request") -> str:
    root = _root(request)
    try:
        port = urlsplit(f"http://{request.headers.get('host', '')}").port or 80
    except ValueError:
        port = 80
    return f"{name}-{port}-{_digest(root)}" if root else f"{name}-{port}"


def _digest(root: str) -> str:
    return hashlib.sha256(root.encode()).hexdigest()[:8]


def _root(request: "Request") -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _cookies_of(request: "Request") -> list[tuple[str, str]]:
    return list(_pairs_in(";".join(request.headers.getlist("cookie"))))


def _pairs_in(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            yield name.strip(), value.strip()
