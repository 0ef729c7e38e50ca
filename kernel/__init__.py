"""The pure engine: commands, decisions, plans, and the way to write workflows. No I/O, no clock, no randomness."""
