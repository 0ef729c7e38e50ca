"""A sink that posts events to a URL as CloudEvents. Needs nothing but the standard library."""

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from typing_extensions import override

from holdfast.adapters.sinks.addresses import addresses_of, is_internal
from holdfast.adapters.sinks.signing import Signer
from holdfast.ports.arguments import TEXT, TRUTH, an, check, duration, integer
from holdfast.ports.cloudevents import BATCHED, STRUCTURED, batch, cloud_event
from holdfast.ports.durations import Duration
from holdfast.ports.errors import (
    EventRefusedError,
    InvalidArgumentError,
    InvalidUrlError,
    SinkUnavailableError,
)
from holdfast.ports.events import Event

BATCH_BYTES_MAX: Final = 1_000_000
"""How long a body with several events may be."""
TIMEOUT_MAX: Final = timedelta(seconds=30) - timedelta(microseconds=1)
"""Half a minute is too long for a sink to take."""
REASON_MAX: Final = 500
_MOMENT: Final = 0.001
_LINE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_NOT_THE_EVENT: Final = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 429, 451})
"""Answers that say nothing about an event: not let in, not here, not now."""


class WebhookSink:
    """See `EventSink`. Posts to one URL; redirects are not followed. Safe to use from several threads.

    With secrets, requests are signed as Standard Webhooks are. It does not go to internal addresses (this machine,
    private networks, link-local ones with a cloud's metadata) unless it is let to: the host's addresses are looked up
    for each connection, and what is connected to is one of those that were looked at, so that a name that means
    something else a moment later leads nowhere else.

    Any answer 2xx means that the events are taken. 4xx means that the receiver will never take them, but for those that
    are about who asks, where and how often (401, 403, 404, 408, 410, 429 and the like). These, 3xx, 5xx, no answer in
    time and no connection mean that it can't take anything now; `Retry-After` is heeded.
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
        """Take a URL; nothing is connected yet.

        Args:
            url: Where to post to: `http://` or `https://`, without user and password.
            secrets: What requests are signed with: one secret, or several while they are changed, each `whsec_` and 24
                to 64 bytes in base64. They are shown nowhere.
            allow_internal: Whether internal addresses may be posted to.
            headers: Are sent with every request: an `Authorization`, say. They are shown nowhere.
            batch: How many events a request may have. With 1, each is a CloudEvent of its own (structured mode); with
                more, every request is a list (batched mode).
            timeout: How long a request may take in all, a timedelta or a number of seconds. Less than half a minute.
            source: The `source` of the CloudEvents; `/holdfast/<namespace>` if nothing is given.
            context: What says which certificates are trusted; the system's, if nothing is given.
            resolve: What returns the addresses of a host and a port; OSError if there are none.
            now: What time it is, in seconds since 1970, for signatures.

        Raises:
            InvalidUrlError: The URL is none that can be posted to, or its host is an internal address.
            InvalidArgumentError: Another argument can't be.
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
        self._headers = {"User-Agent": "holdfast", **sent}
        self._batch = batch
        self._timeout = within
        self._source = source
        self._tls = (context or ssl.create_default_context()) if self._url.scheme == "https" else None

    @override
    def __repr__(self) -> str:
        """Return where it posts to, without what is secret."""
        return f"WebhookSink({self._url.scheme}://{self._url.netloc}{self._url.path})"

    def emit(self, events: Sequence[Event], /) -> None:
        """Post events, in one request or several."""
        connection: http.client.HTTPConnection | None = None
        try:
            for name, body in self._bodies(events):
                connection = connection or self._connection()
                if self._posted(connection, name, body):
                    connection.close()
                    connection = None
        finally:
            if connection is not None:
                connection.close()

    def _bodies(self, events: Sequence[Event]) -> Iterator[tuple[str, bytes]]:
        """Return what is to be posted, each with a name that it has whenever it is posted again."""
        if self._batch == 1:
            yield from ((event.id, cloud_event(event, self._source).encode()) for event in events)
            return
        texts: list[str] = []
        size = 0
        for event in events:
            text = cloud_event(event, self._source)
            if texts and (len(texts) == self._batch or size + len(text) > BATCH_BYTES_MAX):
                yield _named(batch(texts))
                texts, size = [], 0
            texts.append(text)
            size += len(text)
        if texts:
            yield _named(batch(texts))

    def _posted(self, connection: http.client.HTTPConnection, name: str, body: bytes) -> bool:
        """Post a body; return whether the connection can't be used again. Raise unless it was taken."""
        headers = {
            "Content-Type": STRUCTURED if self._batch == 1 else BATCHED,
            **self._headers,
            **self._signer.headers(name, int(self._now()), body),
        }
        target = self._url.path or "/"
        # The socket's own timeout is for each time that it is read from: a receiver that drips would never run into it.
        until = time.monotonic() + self._timeout
        late = threading.Timer(self._timeout, _hang_up, (connection,))
        late.daemon = True
        late.start()
        try:
            if connection.sock is None:
                self._connect(connection, until)
            connection.request(
                "POST", f"{target}?{self._url.query}" if self._url.query else target, body, headers
            )
            answer = connection.getresponse()
            reason = answer.read(REASON_MAX).decode(errors="replace")
            rest = answer.read(1)
        except (OSError, http.client.HTTPException) as error:
            raise SinkUnavailableError(f"{self!r}: {type(error).__name__}: {error}") from error
        finally:
            late.cancel()
        status = answer.status
        if not 200 <= status < 300:
            message = f"{self!r} answered {status} {answer.reason}: {reason}"
            if 400 <= status < 500 and status not in _NOT_THE_EVENT:
                raise EventRefusedError(message)
            raise SinkUnavailableError(message, _retry_after(answer.getheader("Retry-After")))
        return bool(rest) or answer.will_close

    def _connection(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        connection = (
            http.client.HTTPConnection(host, self._url.port or 80, timeout=self._timeout)
            if self._tls is None
            else http.client.HTTPSConnection(
                host, self._url.port or 443, timeout=self._timeout, context=self._tls
            )
        )
        connection.auto_open = 0  # by itself it would go wherever the name leads
        return connection

    def _connect(self, connection: http.client.HTTPConnection, until: float) -> None:
        """Connect to an address of the host that may be posted to. OSError; SinkUnavailableError if there is none."""
        addresses = [str(one) for one in self._resolve(connection.host, connection.port)]
        allowed = [one for one in addresses if self._allow_internal or not is_internal(one)]
        if not allowed:
            raise SinkUnavailableError(
                f"{self!r}: {connection.host} is an internal address; with allow_internal=True it is posted to"
            )
        for address in allowed:
            try:
                left = max(until - time.monotonic(), _MOMENT)
                connection.sock = socket.create_connection((address, connection.port), left)
            except OSError:
                if address == allowed[-1]:
                    raise
                continue
            # Head and body are sent apart: without this the body waits until the head is acknowledged.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            break
        if self._tls is not None:
            # Not yet the handshake: whoever is late is hung up on, and for that the socket must be known.
            connection.sock = self._tls.wrap_socket(
                connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
            )
            connection.sock.do_handshake()


def _named(text: str) -> tuple[str, bytes]:
    """Return a body of several events, and a name that only this one has."""
    body = text.encode()
    return f"batch_{sha256(body).hexdigest()[:32]}", body


def _checked_headers(given: object) -> dict[str, str]:
    """Return headers. InvalidArgumentError, which shows none of them, if they can't be sent."""
    headers = dict(cast("Mapping[object, object]", given)) if isinstance(given, Mapping) else {None: None}
    if not all(isinstance(text, str) and _LINE.fullmatch(text) for pair in headers.items() for text in pair):
        raise InvalidArgumentError(
            "headers",
            "WebhookSink: headers are not shown here; it must be a dict of strings by strings, each of them plain"
            " characters in one line",
        )
    return cast("dict[str, str]", headers)


def _checked(url: str, *, allow_internal: bool) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_fit = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_fit, parts = False, urlsplit("")
    if not is_fit or any(not 32 < ord(char) < 127 for char in url):
        raise InvalidUrlError("a webhook is an http:// or https:// URL in plain characters")
    if parts.username is not None or parts.password is not None:
        raise InvalidUrlError(
            "a webhook's URL has no user and password: give them as headers={'Authorization': ...}"
        )
    with suppress(ValueError):  # most hosts are names, which are looked up later
        if is_internal(parts.hostname or "") and not allow_internal:
            raise InvalidUrlError(
                "the webhook's host is an internal address; with allow_internal=True it is posted to"
            )
    return parts


def _hang_up(connection: http.client.HTTPConnection) -> None:
    sock: socket.socket | None = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _retry_after(text: str | None) -> float:
    """Return how many seconds a header asks for: a number, or a date. 0 if it says nothing that can be read."""
    if text is None:
        return 0.0
    if text.strip().isascii() and text.strip().isdigit():
        return float(min(int(text), 86_400))
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0
