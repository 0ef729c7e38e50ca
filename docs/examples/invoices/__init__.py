"""A workflow with a bug that ordinary tests do not find, and a simulation does."""
