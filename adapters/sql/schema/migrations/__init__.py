"""The migrations of the tables. Alembic finds them by their location."""
