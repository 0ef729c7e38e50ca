"""Stored form of exceptions: an error of a step has its own class again after a replay.

A stored class name is never imported. It is looked up among the loaded exception classes, and the instance is filled
without calling its `__init__`, its `__setattr__` or any other code of the class: stored data runs no code. If the error
can't be recreated, a StepFailedError takes its place and says why.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any, Final, cast

from holdfast.kernel.history import validation_errors
from holdfast.kernel.history.error_values import (
    ErrorValueEncoder,
    NotKept,
    class_name,
    class_named,
    text_of,
    value_from,
)
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import HoldfastError, StepFailedError
from holdfast.ports.json import compact, parse

MESSAGE_MAX: Final = 2_000
_KEPT_MAX: Final = 16_384
"""Maximum length of an exception's stored values as JSON text. If they exceed it even when cut, none are stored."""
_TEXTS_MAX: Final = (4_000, 400, 40)
"""Maximum lengths of each text within it, tried in this order."""
_CHAIN_MAX: Final = 8
"""Maximum number of nested or chained errors that are stored."""
_NOTES_MAX: Final = 20
_LEAVES_MAX: Final = 5
"""Maximum number of errors of a group that its message names."""
_WORDS_MAX: Final = MESSAGE_MAX // _LEAVES_MAX
_TASK_GROUP: Final = "unhandled errors in a TaskGroup"

_GROUPS_OWN: Final = frozenset({"message", "exceptions"})
"""Attributes that an exception group gets from its constructor."""
_DICT: Final[Any] = BaseException.__dict__["__dict__"]
_ARGS: Final[Any] = BaseException.__dict__["args"]
_CAUSE: Final[Any] = BaseException.__dict__["__cause__"]
_CONTEXT: Final[Any] = BaseException.__dict__["__context__"]
_SUPPRESS: Final[Any] = BaseException.__dict__["__suppress_context__"]


def raised_from(error: BaseException) -> Raised:
    """Return the stored form of an exception."""
    return Raised(
        type=class_name(type(error)),
        message=message_of(error)[:MESSAGE_MAX],
        arguments=_kept_text(error),
        code=error.code if isinstance(error, HoldfastError) else "body_error",
    )


def message_of(error: BaseException) -> str:
    """Return the message of an error; for a group, those of its errors: `ValueError: no (1 of 2 in a TaskGroup)`."""
    try:
        if not isinstance(error, BaseExceptionGroup):
            return str(error)
        group = cast("BaseExceptionGroup[BaseException]", error)
        where = "a TaskGroup" if group.message == _TASK_GROUP else f"group {group.message[:_WORDS_MAX]!r}"
        leaves = list(leaves_of(group))
    except Exception:  # noqa: BLE001  # `__str__` of a user's class may raise anything
        return "(its message can't be printed)"
    several = [
        f"{error_words(leaf)[:_WORDS_MAX]} ({number} of {len(leaves)}{f' in {where}' if number == 1 else ''})"
        for number, leaf in enumerate(leaves[:_LEAVES_MAX], 1)
    ]
    if len(leaves) > _LEAVES_MAX:
        several.append(f"and {len(leaves) - _LEAVES_MAX} more")
    return "; ".join(several)


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group and its groups, however deep; of another error, the error itself."""
    left = [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left.extend(reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions))
        else:
            yield one


def error_words(error: BaseException) -> str:
    """Return the message of an error with the name of its class."""
    message, name = message_of(error), type(error).__name__
    return f"{name}: {message}" if message else name


def _kept_text(error: BaseException) -> str | None:
    """Return the values of an exception as JSON text; None if they are too long or can't be read."""
    for text_max in _TEXTS_MAX:
        try:
            text = compact(_Holdings(text_max).of(error, 0))
        except Exception:  # noqa: BLE001  # the code of user values may raise anything
            return None
        if len(text) <= _KEPT_MAX:
            return text
    return None


def _as_group(error: BaseException) -> BaseExceptionGroup[BaseException] | None:
    is_group = isinstance(error, BaseExceptionGroup)
    return cast("BaseExceptionGroup[BaseException]", error) if is_group else None


class _Holdings:
    """Converts exceptions with their values to JSON data, each once, since errors may be each other's causes."""

    def __init__(self, text_max: int) -> None:
        self._keeper = ErrorValueEncoder(text_max, self._whole)
        self._text_max = text_max
        self._seen: set[int] = set()

    def of(self, error: BaseException, depth: int) -> dict[str, object]:
        """Return the values of an exception: arguments, notes, attributes, and the errors behind it."""
        self._seen.add(id(error))
        keeper = self._keeper
        found: dict[str, object] = {}
        group = _as_group(error)
        if validation_errors.is_validation_error(error):
            found["validation"] = keeper.data(validation_errors.parts_of(error))
        elif group is not None:
            errors = [self._whole(one, depth + 1) for one in group.exceptions]
            found["group"] = {"message": group.message, "errors": errors}
        else:
            found["args"] = [text_of(self._data(one, depth)) for one in error.args]
        notes = cast("list[object]", getattr(error, "__notes__", []))
        if notes:
            found["notes"] = [str(one)[: self._text_max] for one in notes[:_NOTES_MAX]]
        state = {
            name: self._data(one, depth) for name, one in _DICT.__get__(error).items() if name != "__notes__"
        }
        places = {name: self._data(one, depth) for name, one in _places(error)}
        found.update({name: one for name, one in (("state", state), ("places", places)) if one})
        return found | self._before(error, depth)

    def _before(self, error: BaseException, depth: int) -> dict[str, object]:
        """Return the cause and the context of an exception."""
        found: dict[str, object] = {}
        cause, context = error.__cause__, error.__context__
        if cause is not None and self._may_keep(cause, depth):
            found["cause"] = self._whole(cause, depth + 1)
        if context is not None and context is cause:
            found["context"] = "cause"
        elif context is not None and self._may_keep(context, depth):
            found["context"] = self._whole(context, depth + 1)
        if error.__suppress_context__:
            found["suppress"] = True
        return found

    def _may_keep(self, error: BaseException, depth: int) -> bool:
        return depth < _CHAIN_MAX and id(error) not in self._seen

    def _data(self, value: object, depth: int) -> object:
        """Return the data of a value; of its class name only, if its own code raises."""
        try:
            return self._keeper.data(value, depth)
        except Exception:  # noqa: BLE001  # code of a user's class may raise anything
            return self._keeper.printed(f"<{type(value).__name__}>")

    def _whole(self, error: BaseException, depth: int) -> object:
        """Return an exception within another: its class and message, and its values unless nested too deep."""
        found: dict[str, object] = {
            "type": class_name(type(error)),
            "message": message_of(error)[: self._text_max],
        }
        return found | {"holds": self.of(error, depth)} if self._may_keep(error, depth - 1) else found


