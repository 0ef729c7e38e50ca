"""Pipelines as data: the plan, and the progress of a run through it. `kernel/runs/plan_interpreter.py` advances it."""
