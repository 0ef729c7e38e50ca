"""A command with a key is carried out once: what was answered is stored with its effect, and answered again."""

import hashlib
from typing import Any, Final, cast

from holdfast.kernel.commands import Command
from holdfast.kernel.commands.codec import fingerprint_text, reply_from, reply_json
from holdfast.kernel.commands.names import check_name
from holdfast.kernel.rules.registry import reply_type
from holdfast.kernel.state import State
from holdfast.ports.errors import IdempotencyConflictError, InvalidCommandError
from holdfast.ports.records import IdempotencyReply, Micros

IDEMPOTENCY_KEY_MAX: Final = 255


def check_key(command: Command[Any]) -> None:
    """InvalidCommandError if a key can be none."""
    key = command.idempotency_key
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_MAX:
        raise InvalidCommandError(
            f"an idempotency key has 1 to {IDEMPOTENCY_KEY_MAX} characters, not {len(key)}"
        )
    check_name("the idempotency key", key)


def _fingerprint(command: Command[Any]) -> str:
    return hashlib.sha256(fingerprint_text(command).encode()).hexdigest()


def replayed(state: State, command: Command[Any]) -> object | None:
    """Return what was answered under the command's key before, or None."""
    if command.idempotency_key is None:
        return None
    known = state.tables.replies.get((command.namespace, command.idempotency_key))
    if known is None:
        return None
    if known.fingerprint != _fingerprint(command):
        raise IdempotencyConflictError(command.idempotency_key)
    return cast("object", reply_from(known.body, reply_type(type(command))))


def reply_of(command: Command[Any], reply: object, now: Micros) -> IdempotencyReply:
    """Return what is stored of the answer to a command that has a key."""
    assert command.idempotency_key is not None
    return IdempotencyReply(
        namespace=command.namespace,
        key=command.idempotency_key,
        fingerprint=_fingerprint(command),
        body=reply_json(reply),
        created_at=now,
    )
