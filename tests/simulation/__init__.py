"""Tests of the simulator, and of the engine with it."""
