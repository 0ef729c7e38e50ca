"""How fast it is: `python -m tests.benchmarks`.

Every figure stands beside what hand-written SQL does with the same work, on the same server, in the same run: machines
differ and drift, ratios in one run do not.

`workloads` is what is measured, `floors` is the hand-written SQL, `sites` are the databases and what can be counted
about them, `meter` takes one sample, `figures` makes figures of samples.
"""
