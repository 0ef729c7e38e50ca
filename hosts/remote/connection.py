"""Requests of a remote worker to its server, over kept connections, repeated until they are answered."""

import hashlib
import json
import logging
import os
import selectors
import socket
import threading
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, cast
from urllib.parse import SplitResult, quote, urlsplit

import attrs

from holdfast.hosts.remote.protocol import LARGE
from holdfast.ports.errors import AccessDeniedError, HoldfastError, ServerAnswerError, UnavailableError
from holdfast.ports.json import compact
from holdfast.ports.process_forks import leave_alone
from holdfast.ports.validation import refused

ANSWER_SECONDS: Final = 10.0
"""How long an answer may take, beside the wait of the request."""
_PAUSE_FIRST, _PAUSE_MAX = 0.1, 5.0
_REFUSALS_MAX: Final = 8
"""How many refusals in a row that no Holdfast server sends end a request: in 11 seconds."""
_WARNED: Final = 8
"""Each so many tries of a request are logged as a warning."""

_log = logging.getLogger("holdfast.remote")


def content_digest(data: bytes) -> str:
    """Return the header `Content-Digest` for bytes (RFC 9530)."""
    return f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"


def read_whole(response: HTTPResponse) -> bytes:
    """Return the body of an answer. ValueError if it does not have the hash in its `Content-Digest`."""
    data = response.read()
    digest = response.headers.get("content-digest")
    if digest is not None and content_digest(data) not in digest:
        raise ValueError("the body does not have the hash in Content-Digest")
    return data


def server_parts_of(url: str, where: str) -> SplitResult:
    """Return the parts of the URL of a server, which may have a path. Raises InvalidArgumentError for any other.

    Args:
        url: The URL.
        where: What got it, for the text of the error.
    """
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is none, or half an address
        parts, is_server = SplitResult("", "", "", "", ""), False
    if not is_server or parts.query or parts.fragment:
        raise refused(where, "url", url, "the URL of a server, such as https://holdfast.example.com")
    return parts


@attrs.frozen
class Answer:
    """The answer to a request."""

    status: int
    document: Mapping[str, Any]

    @property
    def code(self) -> str:
        """The code of the problem; "" without one."""
        return "" if self.status < 400 else str(self.document.get("code", ""))

    @property
    def detail(self) -> str:
        """The text of the problem, for people."""
        return str(self.document.get("detail", self.document))


class Abandonment:
    """Lets another thread give a request up while it waits for its answer."""

    def __init__(self) -> None:
        self._given_up = False
        self._connection: HTTPConnection | None = None

    def give_up(self) -> None:
        """Close the connection of the request, so that the server stops its wait."""
        self._given_up = True
        if self._connection is not None:
            _shut_down(self._connection)

    def check(self, connection: HTTPConnection | None = None) -> None:
        """Note the connection that the request uses. UnavailableError if the request was given up."""
        self._connection = connection  # before the look: one of the two threads sees what the other has set
        if self._given_up:
            raise UnavailableError("the request was given up")


