"""Conformance of the adapter that the documentation shows."""

from test_sqlite_blobs import TestSqliteBlobStore, test_runs_keep_large_values_in_it

__all__ = ["TestSqliteBlobStore", "test_runs_keep_large_values_in_it"]
