"""`register_converter`: how a class of the user is stored."""

from collections.abc import Callable

from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.values.codec_factory import register
from holdfast.kernel.values.converters import checked_converter

T = TypeVar("T")
S = TypeVar("S")


def register_converter(
    cls: type[T], /, *, stored_as: TypeForm[S], dump: Callable[[T], S], load: Callable[[S], T], example: T
) -> None:
    """Declare how instances of a class are stored, in every process that uses them.

    `register_converter(Money, stored_as=str, dump=str, load=Money.parse, example=Money(5, "EUR"))`. For classes of
    other libraries, and for those whose fields are not arguments of `__init__`. Call it where the class is defined or
    imported, before the first step, workflow or channel that has the type.

    Values come back equal, as all stored values do: each is read back once when it is stored, and refused if it would
    change. `load` must read what earlier versions of `dump` have written, as long as runs with it are active.

    Args:
        cls: The class. Instances of subclasses are refused.
        stored_as: The type of the stored form: any type that can be stored, such as `str` or a TypedDict.
        dump: Returns the stored form of an instance.
        load: Returns the instance of a stored form.
        example: An instance, with which both functions are tried at once.

    Raises:
        DefinitionError: `cls` is not a class, or has another converter, or is stored without one already; `stored_as`
            can't be stored; or the example does not come back equal.
    """
    register(checked_converter(cls, stored_as, dump, load), example)