def _places(error: BaseException) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an exception that are not in its `__dict__`: slots, and those of built-in classes."""
    is_group = isinstance(error, BaseExceptionGroup)
    for cls in type(error).__mro__:
        for name, place in vars(cls).items():
            if isinstance(place, MemberDescriptorType) and not name.startswith("__"):
                if is_group and name in _GROUPS_OWN:
                    continue
                with suppress(AttributeError):  # the slot was never set
                    if (value := cast("object", place.__get__(error))) is not None:
                        yield name, value


def error_from(raised: Raised) -> Exception:
    """Return the stored exception as an instance of its class, or a StepFailedError with the reason why that failed."""
    holds: Mapping[str, Any] | None = None
    if raised.arguments is not None:
        with suppress(ValueError):
            holds = cast("Mapping[str, Any]", parse(raised.arguments))
    error = _error(raised.type, raised.message, holds)
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    what = "no future accepts it" if isinstance(error, StopIteration) else "it is not an Exception"
    why = f"known, but {what}, so it is the __cause__ of this"
    stand_in = StepFailedError(raised.type, raised.message, why)
    stand_in.__cause__ = error
    return stand_in


def error_if_known(raised: Raised | None) -> Exception | None:
    """Return the stored exception, as the cause of another; None if its class is not loaded here."""
    error = None if raised is None else error_from(raised)
    return None if isinstance(error, StepFailedError) and not error.why else error


def _error(name: str, message: str, holds: Mapping[str, Any] | None) -> BaseException:
    found = class_named(name, BaseException)
    if found is None:
        return StepFailedError(name, message)
    try:
        error = _made(cast("type[BaseException]", found), message, holds)
        if holds is not None:
            _fill(error, holds)
    except Exception as why:  # noqa: BLE001  # the reason becomes part of the StepFailedError
        reason = (
            f"known, but can't be recreated: {why}" if holds else "known, but its attributes were not stored"
        )
        return StepFailedError(name, message, reason)
    return error


def _inner(data: Mapping[str, Any]) -> BaseException:
    return _error(data["type"], data["message"], data.get("holds"))


def _made(kind: type[BaseException], message: str, holds: Mapping[str, Any] | None) -> BaseException:
    """Return an instance, created by `__new__` of its built-in base class, so that no user code runs."""
    built_in = cast("type[BaseException]", next(one for one in kind.__mro__ if one.__module__ == "builtins"))
    is_group = issubclass(kind, BaseExceptionGroup)
    if is_group:
        group = cast("Mapping[str, Any]", holds)["group"]
        errors = [_inner(one) for one in group["errors"]]
        return cast("BaseException", cast("Any", built_in).__new__(kind, group["message"], errors))
    if holds is not None and "validation" in holds:
        return validation_errors.error_from(kind, value_from(holds["validation"], _inner))
    error = built_in.__new__(kind)
    args = (message,) if holds is None and message else value_from((holds or {}).get("args", []), _inner)
    _ARGS.__set__(error, tuple(args))
    return error


def _fill(error: BaseException, holds: Mapping[str, Any]) -> None:
    """Set the attributes, notes, cause and context of an exception without calling code of its class."""
    state: dict[str, object] = _DICT.__get__(error)
    state.update(value_from(holds.get("state", {}), _inner))
    places = {name: one for cls in reversed(type(error).__mro__) for name, one in vars(cls).items()}
    for name, value in value_from(holds.get("places", {}), _inner).items():
        place = places.get(name)
        if not isinstance(place, MemberDescriptorType):
            continue
        one: object = value
        if isinstance(value, NotKept) and place.__objclass__.__module__ == "builtins":
            if not isinstance(error, UnicodeError):
                continue
            one = (
                b"" if isinstance(error, UnicodeDecodeError) else ""
            )  # UnicodeError.__str__ reads this attribute
        with suppress(AttributeError, TypeError):  # read-only attributes of built-in classes
            place.__set__(error, one)
    if "notes" in holds:
        state["__notes__"] = holds["notes"]
    cause = _inner(holds["cause"]) if "cause" in holds else None
    if cause is not None:
        _CAUSE.__set__(error, cause)
    if "context" in holds:
        context = holds["context"]
        _CONTEXT.__set__(error, cause if context == "cause" else _inner(context))
    _SUPPRESS.__set__(error, bool(holds.get("suppress")))
