"""The dashboard: pages of the server, made from the same reads as its API, with forms that call its operations."""
