"""Large inputs and outputs of a remote worker: by URLs of the blob store, or else through the server."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import sleep
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from holdfast.hosts.remote.connection import ServerConnection, read_whole
from holdfast.ports.errors import UnavailableError
from holdfast.ports.json import compact

T = TypeVar("T")

SECONDS: Final = 60.0
"""How long the storage may take for an answer."""
_TRIES: Final = 4
_PAUSE: Final = 0.1
_THERE: Final = 412
"""The status of a PUT of bytes that are there already, from an earlier try."""

_log = logging.getLogger("holdfast.remote")


def input_text(server: ServerConnection, task: Mapping[str, Any]) -> str:
    """Return the JSON text of a task's input. Blocks. UnavailableError if its address does not give it."""
    address = task.get("input_address")
    if address is None:
        return compact(task["input"])
    url = cast("str", address["url"])
    if "://" in url:
        return _repeated(lambda: _download(url)).decode()
    return _repeated(lambda: server.fetch(f"/{url}")).decode()


def sent_output(server: ServerConnection, token: str, text: str) -> str | None:
    """Send an output to the blob store, and return its reference; None if that can't be done. Blocks."""
    data = text.encode()
    wanted = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    answer = server.call("POST", f"/tasks/{token}/upload", wanted)
    url = answer.document.get("url")
    if answer.status >= 400 or not isinstance(url, str):
        return None
    headers = cast("Mapping[str, str]", answer.document["headers"])
    try:
        _repeated(lambda: _upload(url, data, headers))
    except UnavailableError as error:
        _log.warning("an output goes through the server, as the blob store does not take it: %s", error)
        return None
    return cast("str", answer.document["reference"])


def _repeated(call: Callable[[], T]) -> T:
    for number in range(1, _TRIES):
        try:
            return call()
        except UnavailableError as error:
            _log.info("a transfer is repeated: %s", error)
            sleep(_PAUSE * 2**number)
    return call()


def _download(url: str) -> bytes:
    status, data = _send("GET", url, None, {})
    if status != 200:
        raise UnavailableError(f"the blob store does not give an input: {status}")
    return data


def _upload(url: str, data: bytes, headers: Mapping[str, str]) -> None:
    status, _ = _send("PUT", url, data, headers)
    if not 200 <= status < 300 and status != _THERE:
        raise UnavailableError(f"the blob store does not take an output: {status}")


def _send(method: str, url: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or parts.hostname is None:
        raise UnavailableError("the address of a value is not a URL that this worker can use")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=SECONDS)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", data, dict(headers))
        response: HTTPResponse = connection.getresponse()
        return response.status, read_whole(response)
    except (OSError, HTTPException, ValueError) as error:
        raise UnavailableError(f"the blob store does not answer: {error}") from error
    finally:
        connection.close()