class ServerConnection:
    """The connections to a namespace of a server. Can be used from several threads, and after a fork."""

    def __init__(self, url: str, key: str, namespace: str) -> None:
        parts = server_parts_of(url, "RemoteWorker")
        self._host, self._port, self._is_secure = parts.hostname or "", parts.port, parts.scheme == "https"
        self._base = f"{parts.path.rstrip('/')}/v1/namespaces/{quote(namespace, safe='')}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._closed = threading.Event()
        self._process = os.getpid()

    def close(self) -> None:
        """Close the connections, and give up the requests that are under way."""
        self._closed.set()
        for connection in (*self._busy, *self._idle):
            _shut_down(connection)
            connection.close()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        wait: int = 0,
        tries: int | None = None,
        abandonment: Abandonment | None = None,
    ) -> Answer:
        """Send a request until it is answered, whatever the answer is. So it must be harmless to repeat.

        An answer that only says "later" (status 429 and 5xx) counts as none. So does one without a whole JSON object:
        it was cut off, and if that was in its headers, the connection reports no error. UnavailableError after so many
        tries, once the connection is closed, or if the request was given up. AccessDeniedError, ServerAnswerError: a
        redirection, or for ten seconds refusals that are not of a Holdfast server, such as those of a proxy.

        Args:
            method: The method.
            path: The path below the namespace.
            body: The JSON data of the body.
            key: The idempotency key.
            wait: For how many seconds the answer may wait.
            tries: How often the request is sent at most.
            abandonment: What another thread gives the request up by.
        """
        pause, number, refusals = _PAUSE_FIRST, 0, 0
        text = None if body is None else compact(body).encode()
        headers = dict(self._headers)
        if key is not None:
            headers["Idempotency-Key"] = key
        if text is not None and len(text) > LARGE:
            headers["Content-Digest"] = content_digest(text)
        if wait:
            headers["Prefer"] = f"wait={wait}"
        while True:
            number += 1
            if abandonment is not None:
                abandonment.check()
            try:
                answer = self._send(method, path, text, headers, ANSWER_SECONDS + wait, abandonment)
                if answer.status < 500 and answer.status != 429:
                    return answer
                fault = f"{answer.status} {answer.code}"
                refusals = 0
            except _NoDocumentError as error:
                if error.status == 413:  # a proxy's limit, which is the same for each try
                    return Answer(413, {"code": "too_large", "detail": str(error)})
                refusals = refusals + 1 if 300 <= error.status < 500 and error.status != 429 else 0
                if refusals == _REFUSALS_MAX or (refusals and error.status < 400):
                    raise error.final(f"{method} {path}") from None
                fault = str(error)
            except (OSError, HTTPException, ValueError) as error:
                fault, refusals = f"{type(error).__name__}: {error}", 0
            if number == tries or self._closed.is_set():
                raise UnavailableError(f"the server does not answer {method} {path}: {fault}")
            level = logging.WARNING if number % _WARNED == 0 else logging.INFO
            _log.log(level, "the server does not answer %s %s, which is repeated: %s", method, path, fault)
            self._closed.wait(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    def fetch(self, path: str) -> bytes:
        """Return the body of the answer to a GET below the namespace, checked against its `Content-Digest`.

        UnavailableError if it did not arrive whole, or is a problem.
        """
        connection = self._taken(ANSWER_SECONDS)
        try:
            connection.request("GET", self._base + path, headers=self._headers)
            response = connection.getresponse()
            data = read_whole(response)
        except (OSError, HTTPException, ValueError) as error:
            raise UnavailableError(f"the server does not answer GET {path}: {error}") from error
        finally:
            self._busy.discard(connection)
            connection.close()
        if response.status != 200:
            raise UnavailableError(f"the server refuses GET {path}: {response.status}")
        return data

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        abandonment: Abandonment | None,
    ) -> Answer:
        connection = self._taken(seconds)
        try:
            connection.request(method, self._base + path, body, headers)
            if abandonment is not None:
                abandonment.check(connection)
            response = connection.getresponse()
            data = response.read()
            if abandonment is not None:
                abandonment.check()
            found = _document(response, data)
        except BaseException:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        if response.will_close or self._closed.is_set():
            connection.close()
        else:
            self._idle.append(connection)
        return Answer(response.status, found)

    def _taken(self, seconds: float) -> HTTPConnection:
        if self._process != os.getpid():
            # Two processes that share a connection read the answers to each other's requests.
            leave_alone(self._idle, self._busy)
            self._idle, self._busy, self._process = [], set(), os.getpid()
        connection = self._idle_connection()
        if connection is None:
            kind = HTTPSConnection if self._is_secure else HTTPConnection
            connection = kind(self._host, self._port)
        connection.timeout = seconds
        if (opened := connection.sock) is not None:
            opened.settimeout(seconds)
        self._busy.add(connection)
        return connection

    def _idle_connection(self) -> HTTPConnection | None:
        """Return an idle connection that the server, or a proxy, has not closed meanwhile; None without one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.sock is not None and not _has_input(connection.sock):
                return connection
            connection.close()


class _NoDocumentError(ValueError):
    """An answer whose body is no JSON object: it was cut off, or is not that of a Holdfast server."""

    def __init__(self, status: int, location: str | None, data: bytes) -> None:
        super().__init__(
            f"status {status}, {data[:200].decode(errors='replace').strip()!r}, which is no JSON object"
        )
        self.status = status
        self._location = location

    def final(self, what: str) -> HoldfastError:
        """Return the error of a request that is not repeated any more."""
        if self.status in {401, 403}:
            return AccessDeniedError(f"{what} was refused: {self}")
        if self._location is not None:
            text = f"{what} is redirected to {self._location!r:.300}; give the worker the URL of the server itself"
            return ServerAnswerError(self.status, "", text)
        return ServerAnswerError(
            self.status,
            "",
            f"the answer to {what} is not one of Holdfast: {self}; check the URL of the server",
        )


def _document(response: HTTPResponse, data: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer. _NoDocumentError."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or 300 <= response.status < 400:
        raise _NoDocumentError(response.status, response.headers.get("location"), data)
    return cast("dict[str, Any]", found)


def _shut_down(connection: HTTPConnection) -> None:
    """Wake the thread that reads from a connection: it gets an error."""
    if (opened := connection.sock) is not None:
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


def _has_input(opened: socket.socket) -> bool:
    """Return whether an idle connection has something to read: its end, as the server sends nothing unasked."""
    with selectors.DefaultSelector() as selector:
        selector.register(opened, selectors.EVENT_READ)
        return bool(selector.select(0))
