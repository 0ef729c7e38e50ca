"""Signatures for webhooks by Standard Webhooks, HMAC-SHA256 (`v1`), so that receivers can authenticate the sender."""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from holdfast.ports.errors import InvalidArgumentError

PREFIX: Final = "whsec_"
KEY_MIN: Final = 24
KEY_MAX: Final = 64
"""The most bytes of the key in a secret."""


class Signer:
    """Signs with each of its secrets, so that secrets can be rotated.

    See https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
    """

    def __init__(self, who: str, secrets: str | Sequence[str]) -> None:
        """Parse secrets, each `whsec_` and 24 to 64 bytes in base64. InvalidArgumentError, without the secrets."""
        given = (secrets,) if isinstance(secrets, str) else tuple(secrets)
        self._keys = tuple(map(_key, given))
        if not all(self._keys):
            raise InvalidArgumentError(
                "secrets",
                f"{who}: a secret is {PREFIX} and {KEY_MIN} to {KEY_MAX} bytes in base64, as"
                f" 'whsec_' + base64.b64encode(secrets.token_bytes(32)).decode() makes one",
            )

    @override
    def __repr__(self) -> str:
        return f"<Signer with {len(self._keys)} secrets>"

    def headers(self, name: str, seconds: int, body: bytes) -> dict[str, str]:
        """Return the headers of a message: its id, the time of sending (Unix time), and a signature for each secret."""
        if not self._keys:
            return {}
        signed = f"{name}.{seconds}.".encode() + body
        digests = (b64encode(hmac.digest(key, signed, "sha256")).decode() for key in self._keys)
        return {
            "webhook-id": name,
            "webhook-timestamp": str(seconds),
            "webhook-signature": " ".join(f"v1,{digest}" for digest in digests),
        }


def _key(secret: object) -> bytes:
    """Return the key in a secret; empty if the secret is invalid."""
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        return b""
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        return b""
    return key if KEY_MIN <= len(key) <= KEY_MAX else b""
