"""Durable functions: ordinary asyncio code on a loop of its own, whose only input is its run's history."""
