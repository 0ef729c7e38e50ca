"""Schema migrations by Alembic, run from code without a configuration file."""

import re
from pathlib import Path
from typing import Final

import attrs
from sqlalchemy import Connection

from holdfast.adapters.sql.database import Database
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
    with database.migration(seconds) as connection:
        _upgrade(connection)


@attrs.frozen
class Refusal:
    """Why tables of a version can't be migrated, and what to do instead: clauses of a sentence."""

    why: str
    remedy: str


def refusal_of(version: str) -> Refusal | None:
    """Return why `migrate` refuses tables of this version; None if it upgrades them."""
    if _PRE_RELEASE.fullmatch(version):
        return Refusal(
            "of a pre-release of Holdfast, which no release can read",
            "export the histories that you need with that pre-release (`holdfast history export`), drop the tables "
            "holdfast_*, or use another database, and start over",
        )
    if version not in _known_versions():
        return Refusal(
            f"which this version of Holdfast does not know (its newest is {newest_version()})",
            "install the version of Holdfast that set them up, or a newer one",
        )
    return None


def newest_version() -> str:
    """Return the version of the tables that this code needs, which is that of the last migration."""
    return max(_known_versions())


def _known_versions() -> frozenset[str]:
    """Return the versions that migrations lead to.

    They are read from file names, because importing Alembic takes longer than a short process without a migration runs.
    """
    names = (path.name for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))
    return frozenset(name[: len("2026_11_26")] for name in names)


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
    head = scripts.get_current_head()
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    current = context.get_current_revision()
    refusal = None if current is None else refusal_of(current)
    if refusal is not None:
        raise SchemaError(f"the database's tables have version {current}, {refusal.why}: {refusal.remedy}")
    if current != head:
        command.upgrade(config, "head")
