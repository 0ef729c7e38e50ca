"""Tools for developers. Nothing in here runs a kernel."""
