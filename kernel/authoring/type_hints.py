"""Signatures and type hints of users' functions. A DefinitionError names the part that can't be read."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from typing_extensions import get_type_hints

from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import DefinitionError


def signature_of(function: Callable[..., object], what: str) -> inspect.Signature:
    """Return the signature of a function; that of a bound method has no `self`. Raises DefinitionError."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"{what}: {error}, so its parameters are unknown; write a function that calls it"
        ) from None


def hints_of(function: Callable[..., object], what: str, place: str) -> Mapping[str, Form]:
    """Return the type hints of a function by parameter name, with its return type as `return`.

    `place` is "function" or "stage": the error about an undefined name says to define it above that. Raises
    DefinitionError.
    """
    try:
        return cast("dict[str, Form]", get_type_hints(function, include_extras=True))
    except Exception as error:  # noqa: BLE001  # an annotation is code, which may raise anything
        name = _find_unreadable(function)
        if isinstance(error, NameError):
            where = "" if name is None else f"{_called(name)}: "
            raise DefinitionError(
                f"{what}: {where}{error} when the program runs; define or import it above the {place}, at the top of"
                " the module and outside `if TYPE_CHECKING:`"
            ) from None
        where = "an annotation" if name is None else f"the annotation of {_called(name)}"
        raise DefinitionError(f"{what}: {where} can't be read: {type(error).__name__}: {error}") from None


def _called(name: str) -> str:
    return "what it gives" if name == "return" else f"parameter {name!r}"


def _find_unreadable(function: Callable[..., object]) -> str | None:
    """Return the name of the first annotation that can't be evaluated, if any."""
    annotations = cast("Mapping[str, object]", getattr(function, "__annotations__", {}))
    names = cast("dict[str, Any]", getattr(inspect.unwrap(function), "__globals__", {}))
    for name, annotation in annotations.items():

        def alone() -> None: ...

        alone.__annotations__ = {name: annotation}
        try:
            get_type_hints(alone, names, include_extras=True)
        except Exception:  # noqa: BLE001  # as above
            return name
    return None
