"""Durable functions: asyncio code on an event loop of its own, driven by the rows of its run's history."""
