"""How long the texts of commands may be: every one has a maximum, which is looked at before anything is stored.

Values of users are none of these: they have a size of their own, beyond which they go to the blob store, and what a
transaction may hold bounds those that stay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import attrs

from holdfast.kernel.commands import Command
from holdfast.kernel.commands.attempt_output import NAME_MAX, REASON_MAX, VALUE_MAX
from holdfast.kernel.dispatch.idempotency import IDEMPOTENCY_KEY_MAX
from holdfast.kernel.rules.runs import CONCURRENCY_KEY_MAX
from holdfast.kernel.rules.signals import CHANNEL_MAX
from holdfast.kernel.rules.updates import UPDATE_MAX
from holdfast.ports.errors import InvalidCommandError

ID_MAX: Final = 256
"""How long the id of a run may be, which users give."""
KEY_MAX: Final = 255
"""How long keys may be, under which something is said once, and by which work is woken."""
ATTRIBUTES_MAX: Final = 65_536
"""How long the JSON text of a run's attributes may be."""
CONFIG_MAX: Final = 65_536
_KEY_OF_STORE_MAX: Final = 8_000
"""How long the keys of runs, jobs and sessions may be, and namespaces: users never choose the former, and engines look
at the latter. They are far shorter. But what can be read of a damaged row must not keep others from being told of."""
_MESSAGE_MAX: Final = 1_048_576
"""How long a job's key may be in a message: one that is made up is a message of no job, and holds up no others."""
_PLACE_MAX: Final = 1_000
_ERROR_MAX: Final = 4_000
_RAISED_MAX: Final = 1_000_000
"""How long the JSON text of an error may be, with its causes and members. Hosts shorten it to a part of that."""

TEXTS: Final[Mapping[str, int]] = {
    "JobClaimOne/job": _MESSAGE_MAX,
    "JobExecute/job": _MESSAGE_MAX,
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
    "code": NAME_MAX,
    "concurrency_key": CONCURRENCY_KEY_MAX,
    "config": CONFIG_MAX,
    "data": 100_000,
    "definitions": 2 * NAME_MAX + 1,
    "failure/arguments": _RAISED_MAX,
    "failure/message": _ERROR_MAX,
    "failure/traceback": 20_000,
    "failure/type": _PLACE_MAX,
    "holder": _KEY_OF_STORE_MAX,
    "host": _PLACE_MAX,
    "id": ID_MAX,
    "idempotency_key": IDEMPOTENCY_KEY_MAX,
    "job": _KEY_OF_STORE_MAX,
    "key": KEY_MAX,
    "keys": CONCURRENCY_KEY_MAX + NAME_MAX,
    "name": NAME_MAX,
    "namespace": _KEY_OF_STORE_MAX,
    "outcome/error": _RAISED_MAX,
    "parent": _KEY_OF_STORE_MAX,
    "queue": NAME_MAX,
    "reason": REASON_MAX,
    "refused/error": 20_000,
    "OutboxSettle/error": 20_000,
    "registration": _KEY_OF_STORE_MAX,
    "retry_rules/error": NAME_MAX,
    "rows/error": _RAISED_MAX,
    "run": _KEY_OF_STORE_MAX,
    "run_id": ID_MAX,
    "session": _KEY_OF_STORE_MAX,
    "sink": NAME_MAX,
    "sinks": NAME_MAX,
    "site": 4_096,
    "stage": NAME_MAX,
    "step": NAME_MAX,
    "take_next": NAME_MAX,
    "types": NAME_MAX,
    "type": NAME_MAX,
    "undoes": NAME_MAX,
    "untouched": _KEY_OF_STORE_MAX,
    "update": UPDATE_MAX,
    "version": NAME_MAX,
    "workflow": NAME_MAX,
}
"""The maximum number of characters of each text of each command: by the end of its path, the longest that is here."""

VALUES: Final = frozenset({"inline", "given"})
"""The names of fields that hold values of users."""

Checker: TypeAlias = Callable[[Any], None]


def check_texts(command: Command[Any]) -> None:
    """InvalidCommandError if a text of a command is longer than it may be."""
    kind = type(command)
    checker = _CHECKERS.get(kind, ...)
    if checker is ...:
        checker = _CHECKERS[kind] = _checker(kind, (kind.__name__,))
    if checker is not None:
        checker(command)


_CHECKERS: Final[dict[type, Checker | None]] = {}


def maximum(path: Sequence[str]) -> int | None:
    """Return how long the text at a path may be: the names of a command's class and of fields. None for a value."""
    if path[-1] in VALUES:
        return None
    ends = ("/".join(path[start:]) for start in range(len(path)))
    most = next((TEXTS[end] for end in ends if end in TEXTS), None)
    if most is None:
        raise LookupError(f"no maximum is known of {'.'.join(path)}")
    return most


def _checker(kind: object, path: tuple[str, ...]) -> Checker | None:
    """Return what checks a value of a type; None if there is no text in it."""
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
    parts = tuple((name, checker) for name, checker in found if checker is not None)
    if not parts:
        return None

    def check(value: object) -> None:
        for name, checker in parts:
            held = getattr(value, name)
            if held is not None:
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
