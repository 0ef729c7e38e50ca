"""Concurrency limits and rate limits."""
