"""A supervisor of worker processes: starts them, watches them, restarts them, drains them."""
