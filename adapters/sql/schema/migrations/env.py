"""The environment of Alembic. Connection and configuration come from `holdfast.adapters.sql.schema.migrator`."""

from alembic import context
from sqlalchemy import Connection

connection = context.config.attributes["connection"]
assert isinstance(connection, Connection)
context.configure(connection=connection, version_table="holdfast_version")
context.run_migrations()
