"""Completions: values that a durable function waits for, sent by another system with a token."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from contextlib import suppress
from typing import Any, Final, Generic, cast

import attrs
from typing_extensions import TypeForm, TypeVar, override

from holdfast.hosts.functions.published_values import newest_rows
from holdfast.kernel.authoring.body_types import check_storable
from holdfast.kernel.authoring.channels import Inbox
from holdfast.kernel.authoring.functions import side_effect
from holdfast.kernel.authoring.heartbeat_details import form_of
from holdfast.kernel.authoring.run_info import run_info
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.history import events
from holdfast.kernel.values import decode_input, encode
from holdfast.ports.durations import Duration
from holdfast.ports.errors import (
    ChannelClosedError,
    CompletionFailedError,
    InvalidArgumentError,
    InvalidValueError,
    UnreadMessagesError,
)
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.run import Run

T = TypeVar("T")

_PREFIX: Final = "completion:"
_TOKEN: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{22,64})")
_SECRET_BYTES: Final = 24
_PAGE: Final = 1_000


def _new_secret() -> str:
    """Return a secret as it is recorded: with a prefix that no token has, so that no other result passes for one."""
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def _decoded(name: str) -> str | None:
    """Return the run id in a token; None if the text has none."""
    try:
        return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


@attrs.frozen
class CompletionToken:
    """The parts of a token: the id of the run, and a secret that only this completion of the run has."""

    run_id: str
    secret: str

    @classmethod
    def parsed(cls, token: object) -> "CompletionToken":
        """Return a token from its text. InvalidArgumentError for any other text."""
        found = _TOKEN.fullmatch(token) if isinstance(token, str) else None
        run_id = None if found is None else _decoded(found[1])
        if found is None or run_id is None:
            raise InvalidArgumentError(
                "token", "complete: this is not the token of a completion, as `completion.token` is"
            )
        return cls(run_id, found[2])

    @property
    def text(self) -> str:
        """The token as it is sent: letters, digits, and - _ and one dot."""
        name = base64.urlsafe_b64encode(self.run_id.encode()).decode().rstrip("=")
        return f"{name}.{self.secret}"

    @property
    def channel(self) -> str:
        """The channel for the outcome. Its name is shown and logged, and does not give the secret away."""
        return _PREFIX + hashlib.sha256(self.secret.encode()).hexdigest()[:32]

    def key_of(self, outcome: str) -> str:
        """Return the idempotency key of an outcome: given again, it is stored once."""
        return f"{self.channel}/{hashlib.sha256(outcome.encode()).hexdigest()[:32]}"


@attrs.frozen
class _Failed:
    message: str


class _Outcome(Inbox[Any]):
    """The channel for the outcome: a value, or the message of a failure."""

    @override
    def decoded(self, text: str) -> Any:
        outcome = parse(text)
        fields = cast("dict[str, object]", outcome) if isinstance(outcome, dict) else {}
        if fields.keys() == {"value"}:
            return decode_input(canonical(fields["value"]), self._form)
        if isinstance(message := fields.get("error"), str):
            return _Failed(message)
        raise InvalidValueError("a completion", ("it has neither a value nor an error",))


class Completion(Generic[T]):
    """A value that comes from outside, once. `new_completion` makes one.

    Attributes:
        token: Names the completion, in letters, digits and `-_.`. Send it to the person or system that completes it
            by `engine.complete(token, value)`. It can't be guessed; treat it as a password for this one value.
    """

    def __init__(self, token: CompletionToken, form: TypeForm[T]) -> None:
        self.token = token.text
        self._outcome = _Outcome(token.channel, form)
        self._received: list[Any] = []

    async def result(self, *, timeout: Duration | None = None) -> T:
        """Wait for the value and return it: `await completion.result(timeout=timedelta(days=3))`.

        The first value of the completion's type counts. One of another type is skipped and recorded, and the wait goes
        on. After the wait, further values are refused, with an AlreadyCompletedError.

        Raises:
            CompletionFailedError: `engine.fail_completion` was called with the token.
            TimeoutError: No value came within `timeout`, a timedelta or a number of seconds. It may still come: call
                `result` again to wait on.
            InvalidArgumentError: The timeout is not a duration.
            RuntimeError: It was not called by a durable function.
        """
        if not self._received:
            with suppress(ChannelClosedError):  # another task of the function has received it
                outcome = await self._outcome.receive(timeout=timeout)
                # Of two tasks, each may have received an outcome: the first one counts.
                self._received.append(outcome)
                await self._close()
        outcome = self._received[0]
        if isinstance(outcome, _Failed):
            raise CompletionFailedError(outcome.message)
        return cast("T", outcome)

    async def _close(self) -> None:
        """Close the channel. Outcomes that were stored before, at the same time as the first one, are dropped.

        They are taken undecoded: a receive would skip one of another type, and wait for the next.
        """
        inboxes, name = loop_for("Completion.result()").inboxes, self._outcome.name
        while not inboxes.is_closed(name):
            if inboxes.has(name):
                await inboxes.take((name,), lambda message: message)
            else:
                try:
                    await self._outcome.close()
                except UnreadMessagesError:
                    continue


async def new_completion(type: TypeForm[T], /) -> Completion[T]:
    """Make a completion, which gets one value of this type from outside.

    Send its token to a person or another system in a step, and await its `result`.

    Args:
        type: The type of the value; any storable type.

    Raises:
        DefinitionError: Values of the type can't be stored.
        RuntimeError: It was not called by a durable function.
    """
    loop_for("new_completion()")
    check_storable(type, "a completion can't have values of this type")
    secret = await side_effect(_new_secret)
    return Completion(CompletionToken(run_info().id, secret.removeprefix(_PREFIX)), type)


def is_known(persistence: Persistence, run: Run, token: CompletionToken) -> bool:
    """Whether the run has a completion with this token, found by the row in which the secret was recorded.

    Anyone can make up a token for a run whose id is known: nothing must be stored for it.
    """
    secret = canonical(_PREFIX + token.secret).encode()
    rows = newest_rows(persistence, run, events.StepCompleted.type, _PAGE)
    texts = (row.payload.inline for row in rows if row.payload is not None)
    return any(hmac.compare_digest(text.encode(), secret) for text in texts if text is not None)


def value_outcome(value: object, form: object) -> str:
    """Return the outcome with a value, as JSON text. UnstorableValueError, InvalidValueError."""
    return canonical({"value": parse(encode(value, form_of(value) if form is None else form))})


def failed_outcome(message: str) -> str:
    """Return the outcome without a value, as JSON text."""
    return canonical({"error": message})
