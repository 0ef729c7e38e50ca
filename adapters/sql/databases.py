"""The registered databases, and the choice of one by URL.

Each database is a folder with everything that is particular to it (docs/decisions/0073). This module and the
`__init__` of a folder import neither SQLAlchemy nor a driver: a process whose store is in memory does without.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

import attrs

if TYPE_CHECKING:
    from holdfast.adapters.sql.database import Database

REGISTERED: Final = ("holdfast.adapters.sql.sqlite", "holdfast.adapters.sql.postgresql")
"""The folders of databases: packages with a `DATABASE`, which is a `DatabaseKind`. Another one is a line here."""


@attrs.frozen(kw_only=True)
class DatabaseKind:
    """A kind of database, as far as it can be known without its driver."""

    name: str
    """As its vendor writes it."""
    schemes: frozenset[str]
    """The schemes of its URLs."""
    url_form: str
    """An example of its URLs."""
    extra: str
    """The extra of the package that brings its driver, and Alembic for its tables."""
    new: "Callable[..., Database]"
    """Returns the database of a URL; `open` has the arguments. This is where the driver is imported."""

    def open(self, url: str, deadline: float, **options: object) -> "Database":
        """Return the database of a URL, without connecting yet.

        Args:
            url: A URL with one of the schemes.
            deadline: How many seconds a call of the store may take, retries included.
            options: Further options of this database.

        Raises:
            ValueError: The URL is not valid.
            ModuleNotFoundError: The driver is not installed.
        """
        try:
            return self.new(url, deadline, **options)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'{self.name} needs {error.name}: pip install "holdfast[{self.extra}]"', name=error.name
            ) from error


def kind_of(url: str) -> DatabaseKind | None:
    """Return the kind of database that a URL names; None if none is registered for its scheme."""
    scheme = url.partition("://")[0]
    return next((kind for kind in _kinds() if scheme in kind.schemes), None)


def url_forms() -> Sequence[str]:
    """Return an example of a URL for each registered database."""
    return [kind.url_form for kind in _kinds()]


def _kinds() -> Iterator[DatabaseKind]:
    return (cast("DatabaseKind", import_module(folder).DATABASE) for folder in REGISTERED)
