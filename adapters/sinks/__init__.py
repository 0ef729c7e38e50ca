"""Sinks of events that need nothing but the standard library."""
