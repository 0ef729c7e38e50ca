"""SQLite: connections, and hints by watching the file."""
