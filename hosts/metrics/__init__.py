"""Metrics for Prometheus, of the store and of this process."""
