"""Steps that run in a transaction of the store: the connection or session that their bodies take first."""

import inspect
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from holdfast.kernel.authoring.body_types import is_async_body
from holdfast.kernel.authoring.call_types import CallForm, read_call_form
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.errors import DefinitionError


@runtime_checkable
class Statements(Protocol):
    """The first argument of such a body: a connection or session of SQLAlchemy, an async one if the body is async."""

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
    wanted: list[type] = []
    is_async = is_async_body(body)
    possible = (
        "sqlalchemy.ext.asyncio.AsyncConnection, or as sqlalchemy.ext.asyncio.AsyncSession"
        if is_async
        else "sqlalchemy.Connection, or as sqlalchemy.orm.Session"
    )

    def check_first(name: str, form: Form) -> None:
        if not isinstance(form, type) or not issubclass(form, Statements) or _is_async(form) != is_async:
            kind = "an async" if is_async else "a sync"
            raise DefinitionError(
                f"{what} is {kind} function that runs in a transaction, which is its first parameter: annotate"
                f" {name or 'it'!r} as {possible}"
            )
        wanted.append(form)

    form = read_call_form(body, what, check_first=check_first)
    return form, wanted[0]


def _is_async(statements: type[Statements]) -> bool:
    """Return whether statements are awaited."""
    return inspect.iscoroutinefunction(getattr(statements, "execute", None))
