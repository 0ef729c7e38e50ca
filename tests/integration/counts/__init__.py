"""What things cost, counted in statements and commits: never timed."""
