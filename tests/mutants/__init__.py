"""Bugs that are planted on purpose, one at a time, in a copy of the code, and hunted with the simulator.

What is not found shows what the simulator lacks: a workload, a fault, or a check. `make mutants` hunts them all.
"""
