"""The simulator, and what it says of the engine."""
