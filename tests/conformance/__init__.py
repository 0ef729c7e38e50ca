"""The conformance suites of `holdfast.testing`, run on every adapter and every fake."""
