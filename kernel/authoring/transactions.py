"""Steps that run in a transaction of the store: the connection or session that their bodies take first."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from holdfast.kernel.authoring.body_types import is_async_body
from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import DefinitionError


@runtime_checkable
class Statements(Protocol):
    """The first argument of such a body: a `sqlalchemy.Connection` or a `sqlalchemy.orm.Session`."""

    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        ...

    def begin_nested(self) -> object:
        """Begin a savepoint."""
        ...


def read_transaction_form(body: Callable[..., object], what: str) -> tuple[CallForm, type]:
    """Return the call form of such a step without its first parameter, and the class of that.

    Raises DefinitionError.
    """
    if is_async_body(body):
        raise DefinitionError(
            f"{what} runs in a transaction, in a thread; make it a plain function, not an async one"
        )
    wanted: list[type] = []

    def check_first(name: str, form: Form) -> None:
        if not isinstance(form, type) or not issubclass(form, Statements):
            raise DefinitionError(
                f"{what} runs in a transaction, which is its first parameter: annotate {name or 'it'!r} as"
                " sqlalchemy.Connection, or as sqlalchemy.orm.Session"
            )
        wanted.append(form)

    form = read_call_form(body, what, check_first=check_first)
    return form, wanted[0]
