"""Faults that a test can inject in less than three seconds. The longer ones are in tests/chaos."""
