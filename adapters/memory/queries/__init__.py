"""Queries of the memory store, one module a subject."""
