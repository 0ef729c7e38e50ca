"""A sink that posts events to a URL as CloudEvents. Needs only the standard library."""

import http.client
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import SplitResult, urlsplit

from typing_extensions import override

from holdfast.adapters.sinks.deadlines import Deadline, DeadlineSocket, connect, resolve_by
from holdfast.adapters.sinks.signing import Signer
from holdfast.adapters.sinks.ssrf import addresses_of, is_address, is_internal
from holdfast.ports.cloudevents import BATCHED, STRUCTURED, batch, cloud_event
from holdfast.ports.durations import Duration
from holdfast.ports.errors import (
    EventRefusedError,
    InvalidArgumentError,
    InvalidUrlError,
    SinkUnavailableError,
)
from holdfast.ports.events import Event
from holdfast.ports.texts import escape_line
from holdfast.ports.urls import hide, secrets_of, shown_url
from holdfast.ports.validation import TEXT, TRUTH, an, check, duration, integer

if TYPE_CHECKING:
    import socket

BATCH_BYTES_MAX: Final = 1_000_000
"""The most bytes of a body with several events."""
TIMEOUT_MAX: Final = timedelta(seconds=30) - timedelta(microseconds=1)
"""A sink may take less than half a minute."""
REASON_MAX: Final = 500
"""How many bytes of a response's body go into an error message."""
ANSWER_BYTES_MAX: Final = 65_536
"""The most bytes that are read of a response, including its head."""
HEADERS_MAX: Final = 8_192
"""The most characters of all user headers together: many receivers refuse longer heads."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""
_LINE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_OURS: Final = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-range", "content-type"}
    | {"expect", "host", "http2-settings", "keep-alive", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
"""Headers that frame a request or describe its target and content."""
_OURS_TOO: Final = ("webhook-", "ce-")
"""Prefixes of headers that sign a request or are attributes of a CloudEvent."""
_NOT_THE_EVENT: Final = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 429, 451})
"""4xx responses that do not blame the event: access, address, rate."""


class WebhookSink:
    """An EventSink that posts to one URL. Redirects are not followed. Safe to use from several threads.

    With secrets, requests are signed by Standard Webhooks. Internal addresses (this machine, private networks,
    link-local ones such as a cloud's metadata service) are refused by default. The host is looked up for each
    connection, which then goes to one of the checked addresses, so that DNS rebinding has no effect.

    `timeout` bounds the whole call, whatever the receiver does: connecting, TLS and responses. Only a limited part
    of a response is read.

    2xx means that the events are accepted. 4xx means that the receiver will never accept them, except for codes about
    access, address and rate (401, 403, 404, 408, 410, 429 and the like). Those, 3xx, 5xx, a timeout and a failed
    connection mean that it can't accept anything now; `Retry-After` is honoured.
    """

    def __init__(
        self,
        url: str,
        /,
        *,
        secrets: str | Sequence[str] = (),
        allow_internal: bool = False,
        headers: Mapping[str, str] | None = None,
        batch: int = 100,
        timeout: Duration = 10.0,
        source: str | None = None,
        context: ssl.SSLContext | None = None,
        resolve: Callable[[str, int], Sequence[str]] = addresses_of,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Configure the sink, without connecting.

        Args:
            url: The URL to post to: `http://` or `https://`, without user and password.
            secrets: One secret for signatures, or several during a rotation, each `whsec_` and 24 to 64 bytes in
                base64. They are never shown.
            allow_internal: Whether internal addresses are allowed.
            headers: Sent with every request, for example `Authorization`. They are never shown. Headers that frame,
                sign or describe a request are refused: `Host`, `Content-*`, `Connection`, `webhook-*` and the like.
            batch: The most events of a request. With 1, each is a CloudEvent of its own (structured mode); with
                more, every request is a list (batched mode).
            timeout: The longest duration of a call of `emit`, less than half a minute. Events accepted before a
                timeout are not delivered again.
            source: The `source` of the CloudEvents; by default `/holdfast/<namespace>`.
            context: Decides which certificates are trusted; by default the system's.
            resolve: Returns the addresses of a host and a port. OSError if the lookup fails.
            now: Returns the time for signatures, in seconds since 1970.

        Raises:
            InvalidUrlError: The URL is invalid, or its host is an internal address.
            InvalidArgumentError: Another argument is invalid.
        """
        check("WebhookSink", TEXT, url=url)
        check("WebhookSink", integer(1), batch=batch)
        check("WebhookSink", TEXT.or_none, source=source)
        check("WebhookSink", an("an ssl.SSLContext", ssl.SSLContext).or_none, context=context)
        sent = _checked_headers(headers or {})
        check("WebhookSink", TRUTH, allow_internal=allow_internal)
        within = duration("WebhookSink", "timeout", timeout, most=TIMEOUT_MAX).total_seconds()
        self._url = _checked(url, allow_internal=allow_internal)
        self._signer = Signer("WebhookSink", secrets)
        self._allow_internal = allow_internal
        self._resolve = resolve
        self._now = now
        has_agent = any(name.lower() == "user-agent" for name in sent)
        self._headers = sent if has_agent else {"User-Agent": "holdfast", **sent}
        self._secrets = [
            *secrets_of(url),
            *(part for value in sent.values() for part in (value, *value.split())),
        ]
        self._batch = batch
        self._timeout = within
        self._source = source
        self._tls = (context or ssl.create_default_context()) if self._url.scheme == "https" else None
        self._host = self._url.hostname or ""
        self._port = self._url.port or (80 if self._tls is None else 443)

    @override
    def __repr__(self) -> str:
        """Return the URL without its secret parts, which a path often is."""
        return f"WebhookSink({shown_url(self._url.geturl())})"

    def emit(self, events: Sequence[Event], /) -> None:
        """Post events, in one request or several, all within the timeout."""
        deadline = Deadline.after(self._timeout)
        speaking: tuple[DeadlineSocket, http.client.HTTPConnection] | None = None
        taken = 0
        try:
            for name, body, number in self._bodies(events):
                if speaking is None:
                    sock = self._connected(deadline)
                    speaking = sock, self._connection(sock)
                sock, connection = speaking
                if self._posted(connection, name, body):
                    sock.hang_up()
                    speaking = None
                taken += number
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            why = escape_line(f"{type(error).__name__}: {error}")
            raise SinkUnavailableError(f"{self!r}: {why}", taken=taken) from error
        except SinkUnavailableError as error:
            error.taken = taken
            raise
        finally:
            if speaking is not None:
                speaking[0].hang_up()

    def _bodies(self, events: Sequence[Event]) -> Iterator[tuple[str, bytes, int]]:
        """Yield each body with a name that is the same in every redelivery, and its number of events."""
        if self._batch == 1:
            yield from ((event.id, cloud_event(event, self._source).encode(), 1) for event in events)
            return
        texts: list[str] = []
        size = 0
        for event in events:
            text = cloud_event(event, self._source)
            if texts and (len(texts) == self._batch or size + len(text) > BATCH_BYTES_MAX):
                yield *_named(batch(texts)), len(texts)
                texts, size = [], 0
            texts.append(text)
            size += len(text)
        if texts:
            yield *_named(batch(texts)), len(texts)

    def _posted(self, connection: http.client.HTTPConnection, name: str, body: bytes) -> bool:
        """Post a body. Return whether the connection can't be used again. Raise unless the body was accepted."""
        headers = {
            "Content-Type": STRUCTURED if self._batch == 1 else BATCHED,
            **self._headers,
            **self._signer.headers(name, int(self._now()), body),
        }
        target = self._url.path or "/"
        connection.request(
            "POST", f"{target}?{self._url.query}" if self._url.query else target, body, headers
        )
        answer = connection.getresponse()
        status = answer.status
        if 200 <= status < 300:
            return answer.will_close or not _is_read(answer)
        try:
            reason = answer.read(REASON_MAX).decode(errors="replace")
        except (OSError, http.client.HTTPException):
            reason = ""  # the status alone decides
        text = hide(f"{answer.reason}: {reason}", self._secrets)  # some receivers echo the request
        message = f"{self!r} answered {status} {escape_line(text)}"
        if 400 <= status < 500 and status not in _NOT_THE_EVENT:
            raise EventRefusedError(message)
        raise SinkUnavailableError(message, _retry_after(answer.getheader("Retry-After")))

    def _connection(self, sock: DeadlineSocket) -> http.client.HTTPConnection:
        """Return an HTTP connection over a socket."""
        connection = (
            http.client.HTTPConnection(self._host, self._port)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        )
        connection.auto_open = 0  # a reconnect would look the name up again, unchecked
        connection.sock = cast("socket.socket", sock)
        return connection

    def _connected(self, deadline: Deadline) -> DeadlineSocket:
        """Connect to an allowed address of the host. OSError; SinkUnavailableError if every address is refused."""
        addresses = list(filter(is_address, resolve_by(deadline, self._resolve, self._host, self._port)))
        allowed = [one for one in addresses if self._allow_internal or not is_internal(one)]
        if not allowed:
            what = "is an internal address; pass allow_internal=True to allow it"
            raise SinkUnavailableError(f"{self!r}: {self._host} {what if addresses else 'has no address'}")
        sock = connect(allowed, self._port, deadline, ANSWER_BYTES_MAX)
        if self._tls is not None:
            try:
                sock.handshake(self._tls, self._host)
            except BaseException:
                sock.hang_up()
                raise
        return sock


def _is_read(answer: http.client.HTTPResponse) -> bool:
    """Whether a response of known good status is read to its end, so that the connection can be used again."""
    try:
        answer.read(REASON_MAX)
        return not answer.read(1)
    except (OSError, http.client.HTTPException):
        return False


def _named(text: str) -> tuple[str, bytes]:
    """Return a body of several events, with a name derived from its content."""
    body = text.encode()
    return f"batch_{sha256(body).hexdigest()[:32]}", body


def _checked_headers(given: object) -> dict[str, str]:
    """Return headers as a dict. InvalidArgumentError if they can't be sent; it never shows their values."""
    headers = dict(cast("Mapping[object, object]", given)) if isinstance(given, Mapping) else {None: None}
    if not all(isinstance(text, str) and _LINE.fullmatch(text) for pair in headers.items() for text in pair):
        raise _wrong_headers(
            "it must be a dict of strings to strings, each of them plain characters in one line"
        )
    sent = cast("dict[str, str]", headers)
    for name in sent:
        if not _NAME.fullmatch(name):
            raise _wrong_headers("a name has letters, digits and any of !#$%&'*+-.^_`|~, no spaces or colons")
        if name.lower() in _OURS or name.lower().startswith(_OURS_TOO):
            raise _wrong_headers(f"{name} is set by the sink; omit it")
    if len({name.lower() for name in sent}) < len(sent):
        raise _wrong_headers("two names differ only in the case of their letters, and so are the same")
    if sum(len(name) + len(value) + 4 for name, value in sent.items()) > HEADERS_MAX:
        raise _wrong_headers(f"all of them together have at most {HEADERS_MAX:,} characters")
    return sent


def _wrong_headers(why: str) -> InvalidArgumentError:
    return InvalidArgumentError("headers", f"WebhookSink: headers are not shown here; {why}")


def _checked(url: str, *, allow_internal: bool) -> SplitResult:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # fails if a label of the name is empty or too long
        is_fit = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_fit, parts = False, urlsplit("")
    if not is_fit or any(not 32 < ord(char) < 127 for char in url):
        raise InvalidUrlError("a webhook is an http:// or https:// URL in plain characters")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrlError(
            "a webhook's URL must not have a user and password: pass them as headers={'Authorization': ...}"
        )
    with suppress(ValueError):  # raised for names, which are looked up later
        if is_internal(parts.hostname or "") and not allow_internal:
            raise InvalidUrlError(
                "the webhook's host is an internal address; pass allow_internal=True to allow it"
            )
    return parts


def _retry_after(text: str | None) -> float:
    """Return the seconds in a `Retry-After` header, a number or a date; 0 if it can't be parsed."""
    if text is None:
        return 0.0
    if text.strip().isascii() and text.strip().isdigit():
        return float(min(int(text), 86_400))
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0
