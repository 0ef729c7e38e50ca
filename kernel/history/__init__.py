"""The history of a run: reading it, its maximum length, and the stored form of exceptions."""
