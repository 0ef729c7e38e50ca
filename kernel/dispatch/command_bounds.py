"""Maximum lengths of the texts in commands, checked before anything is stored.

User values are exempt. Large ones go to the blob store, and the size of a batch limits those that stay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import attrs

from holdfast.kernel.commands import Command
from holdfast.kernel.commands.attempt_output import REASON_MAX, VALUE_MAX
from holdfast.kernel.commands.names import CONCURRENCY_KEY_MAX, IDEMPOTENCY_KEY_MAX, NAME_MAX
from holdfast.kernel.commands.namespaces import NOTE_MAX
from holdfast.kernel.commands.topics import PAYLOAD_MAX
from holdfast.kernel.commands.workflows import SCHEMAS_MAX
from holdfast.kernel.limits.levels import PATH_MAX
from holdfast.kernel.limits.limit_names import GIVEN_MAX
from holdfast.kernel.pipelines.headers import HEADERS_LENGTH_MAX
from holdfast.kernel.rules.signals import CHANNEL_MAX
from holdfast.kernel.rules.updates import UPDATE_MAX
from holdfast.kernel.topics.selections import GROUP_MAX, TOPIC_MAX, group_channel_of
from holdfast.ports.errors import InvalidCommandError

ID_MAX: Final = 256
"""Maximum length of a run id."""
KEY_MAX: Final = 255
"""Maximum length of idempotency keys of annotations and keys of external work."""
ATTRIBUTES_MAX: Final = 65_536
"""Maximum length of a run's attributes as JSON text."""
CONFIG_MAX: Final = 65_536
_KEY_OF_STORE_MAX: Final = 8_000
"""Maximum length of namespaces and of the keys of runs, jobs and sessions, which Holdfast generates.

Real keys are far shorter. The limit is generous so that a key from a damaged row still fits into the command that
names it.
"""
_MESSAGE_MAX: Final = 1_048_576
"""Maximum length of a job's key in a queue message. A made-up key names no job: such a message is ignored."""
_GROUP_CHANNEL_MAX: Final = len(group_channel_of("", "", "")) + TOPIC_MAX + GROUP_MAX + NAME_MAX
"""Maximum length of the channel in which a member of a group gets a message."""
_PLACE_MAX: Final = 1_000
_ERROR_MAX: Final = 4_000
_TIMING_MAX: Final = 262_144
"""Maximum length of the timing of a schedule as JSON text: a date has ten characters."""
_RAISED_MAX: Final = 1_000_000
"""Maximum length of an error as JSON text, with its causes and attributes. Hosts shorten errors to a fraction of it."""

TEXTS: Final[Mapping[str, int]] = {
    "JobClaimOne/job": _MESSAGE_MAX,
    "JobExecute/job": _MESSAGE_MAX,
    "LimitClear/name": GIVEN_MAX,
    "LimitSet/name": GIVEN_MAX,
    "actor/id": NAME_MAX,
    "actor/kind": NAME_MAX,
    "actor/version": NAME_MAX,
    "after": _PLACE_MAX,
    "annotations/name": NAME_MAX,
    "annotations/value": VALUE_MAX,
    "attributes": ATTRIBUTES_MAX,
    "blob": _PLACE_MAX,
    "by": CONCURRENCY_KEY_MAX + NAME_MAX,
    "call": NAME_MAX,
    "channel": CHANNEL_MAX,
    "records/channel": _GROUP_CHANNEL_MAX,
    "code": NAME_MAX,
    "concurrency_key": CONCURRENCY_KEY_MAX,
    "concurrency_within/by": CONCURRENCY_KEY_MAX,
    "concurrency_within/key": CONCURRENCY_KEY_MAX,
    "config": CONFIG_MAX,
    "data": 100_000,
    "declared": NAME_MAX,
    "credential": KEY_MAX,
    "credential_hash": KEY_MAX,
    "definitions": 2 * NAME_MAX + 1,
    "event/error/arguments": _RAISED_MAX,
    "event/error/message": _ERROR_MAX,
    "event/error/traceback": 20_000,
    "event/error/type": _PLACE_MAX,
    "event/message": _ERROR_MAX,
    "failure/arguments": _RAISED_MAX,
    "failure/message": _ERROR_MAX,
    "failure/traceback": 20_000,
    "failure/type": _PLACE_MAX,
    "holder": _KEY_OF_STORE_MAX,
    "hash": KEY_MAX,
    "headers": HEADERS_LENGTH_MAX,
    "host": _PLACE_MAX,
    "id": ID_MAX,
    "idempotency_key": IDEMPOTENCY_KEY_MAX,
    "job": _KEY_OF_STORE_MAX,
    "ids": KEY_MAX,
    "key": KEY_MAX,
    "keys": PATH_MAX + NAME_MAX,
    "kind": NAME_MAX,
    "label": NAME_MAX,
    "name": NAME_MAX,
    "namespace": _KEY_OF_STORE_MAX,
    "language": NAME_MAX,
    "namespaces": NAME_MAX,
    "node": NAME_MAX,
    "note": NOTE_MAX,
    "outcome/error": _RAISED_MAX,
    "parent": _KEY_OF_STORE_MAX,
    "principal": NAME_MAX,
    "queue": NAME_MAX,
    "rate/name": NAME_MAX,
    "rate/over": NAME_MAX,
    "rate/units": CONCURRENCY_KEY_MAX + NAME_MAX,
    "rates": CONCURRENCY_KEY_MAX + NAME_MAX,
    "reason": REASON_MAX,
    "refused/error": 20_000,
    "OutboxSettle/error": 20_000,
    "registration": _KEY_OF_STORE_MAX,
    "replaces": KEY_MAX,
    "request_id": KEY_MAX,
    "retry_rules/error": NAME_MAX,
    "run": _KEY_OF_STORE_MAX,
    "run_id": ID_MAX,
    "schedule": NAME_MAX,
    "scheduled": _PLACE_MAX,
    "schemas": SCHEMAS_MAX,
    "scopes": NAME_MAX,
    "sender": ID_MAX,
    "session": _KEY_OF_STORE_MAX,
    "sink": NAME_MAX,
    "sinks": NAME_MAX,
    "site": 4_096,
    "stage": NAME_MAX,
    "step": NAME_MAX,
    "take_next": NAME_MAX,
    "types": NAME_MAX,
    "timing": _TIMING_MAX,
    "type": NAME_MAX,
    "topic": TOPIC_MAX,
    "group": GROUP_MAX,
    "TriggerFire/digest": NAME_MAX,
    "trigger": NAME_MAX,
    "TriggerFire/refused": _ERROR_MAX,
    "selection": ATTRIBUTES_MAX,
    "message/payload": PAYLOAD_MAX,
    "message/attributes": ATTRIBUTES_MAX,
    "undoes": NAME_MAX,
    "untouched": _KEY_OF_STORE_MAX,
    "update": UPDATE_MAX,
    "version": NAME_MAX,
    "versions": NAME_MAX,
    "workflow": NAME_MAX,
    "workflows": NAME_MAX,
}
"""Maximum number of characters of each text in a command, by the end of its path. The longest match counts."""

