"""Tests for the faults that other engines had: see docs/explanation/faults.md."""
