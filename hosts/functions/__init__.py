"""Durable functions in a host: their machines, the steps that they ask for, and what is recorded of both."""
