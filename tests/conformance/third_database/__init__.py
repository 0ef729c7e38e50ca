"""A third database: a folder, and a line of registration. It is SQLite in other words, and without what it can do."""

from typing import TYPE_CHECKING, Final

from holdfast.adapters.sql.databases import DatabaseKind

if TYPE_CHECKING:
    from tests.conformance.third_database.connection import ThirdDatabase


def _new(url: str, deadline: float) -> "ThirdDatabase":
    from tests.conformance.third_database.connection import ThirdDatabase

    return ThirdDatabase(url.removeprefix("third:///"), busy_seconds=deadline)


DATABASE: Final = DatabaseKind(
    name="Third", schemes=frozenset({"third"}), url_form="third:///path/to/file", extra="third", new=_new
)
