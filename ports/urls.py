"""Redaction of URLs that may hold passwords and tokens, whether well formed or not."""

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote, unquote_plus

from holdfast.ports.texts import escape_line

HIDDEN: Final = "***"
"""The replacement for secrets."""
SHOWN_MAX: Final = 500
HIDDEN_PATH: Final = f"/{HIDDEN}"
_TOKEN_MIN: Final = 8
_SECRET_MIN: Final = 3
"""Shorter secrets are not searched for in other texts: they would match everywhere."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40})://(.*)", re.DOTALL)
_PLAIN: Final = re.compile(r"[\w./ ~-]*")
"""A file name passed in place of a URL. It has none of the characters that delimit the parts of a URL."""
_PLACE: Final = re.compile(r"(?P<host>[\w.~-]*|\[[0-9A-Fa-f:.]*\])(?P<port>:[0-9]{1,5})?", re.ASCII)
_AFTER_SCHEME: Final = re.compile(
    r"(?P<places>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?P<fragment>#.*)?", re.DOTALL
)
_PARAMETER: Final = re.compile(r"[a-z_]{1,40}")
_VALUE: Final = re.compile(r"[\w.,:/+-]*", re.ASCII)
_SHOWN_PARAMETERS: Final = frozenset(
    {"application_name", "connect_timeout", "dbname", "host", "hostaddr", "mode", "port", "queue", "role"}
    | {"sslmode", "target_session_attrs", "timeout"}
)
_NAMED_PARAMETERS: Final = frozenset(
    {"client_encoding", "key", "options", "passfile", "password", "secret", "service", "signature", "sslcert"}
    | {"sslkey", "sslpassword", "sslrootcert", "token", "user"}
)
"""Parameters of which the name is shown and the value hidden."""
_NAMES: Final = _SHOWN_PARAMETERS | _NAMED_PARAMETERS
_ENDS_PLACE: Final = re.compile(r"[/?#]")


def shown_url(url: str) -> str:
    """Return a URL for display, with everything that may be secret removed, in one line.

    Removed are user, password, the values of all but a few parameters, the fragment, and the path of a webhook, which
    often is a token. Of a malformed URL only the scheme is shown: an unescaped password may be in any part of it.
    """
    found = _URL.fullmatch(url)
    if found is None:
        return escape_line(url[:SHOWN_MAX]) if _PLAIN.fullmatch(url) else HIDDEN
    scheme, remainder = found[1], found[2]
    at = ""
    if not _has_path_alone(scheme, remainder):
        # Split at the last @, because a password may contain others.
        before, at, remainder = remainder.rpartition("@")
        if _ENDS_PLACE.search(before):
            return f"{scheme}://{HIDDEN}"  # the part after the @ may belong to a token
    parts = _AFTER_SCHEME.fullmatch(remainder)
    assert parts is not None
    places = parts["places"]
    if not all(_PLACE.fullmatch(place) for place in places.split(",")):
        return f"{scheme}://{HIDDEN}"
    query = parts["query"]
    shown = "".join(
        (
            f"{scheme}://",
            f"{HIDDEN}@" if at else "",
            places,
            HIDDEN_PATH if _has_secret_path(scheme, places, parts["path"]) else parts["path"] or "",
            "" if query is None else f"?{'&'.join(dict.fromkeys(map(_shown_pair, query.split('&'))))}",
            f"#{HIDDEN}" if parts["fragment"] else "",
        )
    )
    return escape_line(shown[:SHOWN_MAX])


def hide(text: str, secrets: Sequence[str]) -> str:
    """Return a text with secrets redacted, longest first, each also in the spelling of `repr` and of escaped lines."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SECRET_MIN:
            for form in dict.fromkeys((secret, escape_line(secret), repr(secret)[1:-1])):
                text = text.replace(form, HIDDEN)
    return text


def secrets_of(url: str) -> list[str]:
    """Return the parts of a URL that `shown_url` hides, each as it is written and unescaped."""
    return list(dict.fromkeys(one for one in _secrets_of(url) if len(one) >= _SECRET_MIN))


def _secrets_of(url: str) -> Iterator[str]:
    found = _URL.fullmatch(url)
    remainder = url if found is None else found[2]
    before, _, after = remainder.rpartition("@")
    if found is not None and _has_path_alone(found[1], remainder):
        before, after = "", remainder
    if before:
        _, colon, password = before.partition(":")
        if colon or found is None or not found[1].startswith("postgres"):
            yield from _forms(before)  # without a colon it is a token, or for databases a user
        yield from _forms(password)
        # A server's message may quote the password up to a character that it takes for a delimiter.
        for part in re.split(r"[@:/?#\s]", password):
            yield from _forms(part)
        if _ENDS_PLACE.search(before):
            yield from _forms(remainder)
            yield from (
                form
                for part in re.split(r"[@:/?#&=\s]", remainder)
                for form in _forms(part)
                if form not in _NAMES
            )
    remainder, _, fragment = after.partition("#")
    yield from _forms(fragment)
    place, query = remainder.partition("?")[::2]
    if found is not None and _has_secret_path(found[1], place, f"/{place.partition('/')[2]}"):
        for part in place.split("/")[1:]:
            yield from _forms(part if len(part) >= _TOKEN_MIN else "")
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name not in _SHOWN_PARAMETERS:
            yield from _forms(value)
        if name not in _NAMES:
            yield from _forms(name)
    if not before and HIDDEN in shown_url(url):
        yield from _forms(remainder.partition("?")[0].partition(":")[2])


def _has_secret_path(scheme: str, places: str, path: str | None) -> bool:
    """Whether a URL's path may be a token, as those of webhooks often are. That of a queue is not."""
    return scheme in {"http", "https"} and not places.startswith("sqs.") and path not in {None, "", "/"}


def _has_path_alone(scheme: str, remainder: str) -> bool:
    """Whether a URL names a file and no server. A file name may contain an @."""
    return scheme in {"sqlite", "file"} and remainder.startswith("/")


def _forms(text: str) -> Iterator[str]:
    yield from (text, unquote(text), unquote_plus(text))


def _shown_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if name in _SHOWN_PARAMETERS and _VALUE.fullmatch(unquote(value)):
        return pair
    return f"{name}{equals}{HIDDEN}" if name in _NAMED_PARAMETERS else HIDDEN
