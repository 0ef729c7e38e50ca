"""Requests for tests, as an ASGI server passes them on."""

from starlette.requests import Request


def a_request(*headers: tuple[str, str], address: str | None = "203.0.113.7") -> Request:
    """Return a request with these headers of a client at an address; None: of one without an address."""
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers]
    client = None if address is None else (address, 50_000)
    return Request({"type": "http", "method": "GET", "path": "/", "headers": encoded, "client": client})


def bearer(credential: str, address: str = "203.0.113.7") -> Request:
    """Return a request with a key or token."""
    return a_request(("Authorization", f"Bearer {credential}"), address=address)
