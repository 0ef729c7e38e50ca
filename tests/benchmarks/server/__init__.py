"""Benchmarks of the HTTP server, with a worker in its process, on PostgreSQL: `make bench-server`."""
