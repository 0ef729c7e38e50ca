"""The store in PostgreSQL or SQLite, with SQLAlchemy, and its hints, by LISTEN/NOTIFY or by watching the file."""
