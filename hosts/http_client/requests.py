"""Requests as the table of operations describes them. Nothing here sends one."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, cast
from urllib.parse import quote
from uuid import uuid4

import attrs

from holdfast.hosts.http.operations import Hint, Operation
from holdfast.hosts.http.table import OPERATIONS
from holdfast.hosts.inspection.json_form import json_form, keys_of
from holdfast.hosts.remote.connection import server_parts_of
from holdfast.kernel.commands.names import IDEMPOTENCY_KEY_MAX, check_name
from holdfast.ports.json import compact
from holdfast.ports.validation import refused

_SENT_ONCE: Final = frozenset(
    {
        *("key.create", "key.rotate"),
        *("run.cancel_all", "run.terminate_all", "run.pause_all", "run.resume_all", "run.rerun_all"),
        *("run.remove_all", "dead_letter.replay"),
    }
)
"""Operations that are not repeated once they may have been carried out.

The answer of the first two has a secret, of which the store has only the hash. The others act on what is there: a
repetition would go on with the next runs or streams.
"""


@attrs.frozen(kw_only=True)
class ClientRequest:
    """A request, before it is sent."""

    operation: Operation
    """What is to be carried out."""
    path: str
    """Its path below the URL of the server, with the query."""
    body: bytes | None = None
    """Its body."""
    key: str | None = None
    """Its idempotency key. It is the same in every repetition."""
    wait: int = 0
    """For how many seconds the answer may wait."""

    @property
    def may_repeat(self) -> bool:
        """Whether it may be sent again although it may have been carried out."""
        return self.operation.name not in _SENT_ONCE

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request, without the credentials."""
        found = {"Accept": ", ".join((*self.operation.media_types, "application/problem+json"))}
        if self.body is not None:
            found["Content-Type"] = "application/json"
        if self.key is not None:
            found["Idempotency-Key"] = self.key
        if self.wait:
            found["Prefer"] = f"wait={self.wait}"
        return found

    @property
    def text(self) -> str:
        """The request for people."""
        return f"{self.operation.method} {self.path.partition('?')[0]}"


@cache
def operation_named(name: str) -> Operation:
    """Return the operation of the table with this name."""
    (found,) = (one for one in OPERATIONS if one.name == name)
    return found


def request_of(
    name: str,
    path: Mapping[str, str],
    *,
    query: object = None,
    body: object = None,
    key: str | None = None,
    wait: int = 0,
) -> ClientRequest:
    """Return a request for an operation.

    An operation that takes an idempotency key gets one: a request that is repeated after a lost connection is then
    carried out once.

    Args:
        name: The name of the operation.
        path: The parameters in its path.
        query: The object of its class of query parameters.
        body: The object of its class of bodies.
        key: The idempotency key; a new one if omitted.
        wait: For how many seconds the answer may wait.

    Raises:
        InvalidCommandError: The key has forbidden characters.
        InvalidArgumentError: It is too long, or begins or ends with a space, which a header can't keep.
    """
    operation = operation_named(name)
    if key is not None:
        check_name("the idempotency key", key)
        if len(key) > IDEMPOTENCY_KEY_MAX or key != key.strip(" "):
            what = f"a text of 1 to {IDEMPOTENCY_KEY_MAX} characters without spaces at its ends"
            raise refused(name, "idempotency_key", key, what)
    pairs = (
        "" if query is None else "&".join(f"{_quoted(key)}={_quoted(text)}" for key, text in _pairs(query))
    )
    changes = operation.hint is not Hint.READS
    return ClientRequest(
        operation=operation,
        path="/".join(map(_segment(path), operation.path.split("/"))) + (f"?{pairs}" if pairs else ""),
        body=None if body is None else compact(_given(body)).encode(errors="surrogatepass"),
        key=(key or uuid4().hex) if operation.idempotent and changes else None,
        wait=wait,
    )


def base_of(url: str, where: str) -> str:
    """Return the URL of a server, under which its paths are. Raises InvalidArgumentError."""
    server_parts_of(url, where)
    return url.rstrip("/")


def _segment(path: Mapping[str, str]) -> Callable[[str], str]:
    def segment(text: str) -> str:
        if not text.startswith("{"):
            return text
        value = path[text[1:-1]]
        if not value:
            raise refused("client", text[1:-1], value, "a text that is not empty")
        # Dots alone would be steps in the path.
        return value.replace(".", "%2E") if value in {".", ".."} else _quoted(value)

    return segment


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _pairs(query: object) -> Iterator[tuple[str, str]]:
    """Yield the query parameters of an object, without those that have their defaults."""
    for key, value in _given(query).items():
        match value:
            case dict():
                items = cast("dict[str, str]", value).items()
                yield from ((f"{key}[{name}]", text) for name, text in items)
            case list():
                yield from ((key, _text(one)) for one in cast("list[object]", value))
            case _:
                yield key, _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _given(value: object) -> dict[str, object]:
    """Return the JSON form of an object, without the fields that have their defaults."""
    cls: Any = type(value)
    keys = keys_of(cls)
    return {
        keys[field.name]: _form(given)
        for field in attrs.fields(cls)
        if (given := getattr(value, field.name)) != _default_of(field)
    }


def _form(value: object) -> object:
    cls: Any = type(value)
    if attrs.has(cls):
        return _given(value)
    if isinstance(value, tuple):
        return [_form(one) for one in cast("tuple[object, ...]", value)]
    if isinstance(value, datetime):
        return value.isoformat()
    return json_form(value)


def _default_of(field: "attrs.Attribute[Any]") -> object:
    default: Any = field.default
    factory = getattr(default, "factory", None)
    return default if factory is None else factory()
