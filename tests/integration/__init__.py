"""Tests with real servers and processes."""
