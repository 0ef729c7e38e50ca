"""A sink that posts events to a URL as CloudEvents. Needs nothing but the standard library."""

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
"""How long a body with several events may be."""
TIMEOUT_MAX: Final = timedelta(seconds=30) - timedelta(microseconds=1)
"""Half a minute is too long for a sink to take."""
REASON_MAX: Final = 500
"""How many bytes of an answer's body are looked at."""
ANSWER_BYTES_MAX: Final = 65_536
"""How much is read of an answer, with its head."""
HEADERS_MAX: Final = 8_192
"""How many characters all headers of a user may have: many receivers take no longer heads."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""
_LINE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_OURS: Final = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-range", "content-type"}
    | {"expect", "host", "http2-settings", "keep-alive", "proxy-connection", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
"""Headers that say how a request is framed, where it goes and what is in it."""
_OURS_TOO: Final = ("webhook-", "ce-")
"""What the names of headers begin with that sign a request, or are attributes of a CloudEvent."""
_NOT_THE_EVENT: Final = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 429, 451})
"""Answers that say nothing about an event: not let in, not here, not now."""


class WebhookSink:
    """See `EventSink`. Posts to one URL; redirects are not followed. Safe to use from several threads.

    With secrets, requests are signed as Standard Webhooks are. It does not go to internal addresses (this machine,
    private networks, link-local ones with a cloud's metadata) unless it is let to: the host's addresses are looked up
    for each connection, and what is connected to is one of those that were looked at, so that a name that means
    something else a moment later leads nowhere else.

    `timeout` bounds all of that, whatever the receiver does: no part of a connection, of its TLS or of an answer is
    waited for beyond it, and no more of an answer is read than can be of use.

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
            headers: Are sent with every request: an `Authorization`, say. They are shown nowhere. Those that frame a
                request, sign it, or say what is in it, can't be given: `Host`, `Content-*`, `Connection`, `webhook-*`
                and the like.
            batch: How many events a request may have. With 1, each is a CloudEvent of its own (structured mode); with
                more, every request is a list (batched mode).
            timeout: How long a call of `emit` may take in all, a timedelta or a number of seconds. Less than half a
                minute. Where it is up between two requests, what was taken by then does not come again.
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
        """Return where it posts to, without what is secret: a path often is."""
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
        """Yield bodies, each with a name that it has whenever it is posted again, and how many events it has."""
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
        """Post a body; return whether the connection can't be used again. Raise unless it was taken."""
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
            reason = ""  # the status says what is to be done
        text = hide(f"{answer.reason}: {reason}", self._secrets)  # some say what they were sent
        message = f"{self!r} answered {status} {escape_line(text)}"
        if 400 <= status < 500 and status not in _NOT_THE_EVENT:
            raise EventRefusedError(message)
        raise SinkUnavailableError(message, _retry_after(answer.getheader("Retry-After")))

    def _connection(self, sock: DeadlineSocket) -> http.client.HTTPConnection:
        """Return what speaks HTTP by a socket."""
        connection = (
            http.client.HTTPConnection(self._host, self._port)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        )
        connection.auto_open = 0  # by itself it would go wherever the name leads
        connection.sock = cast("socket.socket", sock)
        return connection

    def _connected(self, deadline: Deadline) -> DeadlineSocket:
        """Connect to an address of the host that may be posted to. OSError; SinkUnavailableError if there is none."""
        addresses = list(filter(is_address, resolve_by(deadline, self._resolve, self._host, self._port)))
        allowed = [one for one in addresses if self._allow_internal or not is_internal(one)]
        if not allowed:
            what = "is an internal address; with allow_internal=True it is posted to"
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
    """Whether all of an answer is read, so that another can follow. That it is a good one was known before."""
    try:
        answer.read(REASON_MAX)
        return not answer.read(1)
    except (OSError, http.client.HTTPException):
        return False


def _named(text: str) -> tuple[str, bytes]:
    """Return a body of several events, and a name that only this one has."""
    body = text.encode()
    return f"batch_{sha256(body).hexdigest()[:32]}", body


def _checked_headers(given: object) -> dict[str, str]:
    """Return headers. InvalidArgumentError, which shows none of their values, if they can't be sent."""
    headers = dict(cast("Mapping[object, object]", given)) if isinstance(given, Mapping) else {None: None}
    if not all(isinstance(text, str) and _LINE.fullmatch(text) for pair in headers.items() for text in pair):
        raise _wrong_headers(
            "it must be a dict of strings by strings, each of them plain characters in one line"
        )
    sent = cast("dict[str, str]", headers)
    for name in sent:
        if not _NAME.fullmatch(name):
            raise _wrong_headers("a name has letters, digits and any of !#$%&'*+-.^_`|~, no spaces or colons")
        if name.lower() in _OURS or name.lower().startswith(_OURS_TOO):
            raise _wrong_headers(f"{name} is one that the sink sets by itself; leave it out")
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
        (parts.hostname or "").encode("idna")  # a part of the name that is empty, or too long
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
