"""Steps in transactions of the store: what their bodies are given first, which no call of them has."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from holdfast.kernel.authoring.body_types import is_async_body
from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import DefinitionError


@runtime_checkable
class Statements(Protocol):
    """What the body of such a step is given: a `sqlalchemy.Connection`, or a `sqlalchemy.orm.Session`."""

    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def begin_nested(self) -> object:
        """Begin a part of it that can be rolled back by itself."""
        ...


def read_transaction_form(body: Callable[..., object], what: str) -> tuple[CallForm, type]:
    """Return how calls of such a step are stored, and what its body is given first. DefinitionError."""
    if is_async_body(body):
        raise DefinitionError(
            f"{what} is done in a transaction, in a thread; make it a plain function, not an async one"
        )
    wanted: list[type] = []

    def check_first(name: str, form: Form) -> None:
        if not isinstance(form, type) or not issubclass(form, Statements):
            raise DefinitionError(
                f"{what} is done in a transaction, which its first parameter stands for: annotate {name or 'it'!r} as"
                " sqlalchemy.Connection, or as sqlalchemy.orm.Session"
            )
        wanted.append(form)

    form = read_call_form(body, what, check_first=check_first)
    return form, wanted[0]
