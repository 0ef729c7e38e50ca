"""The store in a database: PostgreSQL or SQLite, by SQLAlchemy; and its hints, by LISTEN/NOTIFY or a file's version."""
