"""Which version the tables have when they are up to date: that of the last migration."""

from typing import Final

from holdfast.adapters.sql.schema import MIGRATIONS

NEWEST: Final = max(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))
