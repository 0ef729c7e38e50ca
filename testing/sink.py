"""A sink that remembers what it was given."""

from holdfast.adapters.memory.sink import MemorySink

__all__ = ["MemorySink"]
