"""SQL for the queries of a store, one module per subject."""
