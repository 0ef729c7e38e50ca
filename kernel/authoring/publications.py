"""`publish`: shows a value of a durable function, such as its progress, while it runs."""

from typing import Final, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.authoring.heartbeat_details import form_of
from holdfast.kernel.authoring.options import check_name
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.values import encode

T = TypeVar("T")

PUBLISHED_MAX: Final = 16_384
"""Maximum length of the JSON text of a published value: it is a history row, which every wake-up reads."""


@overload
def publish(name: str, value: object, /) -> None: ...
@overload
def publish(name: str, value: T, type: TypeForm[T], /) -> None: ...
def publish(name: str, value: object, type: object = None, /) -> None:
    """Publish a value under a name, in a durable function: `publish("progress", 40)`.

    `run.published("progress")` returns the last value. The value is stored with the next history row, or a quarter of a
    second later if there is none. Of several values under one name in that time, only the last one is stored. The
    function itself can't read published values.

    Args:
        name: 1 to 128 letters, digits, and _ . -
        value: Plain JSON or an object of a storable class, up to 16,384 characters as JSON.
        type: The type of the value where its class is not enough, such as `list[Page]`.

    Raises:
        InvalidValueError: The value does not have the given `type`.
        UnstorableValueError: The value can't be stored, or is too large.
        DefinitionError: The name is invalid.
        RuntimeError: It was not called by a durable function.
    """
    check_name(name, "the name of a published value")
    loop = loop_for("holdfast.publish()")
    form = form_of(value) if type is None else type
    loop.publish(name, encode(value, form, max_bytes=PUBLISHED_MAX))
