"""The adapter that the documentation shows keeps the promises of its port."""

from test_sqlite_blobs import TestSqliteBlobStore, test_runs_keep_large_values_in_it

__all__ = ["TestSqliteBlobStore", "test_runs_keep_large_values_in_it"]
