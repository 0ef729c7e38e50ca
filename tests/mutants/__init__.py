"""Planted bugs, one at a time in a copy of the code, hunted with the simulator.

A survivor shows what the simulator lacks: a workload, a fault, or a check. `make mutants` hunts them all.
"""
