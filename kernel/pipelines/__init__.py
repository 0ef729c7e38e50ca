"""Pipelines as data: the plan, the progress of a run through it, and the interpreter of both."""
