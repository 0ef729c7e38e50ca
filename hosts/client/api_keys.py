"""The text of API keys: `hf_<id>_<secret>_<checksum>`.

The checksum lets a typing error be told from a wrong key, and lets scanners of leaked secrets recognize a key.
"""

import base64
import hashlib
import re
import secrets
import zlib
from datetime import timedelta
from typing import Final

import attrs

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 12
_SECRET_BYTES: Final = 32
_KEY: Final = re.compile(r"hf_(?P<id>[a-z2-7]{12})_(?P<secret>[A-Za-z0-9_-]{43})_(?P<checksum>[0-9a-f]{8})")
GRACE: Final = timedelta(days=1)
"""How long a rotated key's former secret is accepted by default."""
START: Final = "hf_"
"""The start of every key."""


@attrs.frozen
class ApiKey:
    """The parts of an API key."""

    id: str
    """Names the key, and is no secret."""
    secret: str = attrs.field(repr=False)
    """256 random bits, as 43 characters of base64url."""

    @property
    def text(self) -> str:
        """The whole key."""
        start = f"{START}{self.id}_{self.secret}"
        return f"{start}_{zlib.crc32(start.encode()):08x}"

    @property
    def hash(self) -> str:
        """SHA-256 of the secret, in hexadecimal: what the store keeps of it."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def new_key() -> ApiKey:
    """Return a new key of the operating system's random numbers."""
    letters = (secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES))
    return ApiKey("".join(letters), secret.rstrip(b"=").decode())


def key_from(text: str) -> ApiKey | None:
    """Return the parts of a key; None if the text is not one, or its checksum is wrong."""
    found = _KEY.fullmatch(text)
    if found is None:
        return None
    key = ApiKey(found["id"], found["secret"])
    return key if key.text == text else None
