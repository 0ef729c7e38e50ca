"""Queries that a store answers outside of transactions, one module per subject."""
