"""Errors as answers: `application/problem+json` of RFC 9457, with the stable code of the error."""

from collections.abc import Mapping
from math import ceil
from typing import Final, cast

import attrs

from holdfast.ports import errors as e

MEDIA_TYPE: Final = "application/problem+json"


@attrs.frozen(kw_only=True)
class ProblemDetail:
    """One fault of a request."""

    path: str
    """Where it is, as a JSON path in the body, or the name of a query parameter."""
    message: str
    """What is wrong."""


@attrs.frozen(kw_only=True)
class Problem:
    """Why a request was not carried out."""

    type: str
    """The page of the code, below this server."""
    title: str
    """The meaning of the code, the same for all errors with it."""
    status: int
    """The status of the answer."""
    code: str
    """The stable code of the error."""
    detail: str = ""
    """What happened, for people."""
    errors: tuple[ProblemDetail, ...] = ()
    """The faults of a request that is not valid."""
    retry_after: int | None = None
    """After how many seconds to try again; None if that does not help."""
    fields: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """The attributes of the error, for clients that raise it: those that are texts, numbers or lists of texts."""
    request_id: str | None = None
    """What the log of the server has for a bug; None for other errors."""


class HttpError(Exception):
    """A request that can't be answered as wanted: the code, and its text for people. It changes nothing."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        errors: tuple[ProblemDetail, ...] = (),
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}
        self.retry_after = retry_after
        """After how many seconds to try again; None: as for every error with its status."""


REQUEST_CODES: Final[Mapping[str, tuple[int, str]]] = {
    "invalid_request": (400, "The request is malformed."),
    "unauthenticated": (401, "The request has no valid credentials."),
    "forbidden": (403, "The principal lacks the scope."),
    "csrf_failed": (403, "A request with the cookie of a browser session lacks a token of that session."),
    "sign_in_failed": (403, "The sign-in with the provider has failed."),
    "read_only": (403, "The server changes nothing."),
    "not_found": (404, "There is nothing at this path."),
    "namespace_not_found": (404, "There is no such namespace, or the principal does not reach it."),
    "method_not_allowed": (405, "The path does not have this method."),
    "not_acceptable": (406, "The operation has no answer of this media type."),
    "too_slow": (408, "The body took too long to arrive."),
    "generation_changed": (412, "The run has another generation than `If-Match` names."),
    "too_large": (413, "The body is larger than the server accepts."),
    "unsupported_media_type": (415, "The body is not `application/json`."),
    "too_many_requests": (429, "The principal sends more requests than the server was told to answer."),
    "value_too_large": (422, "The value is larger than the server sends."),
    "provider_unavailable": (503, "The provider of single sign-on does not answer as it should."),
    "too_many_streams": (503, "The server has as many open streams as it accepts."),
    "shutting_down": (503, "The server is shutting down."),
    "internal": (500, "A bug of the server. Its log has the request id."),
}
"""The codes that only the server has, with their status and meaning."""

# The first class of an error's bases that is listed decides.
_STATUSES: Final[Mapping[type[e.HoldfastError], int]] = {
    e.RunNotFoundError: 404,
    e.UnknownWorkflowError: 404,
    e.ScheduleNotFoundError: 404,
    e.TriggerNotFoundError: 404,
    e.SinkNotFoundError: 404,
    e.ArtifactMissingError: 404,
    e.ResultMissingError: 404,
    e.CompletionNotFoundError: 404,
    e.NotExposedError: 404,
    e.CredentialNotFoundError: 404,
    e.ForeignOriginError: 403,
    e.QuotaExceededError: 429,
    e.RateExceededError: 429,
    e.TooManyFailuresError: 429,
    e.InvalidCommandError: 400,
    e.InvalidArgumentError: 400,
    e.InvalidValueError: 400,
    e.InvalidFilterError: 400,
    e.UnstorableValueError: 400,
    e.InvalidNamespaceError: 400,
    e.InvalidOverrideError: 400,
    e.DefinitionError: 400,
    e.StorageRefusedError: 400,
    e.RefusedError: 400,
    e.IdempotencyConflictError: 422,
    e.UpdateRejectedError: 422,
    e.QueryFailedError: 424,
    e.UpdateFailedError: 424,
    e.UpdateLostError: 424,
    e.NondeterminismError: 424,
    e.UnreadableRowError: 424,
    e.UnreadableValueError: 424,
    e.BlobMissingError: 424,
    e.BlobCorruptError: 424,
    e.CommandError: 409,
    e.UnavailableError: 503,
    e.ConflictError: 503,
    e.EngineClosedError: 503,
    e.SchemaError: 503,
    e.AccessDeniedError: 503,
    e.NoBlobStoreError: 503,
}
_USER_TEXTS: Final = (
    e.UpdateRejectedError,
    e.UpdateFailedError,
    e.QueryFailedError,
    e.NondeterminismError,
    e.UnreadableValueError,
)
"""Errors whose texts have what user code raised or stored."""
_RETRY_SECONDS: Final = 2


def status_of(error: type[e.HoldfastError]) -> int:
    """Return the status of an answer with this error; 500 for one that no request can cause."""
    return next((_STATUSES[base] for base in error.__mro__ if base in _STATUSES), 500)


def meaning_of(error: type[e.HoldfastError]) -> str:
    """Return the first line of the description of an error."""
    return (error.__doc__ or error.__name__).strip().partition("\n")[0]


def errors_by_code() -> dict[str, type[e.HoldfastError]]:
    """Return the errors that an answer can have, by their codes."""
    found: dict[str, type[e.HoldfastError]] = {}
    for value in vars(e).values():
        if isinstance(value, type) and issubclass(value, e.HoldfastError) and status_of(value) != 500:
            found[value.code] = value
    return found


def problem_of(error: Exception, root: str, *, sees_values: bool = False) -> Problem | None:
    """Return the problem of an error; None if it is a bug.

    What the server's own systems raise (status 5xx) may name hosts and paths, so its text is not shown, but for a read
    that took too long: that names nothing.

    Args:
        error: The error.
        root: The path under which the server is mounted.
        sees_values: Whether the principal may see what user code wrote.
    """
    if isinstance(error, HttpError):
        status, title = REQUEST_CODES[error.code]
        found = _problem(root, error.code, status, title, error.detail, error.errors)
        if error.retry_after is not None:
            return attrs.evolve(found, retry_after=max(ceil(error.retry_after), 1))
        return found
    if not isinstance(error, e.HoldfastError) or (status := status_of(type(error))) == 500:
        return None
    details: tuple[ProblemDetail, ...] = ()
    match error:
        case e.InvalidValueError(problems=problems):
            details = tuple(_detail(one) for one in problems)
        case e.InvalidFilterError(option=where) | e.InvalidArgumentError(argument=where):
            details = (ProblemDetail(path=where, message=str(error)),)
        case _:
            pass
    names_nothing = status < 500 or isinstance(error, e.ReadTimeoutError)
    is_shown = names_nothing and (sees_values or not isinstance(error, _USER_TEXTS))
    text = str(error) if is_shown else ""
    found = _problem(root, error.code, status, meaning_of(type(error)), text, details)
    if is_shown:
        found = attrs.evolve(found, fields=_fields_of(error))
    if isinstance(error, e.TooManyFailuresError):
        return attrs.evolve(found, retry_after=ceil(error.retry_after))
    return found


def bug(root: str, request_id: str) -> Problem:
    """Return the problem of a bug, which names nothing but the request."""
    status, title = REQUEST_CODES["internal"]
    return attrs.evolve(_problem(root, "internal", status, title, ""), request_id=request_id)


def _problem(
    root: str, code: str, status: int, title: str, detail: str, errors: tuple[ProblemDetail, ...] = ()
) -> Problem:
    return Problem(
        type=f"{root}/errors/{code}",
        title=title,
        status=status,
        code=code,
        detail=detail,
        errors=errors,
        retry_after=_RETRY_SECONDS if status == 503 else None,
    )


def _fields_of(error: Exception) -> dict[str, object]:
    """Return the attributes of an error. Its text has them too, so they show nothing more."""
    return {
        name: value for name, value in vars(error).items() if not name.startswith("_") and _is_plain(value)
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(one, str) for one in cast("tuple[object, ...]", value))
    return value is None or isinstance(value, str | int | float)


def _detail(text: str) -> ProblemDetail:
    """Return a problem of a value, which reads `$.price: expected number`."""
    path, colon, message = text.partition(": ")
    return ProblemDetail(path=path, message=message) if colon else ProblemDetail(path="$", message=text)
