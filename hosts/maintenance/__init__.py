"""Periodic maintenance: the tick, retention, delivery of child results, blocked runs, the doctor."""
