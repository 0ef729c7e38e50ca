"""The faults that a test can have in less than three seconds. The longer ones are in tests/chaos."""
