"""Exceptions on their way to the history and back: a step's error is of its own class again after a replay.

A stored name is never imported. It is looked up among the exception classes that the program has loaded, and an
instance is made without calling its `__init__`: stored data runs no code.
"""

from typing import Any, Final, cast

from holdfast.kernel.functions.asked import Raised
from holdfast.ports.errors import HoldfastError, StepFailedError
from holdfast.ports.json import canonical, parse

MESSAGE_MAX: Final = 2_000
_KEPT_MAX: Final = 16_384
"""How long the text of an exception's arguments may be. What is longer is not kept."""
_MAIN: Final = "__main__"
_OF_OSERROR: Final = ("errno", "strerror", "filename", "filename2")
"""What an OSError knows beside its arguments."""


def raised_from(error: BaseException) -> Raised:
    """Return what is stored of an exception."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # a user's class may do anything when it is printed
        message = "(its message can't be printed)"
    try:
        arguments: str | None = canonical(_kept(error))
    except Exception:  # noqa: BLE001  # what it holds may do anything, too
        arguments = None
    return Raised(
        type=type_name(type(error)),
        message=message[:MESSAGE_MAX],
        arguments=arguments if arguments is not None and len(arguments) <= _KEPT_MAX else None,
        code=error.code if isinstance(error, HoldfastError) else "body_error",
    )


def _kept(error: BaseException) -> dict[str, object]:
    state = {name: one for name, one in vars(error).items() if name != "__notes__" and _is_plain(one)}
    if isinstance(error, OSError):
        known = {name: getattr(error, name) for name in _OF_OSERROR}
        state |= {name: one for name, one in known.items() if one is not None and _is_plain(one)}
    return {
        "args": [one if _is_plain(one) else repr(one)[:MESSAGE_MAX] for one in error.args],
        "state": state,
    }


def error_from(raised: Raised) -> Exception:
    """Return an exception of the class that is stored, or a StepFailedError if that can't be had.

    The program may not know the class, or not how to make an instance of it from what is stored: of a group.
    """
    found = _class_named(raised.type)
    unknown = StepFailedError(raised.type, raised.message)
    # No future takes a StopIteration.
    if found is None or issubclass(found, (BaseExceptionGroup, StopIteration)):
        return unknown
    try:
        error = _bare(found)
        error.args = (raised.message,) if raised.message else ()
        if raised.arguments is not None:
            kept = cast("dict[str, Any]", parse(raised.arguments))
            error.args = tuple(kept["args"])
            for name, one in cast("dict[str, object]", kept["state"]).items():
                object.__setattr__(error, name, one)
    except Exception:  # noqa: BLE001  # a user's class may do anything when it is made
        return unknown
    return error


def _bare(kind: type[Exception]) -> Exception:
    """Return an instance, made as the built-in class does that it is derived from: without code of the user's."""
    built_in = cast("type[Exception]", next(one for one in kind.__mro__ if one.__module__ == "builtins"))
    return built_in.__new__(kind)


def type_name(kind: type[BaseException]) -> str:
    """Return how a class of exceptions is called in the history."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _class_named(name: str) -> type[Exception] | None:
    """Return the class that is called so. One of the main program may be called by its module elsewhere."""
    alike: type[Exception] | None = None
    local = name.removeprefix(f"{_MAIN}.")
    waiting: list[type[Exception]] = [Exception]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if type_name(kind) == name:
            return kind
        of_main = kind.__module__ == _MAIN and name.endswith(f".{kind.__qualname__}")
        if of_main or (local != name and kind.__qualname__ == local):
            alike = kind
    return alike


def _is_plain(value: object) -> bool:
    """Whether a value comes back as it is from JSON."""
    match value:
        case None | bool() | int() | str():
            return type(value) in (type(None), bool, int, str)
        case float():
            return value - value == 0  # neither infinite nor NaN
        case list():
            return all(map(_is_plain, cast("list[object]", value)))
        case dict():
            items = cast("dict[object, object]", value).items()
            return all(type(name) is str and _is_plain(one) for name, one in items)
        case _:
            return False
