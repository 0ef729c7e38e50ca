"""Sinks of events that need only the standard library."""
