"""Faults from outside: processes that are killed and stopped, servers that crash, connections that are cut."""
