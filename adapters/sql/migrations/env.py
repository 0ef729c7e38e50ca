"""How Alembic runs the migrations: on the connection, and in the transaction, of `holdfast.adapters.sql.schema`."""

from alembic import context
from sqlalchemy import Connection

connection = context.config.attributes["connection"]
assert isinstance(connection, Connection)
context.configure(connection=connection, version_table="holdfast_version")
context.run_migrations()
