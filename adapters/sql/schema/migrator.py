"""Schema migrations by Alembic, run from code without a configuration file."""

import re
from pathlib import Path
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from holdfast.adapters.sql.database import Database
from holdfast.adapters.sql.errors import from_sqlalchemy
from holdfast.ports.errors import SchemaError

MIGRATIONS: Final = Path(__file__).with_name("migrations")
VERSION_TABLE: Final = "holdfast_version"
_PRE_RELEASE: Final = re.compile(r"00\d\d")


def migrate(database: Database, extra: str, seconds: float) -> None:
    """Run the missing migrations. Concurrent calls wait for each other, and find nothing left to do.

    SchemaError if the tables are newer than this code; UnavailableError if the database can't be used;
    ModuleNotFoundError if Alembic is not installed.
    """
    try:
        import alembic  # noqa: F401 # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'setting up the tables needs Alembic: pip install "holdfast[{extra}]"', name=error.name
        ) from error
    try:
        with database.migration(seconds) as connection:
            _upgrade(connection)
    except DBAPIError as error:
        raise from_sqlalchemy(error) from error


def newest_version() -> str:
    """Return the version of the tables that this code needs, which is that of the last migration.

    It is read from file names, because importing Alembic takes longer than a short process without a migration runs.
    """
    return max(path.name[: len("2026_11_26")] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    head = scripts.get_current_head()
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    current = context.get_current_revision()
    if current is not None and _PRE_RELEASE.fullmatch(current):
        raise SchemaError(
            f"the database's tables have version {current}, of a pre-release of Holdfast, which no release can read: "
            "export the histories that you need with that pre-release (`holdfast history export`), drop the tables "
            "holdfast_*, or use another database, and start over"
        )
    if current is not None and current not in known:
        raise SchemaError(
            f"the database's tables have version {current}, which this version of Holdfast does not know (its newest "
            f"is {head}): install the version of Holdfast that set them up, or a newer one"
        )
    if current != head:
        command.upgrade(config, "head")
