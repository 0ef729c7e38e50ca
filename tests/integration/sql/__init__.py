"""The SQL store against real databases, with faults of the connection."""