VALUES: Final = frozenset({"inline", "given"})
"""The names of fields that hold user values."""

Checker: TypeAlias = Callable[[Any], None]


def check_texts(command: Command[Any]) -> None:
    """Raise InvalidCommandError if a text of a command is too long."""
    kind = type(command)
    checker = _CHECKERS.get(kind, ...)
    if checker is ...:
        checker = _CHECKERS[kind] = _checker(kind, (kind.__name__,))
    if checker is not None:
        checker(command)


_CHECKERS: Final[dict[type, Checker | None]] = {}


def maximum(path: Sequence[str]) -> int | None:
    """Return the maximum length of the text at a path: the command's class, then field names. None for a user value."""
    if path[-1] in VALUES:
        return None
    ends = ("/".join(path[start:]) for start in range(len(path)))
    most = next((TEXTS[end] for end in ends if end in TEXTS), None)
    if most is None:
        raise LookupError(f"no maximum is known of {'.'.join(path)}")
    return most


def _checker(kind: object, path: tuple[str, ...]) -> Checker | None:
    """Return a function that checks a value of a type; None if such a value contains no text."""
    if kind is str:
        return _text_checker(path)
    if isinstance(kind, type) and attrs.has(kind):
        return _class_checker(kind, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return None
    if origin in (Union, UnionType):
        return _union_checker(arguments, path)
    if origin is tuple:
        return _each(_checker(arguments[0], path))
    return None


def _text_checker(path: tuple[str, ...]) -> Checker | None:
    most = maximum(path)
    if most is None:
        return None
    what = ".".join(path[1:])

    def check(text: str) -> None:
        if len(text) > most:
            raise InvalidCommandError(f"{what} has {len(text):,} characters; at most {most:,} are possible")

    return check


def _class_checker(kind: type[attrs.AttrsInstance], path: tuple[str, ...]) -> Checker | None:
    found = ((field.name, _checker(field.type, (*path, field.name))) for field in attrs.fields(kind))
    parts = {name: checker for name, checker in found if checker is not None}
    if not parts:
        return None
    checkers = tuple(parts.values())
    get = attrgetter(*parts)
    values_of: Callable[[object], tuple[Any, ...]] = get if len(parts) > 1 else lambda value: (get(value),)

    def check(value: object) -> None:
        for held, checker in zip(values_of(value), checkers, strict=True):
            if held:  # None, and texts and tuples without content, need no check
                checker(held)

    return check


def _union_checker(kinds: Iterable[object], path: tuple[str, ...]) -> Checker | None:
    by_kind = {
        kind: checker
        for kind in kinds
        if kind is not NoneType and (checker := _checker(kind, path)) is not None
    }
    classes = {get_origin(kind) or kind: checker for kind, checker in by_kind.items()}
    if not classes:
        return None

    def check(value: object) -> None:
        checker = classes.get(type(value))
        if checker is not None:
            checker(value)

    return check


def _each(checker: Checker | None) -> Checker | None:
    if checker is None:
        return None

    def check(values: Iterable[object]) -> None:
        for value in values:
            checker(value)

    return check
