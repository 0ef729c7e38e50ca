"""The demo: a durable pipeline that measures the source of Python's standard library."""
