"""Requests of a remote worker to its server, over kept connections, repeated until they are answered."""

import hashlib
import json
import logging
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
from holdfast.ports.errors import UnavailableError
from holdfast.ports.validation import refused

ANSWER_SECONDS: Final = 10.0
"""How long an answer may take, beside the wait of the request."""
_PAUSE_FIRST, _PAUSE_MAX = 0.1, 5.0

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


class ServerConnection:
    """The connections to a namespace of a server. Can be used from several threads."""

    def __init__(self, url: str, key: str, namespace: str) -> None:
        parts = server_parts_of(url, "RemoteWorker")
        self._host, self._port, self._is_secure = parts.hostname or "", parts.port, parts.scheme == "https"
        self._base = f"{parts.path.rstrip('/')}/v1/namespaces/{quote(namespace, safe='')}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._closed = threading.Event()

    def close(self) -> None:
        """Close the connections, and give up the requests that are under way."""
        self._closed.set()
        for connection in (*self._busy, *self._idle):
            if (opened := connection.sock) is not None:
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
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
    ) -> Answer:
        """Send a request until it is answered, whatever the answer is. So it must be harmless to repeat.

        An answer that only says "later" (status 429 and 5xx) counts as none. So does one without a whole JSON object:
        it was cut off, and if that was in its headers, the connection reports no error. UnavailableError after so many
        tries, or once the connection is closed.

        Args:
            method: The method.
            path: The path below the namespace.
            body: The JSON data of the body.
            key: The idempotency key.
            wait: For how many seconds the answer may wait.
            tries: How often the request is sent at most.
        """
        pause, number = _PAUSE_FIRST, 0
        text = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = dict(self._headers)
        if key is not None:
            headers["Idempotency-Key"] = key
        if text is not None and len(text) > LARGE:
            headers["Content-Digest"] = content_digest(text)
        if wait:
            headers["Prefer"] = f"wait={wait}"
        while True:
            number += 1
            try:
                answer = self._send(method, self._base + path, text, headers, ANSWER_SECONDS + wait)
                if answer.status < 500 and answer.status != 429:
                    return answer
                fault = f"{answer.status} {answer.code}"
            except (OSError, HTTPException, ValueError) as error:
                fault = f"{type(error).__name__}: {error}"
            if number == tries or self._closed.is_set():
                raise UnavailableError(f"the server does not answer {method} {path}: {fault}")
            _log.info("the server does not answer %s %s, which is repeated: %s", method, path, fault)
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
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> Answer:
        connection = self._taken(seconds)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read()
            found = json.loads(data)
        except BaseException:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        if response.will_close or self._closed.is_set():
            connection.close()
        else:
            self._idle.append(connection)
        if not isinstance(found, dict):
            raise ValueError("the answer is not an object")  # as for one that is not JSON
        return Answer(response.status, cast("dict[str, Any]", found))

    def _taken(self, seconds: float) -> HTTPConnection:
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


def _has_input(opened: socket.socket) -> bool:
    """Return whether an idle connection has something to read: its end, as the server sends nothing unasked."""
    with selectors.DefaultSelector() as selector:
        selector.register(opened, selectors.EVENT_READ)
        return bool(selector.select(0))
