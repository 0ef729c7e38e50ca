"""Values that a durable function shows to the world while it runs: how far it is, say."""

from typing import Final, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.authoring.options import check_name
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.values import encode
from holdfast.kernel.values.type_forms import Form

T = TypeVar("T")

PUBLISHED_MAX: Final = 16_384
"""How long the JSON text of a published value may be: it is a row of the history, which each wake-up reads."""

_PLAIN: Final = (type(None), bool, int, float, str, list, dict)


@overload
def publish(name: str, value: object, /) -> None: ...
@overload
def publish(name: str, value: T, type: TypeForm[T], /) -> None: ...
def publish(name: str, value: object, type: object = None, /) -> None:
    """Show a value to the world, under a name: in a durable function. `run.published(name)` reads the last one.

    It is a row of the history, stored with whatever is recorded next; when nothing is for a quarter of a second, by
    itself. Of several under one name between two records only the last is stored. Nothing of it reaches the function.

    Args:
        name: Letters, digits, and _ . - in it.
        value: Plain JSON, or an object of a class that can be stored. Of at most 16,384 characters as JSON.
        type: Its type, where its class does not say it all: `list[Page]`.

    Raises:
        UnstorableValueError: It is too large, or can't be stored.
        DefinitionError: The name can't be one.
        RuntimeError: It is called outside of a workflow.
    """
    check_name(name, "the name of a published value")
    loop = loop_for("holdfast.publish()")
    form = _form_of(value) if type is None else type
    loop.publish(name, encode(value, form, max_bytes=PUBLISHED_MAX))


def _form_of(value: object) -> Form:
    kind = type(value)
    return object if kind in _PLAIN else kind
