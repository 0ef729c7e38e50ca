"""Queries of the in-memory store, one module per subject."""
