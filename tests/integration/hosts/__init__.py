"""Engines, workers and serverless hosts on every store."""
