"""Answers of a server: documents as the classes of the table, and problems as the errors that the engine raises."""

import inspect
import json
import random
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, TypeVar, cast, get_origin

import attrs

from holdfast.hosts.http.downloads import Download
from holdfast.hosts.http.json_input import document_converter
from holdfast.hosts.http.operations import Text
from holdfast.hosts.http.problems import MEDIA_TYPE, errors_by_code
from holdfast.hosts.http_client.requests import ClientRequest
from holdfast.ports.errors import (
    AccessDeniedError,
    HoldfastError,
    InvalidCommandError,
    ServerAnswerError,
    UnavailableError,
)
from holdfast.ports.json import parse

R = TypeVar("R")

PAUSE_FIRST: Final = 0.1
"""Seconds before the first repetition; each further pause is twice as long."""
PAUSE_MAX: Final = 5.0
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of a proxy, or of a server, that mean that a later request may be answered."""
_SEVERAL: Final = frozenset({tuple, Sequence})
_SERVER_CODES: Final[Mapping[str, type[HoldfastError]]] = {
    "invalid_request": InvalidCommandError,
    "too_large": InvalidCommandError,
    "unauthenticated": AccessDeniedError,
    "forbidden": AccessDeniedError,
    "read_only": AccessDeniedError,
    "namespace_not_found": AccessDeniedError,
    "shutting_down": UnavailableError,
    "too_many_streams": UnavailableError,
}
"""The errors for codes that only a server has. An engine has no rights, and its arguments are of their types."""


@attrs.frozen(kw_only=True)
class Fault:
    """Why a request has no answer yet, or none that is wanted."""

    error: HoldfastError
    """What to raise if it is not sent again."""
    is_passing: bool = False
    """Whether it may be answered later."""
    is_unsent: bool = False
    """Whether the server has certainly not carried it out."""
    wait: float = 0.0
    """For how many seconds the server wants to be left alone."""


class Tries:
    """The repetitions of one request: how long to wait before the next one, and when to give up.

    Args:
        request: The request.
        patience: For how many seconds it is repeated, from the first fault on.
        monotonic: The clock.
    """

    def __init__(self, request: ClientRequest, patience: float, monotonic: Callable[[], float]) -> None:
        self._request = request
        self._patience = patience
        self._monotonic = monotonic
        self._pause = PAUSE_FIRST
        self._since: float | None = None

    def pause_after(self, fault: Fault) -> float:
        """Return for how many seconds to wait before the request is sent again. Raises the error of the fault."""
        if not fault.is_passing or not (fault.is_unsent or self._request.may_repeat):
            raise fault.error
        now = self._monotonic()
        self._since = now if self._since is None else self._since
        # Not all clients of a server that was down come back at once.
        pause = max(fault.wait, self._pause * random.uniform(0.5, 1.0))  # noqa: S311  # nothing secret
        self._pause = min(self._pause * 2, PAUSE_MAX)
        if now + pause > self._since + self._patience:
            raise fault.error
        return pause


def lost(request: ClientRequest, why: str, *, is_unsent: bool) -> Fault:
    """Return the fault of a request whose connection was lost, or was not made."""
    unknown = "" if is_unsent or request.may_repeat else "; it may have been carried out all the same"
    error = UnavailableError(f"the server does not answer {request.text}: {why}{unknown}")
    return Fault(error=error, is_passing=True, is_unsent=is_unsent)


def fault_of(request: ClientRequest, status: int, headers: Mapping[str, str], content: bytes) -> Fault | None:
    """Return why an answer is not the wanted one; None if it is."""
    if 300 <= status < 400:
        where = headers.get("location", "elsewhere")
        text = f"{request.text} is redirected to {where!r:.300}; give the client the URL of the server itself"
        return Fault(error=ServerAnswerError(status, "", text))
    if status < 400:
        if request.operation.reply in {Text, Download} or status == 204 or _object(content) is not None:
            return None
        return lost(request, f"its answer with status {status} is no whole JSON object", is_unsent=False)
    wait = _seconds(headers.get("retry-after"))
    problem = _object(content) if headers.get("content-type", "").startswith(MEDIA_TYPE) else None
    if problem is None:
        error = _error_without_problem(request, status, content)
        return Fault(error=error, is_passing=status in _PASSING, is_unsent=status == 429, wait=wait or 0.0)
    # A 429 without a time is a refusal that the engine has too: a quota, or a rate that refuses.
    is_passing = status in {502, 503, 504} or (status == 429 and wait is not None)
    return Fault(error=error_of(problem), is_passing=is_passing, is_unsent=status == 429, wait=wait or 0.0)


def document_of(request: ClientRequest, content: bytes, reply: type[R]) -> R:
    """Return the document of an answer. Fields that this version does not know are left out. ServerAnswerError."""
    if reply is NoneType:
        return cast("R", None)
    data: Any = json.loads(content)
    if reply is dict:
        return cast("R", data)
    return structured(request.text, data, reply)


def structured(what: str, data: object, kind: type[R]) -> R:
    """Return the object that JSON data of a server describes. ServerAnswerError."""
    try:
        return document_converter(forbid_extra_keys=False).structure(data, kind)
    except Exception as error:
        raise ServerAnswerError(
            200,
            "",
            f"the answer to {what} can't be read as {kind.__name__}: client and server may have different versions",
        ) from error


def error_of(problem: Mapping[str, Any]) -> HoldfastError:
    """Return the error of a problem: of the class that the engine raises, with its attributes."""
    code, status = str(problem.get("code")), problem.get("status")
    text = str(problem.get("detail") or problem.get("title") or code)
    kind = _SERVER_CODES.get(code) or errors_by_code().get(code)
    if kind is None:
        return ServerAnswerError(status if isinstance(status, int) else 0, code, text)
    error = kind.__new__(kind)
    error.args = (text,)
    given = cast("dict[str, object]", problem.get("fields") or _blank_fields(kind))
    for name, value in given.items():
        is_list = isinstance(value, list)
        vars(error)[name] = tuple(cast("list[object]", value)) if is_list else value
    return error


def _blank_fields(kind: type[HoldfastError]) -> dict[str, object]:
    """Return attributes for an error whose own ones the server does not show, so that reading them raises nothing."""
    if not inspect.isfunction(kind.__init__):
        return {}
    kinds = {name: one.annotation for name, one in inspect.signature(kind).parameters.items()}
    return {
        name: "" if one is str else () if get_origin(one) in _SEVERAL else None for name, one in kinds.items()
    }


def _error_without_problem(request: ClientRequest, status: int, content: bytes) -> HoldfastError:
    shown = content[:200].decode(errors="replace").strip()
    if status in _PASSING:
        return UnavailableError(f"the server does not answer {request.text}: status {status}, {shown!r}")
    if status in {401, 403}:
        return AccessDeniedError(f"{request.text} was refused with status {status}: {shown!r}")
    return ServerAnswerError(
        status,
        "",
        f"the answer to {request.text} is not one of Holdfast: {shown!r}; check the URL of the server",
    )


def _object(content: bytes) -> Mapping[str, Any] | None:
    try:
        found = parse(content.decode())
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else None


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a `Retry-After`; None without one, or for the form that is a date."""
    return float(header) if header is not None and header.strip().isdecimal() else None
