"""Chaos tests: processes are killed and stopped, servers crash, connections are cut."""
