"""Idempotency keys of commands: the reply is stored with the effect, and returned when the command is repeated."""

import hashlib
from typing import Any, cast

from holdfast.kernel.commands import Command
from holdfast.kernel.commands.codec import fingerprint_text, reply_from, reply_json
from holdfast.kernel.commands.names import IDEMPOTENCY_KEY_MAX, check_name
from holdfast.kernel.rules.registry import reply_type
from holdfast.kernel.state import State
from holdfast.ports.errors import IdempotencyConflictError, InvalidCommandError
from holdfast.ports.records.values import IdempotencyReply, Micros


def check_key(command: Command[Any]) -> None:
    """Raise InvalidCommandError if the idempotency key of a command is not valid."""
    key = command.idempotency_key
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_MAX:
        raise InvalidCommandError(
            f"an idempotency key has 1 to {IDEMPOTENCY_KEY_MAX} characters, not {len(key)}"
        )
    check_name("the idempotency key", key)


def _fingerprint(command: Command[Any]) -> str:
    return hashlib.sha256(fingerprint_text(command).encode()).hexdigest()


def stored_reply(state: State, command: Command[Any]) -> object | None:
    """Return the stored reply to a command with this idempotency key, or None.

    IdempotencyConflictError if the key was used for another command.
    """
    if command.idempotency_key is None:
        return None
    known = state.tables.replies.get((command.namespace, command.idempotency_key))
    if known is None:
        return None
    if known.fingerprint != _fingerprint(command):
        raise IdempotencyConflictError(command.idempotency_key)
    return cast("object", reply_from(known.body, reply_type(type(command))))


def reply_of(command: Command[Any], reply: object, now: Micros) -> IdempotencyReply:
    """Return the row that stores the reply to a command with an idempotency key."""
    assert command.idempotency_key is not None
    return IdempotencyReply(
        namespace=command.namespace,
        key=command.idempotency_key,
        fingerprint=_fingerprint(command),
        body=reply_json(reply),
        created_at=now,
    )
