"""Hosts for functions that live for seconds."""
