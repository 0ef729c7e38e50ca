"""Credentials in the arguments and the environment of a process, to be masked in errors and logs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.ports.urls import secrets_of

WEBHOOK_SECRETS: Final = "HOLDFAST_WEBHOOK_SECRETS_"
"""Prefix of the environment variables with the signing secrets of webhooks. The suffix is the sink's name."""
_VARIABLES: Final = ("HOLDFAST_ENGINE", "HOLDFAST_URL")
_PASSWORDS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
_URL: Final = re.compile(
    r"\s*(?P<option>-[\w-]+=)?(?P<name>[^=:/@]*=)??"
    r"(?P<url>[A-Za-z0-9+.-]*:?//.*"
    r"|(postgres|postgresql|nats|tls|https?|s3|sqs|sns|eventbridge)\b.*@.*"
    r"|[^/@:]*:.*@.*/.*)",
    re.DOTALL,
)
"""An argument that contains a URL, or a misspelt one."""


def secrets_given(arguments: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """Return the credentials in the arguments and the environment of a process."""
    return tuple(dict.fromkeys(_secrets(arguments, environment)))


def _secrets(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    for text in (*arguments, *(environment.get(name, "") for name in _VARIABLES)):
        found = _URL.fullmatch(text)
        if found is not None:
            yield from secrets_of(found["url"])
    for name, value in environment.items():
        if name.startswith(WEBHOOK_SECRETS):
            yield from value.split()
        elif name in _PASSWORDS and value:
            yield value
