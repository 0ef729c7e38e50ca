"""What PostgreSQL's tables have of their own: the collation of text that is compared, storage and compression."""

from collections.abc import Mapping, Sequence
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


COMPRESSED: Final[Mapping[str, Sequence[str]]] = {
    "holdfast_history": ("data", "payload"),
    "holdfast_map_items": ("items",),
    "holdfast_topic_messages": ("payload",),
    "holdfast_attempt_output": ("data",),
    "holdfast_ai_calls": ("prompt", "response"),
    "holdfast_idempotency_replies": ("body",),
}
"""Columns with values of users. New ones are compressed by LZ4 where the server has it, which takes a third of the
time of the default."""
_HAS_LZ4: Final = text(
    "SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)"
)


def set_storage(connection: Connection) -> None:
    """Set storage parameters and compression, whether they are set already or not. Existing rows stay as they are."""
    for table, parameters in STORAGE.items():
        listed = ", ".join(f"{name} = {value}" for name, value in parameters.items())
        connection.execute(text(f"ALTER TABLE {table} SET ({listed})"))
    if connection.execute(_HAS_LZ4).first() is not None:
        for table, columns in COMPRESSED.items():
            listed = ", ".join(f"ALTER COLUMN {name} SET COMPRESSION lz4" for name in columns)
            connection.execute(text(f"ALTER TABLE {table} {listed}"))


@compiles(BytewiseText, "postgresql")
def _compiled(*_: object, **__: object) -> str:
    return 'TEXT COLLATE "C"'
