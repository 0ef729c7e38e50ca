"""What PostgreSQL's tables have of their own: the collation of text that is compared, and storage parameters."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.compiler import compiles

from holdfast.adapters.sql.schema.ddl import BytewiseText

STORAGE: Final[Mapping[str, Mapping[str, str]]] = {
    "holdfast_runs": {"fillfactor": "60"},
    "holdfast_jobs": {"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_analyze_scale_factor": "0.1"},
    "holdfast_sessions": {"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.02"},
    "holdfast_leaders": {"fillfactor": "50"},
    "holdfast_sinks": {"fillfactor": "50"},
    "holdfast_outbox": {"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_analyze_scale_factor": "0.1"},
}
"""Free space in pages for updates that touch no index, and frequent vacuums."""


def set_storage_parameters(connection: Connection) -> None:
    """Set them, whether they are set already or not."""
    for table, parameters in STORAGE.items():
        listed = ", ".join(f"{name} = {value}" for name, value in parameters.items())
        connection.execute(text(f"ALTER TABLE {table} SET ({listed})"))


@compiles(BytewiseText, "postgresql")
def _compiled(*_: object, **__: object) -> str:
    return 'TEXT COLLATE "C"'
