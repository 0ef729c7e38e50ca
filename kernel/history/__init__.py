"""The history of a run: its reader, its limits, and exceptions in stored form."""
