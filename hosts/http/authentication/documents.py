"""Documents of an OpenID Connect provider: fetched with limits on their size and time, and only over https."""

import time
import urllib.request
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlencode, urlsplit

from holdfast.hosts.http.authentication.loopback import is_loopback
from holdfast.ports.errors import InvalidUrlError
from holdfast.ports.json import parse

DOCUMENT_MAX: Final = 262_144
"""The most bytes of a document."""
TIMEOUT: Final = 3.0
"""Seconds for which a server may be silent, and for the whole document thrice that."""


def fetch_document(url: str) -> bytes:
    """Return the bytes at an http or https URL. OSError or ValueError if that fails; redirects are not followed."""
    return _fetched(urllib.request.Request(url, headers={"Accept": "application/json"}))  # noqa: S310  # by `is_safe_url`


def send_form(url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
    """Send a form and return the bytes of the answer. Fails as `fetch_document`."""
    return _fetched(
        urllib.request.Request(  # noqa: S310  # by `is_safe_url`
            url, urlencode(fields).encode(), {"Accept": "application/json", **headers}, method="POST"
        )
    )


def object_in(content: bytes) -> Mapping[str, object]:
    """Return the JSON object in a document. ValueError if it is not one."""
    document = parse(content.decode())
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return cast("dict[str, object]", document)


def checked_url(url: str) -> str:
    """Return a URL. InvalidUrlError if it is not one from which documents are fetched."""
    if not is_safe_url(url):
        raise InvalidUrlError(f"{url!r:.200} is not an https URL (http only on this machine)")
    return url


def is_safe_url(url: str) -> bool:
    """Return whether documents are fetched from a URL: by https, or http on this machine, and without a password."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if host is None or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def _fetched(request: urllib.request.Request) -> bytes:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    end = time.monotonic() + 3 * TIMEOUT
    with opener.open(request, timeout=TIMEOUT) as answer:
        content = b""
        while chunk := answer.read1(65_536):
            content += chunk
            if len(content) > DOCUMENT_MAX:
                raise ValueError(f"it has more than {DOCUMENT_MAX:,} bytes")
            if time.monotonic() > end:
                raise TimeoutError("it was sent too slowly")
    return content
