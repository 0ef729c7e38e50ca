"""The migrations of the tables, in order. Alembic finds them by their place."""
