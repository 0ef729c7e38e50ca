"""A sink that stores its events in memory."""

from holdfast.adapters.memory.sink import MemorySink

__all__ = ["MemorySink"]
