"""The costs of operations, counted in statements and commits, never timed."""
