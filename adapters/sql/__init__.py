"""The store in a SQL database, with SQLAlchemy. Each database is a folder (`databases`)."""
