"""The HTTP server, to be mounted in an ASGI application: `app.mount("/holdfast", asgi_app(engine))`.

It needs the extra `server`.
"""

try:
    from holdfast.hosts.http.app import Authenticate, HttpServer, asgi_app
except ModuleNotFoundError as error:
    if error.name != "starlette":
        raise
    raise ModuleNotFoundError(
        'the HTTP server needs starlette: pip install "holdfast[server]"', name=error.name
    ) from None
from holdfast.hosts.http.authentication.browser_sessions import BrowserSessionSettings
from holdfast.hosts.http.authentication.single_sign_on import SingleSignOn
from holdfast.hosts.http.authentication.tokens import Grant, Tokens
from holdfast.hosts.http.principals import ALL_NAMESPACES, Principal, Scope

__all__ = [
    "ALL_NAMESPACES",
    "Authenticate",
    "BrowserSessionSettings",
    "Grant",
    "HttpServer",
    "Principal",
    "Scope",
    "SingleSignOn",
    "Tokens",
    "asgi_app",
]
