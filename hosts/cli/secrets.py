"""What a process was given to reach stores and sinks with: it is in no error and in no log of it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.ports.urls import secrets_of

WEBHOOK_SECRETS: Final = "HOLDFAST_WEBHOOK_SECRETS_"
"""With the name of a sink after it: the variable with the secrets that its webhook signs with."""
_VARIABLES: Final = ("HOLDFAST_ENGINE", "HOLDFAST_URL")
_PASSWORDS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
_URL: Final = re.compile(
    r"\s*(?P<option>-[\w-]+=)?(?P<name>[^=:/@]*=)??"
    r"(?P<url>[A-Za-z0-9+.-]*:?//.*"
    r"|(postgres|postgresql|nats|tls|https?|s3|sqs|sns|eventbridge)\b.*@.*"
    r"|[^/@:]*:.*@.*/.*)",
    re.DOTALL,
)
"""An argument with a URL in it, or with what was to be one."""


def secrets_given(arguments: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """Return what of the arguments and the environment of a process is not to be shown."""
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
