"""Tokens against cross-site request forgery: a page that can't read one can't send a request that changes anything.

A token is derived from the secret in the cookie, so nothing is stored, and it is as good as the session. It looks
different each time: a page that has it beside text of a visitor, compressed, does not give it away by its length.
"""

import base64
import binascii
import hmac
import secrets
from typing import Final

_LENGTH: Final = 32
_PURPOSE: Final = b"holdfast csrf token"


def csrf_token(secret: str) -> str:
    """Return a token of a browser session with this secret."""
    mask = secrets.token_bytes(_LENGTH)
    return base64.urlsafe_b64encode(mask + _masked(_digest(secret), mask)).decode().rstrip("=")


def is_csrf_token(text: str, secret: str) -> bool:
    """Return whether a text is a token of the browser session with this secret."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return False
    if len(data) != 2 * _LENGTH:
        return False
    return hmac.compare_digest(_masked(data[_LENGTH:], data[:_LENGTH]), _digest(secret))


def _digest(secret: str) -> bytes:
    return hmac.digest(secret.encode(), _PURPOSE, "sha256")


def _masked(data: bytes, mask: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(data, mask, strict=True))
