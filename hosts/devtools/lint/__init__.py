"""Static analysis for `holdfast lint`: finds code in workflows that a replay cannot repeat. It imports nothing."""
