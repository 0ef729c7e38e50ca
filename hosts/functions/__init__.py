"""Durable functions in a host: replay, driving, their steps, and the rows that record them."""
