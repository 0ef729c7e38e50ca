"""SQLite: connections, and hints by the version of the file."""
