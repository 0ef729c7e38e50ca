"""The rows of a store as immutable records, one module a subject."""
